"""What a generated `add_...Servicer_to_server` would register, had it a servicer: methods and their types."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions, servicer_function


@attrs.frozen
class Method:
    """One method of a service.

    Attributes:
        service: Its full name.
        name: Of the method; the deployment's method has it too.
        is_streaming: Whether the answer comes message by message.
        takes_stream: Whether the request does.
        read: From bytes to a request.
        write: From an answer to bytes.
    """

    service: str
    name: str
    is_streaming: bool
    takes_stream: bool
    read: Any
    write: Any


def methods_of(options: GrpcOptions) -> tuple[Method, ...]:
    """The methods of all services.

    Raises:
        InvalidDeploymentError: A function cannot be imported, or registers nothing.
    """
    found: list[Method] = []
    sys.path.extend(path for path in options.sys_path if path not in sys.path)
    for path in options.servicer_functions:
        catcher = _Catcher()
        servicer_function(path)(_AnyServicer(), catcher)
        if not catcher.methods:
            raise InvalidDeploymentError(f"gRPC servicer function {path!r} registers no method")
        for (service, name), handler in catcher.methods.items():
            streams = handler.response_streaming, handler.request_streaming
            found.append(Method(service, name, *streams, handler.request_deserializer, handler.response_serializer))
    return tuple(found)


class _AnyServicer:
    """Has every method."""

    def __getattr__(self, name: str) -> Any:
        return None


class _Catcher:
    """Stands in place of a server."""

    def __init__(self) -> None:
        self.methods: dict[tuple[str, str], Any] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """As older generated code does; newer does both."""
        for handler in handlers:
            for full_name, method in handler._method_handlers.items():
                _, service, name = full_name.split("/")
                self.methods[service, name] = method

    def add_registered_method_handlers(self, service: str, methods: Mapping[str, Any]) -> None:
        """As newer generated code does."""
        for name, method in methods.items():
            self.methods[service, name] = method
