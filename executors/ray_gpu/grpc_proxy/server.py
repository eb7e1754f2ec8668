"""grpc.aio on the routers' thread: the users' services, health and reflection."""

from collections import defaultdict
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from executors.ray_gpu.grpc_proxy.capture import methods_of
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.grpc_proxy.service import Service

SERVING = health_pb2.HealthCheckResponse.SERVING


class GrpcServer:
    """Serves until it is ended. To be used on the routers' thread."""

    def __init__(self, options: GrpcOptions, service: Service) -> None:
        self._options = options
        self._health = HealthServicer()
        self._server = aio.server(
            options=(
                ("grpc.max_receive_message_length", options.max_message_bytes),
                ("grpc.max_send_message_length", options.max_message_bytes),
                ("grpc.so_reuseport", 0),
            )
        )
        by_service: dict[str, dict[str, Any]] = defaultdict(dict)
        for method in methods_of(options):
            by_service[method.service][method.name] = service.handler(method)
        for name, handlers in by_service.items():
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._services = ("", *sorted(by_service))
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection((*self._services[1:], health_name, reflection.SERVICE_NAME), self._server)

    async def start(self) -> None:
        """Listen, and begin to serve.

        Raises:
            RuntimeError: The address cannot be had.
        """
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        self._server.add_insecure_port(f"{host}:{self._options.port}")
        await self._server.start()
        for name in self._services:
            await self._health.set(name, SERVING)

    async def end(self) -> None:
        """Say that it ends, take nothing new, and return when what is under way is answered, or its time is up."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(self._options.drain_timeout_s)
