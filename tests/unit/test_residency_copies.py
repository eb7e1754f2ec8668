"""Which copies stay in CPU memory where not all can (T17)."""

import attrs
import pytest
from msgspec.structs import replace

from rankcore.errors import InvalidSpecError
from rankcore.residency import ResidencyPolicy
from rankcore.residency.copies import Copy, cheapest_to_drop
from rankcore.residency.events import EvictRequested
from rankcore.residency.invariants import check_step
from rankcore.residency.step import residency_step
from tests.residents import Cluster, model
from tests.unit.test_residency_invariants import step_of


def rested(*copies, cpu, **policy):
    """Models of (name, bytes), each of which was on the GPU, in this order and 300 s apart, and is WARM."""
    cluster = Cluster((100,), cpu=cpu, **policy)
    for name, size in copies:
        cluster.deploy(model(name, size)).settle().evict(model=name).settle().wait(300.0)
    return cluster


def levels(cluster, *replica_ids):
    return [cluster.where(each)[0] for each in replica_ids]


def test_the_copy_that_was_not_used_for_longest_goes_first_though_it_is_larger():
    cluster = rested(("old", 40), ("new", 20), cpu=60).deploy(model("v", 40)).settle().evict(model="v")
    assert cluster.sent() == [("DropFromCpu", "old#0")]
    assert levels(cluster.settle(), "old#0", "new#1", "v#2") == ["COLD", "WARM", "WARM"]


def test_copies_that_save_more_than_the_newcomer_stay_and_it_becomes_cold():
    cluster = rested(("large", 60), cpu=60).deploy(model("v", 10)).settle().evict(model="v")
    assert cluster.sent() == [("UnloadFromGpu", "v#1")], "10 that were used just now save less than 60 that were 300 s ago"


def test_a_copy_that_was_not_used_for_long_enough_goes_for_a_small_newcomer():
    cluster = rested(("large", 60), cpu=60).wait(3000.0).deploy(model("v", 10)).settle().evict(model="v")
    assert cluster.sent() == [("DropFromCpu", "large#0")]


def test_nothing_is_dropped_where_all_of_them_would_not_suffice():
    cluster = rested(("a", 10), cpu=20).wait(3000.0).deploy(model("v", 25)).settle().evict(model="v")
    assert cluster.sent() == [("UnloadFromGpu", "v#1")]


def test_of_several_that_leave_at_once_the_one_that_saves_most_comes_first():
    cluster = Cluster((100,), cpu=50).deploy(model("large", 50)).settle().wait(3000.0)
    cluster.deploy(model("small", 40)).settle().deploy(model("m", 100)).settle()
    assert levels(cluster, "large#0", "small#1", "m#2") == ["COLD", "WARM", "HOT"]


@pytest.mark.parametrize(("policy", "dropped"), [("saving", ["old#0"]), ("smallest", ["new#1", "old#0"])])
def test_where_the_budget_is_lowered_those_go_first_that_were_not_used_for_longest(policy, dropped):
    cluster = rested(("old", 40), ("new", 10), cpu=60, warm_eviction=policy).join("n1", 100, cpu=30)
    assert cluster.sent() == [("DropFromCpu", each) for each in dropped]


def copies(*sizes_and_savings):
    return [Copy(str(number), size, saving) for number, (size, saving) in enumerate(sizes_and_savings)]


@pytest.mark.parametrize(
    ("there", "missing", "saving", "dropped"),
    [
        ([(5, 1.0), (5, 2.0)], 5, 10.0, "0"),
        ([(5, 1.0), (5, 2.0)], 6, 10.0, "01"),
        ([(2, 0.1), (5, 1.0), (5, 1.0)], 10, 9.0, "12"),  # the first is spared once the others are chosen
        ([(100, 10.0), (1, 0.5)], 1, 10.0, "1"),  # one alone loses less
        ([(5, 3.0)], 5, 3.0, "0"),
        ([(5, 3.0)], 5, 2.9, None),
        ([(5, 3.0)], 6, 9.0, None),
        ([], 1, 9.0, None),
    ],
)
def test_who_is_dropped(there, missing, saving, dropped):
    found = cheapest_to_drop(copies(*there), missing, saving)
    assert (None if found is None else "".join(sorted(each.replica_id for each in found))) == dropped


def test_copies_that_are_dropped_though_they_save_more_or_could_be_spared_are_seen():
    cluster = rested(("old", 40), ("new", 20), cpu=60).deploy(model("v", 40)).settle()
    case = step_of(cluster, cluster_eviction(cluster, "v#2"))
    assert case.rules() == set()
    smaller = replace(case.step.state.replicas["v#2"], cpu_need_bytes=10)
    assert "T17" in case.rules(state=with_record(case, smaller))
    spared = replace(case.step.state.replicas["v#2"], cpu_bytes=40)
    assert "T17" in case.rules(state=with_record(case, spared))


def cluster_eviction(cluster, replica_id):
    return EvictRequested(replica_id=replica_id, at=cluster.now)


def with_record(case, record):
    return attrs.evolve(case.step.state, replicas=case.step.state.replicas.set(record.replica_id, record))


@pytest.mark.parametrize("wrong", [{"warm_eviction": "largest"}, {"reuse_horizon_s": 0.0}])
def test_a_wrong_policy_is_refused(wrong):
    with pytest.raises(InvalidSpecError, match=next(iter(wrong))):
        ResidencyPolicy(**wrong)


def test_a_step_is_checked_by_its_own_policy():
    cluster = rested(("large", 60), cpu=60).deploy(model("v", 10)).settle()
    event = cluster_eviction(cluster, "v#1")
    step = residency_step(cluster.state, event)
    assert check_step(cluster.state, event, step) == []
    smallest = attrs.evolve(step.state, policy=ResidencyPolicy(warm_eviction="smallest"))
    assert "T6" in {each.rule for each in check_step(cluster.state, event, step._replace(state=smallest))}
