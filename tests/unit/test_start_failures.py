"""Section 2.3: start failures are counted per slot and back off; a bad version does not take the old one down."""

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaState
from rankcore.commands import InitializeReplica, KillReplica, StartReplica, StopReplica, WakeAt
from rankcore.events import TrialRequested
from tests.scripted import Deployment


def newest(d: Deployment) -> str:
    return d.sent(StartReplica)[-1].replica_id


def fail_until_given_up(d: Deployment) -> None:
    """Fail every start of the version in force, until the core gives it up."""
    for _ in range(20):
        if d.status is DeploymentStatus.DEPLOY_FAILED or d.noted(NoteKind.ROLLED_BACK):
            return
        waiting = [c for c in d.outstanding.values() if isinstance(c, StartReplica) and c.version == d.state.spec.version]
        if waiting:
            d.start_fails(waiting[0].replica_id)
        elif d.outstanding:
            d.answer(min(d.outstanding))
        else:
            d.wait(70.0)
    raise AssertionError("never given up")


def test_a_start_failure_backs_off_on_the_event_clock_by_wake_at() -> None:
    """Section 2.3."""
    d = Deployment(1, start_backoff_s=2.0)
    d.forget()
    d.start_fails("llm#1.0", at=1.0)
    assert d.sent(StartReplica) == []
    assert [wake.at for wake in d.sent(WakeAt)] == [3.0]
    d.wait(1.9)
    assert d.sent(StartReplica) == []
    d.wait(0.1)
    assert [start.rank for start in d.sent(StartReplica)] == [0]


def test_the_wait_doubles_with_each_failure_up_to_the_longest() -> None:
    """Section 2.3: exponentially."""
    d = Deployment(1, start_backoff_s=1.0, start_backoff_max_s=10.0, max_start_failures=100)
    waits = []
    for _ in range(6):
        failed_at = d.now
        d.start_fails(newest(d))
        starts = len(d.sent(StartReplica))
        while len(d.sent(StartReplica)) == starts:
            d.wait(0.5)
        waits.append(d.now - failed_at)
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_failures_are_counted_per_slot() -> None:
    """Section 2.3: two failures in each of two slots are not four in one."""
    d = Deployment(2, max_start_failures=3)
    for _ in range(2):
        for command in list(d.outstanding.values()):
            d.start_fails(command.replica_id)
        d.wait(30.0)
    assert d.status is DeploymentStatus.UPDATING
    d.start_fails(newest(d))
    assert d.status is DeploymentStatus.DEPLOY_FAILED


@pytest.mark.parametrize("way", ["start_fails", "die", "stopped", "unhealthy"])
def test_a_replica_that_ends_while_it_starts_counts_as_a_start_failure(way: str) -> None:
    """Section 2.3: ReplicaStartFailed, death while STARTING."""
    d = Deployment(1)
    d.place("llm#1.0")
    getattr(d, way)("llm#1.0")
    assert len(d.noted(NoteKind.START_FAILED)) == 1


@pytest.mark.parametrize("placed", [False, True])
def test_the_executors_start_failed_counts_wherever_the_start_failed(placed: bool) -> None:
    """Section 2.3: ReplicaStartFailed, before and after it was placed."""
    d = Deployment(1)
    if placed:
        d.place("llm#1.0")
    d.start_fails("llm#1.0")
    assert len(d.noted(NoteKind.START_FAILED)) == 1


@pytest.mark.parametrize("placed", [False, True])
def test_a_death_before_the_replica_starts_counts_too(placed: bool) -> None:
    """Section 2.3: in whatever state."""
    d = Deployment(2)
    if placed:
        d.place("llm#1.0")
    d.forget()
    d.die("llm#1.0")
    assert len(d.noted(NoteKind.START_FAILED)) == 1
    assert d.sent(StartReplica) == []


