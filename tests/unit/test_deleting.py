"""DELETING -> DELETED, section 2.3: the target stays, a SpecChanged is late, all is stopped and nothing started."""

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaState
from rankcore.commands import InitializeReplica, KillReplica, QueryReplica, StartReplica, StopReplica
from tests.scripted import Deployment


def test_a_deletion_stops_every_replica_and_ends_when_the_last_is_gone() -> None:
    d = Deployment.running(3)
    d.delete()
    assert d.status is DeploymentStatus.DELETING
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.0", "llm#1.1", "llm#1.2"]
    d.stopped("llm#1.0")
    d.stopped("llm#1.2")
    assert d.status is DeploymentStatus.DELETING
    d.stopped("llm#1.1")
    assert d.status is DeploymentStatus.DELETED
    assert len(d.state.replicas) == 0


def test_deleting_keeps_the_target() -> None:
    d = Deployment.running(3)
    d.delete()
    d.settle()
    assert d.state.world_size == 3


def test_a_spec_that_changes_while_deleting_is_late() -> None:
    d = Deployment.running(2)
    d.delete()
    before = d.state
    step = d.resize(7)
    assert (step.state, step.commands) == (before, ())
    assert [note.kind for note in step.notes] == [NoteKind.LATE]
    d.settle()
    assert d.resize(7).commands == ()
    assert d.status is DeploymentStatus.DELETED


def test_a_second_request_to_delete_is_late() -> None:
    d = Deployment.running(2)
    d.delete()
    before = d.state
    step = d.delete()
    assert (step.state, step.commands) == (before, ())


def test_nothing_is_replaced_while_deleting() -> None:
    d = Deployment.running(3)
    d.stop_by_name("llm#1.0")
    d.die("llm#1.1")
    d.delete()
    d.forget()
    d.die("llm#1.2")
    d.settle()
    assert d.sent(StartReplica) == []
    assert d.status is DeploymentStatus.DELETED


def test_replicas_that_do_not_run_yet_and_vacant_slots_go_too() -> None:
    d = Deployment(3)
    d.place("llm#1.0")
    d.start_fails("llm#1.1")
    d.forget()
    d.delete()
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.0", "llm#1.2"]
    assert d.state.kept_ranks == ()
    d.settle()
    d.wait(100.0)
    assert d.sent(StartReplica) == d.sent(InitializeReplica) == []
    assert d.status is DeploymentStatus.DELETED


def test_a_deployment_without_replicas_is_deleted_at_once() -> None:
    d = Deployment.running(0)
    d.delete()
    assert d.status is DeploymentStatus.DELETED


def test_a_replica_that_does_not_stop_is_killed_while_deleting() -> None:
    d = Deployment.running(1, graceful_shutdown_timeout_s=10.0, health_check_timeout_s=10.0)
    d.delete()
    d.wait(30.0)
    assert {kill.replica_id for kill in d.sent(KillReplica)} == {"llm#1.0"}


def test_a_stranger_is_killed_while_deleting_and_after() -> None:
    """Section 2: news of an unknown live replica."""
    d = Deployment.running(1)
    d.delete()
    assert d.ready("llm#1.9").commands == (KillReplica("llm#1.9", 1),)
    d.settle()
    assert d.ready("llm#1.9").commands == (KillReplica("llm#1.9", 1),)


def test_a_controller_that_comes_back_goes_on_deleting() -> None:
    """recover(deleting=True): every replica found is told to stop, and nobody has to report first."""
    d = Deployment.running(3)
    d.delete()
    d.stopped("llm#1.0")
    d.restart()
    assert d.status is DeploymentStatus.DELETING
    assert [stop.epoch for stop in d.sent(StopReplica) if stop.epoch == 2] == [2, 2]
    d.stopped("llm#1.1")
    d.stopped("llm#1.2")
    assert d.status is DeploymentStatus.DELETED


def test_a_deletion_while_reports_are_outstanding_does_not_wait_for_them() -> None:
    """Section 2.5: deleting comes before reports outstanding."""
    d = Deployment.recovered(3, {"llm#1.0": (0, 0, 0), "llm#1.1": (1, 0, 1)})
    d.report("llm#1.0")
    d.delete()
    assert {stop.replica_id for stop in d.sent(StopReplica)} == {"llm#1.0", "llm#1.1"}
    d.settle()
    assert d.status is DeploymentStatus.DELETED


@pytest.mark.parametrize("reported", [False, True])
def test_a_report_that_arrives_while_deleting_changes_nothing_but_what_is_known(reported: bool) -> None:
    d = Deployment.recovered(1, {"llm#1.0": (0, 0, 0)}, deleting=True)
    assert d.status is DeploymentStatus.DELETING
    d.forget()
    if reported:
        d.report("llm#1.0")
    assert d.sent(StartReplica) == d.sent(QueryReplica) == []
    assert d.state.replicas["llm#1.0"].state is ReplicaState.DRAINING
    d.stopped("llm#1.0")
    assert d.status is DeploymentStatus.DELETED
