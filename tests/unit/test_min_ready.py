"""V7: who has just become ready is not available yet, proves nothing, and has nobody stopped; `rankcore/rules/budget.py`."""

import attrs
import pytest

import rankcore
from rankcore import DeploymentSpec, DeploymentStatus, NoteKind
from rankcore.commands import InitializeReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.errors import InvalidSpecError
from rankcore.events import ReplicaReported, SpecChanged
from rankcore.values import ReplicaRank
from tests.scripted import Deployment


def proven(target: int, **spec: object) -> Deployment:
    """Healthy, and for long enough that version "1" is proven."""
    d = Deployment.running(target, min_ready_s=10.0, **spec)
    d.wait(10.0)
    assert d.state.previous.version == "1"
    d.forget()
    return d


def of_version(d: Deployment, version: str) -> list[str]:
    return [name for name, each in d.state.replicas.items() if each.version == version]


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), True, "10"])
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(InvalidSpecError, match="min_ready_s"):
        DeploymentSpec(name="llm", target_replicas=1, min_ready_s=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("rollback", [False, True])
def test_a_version_that_dies_a_second_after_it_was_ready_stops_two_old_ones_and_is_given_up(rollback: bool) -> None:
    """V7: N=10, U=2."""
    d = proven(10, max_unavailable=2, rollback=rollback)
    d.change(version="2")
    died: set[str] = set()
    for _ in range(200):
        d.settle()
        assert d.serving >= 8
        assert d.state.proven.version == "1"
        young = [each for each in of_version(d, "2") if each not in died and d.state.replicas[each].ready_at is not None]
        d.wait(1.0)
        for each in young:
            if each in d.state.replicas:
                died.add(each)
                d.die(each)
    starts = [start for start in d.sent(StartReplica) if start.version == "2"]
    assert 3 <= len(starts) <= 6
    assert len([stop for stop in d.sent(StopReplica) if stop.replica_id not in {start.replica_id for start in starts}]) == 2
    assert d.state.previous.version == "1"
    assert len(d.noted(NoteKind.ROLLED_BACK if rollback else NoteKind.DEPLOY_FAILED)) == 1
    assert d.serving == 10
    assert not of_version(d, "2")


def test_an_update_stops_the_next_one_only_once_the_last_newcomer_has_been_ready_for_min_ready_s() -> None:
    d = proven(3, max_unavailable=1)
    d.change(version="2")
    stops = []
    for _ in range(3):
        d.settle()
        stops.append(len({stop.replica_id for stop in d.sent(StopReplica)}))
        d.wait(9.5)
        assert len({stop.replica_id for stop in d.sent(StopReplica)}) == stops[-1]
        d.wait(0.5)
    assert stops == [1, 2, 3]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_newcomer_that_is_sent_another_user_config_at_once_is_available_no_sooner_for_that() -> None:
    """V1, V7: it has to be ready on that for `min_ready_s`, and had not been for so long on the one before."""
    d = proven(4, max_unavailable=1, config_rollout="at_once")
    d.change(version="2")
    d.settle()
    d.wait(1.0)
    d.forget()
    d.change(user_config={"a": 1})
    assert [each.replica_id for each in d.sent(ReconfigureReplica)] == of_version(d, "2")
    d.wait(15.0)
    assert d.sent(StopReplica) == [], "it owes the acknowledgement"
    d.settle()
    d.wait(9.5)
    assert d.sent(StopReplica) == []
    d.wait(0.5)
    assert len({stop.replica_id for stop in d.sent(StopReplica)}) == 1


def test_an_update_is_healthy_once_all_have_been_ready_for_min_ready_s() -> None:
    d = proven(1)
    d.change(version="2")
    d.settle()
    d.wait(9.5)
    assert (d.status, d.state.proven.version, d.state.previous.version) == (DeploymentStatus.UPDATING, "1", "1")
    d.wait(0.5)
    assert (d.status, d.state.proven.version, d.state.previous.version) == (DeploymentStatus.HEALTHY, "2", "2")


def test_a_first_deployment_is_healthy_when_all_run_and_proven_later() -> None:
    d = Deployment.running(2, min_ready_s=10.0)
    assert (d.state.proven, d.state.previous) == (None, None)
    assert d.state.wake_at is not None
    d.wait(10.0)
    assert d.state.previous is d.state.spec


def test_a_crash_and_an_upscale_wait_for_nobody() -> None:
    d = proven(2)
    d.die("llm#1.0")
    d.resize(3)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    d.wait(10.0)
    assert d.state.previous is d.state.spec


def test_an_unproven_first_version_that_dies_after_it_was_ready_fails_the_deployment() -> None:
    d = Deployment(1, min_ready_s=10.0, max_start_failures=3)
    for _ in range(3):
        d.settle()
        d.wait(1.0)
        d.die(d.state.holder_of(0))
        d.wait(5.0)
    assert d.status is DeploymentStatus.DEPLOY_FAILED


def test_a_given_up_version_of_which_one_lives_long_enough_goes_on() -> None:
    d = proven(2, max_unavailable=2, max_start_failures=1)
    d.change(version="2")
    d.settle()
    young, other = of_version(d, "2")
    d.die(young)
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.wait(10.0)
    assert other in d.state.replicas
    assert d.state.proven.version == "2"
    assert d.status is DeploymentStatus.UPDATING


def test_a_user_config_that_arrives_begins_the_trial_anew() -> None:
    d = proven(2)
    d.change(user_config={"a": 1})
    d.settle()
    assert (d.status, d.state.proven.user_config) == (DeploymentStatus.UPDATING, None)
    for _ in range(2):  # one after the other
        d.settle()
        d.wait(10.0)
    assert (d.status, d.state.previous.user_config) == (DeploymentStatus.HEALTHY, {"a": 1})


def test_a_user_config_that_nobody_has_acknowledged_is_not_proven_by_being_asked_for_again() -> None:
    d = proven(2)
    d.change(user_config={"a": 1})
    d.change(version="2")
    d.change(version="1")
    assert d.state.proven.user_config is None


def test_another_min_ready_holds_for_those_who_are_ready() -> None:
    d = Deployment.running(2, min_ready_s=10.0, repeat_period_s=1e6)
    d.wait(5.0)
    d.change(min_ready_s=20.0)
    d.wait(14.0)
    assert d.state.proven is None
    d.wait(1.0)
    assert d.state.proven is not None
    d.change(version="2")
    d.settle()
    d.change(min_ready_s=0.0)
    assert d.state.proven.version == "2"


def test_a_restarted_controller_counts_from_the_report_and_stops_nobody_before() -> None:
    spec = DeploymentSpec(name="llm", target_replicas=2, min_ready_s=10.0)
    later = attrs.evolve(spec, version="2")
    step = rankcore.recover(later, ["llm#1.0", "llm#1.1"], at=0.0, epoch=2, previous=spec)
    for rank in (0, 1):
        report = ReplicaReported(
            replica_id=f"llm#1.{rank}",
            node_id="a",
            rank=ReplicaRank(rank, 0, rank),
            version="1",
            ready=True,
            config_id=spec.config_id,
            epoch=2,
            at=1.0,
        )
        step = rankcore.step(step.state, report)
    assert [each for each in step.commands if isinstance(each, StopReplica)] == []
    assert step.state.wake_at <= 11.0
    step = rankcore.step(step.state, rankcore.events.ClockAdvanced(at=11.0))
    assert [each.replica_id for each in step.commands if isinstance(each, StopReplica)] == ["llm#1.0"]


def test_a_restart_while_the_new_version_is_on_trial_is_an_update_under_way() -> None:
    d = proven(1)
    d.change(version="2")
    d.settle()
    d.restart()
    d.settle()
    assert d.status is DeploymentStatus.UPDATING
    d.wait(10.0)
    assert d.status is DeploymentStatus.HEALTHY


def test_who_is_initialised_while_it_moves_is_ready_from_when_it_says_so() -> None:
    d = Deployment.running(2, min_ready_s=10.0)
    d.wait(3.0)
    assert {each.ready_at for each in d.state.replicas.values()} == {0.0}
    d.die("llm#1.0")
    d.place(d.sent(StartReplica)[-1].replica_id)
    replica_id = d.sent(InitializeReplica)[-1].replica_id
    assert d.state.replicas[replica_id].ready_at is None
    d.ready(replica_id)
    assert d.state.replicas[replica_id].ready_at == 3.0


def test_a_spec_with_another_min_ready_is_another_spec() -> None:
    d = proven(1)
    spec = attrs.evolve(d.state.spec, min_ready_s=1.0)
    assert rankcore.step(d.state, SpecChanged(spec=spec, at=d.now)).state.spec.min_ready_s == 1.0
