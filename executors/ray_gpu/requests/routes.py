"""A process's routers: one for each deployment that it calls, all on one thread, each following its deployment's routes."""

import asyncio
import logging
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

import ray

from executors.ray_gpu import names
from executors.ray_gpu.errors import CallError, NoAnswerError, NotRunningError, UnknownNameError
from executors.ray_gpu.messages import Routes
from executors.ray_gpu.requests.actors import connection, find_actor
from executors.ray_gpu.requests.loops import new_loop
from executors.ray_gpu.requests.router import Router

LOG = logging.getLogger(__name__)

RETRY_S = 0.1
LOOK_S = 1.0
"""So often it is looked whether Ray was shut down meanwhile."""
REPORT_LOOK_S = 10.0
"""So often it is looked whether the controller wants to know the load by now."""
SILENT_S = 60.0
"""A controller that has not answered for so long, twice as long as it may think, is asked anew: it may be another by now."""
MISSING_MAX = 10
"""A controller that Ray has not known for so many tries was shut down."""


async def follow_routes(router: Router, namespace: str, deployment: str, cluster: Any) -> None:
    """Ask the controller for the routes, again and again; it answers when they have changed, or after a while.

    Args:
        cluster: The connection to Ray that the router belongs to: it ends with that.
    """
    seen, missing = (0, 0), 0
    while not router.gone:
        try:
            answer = await _ask(namespace, deployment, seen, cluster)
        except Exception as error:  # the controller is down, or Ray is
            if connection() is not cluster:
                return router.close(CallError("Ray was shut down"))
            # Ray knows the name of a controller as long as it restarts it.
            missing = missing + 1 if isinstance(error, ValueError) else 0
            if missing > MISSING_MAX:
                return router.close(NotRunningError(f"nothing runs in namespace {namespace!r} any more"))
            LOG.debug("%s: no routes: %s", deployment, error)
            await asyncio.sleep(RETRY_S)
            continue
        missing = 0
        if answer is None:
            return router.close(UnknownNameError(f"deployment {deployment} does not exist (any more)"))
        seen, routes = answer
        if routes is not None:
            try:
                router.follow(routes)
            except Exception:  # a mistake of ours: the next routes may be better
                LOG.exception("%s: routes cannot be followed", deployment)


async def report_load(router: Router, namespace: str, deployment: str, cluster: Any) -> None:
    """Tell the controller how many calls wait, as often as it wants to know; at once when nobody is there to take one.

    Args:
        cluster: As for `follow_routes`.
    """
    handle_id, hurry = uuid.uuid4().hex, asyncio.Event()
    router.when_one_waits = hurry.set
    while not router.gone:
        with suppress(TimeoutError):
            async with asyncio.timeout(router.report_every_s or REPORT_LOOK_S):
                await hurry.wait()
        hurry.clear()
        if router.report_every_s is None:
            continue
        try:
            controller = await find_actor(names.CONTROLLER, namespace, cluster)
            controller.hear_load.options(max_task_retries=0).remote(deployment, handle_id, router.waiting)
        except Exception as error:  # the controller is down, or Ray is: it hears the next one
            LOG.debug("%s: the load was not told: %s", deployment, error)
        await asyncio.sleep(RETRY_S)


async def _ask(
    namespace: str, deployment: str, seen: tuple[int, int], cluster: Any
) -> tuple[tuple[int, int], Routes | None] | None:
    controller = await find_actor(names.CONTROLLER, namespace, cluster)
    # Not repeated by Ray, which says so aloud: we ask again ourselves.
    future = controller.routes.options(max_task_retries=0).remote(deployment, seen).future()
    waiting, began = asyncio.wrap_future(future), time.monotonic()
    waiting.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())  # perhaps long after we gave up
    while not waiting.done():
        if time.monotonic() - began > SILENT_S:
            raise NoAnswerError(f"the controller of namespace {namespace!r} has not answered for {SILENT_S:g} s")
        if connection() is not cluster:
            raise NotRunningError("Ray was shut down")  # which tells nobody who waits for an answer
        await asyncio.wait([waiting], timeout=LOOK_S)
    answer: tuple[tuple[int, int], Routes | None] | None = waiting.result()
    return answer


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_routers: dict[tuple[str, str], Router] = {}
_cluster: Any = None  # which connection to Ray the routers belong to


def _running_loop() -> asyncio.AbstractEventLoop:
    """The routers' event loop. To be called with the lock held."""
    global _loop
    if _loop is None:
        _loop = new_loop()
        threading.Thread(target=_loop.run_forever, name="calls", daemon=True).start()
    return _loop


def routing_loop() -> asyncio.AbstractEventLoop:
    """The event loop that all routers of this process share, on a thread of its own."""
    with _lock:
        return _running_loop()


def router_of(namespace: str, deployment: str) -> Router:
    """The router of a deployment; the first one of a process starts the thread."""
    global _cluster
    router = _routers.get((namespace, deployment))
    if router is not None and not router.gone and _cluster is connection():
        return router
    with _lock:
        cluster = connection()
        if cluster is None:
            raise NotRunningError("Ray is not running (any more): a handle needs the cluster that its deployment runs in")
        if cluster is not _cluster:
            _routers.clear()
            _cluster = cluster
        loop = _running_loop()
        router = _routers.get((namespace, deployment))
        if router is None or router.gone:
            _routers[namespace, deployment] = router = Router(
                namespace, deployment, ray.get_runtime_context().get_node_id(), loop
            )
            asyncio.run_coroutine_threadsafe(follow_routes(router, namespace, deployment, cluster), loop)
            asyncio.run_coroutine_threadsafe(report_load(router, namespace, deployment, cluster), loop)
        return router
