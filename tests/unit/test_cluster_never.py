"""What no node could ever hold is told at once (T18): once all nodes are known, and not before."""

from typing import Any

import pytest
from msgspec.structs import replace

from rankcore.cluster.commands import Availability, PublishAvailability, Standing
from rankcore.cluster.events import ApplyRequested, NodesListed
from rankcore.cluster.invariants import check
from rankcore.cluster.residency import ResidencySpec
from rankcore.cluster.spec import EntrySpec
from rankcore.cluster.step import cluster_step
from rankcore.errors import InvalidEventError, InvalidSpecError
from rankcore.events import NodeLost
from rankcore.ordered import Ordered
from rankcore.residency import ModelSpec, open_residency, residency_step
from rankcore.residency import events as memory
from rankcore.residency.events import MemoryMeasured, UsageReported
from rankcore.residency.ever import why_never
from rankcore.residency.spec import ExpectedShape
from tests.clusters import Cluster, application, entry

HUGE = ResidencySpec(weight_bytes=10, wait_for_room_s=20.0, failed_for_s=30.0)
PATIENT = ResidencySpec(weight_bytes=10, wait_for_room_s=100.0)
SMALL = ResidencySpec(weight_bytes=6, min_hot_s=0.0, wait_for_room_s=20.0)


def listing(cluster: Cluster, *node_ids: str, expected: tuple[ExpectedShape, ...] = ()) -> None:
    cluster.tell(NodesListed(node_ids=node_ids, expected_shapes=expected, at=cluster.now))


def known(*specs: EntrySpec, gpus: tuple[int, ...] = (8,)) -> Cluster:
    """A cluster of one node, of which all is known."""
    cluster = Cluster()
    cluster.join(*gpus)
    listing(cluster, "n0")
    cluster.apply(*(application(each) for each in specs))
    return cluster


def told(cluster: Cluster, deployment: str = "a/x") -> list[Availability]:
    said = [each for each in cluster.done if isinstance(each, PublishAvailability) and each.deployment == deployment]
    return [each.availability for each in said]


def standings(cluster: Cluster, deployment: str = "a/x") -> list[Standing]:
    return [each.standing for each in told(cluster, deployment)]


def test_who_calls_what_no_node_could_hold_is_told_at_once_and_nothing_is_asked_for() -> None:
    cluster = known(entry("a/x", 0, residency=HUGE))
    cluster.call("a/x", 1)
    (only,) = told(cluster)
    assert (only.standing, only.retry_after_s) == (Standing.UNAVAILABLE, 30.0)
    assert only.because == "no node could ever hold it: n0: 10 bytes do not fit: it has 1 GPU of at most 8 bytes"
    assert (cluster.target("a/x"), cluster.phases()) == (0, {})


def test_what_is_to_be_hot_and_fits_on_no_node_is_told_before_anybody_calls() -> None:
    cluster = known(entry("a/x", 1, residency=HUGE))
    assert standings(cluster)[-1] is Standing.UNAVAILABLE
    assert (cluster.target("a/x"), cluster.phases()) == (1, {"a/x@1#1.0": "WAITING"})


def test_what_would_fit_on_an_empty_node_waits_as_long_as_it_may() -> None:
    taken = ResidencySpec(weight_bytes=6, dedicated=True)
    cluster = known(entry("b/x", 1, residency=taken), entry("a/x", 0, residency=SMALL))
    for _ in range(4):
        cluster.call("a/x", 1)
        cluster.wait(4.0)
    assert standings(cluster) == [Standing.QUEUED]


@pytest.mark.parametrize("restarts", [False, True])
def test_nobody_is_judged_before_each_node_that_is_listed_has_joined(restarts: bool) -> None:
    cluster = Cluster()
    listing(cluster, "n0", "n1")
    cluster.apply(application(entry("a/x", 1, residency=HUGE)))
    cluster.join(8)
    assert standings(cluster) == [Standing.QUEUED]
    if restarts:
        listing(cluster, "n0", "n1")
    cluster.join(8, node_id="n1")
    assert standings(cluster) == [Standing.QUEUED, Standing.UNAVAILABLE]
    assert "1 GPU of at most 8 bytes; 1 more could not either" in told(cluster)[-1].because


def test_without_a_list_nobody_is_judged() -> None:
    cluster = known(entry("a/x", 0, residency=HUGE))
    cluster.tell(NodesListed(node_ids=None, at=cluster.now))
    cluster.call("a/x", 1)
    assert standings(cluster) == [Standing.QUEUED]


def test_a_controller_that_comes_back_judges_nobody_for_a_while() -> None:
    cluster = known(entry("a/x", 0, residency=PATIENT))
    cluster.restart()
    cluster.join(8)
    listing(cluster, "n0")
    while cluster.now < 30.0:
        cluster.call("a/x", 1)
        assert standings(cluster) == [Standing.QUEUED]
        cluster.wait(5.0)
    cluster.call("a/x", 1)
    assert standings(cluster) == [Standing.QUEUED, Standing.UNAVAILABLE]


