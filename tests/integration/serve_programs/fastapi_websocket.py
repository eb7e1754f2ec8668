"""A websocket of a FastAPI ingress is accepted, and its messages are answered."""

import os

from fastapi import FastAPI, WebSocket
from ray import serve
from websockets.sync.client import connect

api = FastAPI()


@serve.deployment
@serve.ingress(api)
class Echo:
    @api.websocket("/echo")
    async def echo(self, websocket: WebSocket) -> None:
        await websocket.accept()
        for _ in range(2):
            await websocket.send_text((await websocket.receive_text()).upper())
        await websocket.close()


def main() -> object:
    serve.run(Echo.bind(), route_prefix="/ws")
    with connect(os.environ["SERVE_URL"].replace("http", "ws") + "/ws/echo") as websocket:
        websocket.send("one")
        websocket.send("two")
        return [websocket.recv(), websocket.recv()]


EXPECTED = ["ONE", "TWO"]
