"""Section 2.3, V8: every end by its own fault counts in its slot, also after it was ready; `rankcore/rules/failures.py`."""

import pytest

from rankcore import DeploymentSpec, DeploymentStatus, NoteKind
from rankcore.commands import StartReplica
from rankcore.rules.failures import backoff_s
from tests.scripted import Deployment


def newest(d: Deployment) -> str:
    return d.sent(StartReplica)[-1].replica_id


def failures(d: Deployment, rank: int = 0) -> int:
    return d.state.tables.slots[rank].failures


def crash_loop(d: Deployment, until_s: float, lives_s: float = 1.0) -> None:
    """Whoever is ready in rank 0 dies so long after it was."""
    while d.now < until_s:
        d.settle()
        holder = d.state.holder_of(0)
        d.wait(lives_s if holder is not None else 0.5)
        if holder is not None:
            d.die(holder)


def test_a_proven_version_that_dies_a_second_after_it_was_ready_is_started_nine_times_in_two_minutes_at_most() -> None:
    """V8."""
    d = Deployment.running(1)
    d.forget()
    crash_loop(d, until_s=120.0)
    assert 4 <= len(d.sent(StartReplica)) <= 9
    assert d.status is not DeploymentStatus.DEPLOY_FAILED


def test_the_first_crash_of_who_was_ready_is_replaced_at_once_and_the_next_ones_wait() -> None:
    d = Deployment.running(2, start_backoff_s=2.0, start_backoff_max_s=10.0)
    waits = []
    for _ in range(6):
        d.settle()
        died_at, starts = d.now, len(d.sent(StartReplica))
        d.die(d.state.holder_of(0))
        while len(d.sent(StartReplica)) == starts:
            d.wait(0.5)
        waits.append(d.now - died_at)
    assert waits == [0.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert [note.because.partition("; ")[2] for note in d.noted(NoteKind.BACKED_OFF)][:1] == [
        "failure 2 in its slot, next start after 2 s"
    ]


@pytest.mark.parametrize(("was_ready", "waits"), [(False, [1.0, 2.0, 4.0, 5.0, 5.0]), (True, [0.0, 1.0, 2.0, 4.0, 5.0])])
def test_how_long_a_slot_waits(was_ready: bool, waits: list[float]) -> None:
    spec = DeploymentSpec(name="llm", target_replicas=1, start_backoff_s=1.0, start_backoff_max_s=5.0)
    assert [backoff_s(spec, count, was_ready=was_ready) for count in range(1, 6)] == waits
    assert backoff_s(spec, 5000, was_ready=was_ready) == 5.0


@pytest.mark.parametrize("way", ["die", "stopped", "missing", "unhealthy"])
def test_however_it_ends_by_its_own_fault_it_is_counted_once(way: str) -> None:
    d = Deployment.running(2)
    getattr(d, way)("llm#1.0")
    if way == "unhealthy":
        d.stopped("llm#1.0")
    assert failures(d) == 1


def test_the_failures_of_starts_and_of_who_was_ready_are_one_row() -> None:
    d = Deployment.running(1)
    d.die(newest(d))
    d.start_fails(newest(d))
    assert failures(d) == 2
    d.wait(2.0)
    d.settle()
    d.die(newest(d))
    assert failures(d) == 3


def test_a_lost_node_and_a_stop_by_name_are_no_failures() -> None:
    d = Deployment.running(1)
    d.stop_by_name("llm#1.0")
    d.settle()
    d.lose("n0", at=1.0)
    assert failures(d) == 0
    assert d.state.holder_of(0) is not None


@pytest.mark.parametrize("way", ["die", "unhealthy", "stop_by_name", "lose"])
def test_a_replica_that_was_ready_for_long_clears_its_slots_failures_when_it_ends(way: str) -> None:
    d = Deployment.running(1, stable_after_s=100.0)
    d.die(newest(d))
    d.settle()
    d.die(newest(d))
    d.wait(1.0)
    d.settle()
    assert failures(d) == 2
    d.wait(100.0)
    assert failures(d) == 2, "being ready alone clears nothing"
    d.lose("n0") if way == "lose" else getattr(d, way)(newest(d))
    assert failures(d) == (1 if way in ("die", "unhealthy") else 0)


def test_a_replica_that_was_ready_for_not_quite_so_long_clears_nothing() -> None:
    d = Deployment.running(1, stable_after_s=100.0)
    d.die(newest(d))
    d.settle()
    d.wait(99.5)
    d.die(newest(d))
    assert failures(d) == 2


def test_long_service_on_one_build_clears_nothing_of_another_that_fails_in_its_slot() -> None:
    """Else the successor's version would be started before its back-off is over."""
    d = Deployment.running(1, stable_after_s=100.0, max_surge=1, start_backoff_s=10.0)
    d.wait(100.0)
    d.change(version="2")
    d.start_fails(newest(d))
    assert failures(d) == 1
    d.forget()
    d.lose("n0")
    assert (failures(d), d.sent(StartReplica)) == (1, [])
    d.wait(10.0)
    assert [each.version for each in d.sent(StartReplica)] == ["2"]


def test_a_config_that_has_arrived_begins_the_time_anew() -> None:
    """The failures of a build are forgotten after long service on that build."""
    d = Deployment.running(1, stable_after_s=100.0)
    d.wait(90.0)
    d.change(user_config={"a": 1})
    assert d.state.replicas["llm#1.0"].ready_at is None
    d.wait(4.0)
    d.settle()
    assert d.state.replicas["llm#1.0"].ready_at == 94.0


def test_a_version_that_is_no_longer_wanted_counts_nowhere() -> None:
    d = Deployment.running(2, max_unavailable=1)
    d.change(version="2")
    (old,) = [each for each in d.state.replicas if each not in d.draining and d.state.replicas[each].version == "1"]
    rank = d.ranks[old]
    d.die(old)
    assert failures(d, rank) == 0
    assert d.state.replicas[d.state.holder_of(rank)].version == "2"


def test_the_wait_ends_with_another_version() -> None:
    d = Deployment.running(1)
    for _ in range(4):
        d.die(newest(d))
        d.wait(30.0)
        d.settle()
    d.die(newest(d))
    assert d.state.holder_of(0) is None
    d.change(version="2")
    assert d.state.replicas[d.state.holder_of(0)].version == "2"


def test_a_build_that_works_waits_no_longer_for_its_own_failures_once_another_has_failed_in_the_slot() -> None:
    """Section 2.3: a slot counts the failures of the build that failed in it last."""
    d = Deployment.running(1, user_config={"a": 1}, max_start_failures=1)
    d.die("llm#1.0")
    d.start_fails("llm#1.1")
    assert d.state.holder_of(0) is None
    d.change(user_config={"a": 2})
    d.start_fails("llm#1.2")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert d.state.holder_of(0) == "llm#1.3"


def test_below_the_partition_a_failure_is_one_of_what_is_kept_there() -> None:
    """V12: the user_config that is rolled out above has no part in it."""
    d = Deployment.running(2, partition=1)
    kept = d.state.spec.build
    d.die("llm#1.0")
    d.change(user_config={"a": 1})
    d.start_fails("llm#1.2")
    assert (failures(d), d.state.tables.slots[0].failed_build) == (2, kept)


def test_a_preparation_that_takes_too_long_in_the_step_of_its_predecessors_failure_is_one_more() -> None:
    """Each is a failure of its own in the slot: the one of a replica that was ready, the other of one that never was."""
    d = Deployment.running(2, hand_over="prepared", max_surge=1, start_timeout_s=60.0)
    d.replace("llm#1.0")
    d.place(newest(d))
    d.unhealthy("llm#1.0", at=d.now + 60.0)
    slot = d.state.tables.slots[0]
    assert (slot.failures, slot.retry_at) == (2, d.now + 2 * d.state.spec.start_backoff_s)
