"""The replica's end of HTTP, without a proxy: what applications may do, and how much they may do ahead of their client."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from anyio import to_thread
from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, Depends, FastAPI
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, StreamingResponse

from executors.ray_gpu.errors import InvalidDeploymentError, OverloadedError, RemoteError
from executors.ray_gpu.http.held_threads import hold_threads
from executors.ray_gpu.http.ingress import app_of, ingress
from executors.ray_gpu.http.replica_side import answer_http
from executors.ray_gpu.requests.frames import ITEM
from executors.ray_gpu.requests.packing import pack_error, unpack
from executors.ray_gpu.requests.pieces import loaded
from executors.ray_gpu.requests.server import for_a_proxy
from executors.ray_gpu.requests.streams import WINDOW_BYTES, Window

TIMEOUT_S = 120


class User:
    """A replica's user code, with this instance."""

    def __init__(self, instance):
        self.instance = instance


def served(app):
    """An instance of a class with this application in front of it."""
    return User(ingress(app)(type("Api", (), {}))())


def scope(path="/", method="GET", kind="http", **more):
    return {
        "type": kind, "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(b"host", b"here")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), **more,
    }  # fmt: skip


async def for_ever():
    await asyncio.Event().wait()


async def said_by(user, **asked):
    """All messages of a response, those that came piece by piece too."""
    said = []

    def say(kind, item):
        said.extend(loaded(item) if kind == ITEM else [{"type": "http.response.body", "body": item, "more_body": True}])

    whole = await answer_http(user, scope(**asked), b"", False, for_ever, Window(say))
    assert whole is None or not said, "it is answered at once, or piece by piece"
    return said if whole is None else whole


async def answered(user, **asked):
    messages = await said_by(user, **asked)
    return messages[0]["status"], b"".join(each.get("body", b"") for each in messages)


def ask(user, **asked):
    async def play():
        async with asyncio.timeout(TIMEOUT_S):
            return await answered(user, **asked)

    return asyncio.run(play())


