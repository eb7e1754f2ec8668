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
from executors.ray_gpu.process import Process
from executors.ray_gpu.proxies import proxy
from executors.ray_gpu.requests.actors import connection, find_actor
from executors.ray_gpu.worker import actor


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
