"""Ranks in a cluster that runs in an event loop: known before the first call, kept, closed, and lost with the GPU."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.replay import replay
from executors.inproc import InprocCluster, begin_again
from executors.ray_gpu.errors import UnavailableError
from rankcore.cluster import EntrySpec
from rankcore.cluster.events import ChangeRequested, DeletionRequested, ScaleRequested, WorkerLost
from rankcore.events import NodeLost
from rankcore.residency.events import EvictRequested
from rankcore.routing import RoutingSpec
from tests.inproc import Sharded, entry, join, phases, run, tenures, until


def sharded(replicas: int = 0, **options: Any) -> EntrySpec:
    routing = RoutingSpec(name="s/a", max_ongoing_requests=1)
    return entry("s/a", 30, replicas, routing=routing, **{"user_config": {"n": [1]}, "start_backoff_s": 0.01, **options})


def two() -> EntrySpec:
    return entry("s/a", 50, 2, start_backoff_s=0.01)


def scale(cluster: InprocCluster, replicas: int) -> None:
    cluster.tell(ScaleRequested(deployment="s/a", target_replicas=replicas, at=cluster.now))


def ranks(cluster: InprocCluster) -> dict[str, int]:
    """By worker, as the machine has them."""
    found = cluster.state.deployments["s/a"].ranks.ranks
    return {worker_id: found[each].rank for each, worker_id in tenures(cluster, "s/a").items() if each in found}


async def until_ranked(cluster: InprocCluster, node: Sharded, size: int) -> None:
    def is_ranked() -> bool:
        told = {each: rank.rank for each, rank in node.ranks.items()}
        return sorted(told.values()) == list(range(size)) and told == ranks(cluster)

    await until(is_ranked)
    assert cluster.state.deployments["s/a"].ranks.world_size == size


def holder(node: Sharded, rank: int) -> str:
    [found] = [each for each, its in node.ranks.items() if its.rank == rank]
    return found


def lose(cluster: InprocCluster, node: Sharded, worker_id: str) -> None:
    del node.ranks[worker_id]
    node.hot.discard(worker_id)
    record = cluster.state.weights.planner.replicas[worker_id]
    cluster.tell(WorkerLost(worker_id=worker_id, node_id=record.node_id, reason="segfault", at=cluster.now))


def play(main: Any, spec: EntrySpec | None = None, gpus: tuple[int, ...] = (80, 80), **options: Any) -> None:
    run(main, spec if spec is not None else sharded(), node=Sharded(), gpus=gpus, **options)


def test_a_replica_knows_its_rank_before_its_first_call():
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        assert await cluster.call("a", 1) == 0
        assert node.told == [(0, 1, {"n": [1]})]

    play(main)


def test_ranks_follow_the_replicas(tmp_path: Path):
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        scale(cluster, 4)
        await until_ranked(cluster, node, 4)
        before = dict(node.ranks)
        lost = holder(node, 2)
        lose(cluster, node, lost)
        await until_ranked(cluster, node, 4)
        kept = {each: rank.rank for each, rank in before.items() if each != lost}
        now = {each: rank.rank for each, rank in node.ranks.items()}
        assert kept.items() <= now.items(), "nobody who was there has another rank"
        first = next(each for each, worker_id in tenures(cluster, "s/a").items() if worker_id == holder(node, 0))
        cluster.tell(EvictRequested(replica_id=first, at=cluster.now))
        await until_ranked(cluster, node, 3)
        scale(cluster, 0)
        await until_ranked(cluster, node, 0)

    path = tmp_path / "cluster.jsonl"
    with JournalWriter.create(path, kind=CLUSTER, fingerprint_every=3) as journal:
        play(main, journal=journal)
    again = replay(path, CLUSTER)
    assert again.difference is None
    assert again.fingerprints > 3
    assert [each.deployment for each in begin_again(again.state).records] == ["s/a"]


def test_a_start_that_fails_for_good_is_an_error_with_the_reason():
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        node.refuses.add(0)
        with pytest.raises(UnavailableError, match="RuntimeError: no such shard"):
            await cluster.call("a", 1)
        await until(lambda: not node.hot)

    play(main, sharded(max_start_failures=1))


def test_a_replica_that_cannot_be_reconfigured_leaves_and_another_one_is_started():
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        scale(cluster, 2)
        await until_ranked(cluster, node, 2)
        first, other = holder(node, 0), holder(node, 1)
        node.refuses.add(1)
        cluster.tell(ChangeRequested(spec=sharded(2, user_config={"n": [2]}), at=cluster.now))
        await until(lambda: other not in node.ranks)
        node.refuses.clear()
        scale(cluster, 1)
        await until_ranked(cluster, node, 1)
        assert holder(node, 0) == first
        assert node.told.count((0, 2, {"n": [2]})) == 1
        assert await cluster.call("a", 1) == 0

    play(main, sharded(rollback=False))


def test_a_deployment_with_ranks_is_removed():
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        scale(cluster, 2)
        await until_ranked(cluster, node, 2)
        cluster.tell(DeletionRequested(deployments=("s/a",), at=cluster.now))
        await until(lambda: not cluster.state.deployments and not phases(cluster))
        assert not node.hot
        assert node.log.count("drop s/a") == 2

    play(main)


def test_user_code_that_does_not_take_its_rank_in_time_does_not_keep_the_gpu():
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        hangs = asyncio.Event()

        async def reconfigure(*told: Any) -> None:
            await hangs.wait()
            await node.reconfigure(*told)

        cluster._workers._reconfigure = reconfigure
        asking = asyncio.ensure_future(cluster.call("a", 1))
        await until(lambda: "drop s/a" in node.log or "offload s/a" in node.log)
        hangs.set()
        assert await asking == 0

    play(main, sharded(start_timeout_s=0.05, max_start_failures=100))


# -- a replica that comes back to the GPU has the rank that it had, whoever becomes HOT in between (R6)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_newcomer_that_is_HOT_first_does_not_take_the_rank_of_a_replica_that_is_restarted(rank: int):
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        await until_ranked(cluster, node, 2)
        others = {each: its.rank for each, its in node.ranks.items() if its.rank != rank}
        node.hold("load s/a")
        lose(cluster, node, holder(node, rank))
        scale(cluster, 3)
        await until(lambda: phases(cluster)["LOADING"] == 2)
        node.held["load s/a"].set()
        await until_ranked(cluster, node, 3)
        assert others.items() <= {each: its.rank for each, its in node.ranks.items()}.items()

    play(main, two(), gpus=(80,) * 6)


def test_a_node_that_is_lost_gives_no_rank_away_as_long_as_its_replica_is_wanted():
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        join(cluster, 80, 80, 80, node_id="n2")
        await until_ranked(cluster, node, 2)
        places = {each: cluster.state.weights.planner.replicas[each].node_id for each in node.ranks}
        lost = [each for each, node_id in places.items() if node_id == "n1"]
        others = {each: its.rank for each, its in node.ranks.items() if each not in lost}
        assert lost
        for each in lost:
            del node.ranks[each]
            node.hot.discard(each)
        scale(cluster, 3)
        cluster.tell(NodeLost(node_id="n1", at=cluster.now))
        await until_ranked(cluster, node, 3)
        assert others.items() <= {each: its.rank for each, its in node.ranks.items()}.items()

    play(main, two(), gpus=(80,))


def test_a_rank_whose_replica_is_not_wanted_any_more_goes_to_whoever_is():
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        await until_ranked(cluster, node, 2)
        left = holder(node, 1)
        node.hold("load s/a")
        lose(cluster, node, holder(node, 0))
        scale(cluster, 1)
        await until_ranked(cluster, node, 1)
        assert holder(node, 0) == left
        node.held["load s/a"].set()
        scale(cluster, 2)
        await until_ranked(cluster, node, 2)
        assert holder(node, 0) == left

    play(main, two(), gpus=(80,) * 6)


def test_a_deployment_that_is_removed_ends_with_all_its_ranks_when_its_node_is_lost():
    async def main(cluster: InprocCluster, node: Sharded) -> None:
        scale(cluster, 3)
        await until_ranked(cluster, node, 3)
        node.hold("drop s/a")
        cluster.tell(DeletionRequested(deployments=("s/a",), at=cluster.now))
        cluster.tell(NodeLost(node_id="n1", at=cluster.now))
        await until(lambda: not cluster.state.deployments)

    play(main, two(), gpus=(80,) * 6)