def test_an_application_waits_for_its_client():
    said = 0

    async def app(scope, receive, send):
        nonlocal said
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            said += 10_000

    async def play():
        sent = []
        window = Window(lambda kind, item: sent.append(item))
        streaming = asyncio.create_task(answer_http(served(app), scope(), b"", False, for_ever, window))
        for _ in range(1000):
            await asyncio.sleep(0)
        ahead = said
        window.give(WINDOW_BYTES // 2)
        for _ in range(1000):
            await asyncio.sleep(0)
        streaming.cancel()
        await asyncio.wait([streaming])
        return ahead, said - ahead

    first, second = asyncio.run(play())
    assert WINDOW_BYTES - 20_000 <= first <= WINDOW_BYTES + 20_000
    assert WINDOW_BYTES // 2 - 20_000 <= second <= WINDOW_BYTES // 2 + 20_000


def test_what_fails_after_a_complete_response_does_not_take_it_back(caplog):
    def fail():
        raise KeyError("too late")

    async def app(scope, receive, send):
        await PlainTextResponse("done")(scope, receive, send)
        fail()

    assert ask(served(app)) == (200, b"done")
    assert "too late" in caplog.text


def test_background_tasks_run_after_the_response():
    ran = []
    app = FastAPI()

    @app.get("/")
    def root():
        return PlainTextResponse("done", background=BackgroundTask(ran.append, 1))

    async def play():
        answer = await answered(served(app))
        async with asyncio.timeout(TIMEOUT_S):
            while not ran:
                await asyncio.sleep(0.01)
        return answer

    assert asyncio.run(play()) == (200, b"done")


@contextmanager
def at_work(app):
    """Asks a route that blocks its thread, and is left by its client while it does."""
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        begun.set()
        release.wait(TIMEOUT_S)
        ended.set()
        return "done"

    def items():
        yield work()

    app.add_api_route("/value", work)
    app.add_api_route("/items", lambda: StreamingResponse(items()))
    app.add_api_route("/needs", lambda: None, dependencies=[Depends(work)])
    try:
        yield begun, release, ended
    finally:
        release.set()


@pytest.mark.parametrize("path", ["/value", "/items", "/needs"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_synchronous_route_whose_client_has_left_counts_until_its_thread_has_ended(path, times):
    app = FastAPI()

    async def play(begun, release, ended):
        asked = asyncio.create_task(answered(user, path=path))
        await asyncio.to_thread(begun.wait, TIMEOUT_S)
        for _ in range(times):
            asked.cancel()
            for _ in range(100):
                await asyncio.sleep(0)
            assert not asked.done(), "its place is given away while its thread works"
        release.set()
        await asyncio.wait([asked], timeout=TIMEOUT_S)
        return asked.cancelled(), ended.is_set()

    with at_work(app) as events:
        user = served(app)
        assert asyncio.run(play(*events)) == (True, True)


def test_a_synchronous_route_that_has_not_begun_when_its_client_leaves_never_does():
    app, begun_later = FastAPI(), []
    app.add_api_route("/later", lambda: begun_later.append(1))

    async def play(begun, release, ended):
        current_default_thread_limiter().total_tokens = 1
        first = asyncio.create_task(answered(user, path="/value"))
        await asyncio.to_thread(begun.wait, TIMEOUT_S)
        second = asyncio.create_task(answered(user, path="/later"))
        while not current_default_thread_limiter().statistics().tasks_waiting:
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second], timeout=TIMEOUT_S)
        release.set()
        return await first, second.cancelled()

    with at_work(app) as events:
        user = served(app)
        assert asyncio.run(play(*events)) == ((200, b'"done"'), True)
    assert begun_later == []


def test_asynchronous_routes_are_cancelled_once_and_may_clean_up():
    app, begun, cleaned_up = FastAPI(), asyncio.Event(), []

    @app.get("/")
    async def root():
        begun.set()
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0.001)
            cleaned_up.append(True)

    async def play():
        asked = asyncio.create_task(answered(served(app)))
        await begun.wait()
        asked.cancel()
        await asyncio.wait([asked], timeout=TIMEOUT_S)
        return asked.cancelled()

    assert asyncio.run(play())
    assert cleaned_up == [True]


@pytest.mark.parametrize("ask_for", ["abandon_on_cancel", "cancellable"])
@pytest.mark.filterwarnings("ignore:The `cancellable=`:DeprecationWarning")
def test_a_thread_that_may_be_abandoned_is(ask_for):
    hold_threads()
    begun, release = threading.Event(), threading.Event()

    def work():
        begun.set()
        release.wait(TIMEOUT_S)

    async def play():
        task = asyncio.create_task(to_thread.run_sync(work, **{ask_for: True}))
        await asyncio.to_thread(begun.wait, TIMEOUT_S)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=TIMEOUT_S)
        release.set()
        return len(done)

    assert asyncio.run(play()) == 1


def test_a_websocket_that_is_left_before_it_is_accepted_is_no_error():
    from starlette.websockets import WebSocketDisconnect

    async def app(scope, receive, send):
        await receive()
        raise WebSocketDisconnect

    async def play():
        return await said_by(served(app), kind="websocket", subprotocols=[])

    assert asyncio.run(play()) == []


def test_what_raises_before_the_response_is_the_calls_error():
    class OddError(Exception):
        pass

    async def app(scope, receive, send):
        raise OddError("secret")

    with pytest.raises(OddError) as raised:
        ask(served(app))
    told = for_a_proxy(raised.value)
    assert isinstance(told, RemoteError), "a proxy has none of the user's modules"
    with pytest.raises(RemoteError) as read:
        unpack(*pack_error(told, "Traceback: here"))
    assert "Traceback: here" in str(read.value.__cause__)
    assert isinstance(for_a_proxy(OverloadedError("full", 7)), OverloadedError), "what it called is full, and so is it"


