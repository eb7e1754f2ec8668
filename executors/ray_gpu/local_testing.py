"""An application in this process, without Ray: `run(..., _local_testing_mode=True)`, for tests and debuggers.

Each deployment is one replica, whose user code runs on threads as in a replica on Ray; arguments and results are copied as on
their way there. There are no ranks, no HTTP, no health checks and no `get_replica_context()`, as in Serve's mode of this name.

An application runs until there is another of its name, or it is ended: by `delete` or `shutdown`. What is called of it then
fails, and its threads end.
"""

import asyncio
import itertools
import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from executors.deployment_ids import deployment_id
from executors.ray_gpu.applications import in_order, with_handles
from executors.ray_gpu.declaration import Application, Deployment
from executors.ray_gpu.errors import CallCancelledError, DeadlineError, DeploymentFailedError, InvalidCallError, NotRunningError
from executors.ray_gpu.packing import routing_of
from executors.ray_gpu.requests.call import Answer, Call, Fetched
from executors.ray_gpu.requests.frames import ITEM, LARGE, PARTS
from executors.ray_gpu.requests.handle import DeploymentHandle
from executors.ray_gpu.requests.packing import dumps, pack_error, pack_item, unpack_call
from executors.ray_gpu.requests.pieces import Body, loaded
from executors.ray_gpu.requests.routes import leave, serve_here
from executors.ray_gpu.requests.server import CallServer, Running
from executors.ray_gpu.user_code import Code, UserCode, traceback_of

LOG = logging.getLogger(__name__)

RANKS = (0, 0, 0)
END_S = 2.0
"""How long calls under way, and then the user's `__del__`, may take to end."""
_numbers = itertools.count(1)
_lock = threading.Lock()
_running: dict[str, dict[tuple[str, str], "LocalRouter"]] = {}
"""By application: its routers, by namespace and deployment."""


def run_here(target: Application, app_name: str) -> DeploymentHandle:
    """Build an application in this process; those deployments first that others are given handles of.

    Returns:
        The handle of the one that `target` names.

    Raises:
        DeploymentFailedError: An `__init__` or `reconfigure` raised; the text has the traceback.
    """
    end_here(app_name)
    namespace = f"local testing {next(_numbers)}"
    handles: dict[int, DeploymentHandle] = {}
    routers: dict[tuple[str, str], LocalRouter] = {}
    with _lock:
        _running[app_name] = routers
    try:
        for name, each in in_order(target).items():
            known = deployment_id(app_name, name)
            routers[namespace, known] = LocalRouter(each.deployment, known, app_name, handles)
            serve_here(namespace, known, routers[namespace, known])
            handles[id(each)] = DeploymentHandle(known, namespace=namespace)
    except BaseException:
        end_here(app_name)
        raise
    return handles[id(target)]


def end_here(app_name: str | None = None) -> bool:
    """End an application in this process; None: all of them. Returns whether there was one."""
    with _lock:
        ended = [_running.pop(each) for each in tuple(_running) if app_name in (None, each)]
    for routers in ended:
        for (namespace, deployment), router in routers.items():
            leave(namespace, deployment)
            router.end()
    return bool(ended)


