"""Section 2.3: what was counted in a slot that is scaled away goes on when its rank comes back; `rankcore/book/slots.py`."""

import attrs
import pytest
from msgspec.structs import replace

from rankcore import DeploymentState, DeploymentStatus, NoteKind, Step, step
from rankcore.commands import StartReplica
from rankcore.events import Event, ReplicasLeave, RetryRequested, SpecChanged
from rankcore.frozen import PMap
from rankcore.invariants.backoff import check_counts_outlive_slots, check_nobody_starts_early
from rankcore.progress import progress_of
from rankcore.state import Slot
from tests.scripted import Deployment


def started(d: Deployment) -> list[StartReplica]:
    """Without repeats."""
    return list(dict.fromkeys(d.sent(StartReplica)))


def fail_newest(d: Deployment) -> None:
    d.start_fails(started(d)[-1].replica_id)


def counted(d: Deployment, rank: int = 0) -> int:
    slot = d.state.tables.slots.get(rank) or d.state.tables.former.get(rank, Slot())
    return slot.failures


def test_what_fails_is_given_up_however_often_it_is_scaled_to_nothing_and_back() -> None:
    d = Deployment(1, max_start_failures=3)
    for _ in range(3):
        fail_newest(d)
        d.resize(0)
        d.resize(1)
        d.wait(10.0)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert len(started(d)) == 3


def test_a_deployment_that_is_scaled_to_nothing_and_back_waits_as_one_that_is_not() -> None:
    d = Deployment(1, max_start_failures=10, start_backoff_s=2.0)
    started_at = [0.0]
    for _ in range(4):
        fail_newest(d)
        d.resize(0)
        d.wait(0.5)
        d.resize(1)
        while len(started(d)) == len(started_at):
            d.wait(0.5)
        started_at.append(d.now)
    assert started_at == [0.0, 2.0, 6.0, 14.0, 30.0]
    assert len(started(d)) == 5


def test_while_it_waits_the_status_says_what_for() -> None:
    d = Deployment(2, max_start_failures=10, start_backoff_s=4.0)
    d.settle()
    for _ in range(2):
        d.die(d.state.holder_of(1))
        d.settle()
    d.resize(1)
    d.wait(1.0)
    d.resize(2)
    assert "rank 1 rests after 2 failures, next start in 3 s" in progress_of(d.state).because
    d.wait(3.0)
    assert d.state.holder_of(1) is not None


def test_each_rank_comes_back_with_what_was_counted_in_it() -> None:
    d = Deployment.running(3)
    d.die("llm#1.2")
    fail_newest(d)
    d.resize(0)
    d.settle()
    starts = len(started(d))
    d.resize(4)
    assert [start.rank for start in started(d)[starts:]] == [0, 1, 3]
    assert [counted(d, rank) for rank in range(4)] == [0, 0, 2, 0]


def test_another_build_is_started_at_once_in_a_rank_that_comes_back() -> None:
    d = Deployment(1, start_backoff_s=30.0)
    fail_newest(d)
    d.resize(0)
    starts = len(started(d))
    d.change(target_replicas=1, version="2")
    assert len(started(d)) == starts + 1
    assert counted(d) == 1


def test_replicas_that_leave_for_good_take_nothing_of_what_was_counted_along() -> None:
    d = Deployment.running(1)
    for _ in range(2):
        d.die(d.state.holder_of(0))
        d.wait(2.0)
        d.settle()
    d.send(ReplicasLeave(replica_ids=(d.state.holder_of(0),), at=d.now))
    d.settle()
    assert not d.state.tables.slots
    d.resize(1)
    assert counted(d) == 2


@pytest.mark.parametrize(("each_s", "tenures"), [(25.0, 3), (60.0, 1)])
def test_those_who_are_scaled_away_serve_off_what_was_counted_together(each_s: float, tenures: int) -> None:
    d = Deployment(1, start_backoff_s=1.0)
    fail_newest(d)
    d.wait(1.0)
    for left in range(tenures, 0, -1):
        assert counted(d) == 1, left
        d.settle()
        d.wait(each_s)
        d.resize(0)
        d.settle()
        d.resize(1)
    assert counted(d) == 0


def test_a_failure_begins_the_time_that_is_served_off_anew() -> None:
    d = Deployment(1, start_backoff_s=1.0)
    fail_newest(d)
    d.wait(1.0)
    for _ in range(2):
        d.settle()
        d.wait(50.0)
        d.resize(0)
        d.settle()
        d.resize(1)
        fail_newest(d)
        d.wait(4.0)
    assert counted(d) == 3