def test_methods_of_base_classes_and_of_included_routers_have_their_instance():
    app, router = FastAPI(), APIRouter(prefix="/more")

    def name(suffix: str = "!"):
        return suffix

    class Base:
        who = "base"

        @app.get("/inherited")
        async def inherited(self):
            return self.who

        @app.get("/overridden")
        async def overridden(self):
            return self.who

        @router.get("/included/{number}")
        async def included(self, number: int, suffix: str = Depends(name)) -> str:
            return f"{self.who} {number}{suffix}"

    app.include_router(router)

    @ingress(app)
    class Api(Base):
        who = "me"

        async def overridden(self):
            return f"{self.who} again"

    user = User(Api())
    assert ask(user, path="/inherited") == (200, b'"me"')
    assert ask(user, path="/overridden")[0] == 200
    assert ask(user, path="/more/included/3") == (200, b'"me 3!"')
    assert b'"self"' not in ask(user, path="/openapi.json")[1]


def test_an_application_of_the_main_module_is_pickled_with_its_routers():
    from ray import cloudpickle

    from executors.ray_gpu.packing import let_applications_be_pickled

    let_applications_be_pickled()
    app, router = FastAPI(), APIRouter(prefix="/more")

    @router.get("/a")
    async def included():
        return "here"

    app.include_router(router)
    assert ask(served(cloudpickle.loads(cloudpickle.dumps(app))), path="/more/a") == (200, b'"here"')


def test_the_application_of_an_instance_is_its_own():
    app = FastAPI()

    @ingress(app)
    class Api:
        def __init__(self, name):
            self.name = name

        @app.get("/")
        async def root(self):
            return self.name

    assert ask(User(Api("one"))) == (200, b'"one"')
    assert ask(User(Api("two"))) == (200, b'"two"')


def test_addresses_and_redirects_have_the_route_prefix():
    from starlette.requests import Request

    app = FastAPI()

    @app.get("/items/")
    async def items(request: Request):
        return str(request.url_for("items"))

    user = User(ingress(app)(type("Api", (), {}))())
    assert ask(user, path="/api/items/", root_path="/api") == (200, b'"http://here/api/items/"')
    found = asyncio.run(said_by(user, path="/api/items", root_path="/api"))[0]
    assert (found["status"], dict(found["headers"])[b"location"]) == (307, b"http://here/api/items/")


def test_middleware_and_exception_handlers_of_the_application_are_asked():
    app = FastAPI()

    @app.middleware("http")
    async def mark(request, call_next):
        response = await call_next(request)
        body = b"".join([part async for part in response.body_iterator])
        return PlainTextResponse(body + b" marked", status_code=response.status_code)

    @app.exception_handler(KeyError)
    async def missing(request, error):
        return PlainTextResponse("missing", status_code=404)

    @app.get("/")
    async def root():
        raise KeyError

    user = served(app)
    assert ask(user) == (404, b"missing marked")


class Plain:
    """A deployment without an ingress."""

    def __init__(self, target, threads=None):
        self.target, self.threads, self.instance = target, threads, target

    def method(self, name):
        return self.target, True


class TakesNothing:
    async def __call__(self):
        return "nothing"


class TakesARequest:
    async def __call__(self, request):
        return request.url.path


async def takes_nothing():
    return "nothing"


async def takes_anything(*args):
    return len(args)


@pytest.mark.parametrize(
    ("target", "body"),
    [(TakesNothing(), b"nothing"), (TakesARequest(), b"/a"), (takes_nothing, b"nothing"), (takes_anything, b"1")],
)
def test_what_takes_no_request_is_called_without_it(target, body):
    assert ask(Plain(target), path="/a") == (200, body)


def test_a_function_may_make_the_application_of_each_replica():
    made = []

    def build():
        app = FastAPI()
        made.append(app)

        @app.get("/hi")
        def hi():
            return "hi"

        return app

    user = served(build)
    assert not made, "not before there is a replica"
    assert ask(user, path="/hi") == (200, b'"hi"')
    assert ask(user, path="/other")[0] == 404
    assert len(made) == 1


def test_a_function_that_makes_no_application_says_so_at_the_replicas_start():
    def build():
        return {"no": "application"}

    with pytest.raises(InvalidDeploymentError, match=r"build, given to @ingress, has to return an ASGI application"):
        app_of(served(build).instance)
