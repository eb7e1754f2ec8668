"""grpc.aio on the routers' thread: the users' services, health and reflection."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from executors.ray_gpu.errors import RayExecutorError
from executors.ray_gpu.grpc_proxy.capture import methods_of
from executors.ray_gpu.grpc_proxy.options import MESSAGE_MAX_BYTES, GrpcOptions
from executors.ray_gpu.grpc_proxy.service import Service
from executors.ray_gpu.http.access import is_let_in

HEALTH_METHODS = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


KEEPALIVE_TIMEOUT_MS = 20_000


def channel_options(options: GrpcOptions) -> tuple[tuple[str, int], ...]:
    """What grpc's core calls them; seconds are milliseconds there."""
    return (
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_send_message_length", options.max_message_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.server_handshake_timeout_ms", milliseconds(options.handshake_timeout_s)),
        ("grpc.max_connection_idle_ms", milliseconds(options.idle_timeout_s)),
        ("grpc.keepalive_time_ms", milliseconds(options.keepalive_time_s)),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.max_allowed_incoming_connections", options.max_connections),
    )


def milliseconds(seconds: float) -> int:
    """As grpc keeps them, in 32 bits."""
    return max(1, min(round(seconds * 1000), MESSAGE_MAX_BYTES))


def credentials(options: GrpcOptions) -> Any:
    """TLS.

    Raises:
        RayExecutorError: A file cannot be read.
    """
    try:
        key, certificate = (Path(str(path)).read_bytes() for path in (options.ssl_keyfile, options.ssl_certfile))
        authorities = Path(options.ssl_ca_certs).read_bytes() if options.ssl_ca_certs is not None else None
    except OSError as error:
        raise RayExecutorError(f"no TLS for gRPC: {error}") from None
    return grpc.ssl_server_credentials(((key, certificate),), authorities, authorities is not None)


class TokenCheck(aio.ServerInterceptor):  # type: ignore[misc]
    """Lets in the calls that have the token, and all that ask for health."""

    def __init__(self, token: str) -> None:
        self._token = token

        async def refuse(_: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this needs a bearer token, in metadata 'authorization'")

        # Of streams, whatever the method is: the others read the request first, which may never come, or be large.
        self._refusing = grpc.stream_stream_rpc_method_handler(refuse)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Of each call, before its request is read."""
        if details.method.startswith(HEALTH_METHODS):
            return await continuation(details)
        said = [value for key, value in details.invocation_metadata or () if key == "authorization"]
        return await continuation(details) if len(said) == 1 and is_let_in(self._token, said[0]) else self._refusing


class GrpcServer:
    """Serves until it is ended. To be used on the routers' thread."""

    def __init__(self, options: GrpcOptions, service: Service) -> None:
        self._options = options
        self._health = HealthServicer()
        interceptors = (TokenCheck(options.bearer_token),) if options.bearer_token is not None else ()
        self._server = aio.server(options=channel_options(options), interceptors=interceptors)
        by_service: dict[str, dict[str, Any]] = defaultdict(dict)
        for method in methods_of(options):
            by_service[method.service][method.name] = service.handler(method)
        for name, handlers in by_service.items():
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._services = ("", *sorted(by_service))
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        if options.enable_reflection:
            reflection.enable_server_reflection((*self._services[1:], health_name, reflection.SERVICE_NAME), self._server)

    async def start(self) -> None:
        """Listen, and begin to serve.

        Raises:
            RuntimeError: The address cannot be had.
        """
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        address = f"{host}:{self._options.port}"
        if self._options.ssl_certfile is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, credentials(self._options))
        await self._server.start()
        await self.say_health(leaving=False)

    async def say_health(self, *, leaving: bool) -> None:
        """Whether new calls had better go elsewhere, since the node is drained; whoever comes all the same is served."""
        for name in self._services:
            await self._health.set(name, NOT_SERVING if leaving else SERVING)

    async def end(self) -> None:
        """Say that it ends, take nothing new, and return when what is under way is answered, or its time is up."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._options.drain_timeout_s)
