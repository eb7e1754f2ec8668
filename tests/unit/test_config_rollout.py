"""V5, V6: a user_config is sent to a few at a time, and a bad one takes no more than those; `rankcore/rules/configure.py`."""

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaState, StaticPlacement
from rankcore.commands import InitializeReplica, KillReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import TrialRequested
from tests.scripted import Deployment

GOOD, BAD, BETTER = {"a": 1}, {"bad": True}, {"a": 2}


def told(d: Deployment) -> list[str]:
    return [command.replica_id for command in d.sent(ReconfigureReplica)]


def answer_as_code_that_raises(d: Deployment) -> None:
    """Answer what is outstanding; whoever is given the bad user_config fails, at start-up or later."""
    for replica_id in sorted(d.outstanding):
        command = d.outstanding.get(replica_id)
        bad = getattr(command, "user_config", None) == BAD
        if isinstance(command, ReconfigureReplica) and bad:
            d.reconfigure_fails(replica_id)
        elif isinstance(command, InitializeReplica) and bad:
            d.start_fails(replica_id)
        elif command is not None:
            d.answer(replica_id)


def run_on(d: Deployment, seconds: int) -> int:
    """So many seconds. Returns how many served at least, and checks that one believed the bad user_config at most."""
    least = d.serving
    for _ in range(seconds):
        for _ in range(6):
            answer_as_code_that_raises(d)
            least = min(least, d.serving)
            bad = [
                each for each, process in d.processes.items() if getattr(d.outstanding.get(each), "user_config", None) == BAD
            ]
            assert len(bad) <= 1
        d.wait(1.0)
    return least


@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("min_ready_s", [0.0, 3.0])
def test_a_user_config_that_raises_takes_one_of_four_out_of_service_and_is_given_up(rollback: bool, min_ready_s: float) -> None:
    """V5: N=4, U=1."""
    d = Deployment.running(4, user_config=GOOD, max_unavailable=1, rollback=rollback, min_ready_s=min_ready_s)
    d.wait(5.0)
    d.forget()
    d.change(user_config=BAD)
    assert run_on(d, 60) == 3
    failures = d.noted(NoteKind.START_FAILED)
    assert [note.because.partition("; ")[2][:9] for note in failures] == ["failure 1", "failure 2", "failure 3"]
    assert d.status is (DeploymentStatus.HEALTHY if rollback else DeploymentStatus.DEPLOY_FAILED)
    assert len(d.noted(NoteKind.ROLLED_BACK if rollback else NoteKind.DEPLOY_FAILED)) == 1
    assert d.serving == 4
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.proven.config_id}
    assert d.state.proven.user_config == GOOD


def test_a_good_user_config_arrives_rank_by_rank_within_the_budget() -> None:
    d = Deployment.running(4, max_unavailable=2)
    d.forget()
    d.change(user_config=GOOD)
    assert told(d) == ["llm#1.0", "llm#1.1"]
    d.acknowledge("llm#1.1")
    assert told(d) == ["llm#1.0", "llm#1.1", "llm#1.2"]
    assert d.status is DeploymentStatus.UPDATING
    d.settle()
    assert told(d) == ["llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3"]
    assert d.status is DeploymentStatus.HEALTHY
    assert d.sent(StopReplica) == d.sent(StartReplica) == []


def test_who_owes_an_older_user_config_is_told_the_newest_at_once() -> None:
    d = Deployment.running(3, max_unavailable=1)
    d.change(user_config=BAD)
    d.forget()
    d.change(user_config=BETTER)
    assert told(d) == ["llm#1.0"]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.spec.config_id}


