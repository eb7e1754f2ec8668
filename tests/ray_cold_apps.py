"""What tests deploy with weights that may be COLD, beside `tests.tenures`. Replicas import this file."""

from pathlib import Path

from fastapi import FastAPI, WebSocket
from ray.serve.generated import serve_pb2  # a service that is there anyway

from executors import ray_gpu as serve
from tests.tenures import Tenured

app = FastAPI()
FREE = {"num_cpus": 0}


@serve.deployment(ray_actor_options=FREE)
class Service(Tenured.target):  # type: ignore[misc,name-defined]
    """Answers over gRPC."""

    def __call__(self, request):  # type: ignore[no-untyped-def]
        return serve_pb2.UserDefinedResponse(greeting=f"{self.total():.3f}", num_x2=2 * request.num)

    def Streaming(self, request):  # type: ignore[no-untyped-def]
        for number in range(request.num):
            yield serve_pb2.UserDefinedResponse(greeting=f"{self.total():.3f}", num_x2=number)


@serve.deployment(ray_actor_options=FREE)
@serve.ingress(app)
class Chat(Tenured.target):  # type: ignore[misc,name-defined]
    """Answers over websockets."""

    @app.websocket("/sum")
    async def sum(self, socket: WebSocket):  # type: ignore[no-untyped-def]
        await socket.accept()
        while True:
            await socket.send_text(f"{await socket.receive_text()}: {self.total():.3f}")


@serve.deployment(ray_actor_options=FREE)
class Front:
    """Asks another one, and has no weights of its own."""

    def __init__(self, model) -> None:  # type: ignore[no-untyped-def]
        self.model = model

    async def __call__(self, request):  # type: ignore[no-untyped-def]
        items = self.model.options(method_name="count", stream=True).remote(2)
        return {"total": await self.model.total.remote(), "items": [each async for each in items]}


@serve.deployment(ray_actor_options=FREE)
class Moody(Tenured.target):  # type: ignore[misc,name-defined]
    """Takes no calls while the file "closed" is in its folder."""

    def check_ready(self) -> bool:
        return not (Path(self.folder) / "closed").exists()
