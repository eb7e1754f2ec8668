"""V16 for weights that may be COLD, in one process: who takes no calls for a while keeps GPU and rank, and calls wait."""

import asyncio

import pytest

from executors.inproc import InprocCluster
from rankcore.residency.events import EvictRequested
from rankcore.state import Replica
from tests.inproc import Weights, entry, phases, run, until

OFTEN = {"health_check_period_s": 0.005, "health_check_timeout_s": 5.0}


class Choosy(Weights):
    """Says whether it takes calls: what `ready` is, or raises."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: object = True
        self.asked = 0

    async def check_ready(self, worker_id: str) -> object:
        assert worker_id in self.hot, "only who is HOT, and has its rank, is asked"
        self.asked += 1
        if isinstance(self.ready, Exception):
            raise self.ready
        if self.ready == "slow":
            await asyncio.sleep(3600.0)
        return self.ready


def replica(cluster: InprocCluster) -> Replica:
    (found,) = cluster.state.deployments["s/a"].ranks.replicas.values()
    return found


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (False, "check_ready returned False"),
        (RuntimeError("cold cache"), "RuntimeError: cold cache"),
        ("slow", "check_ready has not answered for 0.05 s"),
    ],
)
def test_calls_wait_while_it_takes_none_and_go_on_with_its_first_good_word(says: object, why: str) -> None:
    async def main(cluster: InprocCluster, weights: Choosy) -> None:
        assert await cluster.call("a", 1) == "s/a says 1"
        weights.ready = says
        await until(lambda: replica(cluster).unready is not None)
        assert replica(cluster).unready.reason == why
        was = replica(cluster)
        asking = asyncio.ensure_future(cluster.call("a", 2))
        await until(lambda: cluster._callers["s/a"].waiting)
        seen = weights.asked
        await until(lambda: weights.asked > seen + 2)
        assert not asking.done()
        assert phases(cluster)["SERVING"] == 1, "it stays where it is"
        weights.ready = True
        assert await asking == "s/a says 2"
        assert (replica(cluster).replica_id, replica(cluster).rank) == (was.replica_id, was.rank)

    run(main, entry("s/a", 50, **{**OFTEN, "health_check_timeout_s": 0.05}), node=Choosy())


def test_who_comes_up_and_takes_no_calls_is_never_routed_before_it_does() -> None:
    async def main(cluster: InprocCluster, weights: Choosy) -> None:
        weights.ready = False
        asking = asyncio.ensure_future(cluster.call("a", 1))
        await until(lambda: weights.asked > 3)
        assert (replica(cluster).state, replica(cluster).routed, asking.done()) == ("RUNNING", False, False)
        weights.ready = True
        assert await asking == "s/a says 1"

    run(main, entry("s/a", 50, **OFTEN), node=Choosy())


def test_who_has_left_the_gpus_is_asked_no_more_and_anew_once_it_is_back() -> None:
    async def main(cluster: InprocCluster, weights: Choosy) -> None:
        await cluster.call("a", 1)
        weights.ready = False
        await until(lambda: replica(cluster).unready is not None)
        cluster.tell(EvictRequested(model="s/a", at=cluster.now))
        await until(lambda: phases(cluster)["RESTING"])
        seen = weights.asked
        await asyncio.sleep(0)
        assert weights.asked == seen
        weights.ready = True
        assert await cluster.call("a", 2) == "s/a says 2"
        assert weights.asked > seen

    run(main, entry("s/a", 50, **OFTEN), node=Choosy())