class _UserCodeHere(UserCode):
    """User code that needs no unpacking."""

    def __init__(self, deployment: Deployment, code: Code, handles: Mapping[int, DeploymentHandle]) -> None:
        args = tuple(with_handles(each, dict(handles)) for each in deployment.init_args)
        kwargs = {key: with_handles(each, dict(handles)) for key, each in deployment.init_kwargs.items()}
        self._given = deployment.target, args, kwargs
        super().__init__(code)

    def unpack(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The class or function, and its arguments."""
        return self._given

    async def begin(self, user_config: Any) -> None:
        """Build the object, and configure it. Run it on the user's thread."""
        self._ranks, self.user_config = RANKS, user_config
        await self.build()
        await self._reconfigure()


class LocalRouter:
    """Takes the calls of one deployment, and has them run in this process."""

    def __init__(self, deployment: Deployment, known: str, app_name: str, handles: Mapping[int, DeploymentHandle]) -> None:
        limit = routing_of(deployment, known).max_ongoing_requests
        threads = deployment.settings.get("sync_threads") or 1
        code = Code(known, "", deployment.target.__qualname__, app_name, b"", (), {}, limit, threads)
        self._user = _UserCodeHere(deployment, code, handles)
        self._server = CallServer(self._user, "", limit)
        self._places = asyncio.Semaphore(limit)
        self._ended = False
        try:
            self._user.submit(self._user.begin(deployment.user_config)).result()
        except Exception as error:
            self.end()
            raise DeploymentFailedError(f"{known} is DEPLOY_FAILED: {traceback_of(error)}") from error

    @property
    def has_replicas(self) -> bool:
        """There is one."""
        return True

    def submit(self, call: Call) -> None:
        """Begin a call."""
        if call.wishes.rank:
            call.fail(InvalidCallError(f"there is rank 0 alone in this process, and none {call.wishes.rank}"))
            return
        if self._ended:
            call.fail(NotRunningError(f"{self._user.code.deployment} has been ended in this process: run it again"))
            return
        arguments = call.arguments
        taken = self._user.submit(self._take(call, call.packed, arguments))
        call.when_given_up(lambda _: taken.cancel())

    def end(self) -> None:
        """Let the user's code clean up, and end its threads: on them, so that nothing waits here for code that hangs."""
        self._ended = True
        asyncio.run_coroutine_threadsafe(self._end(), self._user.loop)

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        calls = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for each in calls:
            each.cancel()
        try:
            if calls:
                await asyncio.wait(calls, timeout=END_S)
            await asyncio.wait_for(self._user.end(), END_S)
        except Exception as error:
            LOG.warning("the end of %s has failed: %r", self._user.code.deployment, error)
        finally:
            self._user.threads.end()
            loop.stop()

    async def _take(self, call: Call, packed: Body | None, arguments: Any) -> None:
        try:
            async with asyncio.timeout(call.wishes.timeout_s), self._places:
                await self._run(call, packed, arguments)
        except TimeoutError:
            call.fail(DeadlineError(f"no answer to {call.method!r} within {call.wishes.timeout_s:g} s"))
        except asyncio.CancelledError:
            call.fail(CallCancelledError("the call was cancelled"))

    async def _run(self, call: Call, packed: Body | None, arguments: Any) -> None:
        try:
            method, given, about = unpack_call(packed) if packed is not None else (call.method, _copied(arguments), call.about)
        except Exception as error:
            call.finish(Answer(*pack_error(error, traceback_of(error))))
            return
        about = about._replace(request_id=call.name)
        answers = _AnswersHere(call)
        running = Running(lambda: None)
        running.task = asyncio.get_running_loop().create_task(self._server.run(answers, 0, running, method, given, about))
        if call.stream is not None:
            call.stream.begin(partial(_consumed, self._user.loop, running))
        try:
            await asyncio.shield(running.task)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running.task])
            raise


def _consumed(loop: asyncio.AbstractEventLoop, running: Running, size_bytes: int) -> None:
    if running.window is not None:
        loop.call_soon_threadsafe(running.window.give, size_bytes)


def _copied(arguments: Any) -> Any:
    if isinstance(arguments, Fetched):
        return loaded(dumps(arguments.value))
    import ray

    return ray.get(arguments)


class _AnswersHere:
    """Takes what one call comes to."""

    names_begin_with = ""

    def __init__(self, call: Call) -> None:
        self._call = call

    def name_of(self, call_id: int) -> str:
        """What was said of the call has its name."""
        return ""

    def answer(self, call_id: int, kind: int, body: Body = b"", large: Any = None) -> None:
        """It has ended so."""
        answer = Answer(*pack_item(large)) if kind == LARGE else Answer(kind, body)
        self._call.finish(Answer(PARTS, [answer]) if self._call.wishes.broadcast else answer)

    def say(self, call_id: int, kind: int, body: Body = b"") -> None:
        """The next item of its stream."""
        assert kind == ITEM, "handles ask for no HTTP"
        assert self._call.stream is not None, "it was called with stream=True"
        self._call.stream.put(body)
