"""Section 2.3, the lines that no other file is about: HEALTHY, failed reconfigures, suspicions, unasked ends."""

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaState
from rankcore.commands import InitializeReplica, KillReplica, ReconfigureReplica, StartReplica, StopReplica
from tests.scripted import Deployment

# ---------------------------------------------------------------------------------------------------------------------
# HEALTHY: exactly N replicas, all RUNNING or RECONFIGURING at the current version, none draining, no slot kept


def test_a_deployment_is_healthy_only_when_the_last_replica_is_ready() -> None:
    d = Deployment(2)
    assert d.status is DeploymentStatus.UPDATING
    d.place("llm#1.0")
    d.place("llm#1.1")
    d.ready("llm#1.0")
    assert d.status is DeploymentStatus.UPDATING
    d.ready("llm#1.1")
    assert d.status is DeploymentStatus.HEALTHY


def test_a_deployment_is_not_healthy_while_a_replica_drains() -> None:
    d = Deployment.running(3)
    d.resize(2)
    assert d.status is DeploymentStatus.DOWNSCALING
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_deployment_is_not_healthy_while_a_slot_is_kept() -> None:
    d = Deployment.running(2)
    d.die("llm#1.0")
    assert d.status is DeploymentStatus.UNHEALTHY
    d.start_fails("llm#1.2")
    assert d.state.kept_ranks == (0,)
    assert d.status is DeploymentStatus.UNHEALTHY


def test_a_deployment_is_not_healthy_while_a_replica_has_another_version() -> None:
    d = Deployment.running(2, max_unavailable=1)
    d.change(version="2")
    assert d.status is DeploymentStatus.UPDATING
    d.answer(min(d.outstanding))
    d.answer("llm#1.2")
    d.answer("llm#1.2")
    assert d.status is DeploymentStatus.UPDATING


def test_a_deployment_is_healthy_while_its_replicas_get_other_ranks() -> None:
    d = Deployment.running(2, max_unavailable=1)
    d.resize(1, ["llm#1.0"])
    d.answer("llm#1.0")
    assert d.count(ReplicaState.RECONFIGURING) == 1
    assert d.status is DeploymentStatus.HEALTHY


def test_a_deployment_is_not_healthy_before_its_replicas_have_acknowledged_a_user_config() -> None:
    """V6."""
    d = Deployment.running(2)
    d.change(user_config={"a": 1})
    d.acknowledge("llm#1.0")
    assert d.count(ReplicaState.RECONFIGURING) == 1
    assert d.status is DeploymentStatus.UPDATING
    assert d.state.previous.user_config is None
    d.acknowledge("llm#1.1")
    assert d.status is DeploymentStatus.HEALTHY


def test_an_upscale_is_upscaling_until_the_newcomers_are_ready() -> None:
    d = Deployment.running(2)
    d.resize(3)
    assert d.status is DeploymentStatus.UPSCALING
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


# ---------------------------------------------------------------------------------------------------------------------
# a failed reconfigure: what it believes is unknown


