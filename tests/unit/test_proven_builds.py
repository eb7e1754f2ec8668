"""2.3: a version that was ever ready retries for ever; what is proven outlives updates, rollbacks and restarts."""

import attrs

import rankcore
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica, StopReplica
from rankcore.events import ReplicaDied, ReplicaReported, ReplicaStartFailed
from rankcore.values import ReplicaRank
from tests.scripted import Deployment

V1 = DeploymentSpec(name="llm", target_replicas=1, version="1", max_start_failures=1)
V2 = attrs.evolve(V1, version="2")


def starts(step):
    return [(c.rank, c.version) for c in step.commands if isinstance(c, StartReplica)]


def test_what_was_healthy_before_a_restart_is_retried_for_ever():
    state = rankcore.recover(V1, [], at=0.0, epoch=2, previous=V1).state
    state = rankcore.step(state, ReplicaStartFailed(replica_id="llm#2.0", at=1.0)).state
    assert state.status != "DEPLOY_FAILED"
    assert state.wake_at is not None


def test_after_a_restart_a_failing_version_gives_way_to_the_one_that_was_healthy():
    state = rankcore.recover(V2, [], at=0.0, epoch=2, previous=V1).state
    failed = rankcore.step(state, ReplicaStartFailed(replica_id="llm#2.0", at=1.0))
    assert failed.state.status == "DEPLOY_FAILED"
    assert starts(failed) == [(0, "1")]


def test_a_version_that_still_runs_is_proven_when_one_returns_to_it():
    d = Deployment.running(3, max_start_failures=1, max_unavailable=1)
    d.change(version="2")
    (old,) = d.draining
    d.stopped(old)
    (new,) = [r.replica_id for r in d.state.replicas.values() if r.version == "2"]
    d.place(new)
    d.ready(new)
    assert d.state.proven.version == "2"
    d.change(version="1")
    assert d.state.proven.version == "1"
    d.settle()
    lost = d.state.holder_of(0)
    d.die(lost)
    d.start_fails(d.state.holder_of(0))
    assert d.status != "DEPLOY_FAILED"


def test_a_successor_whose_failure_rolls_back_is_not_told_to_stop():
    d = Deployment.running(2, max_surge=1, rollback=True, max_start_failures=1)
    d.change(version="2")
    (successor,) = [r.replica_id for r in d.state.replicas.values() if r.version == "2"]
    failed = rankcore.step(d.state, ReplicaStartFailed(replica_id=successor, at=d.now))
    assert failed.state.spec.version == "1"
    assert not [c for c in failed.commands if isinstance(c, StopReplica) and c.replica_id == successor]


def test_a_rollback_while_reports_are_outstanding_leaves_the_deployment_recovering():
    spec = attrs.evolve(V2, target_replicas=2, rollback=True)
    state = rankcore.recover(spec, ["llm#1.0", "llm#1.1"], at=0.0, epoch=2, previous=V1).state
    report = ReplicaReported(
        replica_id="llm#1.0",
        node_id="a",
        rank=ReplicaRank(0, 0, 0),
        version="2",
        ready=False,
        config_id=spec.config_id,
        epoch=2,
        at=1.0,
    )
    state = rankcore.step(state, report).state
    state = rankcore.step(state, ReplicaDied(replica_id="llm#1.0", at=2.0)).state
    assert state.spec.version == "1"
    assert state.status == "RECOVERING"