def test_a_lost_node_is_not_counted() -> None:
    """Section 2.3: not NodeLost, even while STARTING."""
    d = Deployment(1)
    d.place("llm#1.0", "a")
    assert d.state.replicas["llm#1.0"].state is ReplicaState.STARTING
    d.forget()
    d.lose("a", at=1.0)
    assert d.noted(NoteKind.START_FAILED) == []
    assert len(d.sent(StartReplica)) == 1


def test_the_start_time_out_is_counted_from_placed() -> None:
    """Section 2.3: however long it took to be placed."""
    d = Deployment(1, start_timeout_s=60.0)
    d.wait(500.0)
    assert d.sent(KillReplica) == []
    d.place("llm#1.0")
    d.wait(59.0)
    assert d.sent(KillReplica) == []
    d.wait(1.0)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.0"]
    assert len(d.noted(NoteKind.START_FAILED)) == 1
    d.stopped("llm#1.0")
    assert len(d.noted(NoteKind.START_FAILED)) == 1


def test_a_replica_that_was_placed_and_waits_for_its_rank_has_time_enough_to_start() -> None:
    """Section 2.3: placed, and not initialised for as long as the rank is another's."""
    d = Deployment.running(2, start_timeout_s=60.0)
    d.die("llm#1.1")
    d.resize(1, stop_first=["llm#1.0"])
    d.place("llm#1.2")
    d.wait(15.0)
    d.stopped("llm#1.0")
    assert d.state.replicas["llm#1.2"].state is ReplicaState.STARTING
    d.wait(50.0)
    assert d.sent(KillReplica, "llm#1.2") == []


def test_after_so_many_failures_in_one_slot_a_version_that_was_never_ready_has_failed() -> None:
    """Section 2.3: DEPLOY_FAILED."""
    d = Deployment(2, max_start_failures=3)
    fail_until_given_up(d)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert len(d.noted(NoteKind.DEPLOY_FAILED)) == 1
    assert "3 times" in d.noted(NoteKind.DEPLOY_FAILED)[0].because


def given_up(replicas: int) -> Deployment:
    """A first deployment that has failed, and of which nothing is left."""
    d = Deployment(replicas, max_start_failures=2)
    fail_until_given_up(d)
    d.settle()
    assert dict(d.state.replicas) == {}
    d.forget()
    return d


@pytest.mark.parametrize("replicas", [1, 3])
def test_what_was_given_up_is_tried_once_more_with_one_replica_and_the_others_follow_once_it_is_ready(replicas: int) -> None:
    """Section 2.3."""
    d = given_up(replicas)
    d.send(TrialRequested(at=d.now))
    assert [each.rank for each in d.sent(StartReplica)] == [0]
    d.send(TrialRequested(at=d.now))
    assert len(d.sent(StartReplica)) == 1, "one at a time"
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.settle()
    assert len(d.sent(InitializeReplica)) == replicas
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == list(range(replicas))


def test_what_is_tried_once_more_and_fails_again_stays_given_up() -> None:
    """Section 2.3."""
    d = given_up(2)
    for tries in (1, 2):
        d.send(TrialRequested(at=d.now))
        d.start_fails(newest(d))
        d.wait(1000.0)
        assert len(d.sent(StartReplica)) == tries
        assert d.status is DeploymentStatus.DEPLOY_FAILED
        assert dict(d.state.replicas) == {}


def test_what_was_given_up_and_then_scaled_is_tried_once_more_as_well() -> None:
    """Section 2.3: its slots are gone with the target."""
    d = given_up(1)
    d.resize(0)
    d.send(TrialRequested(at=d.now))
    assert d.sent(StartReplica) == [], "nothing is wanted"
    d.resize(2)
    assert d.sent(StartReplica) == []
    d.send(TrialRequested(at=d.now))
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == [0, 1]


def test_a_deployment_that_was_not_given_up_or_has_a_build_that_works_is_not_tried_once_more() -> None:
    """Section 2.3."""
    d = Deployment.running(1, max_start_failures=1)
    for _ in range(2):
        d.forget()
        d.send(TrialRequested(at=d.now))
        assert d.sent(StartReplica) == []
        assert d.state.status in (DeploymentStatus.HEALTHY, DeploymentStatus.DEPLOY_FAILED)
        d.change(version="bad")
        fail_until_given_up(d)
        d.settle()


