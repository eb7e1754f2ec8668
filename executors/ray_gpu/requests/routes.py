"""A process's routers: one for each deployment that it calls, all on one thread, which follow the controller together.

A process that ends says so to the replicas that it calls. Those on other nodes, which Ray tells of no end, would take it for
one that is silent for a moment, and wait for it as long as they may whenever they drain.
"""

import asyncio
import atexit
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

import ray

from executors.ray_gpu.errors import NotRunningError
from executors.ray_gpu.metrics.of_requests import of_router
from executors.ray_gpu.metrics.publisher import publish
from executors.ray_gpu.requests.actors import connection
from executors.ray_gpu.requests.call import Submits
from executors.ray_gpu.requests.caller import CallingProcess
from executors.ray_gpu.requests.loops import new_loop
from executors.ray_gpu.requests.router import Router

END_S = 2.0
"""How long the end of a program waits for a callback of the loop that does not return."""
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_routers: dict[tuple[str, str], Router] = {}
_here: dict[tuple[str, str], Submits] = {}
_processes: dict[str, CallingProcess] = {}
"""By namespace."""
_cluster: Any = None  # which connection to Ray the routers belong to


def _running_loop() -> asyncio.AbstractEventLoop:
    """The routers' event loop. To be called with the lock held."""
    global _loop
    if _loop is None:
        _loop = new_loop()
        thread = threading.Thread(target=_loop.run_forever, name="calls", daemon=True)
        thread.start()
        atexit.register(_end, _loop, thread)
    return _loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Stop the loop as the program ends, before Ray's own exit: what calls a Ray that is torn down crashes the process."""
    global _loop
    with _lock:
        _loop = None  # a call that is made still later gets another
        processes = _forgotten()
    loop.call_soon_threadsafe(_close, processes)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(END_S)


async def say_goodbye() -> None:
    """This process is about to end: it calls nobody any more."""
    with _lock:
        loop, processes = _loop, _forgotten()

    async def close() -> None:
        _close(processes)

    if loop is not None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(close(), loop))


def _forgotten() -> tuple[CallingProcess, ...]:
    """Those that there were, of which there is nothing any more; none of another cluster. To be called with the lock held."""
    there = tuple(_processes.values()) if _cluster is not None and _cluster is connection() else ()
    _routers.clear()
    _processes.clear()
    return there


def _close(processes: tuple[CallingProcess, ...]) -> None:
    for each in processes:
        each.close(NotRunningError("this process ends"))


def routing_loop() -> asyncio.AbstractEventLoop:
    """The event loop that all routers of this process share, on a thread of its own."""
    with _lock:
        return _running_loop()


def serve_here(namespace: str, deployment: str, router: Submits) -> None:
    """Let this process's handles of a deployment call that router, which needs no cluster."""
    _here[namespace, deployment] = router


def leave(namespace: str, deployment: str) -> None:
    """It is there no more."""
    _here.pop((namespace, deployment), None)


def caller_of(namespace: str, deployment: str) -> Submits:
    """What takes the calls of this process's handles of a deployment."""
    return _here.get((namespace, deployment)) or router_of(namespace, deployment)


def known_caller_of(namespace: str, deployment: str) -> Submits | None:
    """The same, where this process has called the deployment before; None: it has not."""
    router = _routers.get((namespace, deployment))
    is_there = router is not None and not router.gone and _cluster is connection()
    return _here.get((namespace, deployment)) or (router if is_there else None)


def end_router(namespace: str, deployment: str) -> "Future[None]":
    """Answer what this process has under way for a deployment, and follow it no more. Who calls it later begins anew."""
    with _lock:
        router, process, loop = _routers.pop((namespace, deployment), None), _processes.get(namespace), _loop

    async def end() -> None:
        if router is not None and process is not None and not router.gone:
            await router.until_idle()
            process.remove(deployment, router)
            router.close(NotRunningError(f"the handles of {deployment} were shut down"))

    if router is None or loop is None:
        nothing: Future[None] = Future()
        nothing.set_result(None)
        return nothing
    return asyncio.run_coroutine_threadsafe(end(), loop)


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
            _forgotten()
            _cluster = cluster
        loop = _running_loop()
        router = _routers.get((namespace, deployment))
        if router is None or router.gone:
            _routers[namespace, deployment] = router = Router(
                namespace, deployment, ray.get_runtime_context().get_node_id(), loop
            )
            if namespace not in _processes:
                _processes[namespace] = CallingProcess(namespace, cluster)
            asyncio.run_coroutine_threadsafe(_processes[namespace].add(deployment, router), loop)
            publish(router, partial(of_router, deployment))
        return router
