"""Ranks in a fleet that runs in an event loop: known before the first request, kept, closed, and lost with the GPU (D12)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executors.fleet import FleetJournal, FleetRunner, RequestError, begin_again, replay_fleet
from rankcore.dispatching import DispatchPolicy, RankSpec, ServingChanged, ServingSpec, open_fleet
from rankcore.dispatching.invariants import check
from rankcore.residency import ModelSpec, ResidencyPolicy, Wanted
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import DeployRequested, EvictRequested, NodeJoined, RemoveRequested, ReplicaLost, ScaleRequested
from rankcore.routing import RoutingSpec
from rankcore.values import ReplicaRank

TIMEOUT_S = 60.0


class Sharded:
    """Answers with the rank that it was given."""

    def __init__(self) -> None:
        self.ranks: dict[str, ReplicaRank] = {}
        self.told: list[tuple[str, int, int, Any]] = []
        self.dropped: list[str] = []
        self.fails: set[int] = set()

    async def load(self, command: LoadToGpu, progress: Callable[[int], None]) -> None:
        await asyncio.sleep(0)

    async def offload(self, replica_id: str) -> None:
        del self.ranks[replica_id]

    async def unload(self, replica_id: str) -> None:
        self.ranks.pop(replica_id, None)

    async def drop(self, replica_id: str) -> None:
        self.dropped.append(replica_id)
        self.ranks.pop(replica_id, None)

    async def reconfigure(self, replica_id: str, rank: ReplicaRank, world_size: int, user_config: Any) -> None:
        await asyncio.sleep(0)
        self.told.append((replica_id, rank.rank, world_size, user_config))
        if rank.rank in self.fails:
            raise RuntimeError("no such shard")
        self.ranks[replica_id] = rank

    async def answer(self, replica_id: str, payload: Any) -> int:
        return self.ranks[replica_id].rank


def run(main: Callable[..., Any], journal: FleetJournal | None = None, **planner: Any) -> None:
    async def scene() -> None:
        node = Sharded()
        state = open_fleet(DispatchPolicy(turn_s=0.01), ResidencyPolicy(**planner))
        async with FleetRunner(state, node, journal=journal) as fleet:
            fleet.tell(NodeJoined(node_id="n1", gpu_bytes=(80, 80), cpu_bytes=200, at=fleet.now))
            spec = ServingSpec(routing=RoutingSpec(name="a", max_ongoing_requests=1), ranks=RankSpec(user_config={"n": [1]}))
            fleet.tell(ServingChanged(spec=spec, at=fleet.now))
            fleet.tell(DeployRequested(wanted=(Wanted(spec=ModelSpec(model="a", weight_bytes=30), replicas=0),), at=fleet.now))
            await asyncio.wait_for(main(fleet, node), TIMEOUT_S)
            assert check(fleet.state) == []

    asyncio.run(scene())


def scale(fleet: FleetRunner, replicas: int) -> None:
    fleet.tell(ScaleRequested(model="a", replicas=replicas, at=fleet.now))


async def until_ranked(fleet: FleetRunner, node: Sharded, size: int) -> None:
    while sorted(rank.rank for rank in node.ranks.values()) != list(range(size)) or node.ranks != fleet.state.ranks_of("a"):
        await asyncio.sleep(0.001)
    assert fleet.state.world_size_of("a") == size


def test_a_replica_knows_its_rank_before_its_first_request():
    async def main(fleet: FleetRunner, node: Sharded) -> None:
        assert await fleet.request("a", 1) == 0
        assert node.told == [("a#0", 0, 1, {"n": [1]})]

    run(main)


def test_ranks_follow_the_replicas(tmp_path: Path):
    async def main(fleet: FleetRunner, node: Sharded) -> None:
        scale(fleet, 4)
        await until_ranked(fleet, node, 4)
        [lost] = [each for each, rank in node.ranks.items() if rank.rank == 2]
        before = dict(node.ranks)
        del node.ranks[lost]
        fleet.tell(ReplicaLost(replica_id=lost, reason="segfault", at=fleet.now))
        await until_ranked(fleet, node, 4)
        assert node.ranks == before, "whoever was lost has its rank again, and nobody else another one"
        [first] = [each for each, rank in node.ranks.items() if rank.rank == 0]
        fleet.tell(EvictRequested(replica_id=first, at=fleet.now))
        await until_ranked(fleet, node, 3)
        scale(fleet, 0)
        await until_ranked(fleet, node, 0)

    with FleetJournal.create(tmp_path / "fleet.jsonl", fingerprint_every=3) as journal:
        run(main, journal=journal)
    again = replay_fleet(tmp_path / "fleet.jsonl")
    assert again.difference is None
    assert again.fingerprints > 3
    assert all(isinstance(each.at, float) for each in begin_again(again.state))


def test_a_start_that_fails_again_and_again_is_an_error_with_the_reason():
    async def main(fleet: FleetRunner, node: Sharded) -> None:
        node.fails.add(0)
        with pytest.raises(RequestError, match=r"do not start: 1 in a row failed: RuntimeError: no such shard"):
            await fleet.request("a", 1)
        assert "a#0" in node.dropped

    run(main, max_load_failures=1)


def test_a_replica_that_cannot_be_reconfigured_is_lost_and_loaded_again():
    async def main(fleet: FleetRunner, node: Sharded) -> None:
        scale(fleet, 2)
        await until_ranked(fleet, node, 2)
        [first] = [each for each, rank in node.ranks.items() if rank.rank == 0]
        [other] = [each for each, rank in node.ranks.items() if rank.rank == 1]
        spec = fleet.state.models["a"].spec
        node.fails.add(1)
        fleet.tell(ServingChanged(spec=ServingSpec(routing=spec.routing, ranks=RankSpec(user_config={"n": [2]})), at=fleet.now))
        while other not in node.dropped:
            await asyncio.sleep(0.001)
        node.fails.clear()
        scale(fleet, 1)
        await until_ranked(fleet, node, 1)
        assert first in node.ranks
        assert await fleet.request("a", 1) == 0

    run(main)


def test_a_model_with_ranks_is_removed():
    async def main(fleet: FleetRunner, node: Sharded) -> None:
        scale(fleet, 2)
        await until_ranked(fleet, node, 2)
        fleet.tell(RemoveRequested(model="a", at=fleet.now))
        while fleet.state.residency.models:
            await asyncio.sleep(0.001)
        assert not fleet.state.residency.replicas

    run(main)