def test_a_first_deployment_that_has_failed_starts_nothing_more() -> None:
    """Section 2.3: there is no proven spec to go on with."""
    d = Deployment(1, max_start_failures=2)
    fail_until_given_up(d)
    d.settle()
    d.forget()
    d.wait(1000.0)
    assert d.sent(StartReplica) == []
    assert dict(d.state.replicas) == {}


def test_what_ran_before_keeps_running_when_an_update_has_failed() -> None:
    """Section 2.3: and no more of it is stopped."""
    d = Deployment.running(4, max_unavailable=1, max_start_failures=2)
    d.change(version="2")
    fail_until_given_up(d)
    d.settle()
    d.wait(200.0)
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    veterans = {"llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3"}
    assert len(veterans & set(d.ranks)) == 3
    assert len(veterans & {stop.replica_id for stop in d.sent(StopReplica)}) == 1


def test_the_replica_whose_failure_was_one_too_many_is_not_told_to_stop() -> None:
    """Sections 2.3 and 2.4: it is gone; the others of its version that do not run yet are stopped."""
    d = Deployment(3, max_start_failures=1)
    d.start_fails("llm#1.1")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.0", "llm#1.2"]


def test_a_slot_lost_then_restarts_with_the_last_proven_spec() -> None:
    """Section 2.3: the slot of the update, and those that crash later."""
    d = Deployment.running(3, max_unavailable=1, max_start_failures=2, scarcity_after_s=None)
    d.change(version="2")
    fail_until_given_up(d)
    d.settle()
    d.wait(100.0)
    d.settle()
    d.forget()
    d.die("llm#1.2")
    assert [(start.rank, start.version) for start in d.sent(StartReplica)] == [(2, "1")]
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert sorted(d.ranks.values()) == [0, 1, 2]
    assert {replica.version for replica in d.state.replicas.values()} == {"1"}
    assert d.serving == 3


@pytest.mark.parametrize("change", [{"version": "3"}, {"user_config": {"a": 1}}, {"version": "1"}])
def test_a_spec_that_alters_version_or_user_config_leaves_deploy_failed(change: dict[str, object]) -> None:
    """Section 2.3: and goes on with it at once."""
    d = Deployment.running(3, max_unavailable=1, max_start_failures=2)
    d.change(version="2")
    fail_until_given_up(d)
    d.change(**change)
    assert d.status is not DeploymentStatus.DEPLOY_FAILED
    d.settle()
    d.wait(1.0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.version for replica in d.state.replicas.values()} == {d.state.spec.version}


def test_a_spec_that_alters_only_the_target_does_not_leave_deploy_failed() -> None:
    """Section 2.3: the newcomers run the last proven spec."""
    d = Deployment.running(2, max_unavailable=1, max_start_failures=2)
    d.change(version="2")
    fail_until_given_up(d)
    d.settle()
    d.resize(4)
    d.settle()
    d.wait(100.0)
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert sorted(d.ranks.values()) == [0, 1, 2, 3]
    assert {replica.version for replica in d.state.replicas.values()} == {"1"}


def test_a_version_that_was_ever_ready_retries_for_ever() -> None:
    """Section 2.3."""
    d = Deployment.running(2, max_start_failures=2)
    d.die("llm#1.1")
    for _ in range(12):
        d.start_fails(newest(d))
        d.wait(64.0)
    assert d.status is DeploymentStatus.UNHEALTHY
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_version_that_was_ready_once_in_any_slot_retries_for_ever() -> None:
    """Section 2.3: although it was never healthy."""
    d = Deployment(2, max_start_failures=2)
    d.place("llm#1.0")
    d.ready("llm#1.0")
    for _ in range(6):
        d.start_fails(d.state.holder_of(1))
        d.wait(64.0)
    assert d.status is DeploymentStatus.UPDATING