def test_a_node_that_could_hold_it_ends_the_refusal_in_the_step_in_which_it_joins() -> None:
    cluster = known(entry("a/x", 0, residency=HUGE), entry("b/x", 1, residency=HUGE))
    cluster.call("a/x", 1)
    cluster.join(8)
    assert standings(cluster)[-1] is Standing.UNAVAILABLE, "it is the same node as before"
    cluster.join(12, node_id="n1")
    assert standings(cluster)[-2:] == [Standing.UNAVAILABLE, Standing.QUEUED]
    assert standings(cluster, "b/x")[-1] is Standing.READY, "it was to be HOT all the while"
    cluster.call("a/x", 1)
    assert standings(cluster)[-1] is Standing.PROVISIONING, "b/x is there for its minimum time, and a/x is first in line"


def test_one_of_several_equal_nodes_is_no_loss_to_what_fits_on_none() -> None:
    cluster = known()
    cluster.join(8, node_id="n1")
    listing(cluster, "n0", "n1")
    cluster.tell(NodeLost(node_id="n1", at=cluster.now))
    cluster.apply(application(entry("a/x", 1, residency=HUGE)))
    assert standings(cluster)[-1] is Standing.UNAVAILABLE
    cluster.tell(NodeLost(node_id="n0", at=cluster.now))
    assert standings(cluster)[-1] is Standing.UNAVAILABLE, "it would not have fitted there either"


def test_a_node_that_is_listed_and_has_not_joined_may_hold_it() -> None:
    cluster = known(entry("a/x", 0, residency=HUGE))
    cluster.call("a/x", 1)
    listing(cluster, "n0", "n1")
    assert standings(cluster) == [Standing.UNAVAILABLE, Standing.QUEUED]
    cluster.call("a/x", 1)
    assert cluster.target("a/x") == 1


def test_once_its_time_is_over_the_next_call_is_judged_anew() -> None:
    cluster = known(entry("a/x", 0, residency=HUGE))
    cluster.call("a/x", 1)
    cluster.wait(29.0)
    cluster.call("a/x", 1)
    assert standings(cluster) == [Standing.UNAVAILABLE], "until then nothing is tried"
    cluster.call("a/x", 0)
    cluster.wait(2.0)
    assert standings(cluster) == [Standing.UNAVAILABLE, Standing.QUEUED]
    cluster.call("a/x", 1)
    assert standings(cluster) == [Standing.UNAVAILABLE, Standing.QUEUED, Standing.UNAVAILABLE]


def test_a_lost_node_and_memory_that_is_not_there_make_what_waits_impossible() -> None:
    taken = ResidencySpec(weight_bytes=8, dedicated=True)
    cluster = known(entry("b/x", 1, residency=taken))
    cluster.join(10, node_id="n1")
    listing(cluster, "n0", "n1")
    cluster.apply(application(entry("b/x", 1, residency=taken)), application(entry("c/x", 1, residency=taken)))
    cluster.apply(application(entry("a/x", 1, residency=PATIENT)))
    assert standings(cluster) == [Standing.QUEUED]
    cluster.tell(MemoryMeasured(node_id="n1", gpu_bytes=(9,), at=cluster.now))
    assert standings(cluster) == [Standing.QUEUED, Standing.UNAVAILABLE]
    cluster.tell(MemoryMeasured(node_id="n1", gpu_bytes=(10,), at=cluster.now))
    assert standings(cluster)[-1] is Standing.QUEUED
    cluster.tell(NodeLost(node_id="n1", at=cluster.now))
    while cluster.now < 60.0:
        cluster.call("a/x", 1)
        assert standings(cluster)[-1] is Standing.QUEUED, "it may come back"
        cluster.wait(4.0)
    cluster.call("a/x", 1)
    assert standings(cluster)[-1] is Standing.UNAVAILABLE


def test_what_is_applied_anew_is_judged_anew() -> None:
    cluster = known(entry("a/x", 0, residency=HUGE))
    cluster.call("a/x", 1)
    cluster.apply(application(entry("a/x", 0, residency=SMALL)))
    assert standings(cluster) == [Standing.UNAVAILABLE, Standing.QUEUED]
    cluster.call("a/x", 1)
    assert standings(cluster)[-1] is Standing.READY


def test_a_replica_that_serves_is_not_judged_by_what_its_next_version_takes() -> None:
    cluster = known(entry("a/x", 1, residency=SMALL))
    cluster.apply(application(entry("a/x", 2, residency=HUGE)))
    assert standings(cluster)[-1] is Standing.READY
    listing(cluster, "n0")
    cluster.tell(NodesListed(node_ids=("n0",), at=cluster.now))
    assert standings(cluster)[-1] is Standing.READY


def test_what_turned_out_to_take_more_than_any_node_has_is_refused() -> None:
    cluster = known(entry("a/x", 1, residency=SMALL))
    cluster.tell(UsageReported(replica_id="a/x@1#1.0", gpu_bytes=(9,), at=cluster.now))
    assert cluster.phases() == {"a/x@1#1.0": "WAITING"}
    assert "9 bytes do not fit" in told(cluster)[-1].because


