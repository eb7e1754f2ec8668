"""Actors are looked for in the cluster that this process was connected to; one that is gone is not started anew."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

import ray
from ray.exceptions import ActorDiedError

from executors.ray_gpu import replica
from executors.ray_gpu.errors import NotRunningError
from executors.ray_gpu.messages import Outcome
from executors.ray_gpu.process import Process
from executors.ray_gpu.proxies import proxy
from executors.ray_gpu.requests.actors import connection, find_actor
from executors.ray_gpu.worker import actor
from executors.ray_gpu.worker.messages import Leave, Load


@pytest.mark.parametrize("cluster", [None, object()])
def test_no_cluster_is_started_by_asking_for_an_actor_of_one_that_is_gone(cluster):
    assert connection() is None
    with pytest.raises(NotRunningError, match="Ray was shut down"):
        asyncio.run(find_actor("rankcore-controller", "rankcore", cluster))
    assert not ray.is_initialized()


def test_a_process_is_watched_for_as_long_as_it_lives_by_calls_that_return_now_and_then():
    """One that never returned stayed in the replica for each controller that had died."""
    ends, calls = [], []

    async def watch():
        calls.append(len(calls))
        if len(calls) > 5:
            raise ActorDiedError

    async def has_ended(error):
        ends.append(type(error))

    process = SimpleNamespace(replica_id="m#1.0", _has_ended=has_ended)
    actor = SimpleNamespace(watch=SimpleNamespace(remote=watch))
    asyncio.run(Process._watch(process, actor))
    assert (ends, len(calls)) == ([ActorDiedError], 6)


def test_the_call_that_watches_returns_after_a_while(monkeypatch):
    """As long as it is under way Ray keeps the socket of its caller, who may be dead."""
    monkeypatch.setattr(replica, "WATCH_S", 0.0)
    asyncio.run(asyncio.wait_for(replica.Replica.watch(None), 60))
    serving = SimpleNamespace(_there=lambda waiting: waiting)
    asyncio.run(asyncio.wait_for(proxy.Proxy.watch(serving, 0.0), 60))


@pytest.mark.parametrize(
    ("made", "arguments"),
    [(replica.Replica, ("a/m#1.0", "1", 1)), (actor.WorkerActor, ("a/m#1.0", "1", 1, "weights", None, None))],
)
def test_a_process_that_may_not_come_up_has_its_name_so_that_ray_can_say_why(monkeypatch, made, arguments):
    """What raised while Ray looked for the name of what had raised ended the process, and the reason was lost."""

    def too_late(*_):
        raise replica.FencedError("epoch 2 has begun")

    monkeypatch.setattr(sys.modules[made.__module__], "admitted_code", too_late)
    process = made.__new__(made)
    with pytest.raises(replica.FencedError):
        process.__init__("ns", "a/m", *arguments)
    assert repr(process) == "a/m#1.0"


@pytest.fixture
def worker(monkeypatch):
    """One of a controller of epoch 1."""
    monkeypatch.setattr(actor, "admitted_code", lambda *_: SimpleNamespace())
    return actor.WorkerActor("ns", "a/m", "a/m@1#1.0", "1", 1, "weights", None, SimpleNamespace(node_id="n"))


def test_a_worker_that_a_newer_controller_has_asked_refuses_the_moves_of_an_older_one(worker):
    """They were on their way when the newer one asked: what it was told of the worker's memory would not be so any more."""

    async def late():
        report = await worker.query(2)
        assert (report.epoch, report.move, report.newest) == (2, 0, None)
        with pytest.raises(replica.FencedError, match="obeys epoch 2, and not epoch 1"):
            async for _ in worker.load_to_gpu(Load(1, 7, (0,), (10,))):
                pass
        with pytest.raises(replica.FencedError, match="obeys epoch 2, and not epoch 1"):
            await worker.leave(Leave(1, 7))
        assert await worker.query(1) == await worker.take(1, "a/m#1.0") == Outcome("refused", "2")
        assert (await worker.describe()).move == 0

    asyncio.run(late())
