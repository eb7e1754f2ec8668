"""What proxies are to serve."""

from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.access import KEPT, SECRETS, AccessOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.messages import across_releases
from executors.ray_gpu.serve_options import fields_of
from executors.ray_gpu.worker.options import MemoryOptions

OF_KEYFILE = "ssl_keyfile_password"
"""The secret that goes with a file."""

T = TypeVar("T", HttpOptions, GrpcOptions, MemoryOptions)

SERVES_NAMES: Mapping[type, Mapping[str, str]] = {GrpcOptions: {"grpc_servicer_functions": "servicer_functions"}}
"""Fields by Ray Serve's name: ours."""
SERVES_NOTHING: Mapping[type, Mapping[str, object]] = {HttpOptions: {"location": None, "middlewares": [], "num_cpus": 0}}
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


def _with_what_stays(given: object, before: AccessOptions | None) -> object:
    """What a user says, and what holds on where a mapping leaves it out."""
    if not isinstance(given, Mapping):
        return given
    if set(given) == {"location"} and isinstance(before, HttpOptions):
        return attrs.evolve(before, location=given["location"])
    said = {key: value for key, value in given.items() if key != "location" or value is not None}
    if isinstance(before, HttpOptions):
        said.setdefault("location", before.location)
    for name in SECRETS:
        now = getattr(before, name, None)
        stays = now is not None and (name != OF_KEYFILE or said.get("ssl_keyfile") == getattr(before, "ssl_keyfile", None))
        if said.get(name, KEPT if stays else None) == KEPT:
            if now is None:
                raise InvalidDeploymentError(
                    f"option {name} must be the secret itself: none is in force that {KEPT} could name"
                )
            said[name] = now
    return said


def _located(http: HttpOptions) -> HttpOptions:
    return http if http.location is not None else attrs.evolve(http, location="HeadOnly")


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

    http: HttpOptions = attrs.field(factory=HttpOptions, converter=_located)
    grpc: GrpcOptions | None = None
    logging: dict[str, Any] | None = None

    def __attrs_post_init__(self) -> None:
        if self.grpc is not None and self.grpc.port == self.http.port:
            raise InvalidDeploymentError(f"HTTP and gRPC cannot share port {self.http.port}: give one of them another")

    def asked(self, http: object = None, grpc: object = None, logging: dict[str, Any] | None = None) -> "ProxyOptions":
        """What proxies are to serve once this is wanted of them too.

        None leaves a protocol as it is. A mapping says all of one but where proxies are and its secrets, and options as such
        all: whoever leaves a token out of a mapping, since it is nowhere printed, opens no door. None in the place of a
        secret takes it away.

        Raises:
            InvalidDeploymentError: As `chosen`; or both have one port; or there is no secret in the place of `KEPT`.
        """
        return ProxyOptions(
            http=chosen(HttpOptions, _with_what_stays(http, self.http)) or self.http,
            grpc=chosen(GrpcOptions, _with_what_stays(grpc, self.grpc)) or self.grpc,
            logging=logging if logging is not None else self.logging,
        )

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "ProxyOptions":
        """What `attrs.asdict` made of them."""
        grpc = data["grpc"]
        http = HttpOptions(**data["http"])
        return cls(http=http, grpc=GrpcOptions(**grpc) if grpc is not None else None, logging=data.get("logging"))