def moving() -> Deployment:
    """llm#1.2 is told to move from rank 2 to 0, and has not answered."""
    d = Deployment.running(3)
    d.resize(2, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")
    return d


def test_after_a_failed_reconfigure_the_replica_is_killed_and_replaced_with_the_books_rank() -> None:
    d = moving()
    d.forget()
    d.reconfigure_fails("llm#1.2")
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.2"]
    assert d.sent(StartReplica) == []
    d.stopped("llm#1.2")
    d.wait(1.0)
    assert [start.rank for start in d.sent(StartReplica)] == [0]


def test_after_a_failed_reconfigure_both_ranks_stay_taken_until_the_replica_is_gone() -> None:
    d = moving()
    d.reconfigure_fails("llm#1.2")
    d.resize(4)
    newcomers = [start.rank for start in d.sent(StartReplica) if start.rank not in (0, 1, 2) or start.replica_id > "llm#1.2"]
    assert newcomers == [3]
    d.stopped("llm#1.2")
    d.wait(1.0)
    assert sorted(start.rank for start in d.sent(StartReplica) if start.replica_id > "llm#1.3") == [0, 2]


def test_a_failed_reconfigure_counts_as_a_failure() -> None:
    d = moving()
    d.reconfigure_fails("llm#1.2")
    assert d.state.tables.slots[0].failures == 1


def test_a_failed_reconfigure_of_an_older_revision_is_late() -> None:
    d = moving()
    older = d.state.replicas["llm#1.2"].revision
    d.change(user_config={"a": 1}, config_rollout="at_once")
    d.forget()
    d.reconfigure_fails("llm#1.2", older)
    assert d.sent(KillReplica) == []
    assert len(d.noted(NoteKind.LATE, "llm#1.2")) == 1


# ---------------------------------------------------------------------------------------------------------------------
# unhealthy but alive; ends that nobody asked for


def test_an_unhealthy_replica_is_killed_at_once_and_is_no_longer_routed_to() -> None:
    d = Deployment.running(2)
    d.unhealthy("llm#1.1", "health check timed out")
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.1"]
    assert d.routes == {"llm#1.0"}
    assert "health check timed out" in d.noted(NoteKind.KILL_CHOSEN)[0].because


def test_a_draining_replica_that_is_unhealthy_is_killed_and_still_not_replaced() -> None:
    d = Deployment.running(2)
    d.resize(1)
    d.forget()
    d.unhealthy("llm#1.1")
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.1"]
    d.stopped("llm#1.1")
    assert d.sent(StartReplica) == []
    assert d.status is DeploymentStatus.HEALTHY


def test_a_second_suspicion_of_a_replica_that_is_being_killed_changes_nothing() -> None:
    d = Deployment.running(1)
    d.unhealthy("llm#1.0")
    before = d.state
    assert d.unhealthy("llm#1.0").commands == ()
    assert d.state == before


@pytest.mark.parametrize("end", ["stopped", "die"])
def test_a_replica_that_ends_without_having_been_asked_to_is_a_death_whichever_event_says_so(end: str) -> None:
    d = Deployment.running(3)
    d.forget()
    getattr(d, end)("llm#1.1")
    assert [start.rank for start in d.sent(StartReplica)] == [1]
    assert len(d.noted(NoteKind.REPLICA_LOST, "llm#1.1")) == 1


# ---------------------------------------------------------------------------------------------------------------------
# several at once


def test_a_downscale_while_a_slot_is_vacant_stops_nobody_that_lives() -> None:
    """Vacant slots are given up first."""
    d = Deployment.running(3)
    d.die("llm#1.0")
    d.start_fails("llm#1.3")
    d.forget()
    d.resize(2)
    assert d.sent(StopReplica) == []
    assert [note.rank for note in d.noted(NoteKind.SLOT_GIVEN_UP)] == [0]
    d.settle()
    assert d.ranks == {"llm#1.1": 1, "llm#1.2": 0}


def test_a_downscale_and_an_upscale_before_anything_is_answered_leave_what_was_there() -> None:
    d = Deployment.running(4)
    d.resize(2)
    d.resize(4)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == [0, 1, 2, 3]
    assert {"llm#1.0", "llm#1.1"} <= set(d.ranks)


def test_a_placed_replica_that_never_gets_a_rank_because_of_a_downscale_is_stopped() -> None:
    d = Deployment.running(1)
    d.resize(2)
    d.place("llm#1.1")
    d.resize(1)
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.1"]
    d.settle()
    assert d.ranks == {"llm#1.0": 0}


def test_news_of_a_replica_that_was_told_to_stop_while_it_was_on_its_way_changes_only_where_it_is() -> None:
    """Section 2.2: PLACED news in DRAINING."""
    d = Deployment.running(1)
    d.resize(2)
    d.resize(1)
    d.forget()
    d.place("llm#1.1", "a")
    assert d.sent(InitializeReplica) == []
    assert d.state.replicas["llm#1.1"].state is ReplicaState.DRAINING
    assert d.state.replicas["llm#1.1"].node_id == "a"


def test_readiness_of_a_replica_that_was_told_to_stop_meanwhile_does_not_bring_it_back() -> None:
    d = Deployment(2)
    d.place("llm#1.0")
    d.place("llm#1.1")
    d.resize(1)
    d.forget()
    d.ready("llm#1.1")
    assert d.state.replicas["llm#1.1"].state is ReplicaState.DRAINING
    assert d.routes == set()
    assert len(d.noted(NoteKind.LATE, "llm#1.1")) == 1


def test_a_move_that_is_acknowledged_while_draining_frees_the_old_rank() -> None:
    """R3, R7: the new one stays its own until it is gone."""
    d = moving()
    d.stop_by_name("llm#1.2")
    d.resize(3)
    d.forget()
    d.acknowledge("llm#1.2")
    assert [start.rank for start in d.sent(StartReplica)] == [2]
    d.stopped("llm#1.2")
    assert [start.rank for start in d.sent(StartReplica)] == [2, 0]


def test_all_replicas_die_at_once_and_come_back_with_their_ranks() -> None:
    d = Deployment.running(5, nodes="ab")
    d.forget()
    for number in (3, 1, 4, 0, 2):
        d.die(f"llm#1.{number}")
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == [0, 1, 2, 3, 4]
    assert d.sent(ReconfigureReplica) == []


def test_a_deployment_scaled_to_nothing_and_up_again_begins_with_rank_zero() -> None:
    d = Deployment.running(2, nodes="ab")
    d.resize(0)
    d.settle()
    d.forget()
    d.resize(1)
    d.settle()
    assert [(told.rank.rank, told.rank.node_rank, told.rank.local_rank) for told in d.sent(InitializeReplica)] == [(0, 0, 0)]
