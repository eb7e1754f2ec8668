"""What proxies are to serve."""

from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.messages import across_releases
from executors.ray_gpu.worker.options import MemoryOptions

T = TypeVar("T", HttpOptions, GrpcOptions, MemoryOptions)


def chosen(kind: type[T], given: object) -> T | None:
    """Options as a user gives them: themselves, or a mapping of their fields; None stays None.

    Raises:
        InvalidDeploymentError: They are neither, or have a field that there is not; says which there are.
    """
    if given is None or isinstance(given, kind):
        return given
    fields = {field.name: field for field in attrs.fields(kind)}
    if not isinstance(given, Mapping):
        raise InvalidDeploymentError(f"options must be a {kind.__name__} or a dict of its fields, got {given!r:.80}")
    unknown = [name for name in given if name not in fields]
    missing = [name for name, field in fields.items() if field.default is attrs.NOTHING and name not in given]
    if unknown or missing:
        wrong = f"no option {unknown[0]!r}" if unknown else f"no {missing[0]!r} given"
        raise InvalidDeploymentError(f"{kind.__name__}: {wrong}; the options are: {', '.join(fields)}")
    return kind(**given)


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
