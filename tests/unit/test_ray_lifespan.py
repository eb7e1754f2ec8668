"""The lifespan of an application in front of a class: start-up before the replica is ready, shutdown when it stops."""

import asyncio
import pickle
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from fastapi import FastAPI, Request

from executors.ray_gpu import context
from executors.ray_gpu.http.ingress import ingress
from executors.ray_gpu.http.lifespan import LifespanError
from executors.ray_gpu.messages import Change
from executors.ray_gpu.user_code import Code, UserCode
from tests.unit.test_ray_http_replica import ask

TIMEOUT_S = 30
CHANGE = Change(1, 1, True, (0, 0, 0), 1, "none")


def user_of(app, **methods):
    """User code of a class with this application in front of it."""
    user = UserCode(Code("m", "1", "Api", "default", pickle.dumps((object, (), {})), (), {}))
    user._loaded.result(TIMEOUT_S)
    user._target = ingress(app)(type("Api", (), methods))  # itself, which the test can look into, and not a copy
    return user


def run(user, work):
    return user.submit(work).result(TIMEOUT_S)


@pytest.fixture(autouse=True)
def in_a_replica(monkeypatch):
    monkeypatch.setattr(context, "_current", None)
    context.set_context(context.ReplicaContext("default", "m", "m#1.0", (0, 0, 0), 1, "node", "rankcore", []))


def test_start_up_comes_after_init_and_before_ready_and_shutdown_before_the_object_cleans_up():
    seen = []

    @asynccontextmanager
    async def lifespan(app):
        seen.append("start-up")
        yield {"model": "loaded"}
        seen.append("shutdown")

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    def read(request: Request):
        return request.state.model

    user = user_of(app, __init__=lambda self: seen.append("init"), __del__=lambda self: seen.append("del"))
    run(user, user.start(CHANGE))
    assert seen == ["init", "start-up"]
    assert ask(user) == (200, b'"loaded"'), "what start-up has put into the state is there for requests"
    run(user, user.end())
    run(user, user.end())
    assert seen == ["init", "start-up", "shutdown", "del"]


def test_a_start_up_that_raises_is_a_failed_start_with_its_own_error():
    @asynccontextmanager
    async def lifespan(app):
        raise KeyError("no weights")
        yield

    user = user_of(FastAPI(lifespan=lifespan))
    with pytest.raises(KeyError, match="no weights"):
        run(user, user.start(CHANGE))


def test_a_start_up_that_would_end_the_process_ends_nothing():
    @asynccontextmanager
    async def lifespan(app):
        raise SystemExit("no more")
        yield

    user = user_of(FastAPI(lifespan=lifespan))
    with pytest.raises(Exception, match="no more"):
        run(user, user.start(CHANGE))
    assert run(user, asyncio.sleep(0, "alive")) == "alive"


def test_a_shutdown_that_raises_does_not_keep_the_object_from_cleaning_up():
    seen = []

    @asynccontextmanager
    async def lifespan(app):
        yield
        raise KeyError("gone already")

    user = user_of(FastAPI(lifespan=lifespan), __del__=lambda self: seen.append("del"))
    run(user, user.start(CHANGE))
    with pytest.raises(KeyError, match="gone already"):
        run(user, user.end())
    assert seen == ["del"]


def says(*kinds):
    """An application that answers so to start-up and shutdown."""

    async def app(scope, receive, send):
        for kind in kinds:
            await receive()
            await send({"type": f"lifespan.{kind}", "message": "why"})

    return app


def test_an_application_may_say_that_it_has_failed_without_raising():
    user = user_of(says("startup.failed"))
    with pytest.raises(LifespanError, match="start-up has failed: why"):
        run(user, user.start(CHANGE))
    user = user_of(says("startup.complete", "shutdown.failed"))
    run(user, user.start(CHANGE))
    with pytest.raises(LifespanError, match="shutdown has failed: why"):
        run(user, user.end())


async def refuses(scope, receive, send):
    assert scope["type"] == "http", "knows nothing else"


async def ignores(scope, receive, send):
    """Knows nothing of a lifespan and says nothing."""


@pytest.mark.parametrize("app", [refuses, ignores, says("startup.complete"), says("startup.complete", "shutdown.complete")])
def test_an_application_without_a_lifespan_starts_and_ends_all_the_same(app):
    user = user_of(app)
    run(user, user.start(CHANGE))
    run(user, user.end())