def test_a_reconfigure_that_hangs_has_failed_after_the_start_time_out() -> None:
    d = Deployment.running(2, max_unavailable=1, start_timeout_s=30.0)
    d.change(user_config=BAD)
    d.wait(29.0)
    assert d.sent(KillReplica) == []
    d.wait(1.0)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.0"]
    assert d.state.tables.slots[0].failures == 1
    d.stopped("llm#1.0")
    d.wait(1.0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_repairing_version_goes_on_once_a_hanging_reconfigure_has_timed_out() -> None:
    d = Deployment.running(2, max_unavailable=1, start_timeout_s=30.0)
    d.change(user_config=BAD)
    d.change(version="2", user_config=GOOD)
    d.wait(30.0)
    d.settle()
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.version for each in d.state.replicas.values()} == {"2"}


def ranks_stopped(d: Deployment) -> list[str]:
    return list(dict.fromkeys(command.replica_id for command in d.sent(StopReplica)))


@pytest.mark.parametrize(("way", "hang"), [("rolling", 1), ("at_once", 4)])
def test_a_repairing_version_replaces_who_hangs_in_reconfigure_at_no_cost(way: str, hang: int) -> None:
    """V5: once it was not available for min_ready_s + health_check_timeout_s, long before the start time-out."""
    d = hangs(way)
    d.change(version="2", user_config=GOOD)
    d.wait(34.0)
    assert ranks_stopped(d) == []
    assert d.state.wake_at == d.now + 1.0
    d.wait(1.0)
    assert ranks_stopped(d) == [f"llm#1.{rank}" for rank in range(hang)]
    because = d.noted(NoteKind.STOP_CHOSEN)[0].because
    assert because == "to be updated to version '2'; its user_config is not acknowledged after 35 s, and it costs nothing"
    assert d.sent(KillReplica) == []
    for _ in range(8):
        d.settle()
        d.wait(5.0)
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.version for each in d.state.replicas.values()} == {"2"}


def hangs(way: str = "rolling", min_ready_s: float = 5.0, **spec: object) -> Deployment:
    """Four of which one may be out of service. Who was told the bad user_config is silent, and no repeat wakes the core."""
    waits = {"min_ready_s": min_ready_s, "health_check_timeout_s": 30.0, "start_timeout_s": 600.0, "repeat_period_s": 1000.0}
    d = Deployment.running(4, config_rollout=way, **({"max_unavailable": 1} | waits | spec))
    d.wait(min_ready_s)
    d.change(user_config=BAD)
    d.forget()
    return d


def test_who_hung_for_long_before_a_repairing_version_came_is_replaced_at_once() -> None:
    d = hangs()
    d.wait(100.0)
    assert ranks_stopped(d) == []
    d.change(version="2", user_config=GOOD)
    assert ranks_stopped(d) == ["llm#1.0"]


def test_who_hangs_is_left_alone_where_nothing_newer_is_wanted() -> None:
    d = hangs()
    d.change(partition=4)
    d.change(version="2", user_config=GOOD)
    d.wait(100.0)
    assert ranks_stopped(d) == []


def test_of_those_who_hang_each_goes_when_its_own_time_is_over() -> None:
    d = hangs(max_unavailable=2)
    d.acknowledge("llm#1.1")
    d.wait(5.0)
    assert "llm#1.2" in told(d)
    d.change(version="2", user_config=GOOD)
    d.wait(30.0)
    assert ranks_stopped(d) == ["llm#1.0"]
    d.wait(4.0)
    assert ranks_stopped(d) == ["llm#1.0"]
    d.wait(1.0)
    assert ranks_stopped(d) == ["llm#1.0", "llm#1.2"]


def test_who_confirms_its_user_config_late_is_not_replaced_beyond_the_budget() -> None:
    d = hangs()
    d.change(version="2", user_config=GOOD)
    d.wait(34.0)
    d.acknowledge("llm#1.0")
    d.wait(4.0)
    assert ranks_stopped(d) == []
    d.wait(1.0)
    assert ranks_stopped(d) == ["llm#1.0"]  # by the budget: all four are available again


