"""What is wrong with the weights of a cluster is found, each by its promise; and what no path of the others leads to."""

from typing import Any

import pytest
from msgspec.structs import replace

from rankcore.cluster import planner as planner_part
from rankcore.cluster import tenures
from rankcore.cluster.commands import Availability, MoveWeights, Standing
from rankcore.cluster.events import MoveFailed, MoveFinished, MoveProgressed, ScaleRequested, WorkerReported
from rankcore.cluster.invariants_weights import check_weights
from rankcore.cluster.records import Cause
from rankcore.cluster.residency import ResidencySpec
from rankcore.cluster.state import ClusterState, FoundWorker, Target
from rankcore.commands import StartReplica
from rankcore.errors import InvalidEventError, PlannerFailedError
from rankcore.events import ClockAdvanced
from rankcore.frozen import EMPTY, PMap
from rankcore.residency import Phase
from tests.clusters import Cluster, application, entry

SMALL = ResidencySpec(weight_bytes=4, min_hot_s=0.0)


def one(target: int = 1) -> Cluster:
    cluster = Cluster()
    cluster.join(8)
    cluster.apply(application(entry("a/x", target, residency=SMALL)))
    return cluster


def rules(state: ClusterState) -> set[str]:
    return {each.rule for each in check_weights(state)}


def with_residency(state: ClusterState, **fields: Any) -> ClusterState:
    old = state.deployments["a/x"]
    target = fields.pop("target", old.target)
    changed = replace(old, residency=replace(old.residency, **fields), target=target)
    return replace(state, deployments=state.deployments.set("a/x", changed))


START = StartReplica("a/x#1.7", 0, "1", None, (), 1)


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("P3", {"target": Target(2, Cause.DEMAND)}),
        ("P4", {"tenures": PMap({"a/x#1.0": "a/x@1#1.0", "a/x#1.9": "a/x@1#1.0"})}),
        ("P4", {"tenures": PMap({"a/x#1.0": "b/x@1#1.0"})}),
        ("P4", {"tenures": PMap({"a/x#1.0": "a/x@1#1.5"})}),
        ("P5", {"tenures": EMPTY}),
        ("T10", {"claims": (START,)}),
        ("P4", {"tenures": EMPTY, "claims": (START,)}),
        ("T10", {"versions": ()}),
        ("Q11", {"availability": Availability(Standing.UNAVAILABLE)}),
    ],
)
def test_a_deployment_that_is_not_as_its_workers_are_is_found(rule: str, fields: dict[str, Any]) -> None:
    cluster = one()
    assert rules(cluster.state) == set()
    assert rule in rules(with_residency(cluster.state, **fields))


def test_calls_that_wait_for_what_does_not_exist_are_found() -> None:
    cluster = one(0)
    cluster.call("a/x", 1)
    state = cluster.state
    assert rules(state) == set()
    (reporter, heard), *_ = state.weights.demands.reporters.items()
    stale = replace(heard, waiting=heard.waiting.set("b/x", (1, 0.0)))
    demands = replace(state.weights.demands, reporters=state.weights.demands.reporters.set(reporter, stale))
    assert rules(replace(state, weights=replace(state.weights, demands=demands))) == {"P3"}


def test_a_replica_that_drains_on_a_worker_that_serves_is_found() -> None:
    cluster = one()
    weights = cluster.state.weights
    leaving = one()
    leaving.moves_end = False
    leaving.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    assert rules(leaving.state) == set()
    assert rules(replace(leaving.state, weights=weights)) == {"P4"}


def test_a_node_that_is_planned_too_early_and_a_deployment_on_its_way_that_is_not_to_be_had_are_found() -> None:
    cluster = one(0)
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    found = replace(cluster.state.weights, found=PMap({"a/x@1#0.9": FoundWorker("n0")}))
    assert rules(replace(cluster.state, weights=found)) == {"T11"}
    for_a_while, for_ever = (Availability(Standing.UNAVAILABLE, retry_after_s=each) for each in (1.0, None))
    assert rules(with_residency(cluster.state, availability=for_a_while)) == {"Q11"}
    assert rules(with_residency(cluster.state, availability=for_ever)) == {"Q11", "D7"}