def test_who_runs_another_build_than_what_failed_serves_nothing_off() -> None:
    d = Deployment.running(1, max_start_failures=1)
    d.change(version="2")
    d.settle(except_for=[])
    d.resize(0)
    d.settle()
    assert not d.state.tables.former


def test_a_retry_ends_the_rest_of_a_rank_that_is_scaled_away_too() -> None:
    d = Deployment(1, start_backoff_s=30.0)
    fail_newest(d)
    d.resize(0)
    d.send(RetryRequested(at=d.now))
    assert [note.rank for note in d.noted(NoteKind.RETRIED)] == [0]
    starts = len(started(d))
    d.resize(1)
    assert len(started(d)) == starts + 1
    assert counted(d) == 1


def test_a_retry_of_what_was_given_up_forgives_ranks_that_are_scaled_away_too() -> None:
    d = Deployment(1, max_start_failures=2, start_backoff_s=1.0)
    for _ in range(2):
        fail_newest(d)
        d.wait(1.0)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.resize(0)
    assert counted(d) == 2
    d.send(RetryRequested(at=d.now))
    assert counted(d) == 0


def test_a_rank_that_is_moved_into_one_that_was_given_up_leaves_what_was_counted_there_behind() -> None:
    d = Deployment.running(3)
    d.die("llm#1.0")
    fail_newest(d)
    assert counted(d, 0) == 2
    d.resize(2)  # gives up the vacant rank 0; who has rank 2 moves there
    d.settle()
    assert d.ranks == {"llm#1.1": 1, "llm#1.2": 0}
    assert [counted(d, rank) for rank in range(3)] == [0, 0, 2]
    starts = len(started(d))
    d.resize(3)
    assert len(started(d)) == starts
    d.wait(2.0)
    assert started(d)[-1].rank == 2


def test_nothing_is_kept_of_a_deployment_that_is_deleted() -> None:
    d = Deployment.running(2)
    d.die("llm#1.1")
    fail_newest(d)
    d.die("llm#1.0")
    d.resize(1)
    assert counted(d, 1) == 2
    d.delete()
    assert not d.state.tables.former


# -- the invariant


def given_up() -> tuple[DeploymentState, SpecChanged, Step]:
    """A rank with two failures is scaled away."""
    d = Deployment.running(2)
    d.die("llm#1.1")
    fail_newest(d)
    before, event = d.state, SpecChanged(spec=attrs.evolve(d.state.spec, target_replicas=1), at=d.now)
    return before, event, step(before, event)


def found(before: DeploymentState, event: Event, result: Step, **tables: object) -> list[str]:
    state = attrs.evolve(result.state, tables=replace(result.state.tables, **tables))
    return [str(each) for each in check_counts_outlive_slots(before, event, result._replace(state=state))]


def test_the_invariant_sees_what_is_forgotten() -> None:
    before, event, result = given_up()
    assert found(before, event, result) == []
    (forgotten,) = found(before, event, result, former=PMap())
    assert "rank 1 was given up with 2 failures of ('1'," in forgotten
    fewer = replace(result.state.tables.former[1], failures=1)
    assert found(before, event, result, former=PMap({1: fewer})) == [forgotten]


def test_the_invariant_lets_another_build_take_the_count_over_in_the_same_step() -> None:
    before, event, result = given_up()
    other = replace(result.state.tables.former[1], failures=1, failed_build=("2", "x"))
    assert found(before, event, result, former=PMap({1: other})) == []


@pytest.mark.parametrize(("served_s", "forgotten"), [(59.0, 1), (60.0, 0)])
def test_the_invariant_knows_what_is_served_off(served_s: float, forgotten: int) -> None:
    before, event, result = given_up()
    slot = replace(before.tables.slots[1], served_s=served_s)
    before = attrs.evolve(before, tables=replace(before.tables, slots=before.tables.slots.set(1, slot)))
    assert len(found(before, event, result, former=PMap())) == forgotten


def test_the_invariant_knows_that_a_retry_forgives() -> None:
    before, _, result = given_up()
    assert found(before, RetryRequested(at=0.0), result, former=PMap()) == []


def test_the_invariant_sees_a_start_before_its_time_in_a_rank_that_comes_back() -> None:
    before, _, given = given_up()
    event = SpecChanged(spec=before.spec, at=given.state.clock)
    result = step(given.state, event)
    early = StartReplica(replica_id="llm#1.99", rank=1, version="1", node_id=None, bundles=(), epoch=1)
    assert list(check_nobody_starts_early(given.state, event, result)) == []
    (broken,) = check_nobody_starts_early(given.state, event, result._replace(commands=(*result.commands, early)))
    assert "rank 1 is started at 0, and rests until" in str(broken)