def test_where_who_hangs_takes_nothing_from_the_budget_each_takes_its_part_of_it() -> None:
    """At once, and no ready time is asked for."""
    d = hangs("at_once", min_ready_s=0.0)
    d.change(version="2", user_config=GOOD)
    assert ranks_stopped(d) == ["llm#1.0"]
    d.wait(100.0)
    assert ranks_stopped(d) == ["llm#1.0"]


def test_a_user_config_that_arrived_in_time_is_not_timed_out_later() -> None:
    d = Deployment.running(2, start_timeout_s=30.0)
    d.change(user_config=GOOD)
    d.settle()
    d.wait(100.0)
    assert d.sent(KillReplica) == []


def test_the_next_one_is_told_once_the_last_has_been_ready_on_it_for_min_ready_s() -> None:
    d = Deployment.running(3, max_unavailable=1, min_ready_s=5.0)
    d.wait(5.0)
    d.forget()
    d.change(user_config=GOOD)
    d.settle()
    d.wait(4.0)
    assert told(d) == ["llm#1.0"]
    d.wait(1.0)
    assert told(d) == ["llm#1.0", "llm#1.1"]


def test_a_user_config_waits_for_a_crashed_one_to_come_back() -> None:
    d = Deployment.running(3, max_unavailable=1)
    d.die("llm#1.2")
    d.forget()
    d.change(user_config=GOOD)
    assert told(d) == []
    d.settle()
    assert told(d) == ["llm#1.0", "llm#1.1"]
    assert d.status is DeploymentStatus.HEALTHY


def test_who_moves_is_told_when_it_has_moved() -> None:
    """R8: one change of a replica at a time."""
    d = Deployment.running(3, max_unavailable=1)
    d.resize(2, ["llm#1.0"])
    d.stopped("llm#1.0")
    assert d.state.replicas["llm#1.2"].state is ReplicaState.RECONFIGURING
    d.forget()
    d.change(user_config=GOOD)
    assert told(d) == ["llm#1.1"]
    d.acknowledge("llm#1.1")
    assert told(d) == ["llm#1.1"]
    d.acknowledge("llm#1.2")
    assert told(d) == ["llm#1.1", "llm#1.2"]


def test_after_a_failed_user_config_another_one_goes_to_all() -> None:
    d = Deployment.running(3, user_config=GOOD, max_unavailable=1, max_start_failures=1)
    d.change(user_config=BAD)
    d.reconfigure_fails("llm#1.0")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.change(user_config=BETTER)
    d.settle()
    d.wait(5.0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.spec.config_id}


def test_a_restarted_controller_goes_on_with_the_roll_out() -> None:
    d = Deployment.running(3, user_config=GOOD, max_unavailable=1)
    d.change(user_config=BETTER)
    d.acknowledge("llm#1.0")
    d.restart()
    d.forget()
    d.settle()
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.spec.config_id}


def test_a_user_config_that_all_have_is_sent_to_nobody() -> None:
    d = Deployment.running(2, user_config=GOOD)
    d.forget()
    d.change(user_config=BETTER)
    d.change(user_config=GOOD)
    d.settle()
    assert told(d) == ["llm#1.0", "llm#1.0"]
    assert d.status is DeploymentStatus.HEALTHY


def test_a_version_that_is_tried_once_more_is_proven_after_min_ready_s() -> None:
    """Nothing that works is known until then, so nobody is sent any user_config."""
    d = Deployment(1, user_config=GOOD, max_start_failures=1, min_ready_s=10.0)
    d.start_fails("llm#1.0")
    d.send(TrialRequested(at=d.now))
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.wait(10.0)
    assert d.status is DeploymentStatus.HEALTHY


@pytest.mark.parametrize("way", ["rolling", "at_once"])
def test_the_loser_of_a_duplicate_gets_rank_and_user_config(way: str) -> None:
    d = Deployment.recovered(2, {"llm#1.0": (0, 0, 0), "llm#1.1": (0, 0, 1)}, config_rollout=way, max_unavailable=1)
    d.report("llm#1.0")
    d.change(user_config=GOOD)
    d.report("llm#1.1")
    d.settle()
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.spec.config_id}
    assert len(d.sent(ReconfigureReplica, "llm#1.1")) == (2 if way == "rolling" else 1)