def test_a_shape_that_may_appear_is_waited_for() -> None:
    shapes = (ExpectedShape(gpu_bytes=(12,), labels={"zone": "b"}),)
    near = ResidencySpec(weight_bytes=10, node_labels={"zone": "a"}, wait_for_room_s=20.0)
    cluster = Cluster()
    cluster.join(8)
    listing(cluster, "n0", expected=shapes)
    cluster.apply(application(entry("a/x", 0, residency=HUGE)), application(entry("b/x", 0, residency=near)))
    cluster.call("a/x", 1)
    cluster.call("b/x", 1)
    assert (standings(cluster), standings(cluster, "b/x")) == ([Standing.QUEUED], [Standing.UNAVAILABLE])
    listing(cluster, "n0")
    assert standings(cluster) == [Standing.QUEUED, Standing.UNAVAILABLE], "no such node is to come any more"


def test_what_is_being_deleted_is_not_judged() -> None:
    cluster = known(entry("a/x", 1, residency=HUGE))
    going = cluster_step(cluster.state, ApplyRequested(applications=(), prune=True, at=0.0)).state
    assert going.deployments["a/x"].deleting
    step = cluster_step(going, NodesListed(node_ids=None, at=0.0))
    assert step.state.deployments == going.deployments


def test_a_refusal_without_cause_and_a_wish_that_cannot_be_met_are_violations() -> None:
    cluster = known(entry("a/x", 0, residency=SMALL))
    entries = cluster.state.deployments
    refused = replace(entries["a/x"], residency=replace(entries["a/x"].residency, unfit="x", failed_until=30.0))
    state = replace(cluster.state, deployments=entries.set("a/x", refused))
    assert [each.rule for each in check(state)] == ["T18"]
    cluster = Cluster()
    cluster.join(8)
    cluster.apply(application(entry("a/x", 0, residency=HUGE)))
    cluster.call("a/x", 1)
    cluster.wait(6.0)
    assert check(cluster.state) == []
    state = replace(cluster.state, weights=replace(cluster.state.weights, missing=Ordered()))
    assert [each.rule for each in check(state)] == ["T18"]


def planner(*nodes: tuple[tuple[int, ...], dict[str, str]]) -> Any:
    state = open_residency()
    for number, (gpus, labels) in enumerate(nodes):
        joined = memory.NodeJoined(node_id=f"n{number}", gpu_bytes=gpus, labels=labels, at=0.0)
        state = residency_step(state, joined).state
    return state


@pytest.mark.parametrize(
    ("nodes", "needs", "why"),
    [
        ([((8,), {})], {"weight_bytes": 8}, ""),
        ([((8,), {}), ((4, 4), {})], {"weight_bytes": 8, "gpus": 2}, ""),
        ([], {"weight_bytes": 1}, "no node could ever hold it: there is none"),
        ([((), {})], {"weight_bytes": 1}, "n0: 1 bytes do not fit: it has 0 GPUs of at most 0 bytes"),
        ([((8,), {})], {"weight_bytes": 4, "gpus": 2}, "n0: 4 bytes over 2 GPUs do not fit: it has 1 GPU of at most 8 bytes"),
        (
            [((4, 3), {})],
            {"weight_bytes": 8, "gpus": 2},
            "n0: 8 bytes over 2 GPUs do not fit: it has 2 GPUs of at most 4 bytes",
        ),
        ([((8,), {"zone": "a"})], {"weight_bytes": 4, "node_labels": {"zone": "b"}}, "n0: it is not labelled zone=b"),
        ([((10_000,), {})], {"weight_bytes": 10_001}, "n0: 10001 bytes do not fit"),  # one shape holds both sizes
        (
            [((9,), {}), ((2,), {"zone": "b"}), ((3,), {"zone": "b"}), ((8,), {}), ((8,), {})],
            {"weight_bytes": 4, "node_labels": {"zone": "b"}},
            "no node could ever hold it: n2: 4 bytes do not fit: it has 1 GPU of at most 3 bytes; "
            "n1: 4 bytes do not fit: it has 1 GPU of at most 2 bytes; n0: it is not labelled zone=b; 2 more could not either",
        ),
    ],
)
def test_why_no_node_could_ever_hold_it(nodes: Any, needs: dict[str, Any], why: str) -> None:
    spec = ModelSpec(model="m", **needs)
    said = why_never(planner(*nodes), spec, spec.total_bytes, ())
    assert why in said
    assert bool(why) is bool(said)


@pytest.mark.parametrize("wrong", [{"gpu_bytes": ()}, {"gpu_bytes": 8}, {"gpu_bytes": (0,)}, {"gpu_bytes": (8,), "labels": 1}])
def test_a_wrong_shape_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError, match=r"ExpectedShape\."):
        ExpectedShape(**wrong)


@pytest.mark.parametrize("wrong", [{"node_ids": "n0"}, {"node_ids": (1,)}, {"node_ids": (), "expected_shapes": (1,)}])
def test_a_wrong_list_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidEventError, match=r"NodesListed\."):
        NodesListed(at=0.0, **wrong)