def test_parts_that_do_not_agree_about_weights_are_the_planner_s_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = one(0)
    honest = planner_part.tell

    def again(draft: Any, event: Any) -> None:
        honest(draft, event)
        draft.worklist.add(planner_part.PLANNER, ClockAdvanced(at=draft.clock))

    monkeypatch.setattr(planner_part, "tell", again)
    with pytest.raises(PlannerFailedError, match="@planner"):
        cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))


def test_a_copy_that_fails_to_be_made_leaves_nothing_and_the_replica_has_stopped() -> None:
    cluster = one()
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.workers.fail("a/x@1#1.0", 0.0)
    cluster.hear()
    cluster.settle()
    assert cluster.phases() == {}
    assert cluster.status("a/x") == "HEALTHY"


def test_copies_of_a_version_that_is_not_wanted_any_more_go() -> None:
    cluster = one()
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    assert cluster.phases() == {"a/x@1#1.0": "RESTING"}
    cluster.apply(application(entry("a/x", 1, version="2", residency=SMALL)))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=1.0))
    assert set(cluster.phases()) == {"a/x@2#1.1"}


def test_what_a_replaced_deployment_s_worker_says_is_the_planner_s_alone() -> None:
    cluster = one()
    state = replace(cluster.state, deployments=EMPTY, applications=EMPTY, alarms=type(cluster.state.alarms)())
    cluster.state = state
    record = state.weights.planner.replicas["a/x@1#1.0"]
    draft = planner_part.ClusterDraft(state, 0.0, {})
    move = planner_part.WeightsPlanned(tuple(each.command for each in cluster.done if isinstance(each, MoveWeights)))
    planner_part.on_planned(draft, "a/x", move)
    assert [each.command for each in draft.released["a/x"]] == list(move.commands)
    planner_part._leaves(draft, record.replica_id, False)
    assert draft.worklist.is_settled


def test_news_of_what_is_under_way_in_a_deployment_that_is_gone() -> None:
    cluster = one(0)
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    (given,) = (each.command for each in cluster.done if isinstance(each, MoveWeights))
    gone = replace(cluster.state, deployments=EMPTY, applications=EMPTY, alarms=type(cluster.state.alarms)())
    for event in (
        MoveProgressed(worker_id="a/x@1#1.0", move=given.move, share=0.2, at=0.0),
        MoveFailed(worker_id="a/x@1#1.0", move=given.move, at=0.0),
        MoveFinished(worker_id="a/x@1#1.0", move=given.move, at=0.0),
    ):
        cluster.state = gone
        cluster.step(event)
    assert cluster.phases() == {"a/x@1#1.0": "SERVING"}


def test_a_load_that_nobody_claims_fails_unheard() -> None:
    cluster = one(0)
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    (given,) = (each.command for each in cluster.done if isinstance(each, MoveWeights))
    draft = planner_part.ClusterDraft(with_residency(cluster.state, claims=()), 0.0, {})
    from rankcore.cluster import workers

    workers.on_move_failed(draft, MoveFailed(worker_id="a/x@1#1.0", move=given.move, at=0.0))
    assert "a/x" in draft.unbalanced


def test_a_claim_is_killed_as_it_is_stopped() -> None:
    cluster = one(0)
    draft = planner_part.ClusterDraft(with_residency(cluster.state, claims=(START,)), 0.0, {})
    tenures.on_kill(draft, "a/x", tenures.KillReplica("a/x#1.7", 1))
    assert draft.entries["a/x"].residency.claims == ()


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("phase", {"phase": Phase.WAITING}),
        ("gpus", {"phase": Phase.SERVING}),
        ("gpus", {"phase": Phase.SERVING, "gpus": (1, 0), "gpu_bytes": (4, 4)}),
        ("gpu_bytes", {"phase": Phase.SERVING, "gpus": (0,), "gpu_bytes": ()}),
        ("cpu_bytes", {"phase": Phase.RESTING}),
        ("cpu_bytes", {"phase": Phase.SERVING, "gpus": (0,), "gpu_bytes": (4,), "cpu_bytes": 4}),
    ],
)
def test_a_report_that_cannot_be_is_refused(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidEventError, match=rf"WorkerReported\.{field}"):
        WorkerReported(worker_id="a/x@1#1.0", node_id="n0", epoch=1, at=0.0, **fields)


def test_a_share_is_one_of_the_whole() -> None:
    with pytest.raises(InvalidEventError, match=r"MoveProgressed\.share"):
        MoveProgressed(worker_id="a/x@1#1.0", move=1, share=1.5, at=0.0)
