"""What proxies are to serve."""

from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.messages import across_releases
from executors.ray_gpu.serve_options import fields_of
from executors.ray_gpu.worker.options import MemoryOptions

T = TypeVar("T", HttpOptions, GrpcOptions, MemoryOptions)

SERVES_NAMES: Mapping[type, Mapping[str, str]] = {GrpcOptions: {"grpc_servicer_functions": "servicer_functions"}}
"""Fields by Ray Serve's name: ours."""
SERVES_NOTHING: Mapping[type, Mapping[str, object]] = {
    HttpOptions: {"location": None, "middlewares": [], "num_cpus": 0, "root_url": ""}
}
"""What Ray Serve's fields have where nothing was said: as if they were left out."""


def chosen(kind: type[T], given: object) -> T | None:
    """Options as a user gives them: themselves, Ray Serve's of the same name, or a mapping of their fields; None stays None.

    Raises:
        InvalidDeploymentError: They are neither, or have a field that there is not; says which there are.
    """
    if given is None or isinstance(given, kind):
        return given
    fields = {field.name: field for field in attrs.fields(kind)}
    if hasattr(given, "model_dump"):
        given = fields_of(given)
    if not isinstance(given, Mapping):
        raise InvalidDeploymentError(f"options must be a {kind.__name__} or a dict of its fields, got {given!r:.80}")
    given = _in_our_words(kind, given)
    unknown = [name for name in given if name not in fields]
    missing = [name for name, field in fields.items() if field.default is attrs.NOTHING and name not in given]
    if unknown or missing:
        wrong = f"no option {unknown[0]!r}" if unknown else f"no {missing[0]!r} given"
        raise InvalidDeploymentError(f"{kind.__name__}: {wrong}; the options are: {', '.join(fields)}")
    return kind(**given)


def _in_our_words(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    renamed, nothing = SERVES_NAMES.get(kind, {}), SERVES_NOTHING.get(kind, {})
    if both := [name for name, ours in renamed.items() if name in given and ours in given]:
        raise InvalidDeploymentError(f"{both[0]} cannot be had with {renamed[both[0]]}, which it is called here")
    left = {name: value for name, value in given.items() if name not in nothing or value != nothing[name]}
    return {renamed.get(name, name): value for name, value in left.items()}


@across_releases
@attrs.frozen(kw_only=True)
class ProxyOptions:
    """Both protocols: proxies are where `http.location` says.

    Attributes:
        http: Also says on which nodes proxies are.
        grpc: None: no gRPC.
        logging: How proxies log, as `logs.config.as_plain` has it; None: nobody has said.

    Raises:
        InvalidDeploymentError: Both have one port.
    """

    http: HttpOptions = attrs.field(factory=HttpOptions)
    grpc: GrpcOptions | None = None
    logging: dict[str, Any] | None = None

    def __attrs_post_init__(self) -> None:
        if self.grpc is not None and self.grpc.port == self.http.port:
            raise InvalidDeploymentError(f"HTTP and gRPC cannot share port {self.http.port}: give one of them another")

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "ProxyOptions":
        """What `attrs.asdict` made of them."""
        grpc = data["grpc"]
        http = HttpOptions(**data["http"])
        return cls(http=http, grpc=GrpcOptions(**grpc) if grpc is not None else None, logging=data.get("logging"))
