"""What a user can choose about gRPC."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.http.access import AccessOptions

MESSAGE_MAX_BYTES = 2**31 - 1
"""gRPC keeps it in 32 bits."""


SECONDS = ("request_timeout_s", "drain_timeout_s", "handshake_timeout_s", "idle_timeout_s", "keepalive_time_s")


def _functions(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidDeploymentError(
            "gRPC option servicer_functions must be a list of import paths, such as "
            f"'my_package.my_pb2_grpc.add_MyServicer_to_server', got {value!r:.80}"
        )
    return tuple(each if isinstance(each, str) else path_of(each) for each in value)


def _paths(value: Sequence[str]) -> tuple[str, ...]:
    return tuple(value)


def path_of(function: Any) -> str:
    """The import path of a function that is given as itself."""
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


@attrs.frozen(kw_only=True)
class GrpcOptions(AccessOptions):
    """How proxies serve gRPC: on the nodes that have an HTTP proxy. `AccessOptions` has the options of TLS and of the token.

    Attributes:
        servicer_functions: The generated functions `add_...Servicer_to_server` of the services, or their import paths.
            They have to be importable on every node.
        host: Address to listen on.
        port: The same on every node.
        request_timeout_s: The deadline of calls that bring none; None: what the deployment says.
        max_message_bytes: A larger request is refused.
        sys_path: Where proxies find the functions' modules; `start` fills it in with its own process's.
        drain_timeout_s: So long calls under way may take when a proxy ends in order.
        handshake_timeout_s: A connection that has not begun to speak HTTP/2, with TLS or without, after so long is closed.
        idle_timeout_s: A connection without a call for so long is closed in order: the client connects again at its next call.
        keepalive_time_s: After so long in which nothing came the other end is asked whether it is there; after 20 s without
            an answer the connection is closed.
        max_connections: So many a proxy has open at once; more are closed at once.
        enable_reflection: Whether clients can ask which services and methods there are.
        runtime_env: That proxies run in; `start` fills in that of its own job.

    Raises:
        InvalidDeploymentError: Names the option, what was found and what is allowed.
    """

    servicer_functions: tuple[str, ...] = attrs.field(converter=_functions)
    host: str = "127.0.0.1"
    port: int = 9000
    request_timeout_s: float | None = None
    max_message_bytes: int = 100 * 1024 * 1024
    drain_timeout_s: float = 10.0
    handshake_timeout_s: float = 10.0
    idle_timeout_s: float = 300.0
    keepalive_time_s: float = 60.0
    max_connections: int = 10_000
    sys_path: tuple[str, ...] = attrs.field(default=(), converter=_paths)
    enable_reflection: bool = True
    runtime_env: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if type(self.host) is not str or not self.host:
            raise InvalidDeploymentError(f"gRPC option host must be an address, such as '127.0.0.1', got {self.host!r:.80}")
        if type(self.port) is not int or not 1 <= self.port <= 65535:
            raise InvalidDeploymentError(f"gRPC option port must be an integer from 1 to 65535, got {self.port!r:.80}")
        if type(self.max_message_bytes) is not int or not 1 <= self.max_message_bytes <= MESSAGE_MAX_BYTES:
            raise InvalidDeploymentError(
                f"gRPC option max_message_bytes must be an integer from 1 to {MESSAGE_MAX_BYTES}, "
                f"got {self.max_message_bytes!r:.80}"
            )
        if type(self.max_connections) is not int or not 1 <= self.max_connections <= MESSAGE_MAX_BYTES:
            found = f"{self.max_connections!r:.80}"
            raise InvalidDeploymentError(f"gRPC option max_connections must be an integer from 1 on, got {found}")
        for name in SECONDS:
            value = getattr(self, name)
            if not (value is None and name == "request_timeout_s") and (
                type(value) not in (int, float) or not 0 < value < float("inf")
            ):
                raise InvalidDeploymentError(f"gRPC option {name} must be a number of seconds above 0, got {value!r:.80}")
        if type(self.enable_reflection) is not bool:
            raise InvalidDeploymentError(
                f"gRPC option enable_reflection must be True or False, got {self.enable_reflection!r:.80}"
            )
        self.check_access("gRPC")
        if not self.servicer_functions:
            raise InvalidDeploymentError("gRPC option servicer_functions must name at least one function")


def servicer_function(path: str) -> Any:
    """Import one.

    Raises:
        InvalidDeploymentError: It cannot be imported; says why.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidDeploymentError(f"gRPC servicer function {path!r:.120} cannot be imported: {error}") from None
