"""2.3: a version that was given up stays given up when the controller is restarted, unless a replica runs it."""

import attrs

import rankcore
from rankcore import DeploymentSpec, DeploymentStatus
from rankcore.commands import ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import ReplicaDied, SpecChanged
from tests.scripted import Deployment

V1 = DeploymentSpec(name="llm", target_replicas=3)
V2 = attrs.evolve(V1, version="2")


def given_up(**spec):
    """Three replicas of version 1, after version 2 has failed in the slot of rank 0."""
    d = Deployment.running(3, max_unavailable=1, max_start_failures=1, **spec)
    d.change(version="2")
    d.stopped("llm#1.0")
    d.start_fails("llm#1.3")
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    return d


def recovered(found, *, failed=True, previous=V1, **spec):
    return Deployment.recovered(3, dict.fromkeys(found), version="2", previous=previous, failed=failed, **spec)


def versions(step):
    return [(command.rank, command.version) for command in step.commands if isinstance(command, StartReplica)]


def test_a_failed_version_is_not_tried_again_by_the_next_controller():
    d = given_up()
    d.forget()
    d.restart()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert not d.sent(StopReplica)
    assert not d.sent(StartReplica)


def test_a_slot_that_is_lost_after_the_restart_gets_what_was_healthy():
    d = given_up()
    d.restart()
    d.settle()
    assert versions(d.die("llm#1.1")) == [(1, "1")]


def test_a_slot_that_is_lost_before_all_have_reported_gets_what_was_healthy():
    d = given_up()
    d.restart()
    d.die("llm#1.1")
    d.forget()
    d.settle()
    assert [(start.rank, start.version) for start in d.sent(StartReplica)] == [(1, "1")]
    assert d.status is DeploymentStatus.DEPLOY_FAILED


def test_a_first_version_that_failed_is_not_started_again():
    step = rankcore.recover(V2, [], at=0.0, epoch=2, failed=True)
    assert versions(step) == []
    assert step.state.status is DeploymentStatus.DEPLOY_FAILED


def test_the_next_version_goes_straight_in_while_reports_are_outstanding():
    d = given_up()
    d.restart()
    d.change(version="3")
    assert d.status is DeploymentStatus.UPDATING
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.version for replica in d.state.replicas.values()} == {"3"}


def test_what_is_found_starting_on_the_failed_version_gives_way_to_the_proven_one():
    d = recovered(["llm#1.0", "llm#1.1"])
    d.report("llm#1.0", rank=(0, 0, 0), version="1")
    d.report("llm#1.1", rank=(1, 0, 1), version="2", ready=False)
    assert d.draining == ["llm#1.1"]
    assert versions(d.stopped("llm#1.1")) == [(1, "1")]


def test_what_is_found_starting_on_the_proven_user_config_comes_up():
    d = Deployment.running(2, user_config={"a": 1}, max_start_failures=1)
    d.change(user_config={"a": 2})
    d.reconfigure_fails("llm#1.0")
    d.stopped("llm#1.0")
    d.place("llm#1.2")
    d.restart()
    d.report("llm#1.1", config_id=attrs.evolve(d.state.spec, user_config={"a": 1}).config_id)
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert d.draining == []
    assert sorted(d.ranks) == ["llm#1.1", "llm#1.2"]


def test_a_replica_that_is_found_ready_on_the_version_proves_that_it_works():
    d = recovered(["llm#1.0", "llm#1.1"])
    d.report("llm#1.0", rank=(0, 0, 0), version="2")
    assert d.status is DeploymentStatus.UPDATING
    d.report("llm#1.1", rank=(1, 0, 1), version="1")
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica.version for replica in d.state.replicas.values()} == {"2"}


def test_a_user_config_that_failed_is_taken_back_from_those_that_took_it():
    """V5. It was sent to both at once; one raised, so the other is told the proven one."""
    d = Deployment.running(2, user_config={"a": 1}, max_start_failures=1, config_rollout="at_once")
    d.change(user_config={"a": 2})
    d.reconfigure_fails("llm#1.0")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert d.sent(ReconfigureReplica, "llm#1.1")[-1].user_config == {"a": 1}
    d.settle()
    d.wait(10.0)
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.proven.config_id}
    assert d.serving == 2


def test_a_deletion_outweighs_a_failure():
    step = rankcore.recover(V2, ["llm#1.0"], at=0.0, epoch=2, previous=V1, failed=True, deleting=True)
    assert step.state.status is DeploymentStatus.DELETING


def test_a_replica_that_dies_starting_before_all_have_reported_leads_to_the_rollback():
    d = recovered(["llm#1.0", "llm#1.1"], rollback=True, max_start_failures=1)
    d.report("llm#1.0", rank=(0, 0, 0), version="2", ready=False)
    d.send(ReplicaDied(replica_id="llm#1.0", reason="crash", at=1.0))
    assert d.state.spec.version == "1"
    assert d.status is DeploymentStatus.UPDATING


def test_a_change_that_keeps_the_build_leaves_it_failed():
    d = given_up()
    d.restart()
    d.send(SpecChanged(spec=attrs.evolve(d.state.spec, target_replicas=4), at=1.0))
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert {replica.version for replica in d.state.replicas.values()} == {"1"}
    assert d.state.world_size == 4
