"""2.4 and 2.3: a spec with other time-outs holds for what already waits."""

import attrs

import rankcore
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica
from rankcore.events import ClockAdvanced, ReplicaReconfigured, ReplicaReported, ReplicaStartFailed, SpecChanged
from rankcore.values import ReplicaRank


def started(step):
    return [c.replica_id for c in step.commands if isinstance(c, StartReplica)]


def test_a_shorter_repeat_period_holds_for_what_was_sent_before():
    spec = DeploymentSpec(name="llm", target_replicas=1, repeat_period_s=1000.0)
    state = rankcore.deploy(spec).state
    state = rankcore.step(state, SpecChanged(spec=attrs.evolve(spec, repeat_period_s=1.0), at=1.0)).state
    assert state.wake_at == 1.0
    assert started(rankcore.step(state, ClockAdvanced(at=1.0))) == ["llm#1.0"]


def test_a_shorter_back_off_does_not_wait_behind_a_longer_one():
    spec = DeploymentSpec(name="llm", target_replicas=2, start_backoff_s=64.0, repeat_period_s=1e6)
    state = rankcore.deploy(spec).state
    state = rankcore.step(state, ReplicaStartFailed(replica_id="llm#1.0", at=0.0)).state
    state = rankcore.step(state, SpecChanged(spec=attrs.evolve(spec, start_backoff_s=1.0), at=1.0)).state
    state = rankcore.step(state, ReplicaStartFailed(replica_id="llm#1.1", at=2.0)).state
    assert state.wake_at == 3.0
    assert started(rankcore.step(state, ClockAdvanced(at=3.0))) == ["llm#1.2"]


def test_a_starting_replica_that_was_moved_after_a_recovery_is_asked_until_it_is_ready():
    spec = DeploymentSpec(name="llm", target_replicas=2)
    step = rankcore.recover(spec, ["llm#1.0", "llm#1.1"], at=0.0, epoch=2)
    for replica_id, rank, ready in (("llm#1.0", 0, True), ("llm#1.1", 1, False)):
        report = ReplicaReported(
            replica_id=replica_id,
            node_id="a",
            rank=ReplicaRank(rank, 0, 0),
            version="1",
            ready=ready,
            config_id=spec.config_id,
            epoch=2,
            at=1.0,
        )
        step = rankcore.step(step.state, report)
    moved = step.state.replicas["llm#1.1"]
    step = rankcore.step(step.state, ReplicaReconfigured(replica_id="llm#1.1", revision=moved.revision, at=2.0))
    assert step.state.replicas["llm#1.1"].state == "STARTING"
    assert step.state.replicas["llm#1.1"].pending == rankcore.commands.QueryReplica("llm#1.1", 2)
