"""R12 and section 4, as far as the core decides: what the messages to replicas say about the user_config."""

import pytest

from rankcore import DeploymentSpec, DeploymentStatus, NoteKind, ReplicaState
from rankcore.commands import InitializeReplica, ReconfigureReplica, StartReplica, StopReplica
from tests.scripted import Deployment


def test_a_replica_gets_the_user_config_at_start_up() -> None:
    """R12."""
    d = Deployment.running(1, user_config={"threshold": 0.5})
    (told,) = d.sent(InitializeReplica)
    assert (told.user_config, told.config_id) == ({"threshold": 0.5}, d.state.spec.config_id)
    assert d.state.replicas["llm#1.0"].config_id == d.state.spec.config_id


def test_no_user_config_and_an_empty_one_are_told_apart() -> None:
    """Section 4: {} counts."""
    ids = {DeploymentSpec(name="llm", target_replicas=1, user_config=config).config_id for config in (None, {}, {"a": 1})}
    assert len(ids) == 3
    none, empty = Deployment.running(1), Deployment.running(1, user_config={})
    assert none.sent(InitializeReplica)[0].user_config is None
    assert empty.sent(InitializeReplica)[0].user_config == {}


def test_equal_user_configs_have_one_name_whatever_the_order_of_their_keys() -> None:
    """Section 2.1: config_id names the user_config."""
    one = DeploymentSpec(name="llm", target_replicas=1, user_config={"a": 1, "b": [1, 2]})
    other = DeploymentSpec(name="llm", target_replicas=1, user_config={"b": [1, 2], "a": 1})
    assert one.config_id == other.config_id
    assert one == other


def test_a_new_user_config_is_sent_in_place_to_all_and_takes_no_budget_where_that_is_asked_for() -> None:
    """R12, section 2.3: all at once, with the rank that each has; nobody is stopped."""
    d = Deployment.running(4, max_unavailable=1, config_rollout="at_once")
    before = {replica_id: d.full(replica_id) for replica_id in d.ranks}
    d.forget()
    d.change(user_config={"a": 2})
    sent = d.sent(ReconfigureReplica)
    assert [told.replica_id for told in sent] == list(before)
    assert [(told.rank.rank, told.rank.node_rank, told.rank.local_rank) for told in sent] == list(before.values())
    assert {told.config_id for told in sent} == {d.state.spec.config_id}
    assert d.serving == 4
    d.settle()
    assert d.sent(StopReplica) == d.sent(StartReplica) == []
    assert len(d.noted(NoteKind.CONFIG_SENT)) == 4


def test_a_rank_change_carries_the_existing_config_and_the_new_rank() -> None:
    """R12, section 4."""
    d = Deployment.running(3, user_config={"a": 1})
    d.resize(2, stop_first=["llm#1.1"])
    d.settle()
    (told,) = d.sent(ReconfigureReplica)
    assert (told.rank.rank, told.user_config, told.config_id) == (1, {"a": 1}, d.state.spec.config_id)


def test_a_second_config_before_the_first_is_acknowledged_replaces_it() -> None:
    """R12: the acknowledgement of the first one is late."""
    d = Deployment.running(1)
    d.change(user_config={"a": 1})
    first = d.state.replicas["llm#1.0"].revision
    d.change(user_config={"a": 2})
    d.acknowledge("llm#1.0", first)
    assert d.state.replicas["llm#1.0"].state is ReplicaState.RECONFIGURING
    d.acknowledge("llm#1.0")
    assert d.state.replicas["llm#1.0"].state is ReplicaState.RUNNING
    assert d.state.replicas["llm#1.0"].config_id == d.state.spec.config_id


def test_a_replica_that_starts_while_the_config_changes_gets_the_new_one() -> None:
    """R12: what it was not told at its start it is told as soon as it runs."""
    d = Deployment(3)
    d.place("llm#1.0")
    d.place("llm#1.1")
    d.ready("llm#1.1")
    d.change(user_config={"a": 1})
    d.settle()
    assert {replica.config_id for replica in d.state.replicas.values()} == {d.state.spec.config_id}
    assert len(d.sent(ReconfigureReplica, "llm#1.0")) == 1
    assert len(d.sent(ReconfigureReplica, "llm#1.2")) == 0
    assert d.sent(InitializeReplica, "llm#1.2")[0].user_config == {"a": 1}


def test_a_draining_replica_is_sent_no_new_config() -> None:
    """R12, section 2.2."""
    d = Deployment.running(2)
    d.resize(1)
    d.change(user_config={"a": 1})
    assert [told.replica_id for told in d.sent(ReconfigureReplica)] == ["llm#1.0"]


def test_a_new_version_with_a_new_config_replaces_and_does_not_reconfigure_the_old() -> None:
    """Section 2.3: the old code is not sent the new version's configuration."""
    d = Deployment.running(2, user_config={"a": 1})
    d.forget()
    d.change(version="2", user_config={"a": 2})
    d.settle()
    assert d.sent(ReconfigureReplica) == []
    assert {told.user_config["a"] for told in d.sent(InitializeReplica)} == {2}


def test_a_replica_of_the_old_version_that_has_to_move_keeps_its_own_config() -> None:
    """R8, R12: in the middle of an update, with compaction at once."""
    d = Deployment.running(4, user_config={"a": 1}, compaction="immediate", max_unavailable=1)
    d.forget()
    d.change(version="2", user_config={"a": 2}, target_replicas=3)
    d.settle(except_for=["llm#1.4", "llm#2.0"])
    d.settle()
    assert {told.user_config["a"] for told in d.sent(ReconfigureReplica) if told.replica_id < "llm#1.4"} <= {1}
    assert {replica.version for replica in d.state.replicas.values()} == {"2"}


def test_a_replica_found_with_another_config_is_sent_the_one_in_force() -> None:
    """R12, R10: the controller died in the middle of sending it."""
    d = Deployment.running(2)
    d.change(user_config={"a": 1})
    d.restart()
    d.report("llm#1.0")
    d.report("llm#1.1", config_id="somethingelse")
    assert [told.replica_id for told in d.sent(ReconfigureReplica) if told.epoch == 2] == ["llm#1.1"]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_change_back_before_the_acknowledgement_is_sent_too() -> None:
    """R12: what it has applied is not known, so that it is told the latest."""
    d = Deployment.running(1, user_config={"a": 1})
    d.change(user_config={"a": 2})
    d.change(user_config={"a": 1})
    assert [told.user_config["a"] for told in d.sent(ReconfigureReplica)] == [2, 1]


def test_a_spec_that_changes_neither_version_nor_config_sends_nothing() -> None:
    """R12."""
    d = Deployment.running(2, user_config={"a": 1})
    d.forget()
    d.change(max_surge=1, health_check_period_s=5.0)
    assert d.sent(ReconfigureReplica) == []
    assert d.state.spec.max_surge == 1


@pytest.mark.parametrize("nested", [{"a": [1, {"b": 2}]}, [1, 2, 3], "text", 5, True])
def test_a_user_config_cannot_be_changed_from_outside(nested: object) -> None:
    """Section 2: states are values. The spec keeps a frozen copy."""
    config = {"inner": nested}
    spec = DeploymentSpec(name="llm", target_replicas=1, user_config=config)
    before = spec.user_config["inner"]
    config["inner"] = "changed"
    assert spec.user_config["inner"] == before
    with pytest.raises(TypeError):
        spec.user_config["inner"] = "changed"
    assert DeploymentSpec(name="llm", target_replicas=1, user_config={"inner": nested}).config_id == spec.config_id