def test_a_version_that_works_with_another_config_is_not_proven() -> None:
    """Section 2.3: a user_config can break a version too; a reconfigure that fails counts as a start failure."""
    d = Deployment.running(2, max_start_failures=2)
    d.change(user_config={"broken": True})
    for _ in range(2):
        victim = d.state.holder_of(0)
        if d.state.replicas[victim].state is ReplicaState.RECONFIGURING:
            d.reconfigure_fails(victim)
            d.stopped(victim)
        else:
            d.start_fails(victim)
        d.wait(5.0)
    assert d.status is DeploymentStatus.DEPLOY_FAILED


def test_a_failed_version_is_rolled_back_automatically_where_that_is_wanted() -> None:
    """Option `rollback`: to the last spec that was ever healthy."""
    d = Deployment.running(3, max_unavailable=1, max_start_failures=2, rollback=True, user_config={"a": 1})
    d.change(version="2", user_config={"a": 2})
    fail_until_given_up(d)
    assert (d.state.spec.version, d.state.spec.user_config) == ("1", {"a": 1})
    assert len(d.noted(NoteKind.ROLLED_BACK)) == 1
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == [0, 1, 2]
    assert {replica.version for replica in d.state.replicas.values()} == {"1"}


def test_a_rollback_keeps_the_target_that_the_user_asked_for_last() -> None:
    """Option `rollback`, R9."""
    d = Deployment.running(2, max_unavailable=1, max_start_failures=2, rollback=True)
    d.change(version="2", target_replicas=4)
    fail_until_given_up(d)
    assert d.state.world_size == 4
    d.settle()
    d.wait(100.0)
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1, 2, 3]


def test_a_rollback_after_a_restart_needs_the_previous_spec_from_the_checkpoint() -> None:
    """Section 2.1: recover(previous=...)."""
    d = Deployment.running(2, max_unavailable=1, max_start_failures=2, rollback=True)
    d.change(version="2")
    d.restart()
    for replica_id in list(d.outstanding):
        d.report(replica_id)
    fail_until_given_up(d)
    assert d.state.spec.version == "1"
    d.settle()
    d.wait(100.0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_first_version_that_fails_has_nothing_to_be_rolled_back_to() -> None:
    """Option `rollback`."""
    d = Deployment(1, max_start_failures=1, rollback=True)
    d.start_fails("llm#1.0")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert d.noted(NoteKind.ROLLED_BACK) == []


def test_another_version_does_not_wait_for_the_back_off_of_the_failed_one() -> None:
    """Section 2.3: it goes straight to the newest spec."""
    d = Deployment(1, max_start_failures=5)
    d.start_fails("llm#1.0")
    d.forget()
    d.change(version="2")
    assert [start.version for start in d.sent(StartReplica)] == ["2"]


def test_failures_of_another_version_do_not_count_against_this_one() -> None:
    """Section 2.3: for a version that was never ready."""
    d = Deployment(1, max_start_failures=2)
    d.start_fails("llm#1.0")
    d.change(version="2")
    d.start_fails(newest(d))
    assert d.status is DeploymentStatus.UPDATING
    d.wait(5.0)
    d.start_fails(newest(d))
    assert d.status is DeploymentStatus.DEPLOY_FAILED


def test_a_failed_start_with_surge_leaves_the_old_replica_running() -> None:
    """Section 2.3: the successor fails, its predecessor was not stopped."""
    d = Deployment.running(1, max_surge=1, max_start_failures=2)
    d.change(version="2")
    for _ in range(2):
        d.start_fails(newest(d))
        d.wait(10.0)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert d.ranks == {"llm#1.0": 0}
    assert d.sent(StopReplica, "llm#1.0") == []


def test_every_start_failure_and_its_wait_are_explained() -> None:
    """Notes: which slot, how often, when again."""
    d = Deployment(1)
    d.start_fails("llm#1.0", "no such image")
    (failed,) = d.noted(NoteKind.START_FAILED, "llm#1.0")
    assert failed.rank == 0
    assert "no such image" in failed.because
    assert "failure 1" in failed.because
    assert "1 s" in failed.because