def test_the_loser_of_a_duplicate_that_waits_for_a_rank_is_not_sent_a_user_config_before() -> None:
    """Also where all others are sent it at once."""
    found = {"llm#1.0": (0, 0, 0), "llm#1.1": (0, 0, 0), "llm#1.2": (1, 0, 1)}
    d = Deployment.recovered(2, found, config_rollout="at_once")
    d.report("llm#1.0")
    d.report("llm#1.1")
    d.report("llm#1.2", draining=True)
    d.forget()
    d.change(user_config=GOOD)
    assert [command.replica_id for command in d.sent(ReconfigureReplica)] == ["llm#1.0"]
    d.stopped("llm#1.2")
    d.settle()
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.spec.config_id}


def test_who_owes_a_user_config_that_has_failed_elsewhere_is_told_the_proven_one_at_once() -> None:
    """V5."""
    d = Deployment.running(4, user_config=GOOD, max_unavailable=2, max_start_failures=1)
    d.change(user_config=BAD)
    d.forget()
    d.reconfigure_fails("llm#1.0")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    assert [(command.replica_id, command.user_config) for command in d.sent(ReconfigureReplica)] == [("llm#1.1", GOOD)]
    d.settle()
    d.wait(5.0)
    d.settle()
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.proven.config_id}


def test_a_user_config_that_failed_is_sent_again_where_another_placement_tries_it_again() -> None:
    """V6: what it had failed on were the bundles of before."""
    d = Deployment.running(None, placement=StaticPlacement({0: [0], 1: [1]}, 3), user_config=GOOD, max_start_failures=1)
    d.change(user_config=BAD)
    d.reconfigure_fails("llm#1.0")
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.change(placement=StaticPlacement({0: [2], 1: [1]}, 3), target_replicas=None)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert {each.config_id for each in d.state.replicas.values()} == {d.state.spec.config_id}


@pytest.mark.parametrize(("order", "expected"), [("lowest_rank", [0, 1, 2, 3]), ("highest_rank", [3, 2, 1, 0])])
def test_a_user_config_goes_to_the_ranks_in_the_order_of_updates(order: str, expected: list[int]) -> None:
    d = Deployment.running(4, max_unavailable=1, update_order=order)
    for user_config in (GOOD, BETTER):
        d.forget()
        d.change(user_config=user_config)
        d.settle()
        assert [command.rank.rank for command in d.sent(ReconfigureReplica)] == expected
    assert d.status is DeploymentStatus.HEALTHY


def test_who_was_passed_over_is_told_after_the_last_in_the_order_of_updates() -> None:
    """R8: rank 3 moves to 2, and is told when it has moved."""
    d = Deployment.running(4, max_unavailable=1, update_order="highest_rank", compaction="immediate")
    d.resize(3, ["llm#1.2"])
    d.stopped("llm#1.2")
    assert d.state.replicas["llm#1.3"].state is ReplicaState.RECONFIGURING
    d.forget()
    d.change(user_config=GOOD)
    d.acknowledge("llm#1.1")
    d.acknowledge("llm#1.0")
    assert told(d) == ["llm#1.1", "llm#1.0"]
    d.acknowledge("llm#1.3")
    assert told(d) == ["llm#1.1", "llm#1.0", "llm#1.3"]
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_another_order_of_updates_holds_for_those_that_were_not_told_yet() -> None:
    d = Deployment.running(5, max_unavailable=1)
    d.forget()
    d.change(user_config=GOOD)
    d.acknowledge("llm#1.0")
    d.change(update_order="highest_rank")
    d.settle()
    assert [command.rank.rank for command in d.sent(ReconfigureReplica)] == [0, 1, 4, 3, 2]
    assert d.status is DeploymentStatus.HEALTHY
