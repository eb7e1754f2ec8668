"""A node that has other weights than a version is left alone for it, for as long as there is another one."""

from typing import Any

import attrs
import pytest

from rankcore.cluster.residency import ResidencySpec
from rankcore.errors import InvalidSpecError
from rankcore.events import NodeLost
from rankcore.residency import ModelSpec
from rankcore.residency.events import MemoryMeasured
from rankcore.residency.reasons import AVOIDED
from tests.clusters import Cluster, application, entry

SMALL = ResidencySpec(weight_bytes=4, min_hot_s=0.0)
BACKOFF_S = 60.0


class WithStaleNodes(Cluster):
    """Loads on some nodes find other weights. Nothing else moves by itself."""

    def __init__(self, *stale: str) -> None:
        super().__init__()
        self.stale = set(stale)
        self.tried: list[str] = []
        self.moves_end = False

    def end_loads(self) -> None:
        while self.moving:
            for worker_id in self.moving:
                node_id = self.workers.held[worker_id].worker.node_id
                self.tried.append(node_id)
                if node_id in self.stale:
                    self.workers.fail(worker_id, self.now)
                    self.workers.news[-1] = attrs.evolve(self.workers.news[-1], wrong_weights=True)
                else:
                    self.workers.finish(worker_id, self.now)
            self.hear()
            self.settle()

    def go_on(self, times: int = 1) -> list[str]:
        """Back-offs end, and loads; where they were tried."""
        self.tried = []
        for _ in range(times):
            self.end_loads()
            self.wait(BACKOFF_S)
        self.end_loads()
        return self.tried


def started(*nodes: str, stale: tuple[str, ...], spec: ResidencySpec = SMALL, **options: Any) -> WithStaleNodes:
    cluster = WithStaleNodes(*stale)
    for node_id in nodes:
        cluster.join(8, node_id=node_id)
    cluster.apply(application(entry("a/x", 1, residency=spec, **options)))
    return cluster


def avoided(cluster: Cluster) -> Any:
    return cluster.state.weights.planner.models["a/x@1"].avoids


def test_it_is_loaded_elsewhere_after_one_try() -> None:
    cluster = started("n0", "n1", stale=("n0",))
    assert cluster.go_on(3) == ["n0", "n1"]
    assert cluster.status("a/x") == "HEALTHY"


def test_a_load_that_has_failed_otherwise_is_tried_there_again() -> None:
    cluster = started("n0", "n1", stale=())
    for worker_id in cluster.moving:
        cluster.workers.fail(worker_id, cluster.now)
    cluster.hear()
    cluster.settle()
    assert cluster.go_on(1) == ["n0"]


def test_where_all_have_others_all_are_tried_by_turns_and_it_is_given_up_like_any_version() -> None:
    cluster = started("n0", "n1", stale=("n0", "n1"), max_start_failures=3)
    assert cluster.go_on(8) == ["n0", "n1", "n0"]
    assert cluster.status("a/x") == "DEPLOY_FAILED"


@pytest.mark.parametrize("other", [2, 8])
def test_who_could_not_hold_it_is_no_other_node(other: int) -> None:
    spec = ResidencySpec(weight_bytes=4, min_hot_s=0.0, node_labels={} if other == 2 else {"zone": "a"})
    cluster = WithStaleNodes("n0")
    from rankcore.cluster.events import NodeJoined

    for node_id, size, zone in (("n0", 8, "a"), ("n1", other, "b")):
        event = NodeJoined(node_id=node_id, resources={}, gpu_bytes=(size,), cpu_bytes=6, labels={"zone": zone}, at=0.0)
        cluster.tell(event)
    cluster.apply(application(entry("a/x", 1, residency=spec)))
    cluster.end_loads()
    cluster.stale.clear()  # somebody has put the former file back
    assert cluster.go_on(1) == ["n0"]
    assert cluster.status("a/x") == "HEALTHY"


def waiting_for_n1() -> WithStaleNodes:
    """n0 has other weights and room, n1 is full of what is not displaced."""
    cluster = started("n0", "n1", stale=())
    full = ResidencySpec(weight_bytes=8, min_hot_s=0.0, dedicated=True)
    cluster.apply(application(entry("b/x", 1, residency=full)))
    cluster.end_loads()
    assert cluster.phases() == {"a/x@1#1.0": "SERVING", "b/x@1#1.1": "SERVING"}
    cluster.workers.ends("a/x@1#1.0", cluster.now, "killed")
    cluster.hear()
    cluster.settle()
    cluster.stale.add("n0")
    assert cluster.go_on(1) == ["n0"]
    assert [each for name, each in cluster.phases().items() if name.startswith("a/")] == ["WAITING"]
    assert avoided(cluster) == ("n0",)
    return cluster


def test_who_waits_for_another_node_is_told_why_and_goes_there() -> None:
    cluster = waiting_for_n1()
    (waits,) = [each for name, each in cluster.state.weights.planner.replicas.items() if name.startswith("a/")]
    assert cluster.go_on(3) == []
    reasons = [each.of.cant for each in cluster.notes if getattr(each.of, "cant", None) is not None]
    assert AVOIDED in [reason.because for each in reasons for reason in each.reasons]
    assert waits.because
    cluster.join(8, node_id="n2")
    assert cluster.go_on(1) in (["n2"], ["n0"])


@pytest.mark.parametrize(
    "news",
    [
        lambda now: NodeLost(node_id="n1", at=now + 1.0),
        lambda now: MemoryMeasured(node_id="n1", gpu_bytes=(2,), at=now + 1.0),
    ],
)
def test_that_a_node_goes_or_shrinks_has_those_that_were_avoided_tried_again(news: Any) -> None:
    cluster = waiting_for_n1()
    cluster.stale.clear()
    cluster.tell(news(cluster.now))
    assert avoided(cluster) == ()
    assert "n0" in cluster.go_on(1)


def test_news_of_a_node_that_is_no_news_of_its_memory_changes_nothing() -> None:
    cluster = waiting_for_n1()
    cluster.join(8, node_id="n1")
    assert avoided(cluster) == ("n0",)
    cluster.join(8, cpu_bytes=7, node_id="n1")
    assert avoided(cluster) == ()


def test_what_is_refused_for_one_version_is_not_for_the_next() -> None:
    cluster = waiting_for_n1()
    cluster.stale.clear()
    cluster.apply(application(entry("a/x", 1, residency=SMALL, version="2")))
    assert cluster.go_on(1) == ["n0"]


def test_a_model_that_is_gone_is_forgotten_without_a_word() -> None:
    cluster = started("n0", "n1", stale=("n0",))
    cluster.end_loads()
    assert cluster.phases() == {}, "its slot backs off"
    cluster.join(8, node_id="n2")
    assert not cluster.state.weights.refused


def test_others_of_its_model_and_nodes_to_avoid_are_two_reasons() -> None:
    spec = attrs.evolve(SMALL, spread=True)
    cluster = waiting_for_n1()
    cluster.apply(application(entry("a/x", 1, residency=spec)))
    assert avoided(cluster) == ("n0",)


def test_a_spec_names_what_is_wrong_with_it() -> None:
    with pytest.raises(InvalidSpecError, match=r"ModelSpec\.avoids"):
        ModelSpec(model="m", weight_bytes=1, avoids=("",))
