"""The pool of spare processes: as many as are wanted, of the version that is wanted, and none that is ending."""

import asyncio
from types import SimpleNamespace

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import spares as spares_module
from executors.ray_gpu.process import Process
from executors.ray_gpu.spares import Spares
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica

SPEC = DeploymentSpec(name="m", target_replicas=1, version="a")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(spares_module, "REFILL_AFTER_S", 0.0)
    monkeypatch.setattr(spares_module, "RETRY_AFTER_S", 0.0)


class Pool:
    """A pool whose processes end when they are told to."""

    def __init__(self, wanted):
        self.spares = Spares(wanted, 1, self.start, self.end)
        self.running = {}

    def start(self, replica_id, spec):
        self.running[replica_id] = spare = SimpleNamespace(
            replica_id=replica_id, version=spec.version, restart_token=spec.restart_token, endpoint=object(), may_stay=True
        )
        return spare

    def end(self, spare):
        del self.running[spare.replica_id]
        self.spares.lost(spare)

    async def settle(self, wanted, spec=SPEC):
        self.spares.wanted = wanted
        self.spares.keep(spec)
        for _ in range(100):
            await asyncio.sleep(0)
        return sorted(self.running)


def test_a_restart_replaces_those_that_stand_by():
    async def scenario():
        pool = Pool(2)
        await pool.settle(2)
        await pool.settle(2, attrs.evolve(SPEC, restart_token="monday"))
        assert [each.restart_token for each in pool.running.values()] == ["monday"] * 2

    asyncio.run(scenario())


def test_who_stands_by_on_a_node_that_was_cordoned_is_ended_and_another_stands_by():
    async def scenario():
        pool = Pool(1)
        await pool.settle(1)
        (first,) = pool.running.values()
        first.may_stay = False
        pool.spares.look_again()
        async with asyncio.timeout(120):
            while list(pool.running.values()) in ([], [first]):
                await asyncio.sleep(0)

    asyncio.run(scenario())


def test_who_stands_by_on_a_cordoned_node_is_ended_also_while_the_deployment_is_not_at_rest():
    async def scenario():
        pool = Pool(1)
        await pool.settle(1)
        (first,) = pool.running.values()
        pool.spares.keep(None)
        first.may_stay = False
        pool.spares.look_again()
        async with asyncio.timeout(120):
            while pool.running:
                await asyncio.sleep(0)

    asyncio.run(scenario())


@pytest.mark.parametrize(("before", "after"), [(3, 1), (2, 0), (0, 2), (1, 3)])
def test_as_many_stand_by_as_are_wanted_now(before, after):
    async def scenario():
        pool = Pool(before)
        assert await pool.settle(before) == [f"m#1.{serial}" for serial in range(before)]
        assert await pool.settle(after) == [f"m#1.{serial}" for serial in range(after)]

    asyncio.run(scenario())


def test_a_spare_that_is_ending_is_not_taken():
    async def scenario():
        world = SimpleNamespace(now=lambda: 0.0, cordoned=frozenset("x"))
        spare = Process(world, None, "m#1.0", lambda: SPEC, SimpleNamespace(tell=lambda _: None))
        spare.version = "a"
        start = StartReplica("m#1.0", 0, "a", None, (), 1)
        assert spare.fits(start)
        assert not spare.fits(StartReplica("m#1.0", 0, "a", None, (), 1, restart_token="monday")), "it would report another one"
        spare.node_id = "x"
        assert not spare.fits(start), "its node is cordoned"
        spare.node_id = "y"
        assert spare.fits(start)
        spare._asked_to_end = True  # its version was replaced, and has come back
        assert not spare.fits(start)

    asyncio.run(scenario())
