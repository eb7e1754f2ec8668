"""An ingress may be a function that makes the application in the replica, and have a lifespan."""

import os
from contextlib import asynccontextmanager
from urllib.request import urlopen

from fastapi import FastAPI
from ray import serve


def make():
    @asynccontextmanager
    async def lifespan(app):
        app.state.greeting = "up"
        yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/state")
    def state() -> str:
        return app.state.greeting

    return app


@serve.deployment
@serve.ingress(make)
class Made:
    pass


def main() -> object:
    serve.run(Made.bind(), route_prefix="/made")
    with urlopen(os.environ["SERVE_URL"] + "/made/state", timeout=30) as answer:
        return answer.read().decode()


EXPECTED = '"up"'
