"""Section 2.3, V1: a rolling update replaces slot by slot, within a budget that no sequence of events may exceed."""

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaState
from rankcore.commands import InitializeReplica, ReconfigureReplica, StartReplica, StopReplica
from tests.scripted import Deployment


def stops(d: Deployment) -> list[str]:
    return [stop.replica_id for stop in d.sent(StopReplica)]


def versions(d: Deployment) -> list[str]:
    return sorted(replica.version for replica in d.state.replicas.values())


def roll(d: Deployment, budget: int) -> None:
    """Let the update run one answer at a time; the budget holds at every moment."""
    while d.outstanding:
        d.answer(min(d.outstanding))
        assert d.serving >= d.state.world_size - budget


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_an_update_replaces_every_replica_and_never_more_than_the_budget_at_once(budget: int) -> None:
    """Section 2.3: max_unavailable."""
    d = Deployment.running(5, max_unavailable=budget)
    d.change(version="2")
    assert len(stops(d)) == budget
    assert d.status is DeploymentStatus.UPDATING
    roll(d, budget)
    assert d.status is DeploymentStatus.HEALTHY
    assert versions(d) == ["2"] * 5


def test_each_newcomer_inherits_its_slots_rank() -> None:
    """Section 2.3, R6: the rank of the replica that it replaces, and no rank moves."""
    d = Deployment.running(4, max_unavailable=2)
    d.forget()
    d.change(version="2")
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1, 2, 3]
    for stop, start in zip(d.sent(StopReplica), d.sent(StartReplica), strict=True):
        assert start.rank == int(stop.replica_id.partition(".")[2])
        assert start.version == "2"
    assert d.sent(ReconfigureReplica) == []


def test_a_slot_is_filled_only_when_its_old_replica_has_stopped() -> None:
    """R7."""
    d = Deployment.running(2, max_unavailable=1)
    d.forget()
    d.change(version="2")
    (stopping,) = stops(d)
    assert d.sent(StartReplica) == []
    d.stopped(stopping)
    assert len(d.sent(StartReplica)) == 1


@pytest.mark.parametrize(("target", "default"), [(1, 1), (4, 1), (5, 1), (10, 2), (14, 2)])
def test_by_default_a_fifth_of_the_replicas_and_at_least_one_may_be_out_of_service(target: int, default: int) -> None:
    """Section 2.3: max_unavailable >= 1."""
    d = Deployment.running(target)
    d.change(version="2")
    assert len(stops(d)) == default


def test_a_single_replica_can_be_updated() -> None:
    """Section 2.3: with a budget of 1 and a target of 1, none is left for a while."""
    d = Deployment.running(1)
    d.change(version="2")
    d.settle()
    assert d.ranks == {"llm#1.1": 0}
    assert versions(d) == ["2"]


def test_crashes_below_the_budget_make_the_update_wait() -> None:
    """Section 2.3: crashes may go below; the update stops nobody until enough run again."""
    d = Deployment.running(4, max_unavailable=2)
    d.die("llm#1.0")
    d.die("llm#1.1")
    d.die("llm#1.2")
    d.forget()
    d.change(version="2")
    d.settle(except_for=["llm#1.4", "llm#1.5", "llm#1.6"])
    assert "llm#1.3" not in stops(d)
    d.settle()
    assert versions(d) == ["2"] * 4


def test_replicas_that_only_start_or_drain_do_not_count_as_available() -> None:
    """Section 2.3: RUNNING and RECONFIGURING count."""
    d = Deployment.running(4, max_unavailable=2)
    d.stop_by_name("llm#1.0")
    d.unhealthy("llm#1.1")
    d.forget()
    d.change(version="2")
    assert stops(d) == []


def test_replicas_that_are_all_reconfigured_at_once_count_as_available() -> None:
    """Section 2.3."""
    d = Deployment.running(3, max_unavailable=1, config_rollout="at_once")
    d.change(user_config={"a": 1})
    assert d.count(ReplicaState.RECONFIGURING) == 3
    d.change(version="2")
    assert len(stops(d)) == 1


def test_replicas_of_the_old_version_that_do_not_run_yet_are_replaced_without_budget() -> None:
    """Section 2.3."""
    d = Deployment(4, max_unavailable=1)
    d.place("llm#1.0")
    d.ready("llm#1.0")
    d.place("llm#1.1")
    d.forget()
    d.change(version="2")
    assert sorted(stops(d)) == ["llm#1.1", "llm#1.2", "llm#1.3"]
    d.settle()
    assert versions(d) == ["2"] * 4


def test_nothing_of_an_old_version_is_initialised_any_more() -> None:
    """Section 2.3: it goes straight to the newest spec."""
    d = Deployment(2)
    d.change(version="2")
    d.place("llm#1.0")
    assert d.sent(InitializeReplica) == []
    d.settle()
    assert versions(d) == ["2", "2"]


# ---------------------------------------------------------------------------------------------------------------------
# updates during updates


def test_a_second_update_during_an_update_goes_straight_to_the_newest_version() -> None:
    """Section 2.3: nothing of the second version is started after that."""
    d = Deployment.running(4, max_unavailable=1)
    d.change(version="2")
    d.answer(min(d.outstanding))
    d.change(version="3")
    d.forget()
    roll(d, 1)
    assert versions(d) == ["3"] * 4
    assert {start.version for start in d.sent(StartReplica)} == {"3"}


def test_a_second_update_does_not_get_a_second_budget() -> None:
    """Section 2.3: the budget is computed from the state."""
    d = Deployment.running(5, max_unavailable=2)
    d.change(version="2")
    assert len(stops(d)) == 2
    d.change(version="3")
    d.change(version="4")
    assert len(stops(d)) == 2
    assert d.serving == 3


def test_a_rollback_during_an_update_leaves_those_alone_that_are_still_of_the_old_version() -> None:
    """Section 2.3: a rollback is an update like any other."""
    d = Deployment.running(4, max_unavailable=1)
    d.change(version="2")
    d.answer(min(d.outstanding))
    d.settle(except_for=[f"llm#1.{n}" for n in range(4)])  # one slot runs version 2, the next one is draining
    assert versions(d) == ["1", "1", "1", "2"]
    d.change(version="1")
    d.forget()
    roll(d, 1)
    assert versions(d) == ["1"] * 4
    assert {start.version for start in d.sent(StartReplica)} == {"1"}
    assert len({"llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3"} & set(d.ranks)) == 2


def test_a_rollback_during_a_second_update_goes_straight_to_the_first_version() -> None:
    """Section 2.3: a rollback during either."""
    d = Deployment.running(3, max_unavailable=1)
    d.change(version="2")
    d.answer(min(d.outstanding))
    d.change(version="3")
    d.change(version="1")
    d.forget()
    roll(d, 1)
    assert versions(d) == ["1"] * 3
    assert {start.version for start in d.sent(StartReplica)} <= {"1"}


def test_a_downscale_during_an_update_leaves_the_right_number_of_the_right_version() -> None:
    """Sections 2.3 and 2.5."""
    d = Deployment.running(6, max_unavailable=2)
    d.change(version="2")
    d.answer(min(d.outstanding))
    d.resize(3)
    d.settle()
    assert versions(d) == ["2"] * 3
    assert sorted(d.ranks.values()) == [0, 1, 2]


def test_an_upscale_during_an_update_starts_newcomers_of_the_new_version() -> None:
    """Section 2.3."""
    d = Deployment.running(2, max_unavailable=1)
    d.change(version="2")
    d.forget()
    d.resize(4)
    assert {start.version for start in d.sent(StartReplica)} == {"2"}
    d.settle()
    assert versions(d) == ["2"] * 4


def test_a_crash_during_an_update_is_replaced_at_the_new_version_with_its_rank() -> None:
    """R6, section 2.3."""
    d = Deployment.running(4, max_unavailable=1)
    d.change(version="2")
    stopping = stops(d)[0]
    victim = next(replica_id for replica_id in d.ranks if replica_id != stopping)
    rank = d.ranks[victim]
    d.forget()
    d.die(victim)
    assert [(start.rank, start.version) for start in d.sent(StartReplica)] == [(rank, "2")]


def test_a_restart_of_the_controller_in_the_middle_of_an_update_does_not_reset_the_budget() -> None:
    """Section 2.3: it is computed from the state."""
    d = Deployment.running(5, max_unavailable=2)
    d.change(version="2")
    stopping = stops(d)
    assert len(stopping) == 2
    d.restart()
    d.forget()
    for replica_id in list(d.outstanding):
        d.report(replica_id)
    assert sorted(stops(d)) == sorted(stopping)  # these are told again, and nobody else
    assert d.serving == 3
    d.forget()
    roll(d, 2)
    assert versions(d) == ["2"] * 5
    assert d.status is DeploymentStatus.HEALTHY


@pytest.mark.parametrize("answers", range(12))
def test_the_budget_holds_wherever_in_an_update_the_controller_is_restarted(answers: int) -> None:
    """Section 2.3."""
    d = Deployment.running(4, max_unavailable=1)
    d.change(version="2")
    for _ in range(answers):
        if d.outstanding:
            d.answer(min(d.outstanding))
    d.restart()
    for replica_id in list(d.outstanding):
        d.report(replica_id)
    roll(d, 1)
    assert d.status is DeploymentStatus.HEALTHY
    assert versions(d) == ["2"] * 4
    assert sorted(d.ranks.values()) == [0, 1, 2, 3]


def test_a_lower_budget_in_the_middle_of_an_update_holds_from_then_on() -> None:
    """Section 2.3: computed from the spec in force."""
    d = Deployment.running(6, max_unavailable=3)
    d.change(version="2")
    assert len(stops(d)) == 3
    d.change(max_unavailable=1)
    d.forget()
    while d.outstanding:
        d.answer(min(d.outstanding))
        assert not d.sent(StopReplica) or d.serving >= 5
        d.forget()
    assert versions(d) == ["2"] * 6


# ---------------------------------------------------------------------------------------------------------------------
# surge


def test_with_surge_a_newcomer_is_started_and_placed_early_and_initialised_when_its_predecessor_has_ended() -> None:
    """Section 2.3: max_surge."""
    d = Deployment.running(1, max_surge=1)
    d.forget()
    d.change(version="2")
    assert [start.rank for start in d.sent(StartReplica)] == [0]
    assert stops(d) == []
    d.place("llm#1.1")
    assert stops(d) == ["llm#1.0"]
    assert d.sent(InitializeReplica) == []
    d.stopped("llm#1.0")
    assert [(told.replica_id, told.rank.rank) for told in d.sent(InitializeReplica)] == [("llm#1.1", 0)]
    d.settle()
    assert (d.ranks, versions(d)) == ({"llm#1.1": 0}, ["2"])


def test_surge_starts_no_more_than_max_surge_replicas_early() -> None:
    """Section 2.3."""
    d = Deployment.running(6, max_surge=2, max_unavailable=1)
    d.change(version="2")
    while d.outstanding:
        assert len(d.state.replicas) <= 6 + 2
        d.answer(min(d.outstanding))
    assert versions(d) == ["2"] * 6


def test_a_lower_max_surge_dismisses_who_was_started_beyond_it_the_least_far_and_youngest_first() -> None:
    d = Deployment.running(6, max_surge=4, max_unavailable=3)
    d.change(version="2")
    early = [each.replica_id for each in d.sent(StartReplica)[-4:]]
    d.place(early[1])  # its predecessor is stopped
    assert [each.replica_id for each in d.sent(StopReplica)][-1] == "llm#1.1"
    d.place(early[3])
    d.forget()
    d.change(max_surge=1)
    assert [each.replica_id for each in d.sent(StopReplica)] == [early[2], early[0]]
    d.settle()
    assert (d.status, {each.version for each in d.state.replicas.values()}) == (DeploymentStatus.HEALTHY, {"2"})


def test_an_update_with_surge_keeps_to_the_budget_too() -> None:
    """Section 2.3."""
    d = Deployment.running(5, max_surge=2, max_unavailable=1)
    d.change(version="2")
    roll(d, 1)
    assert versions(d) == ["2"] * 5
    assert sorted(d.ranks.values()) == [0, 1, 2, 3, 4]


def test_the_core_asks_to_be_woken_when_an_update_has_waited_long_enough_for_a_successor() -> None:
    """Sections 2.3 and 2.4, where repeats come later than its patience ends."""
    d = Deployment.running(1, max_surge=1, surge_patience_s=10.0, repeat_period_s=60.0)
    d.wait(100.0)  # nothing of the start-up is left to be woken for
    d.change(version="2")
    assert d.state.wake_at is not None
    assert d.state.wake_at <= d.now + 10.0
    d.wait(10.0)
    assert stops(d) == ["llm#1.0"]


def test_a_successor_that_dies_is_replaced_and_its_predecessor_goes_on() -> None:
    """Section 2.3, with surge."""
    d = Deployment.running(1, max_surge=1)
    d.change(version="2")
    early = d.sent(StartReplica)[-1].replica_id
    d.die(early)
    assert "llm#1.0" in d.ranks
    d.wait(1.0)
    d.settle()
    assert versions(d) == ["2"]


def test_a_predecessor_that_crashes_leaves_its_rank_to_the_successor() -> None:
    """R6, section 2.3: no third replica is started."""
    d = Deployment.running(1, max_surge=1)
    d.change(version="2")
    d.forget()
    d.die("llm#1.0")
    assert d.sent(StartReplica) == []
    d.settle()
    assert d.ranks == {"llm#1.1": 0}


def test_a_second_update_replaces_the_successors_of_the_first() -> None:
    """Section 2.3: straight to the newest spec."""
    d = Deployment.running(2, max_surge=1, max_unavailable=1)
    d.change(version="2")
    early = d.sent(StartReplica)[-1].replica_id
    d.change(version="3")
    assert early in stops(d)
    d.settle()
    assert versions(d) == ["3", "3"]


def test_a_rollback_dismisses_the_successors_and_leaves_the_old_ones_alone() -> None:
    """Section 2.3."""
    d = Deployment.running(3, max_surge=1, max_unavailable=1)
    d.change(version="2")
    early = d.sent(StartReplica)[-1].replica_id
    d.change(version="1")
    assert early in stops(d)
    d.settle()
    assert versions(d) == ["1"] * 3
    assert d.status is DeploymentStatus.HEALTHY


def test_a_restart_during_a_surge_update_ends_with_one_replica_for_each_rank() -> None:
    """R10, section 2.3: the successor was never initialised, reports no rank, and is killed."""
    d = Deployment.running(2, max_surge=1, max_unavailable=1)
    d.change(version="2")
    early = d.sent(StartReplica)[-1].replica_id
    d.place(early)
    d.restart()
    d.settle()
    assert early not in d.ranks
    assert versions(d) == ["2", "2"]
    assert sorted(d.ranks.values()) == [0, 1]


# ---------------------------------------------------------------------------------------------------------------------
# what else an update leaves in place


def test_an_update_to_the_spec_in_force_changes_nothing() -> None:
    """Section 2.4: a repeated event."""
    d = Deployment.running(2)
    before = d.state
    step = d.change()
    assert step.commands == ()
    assert d.state == before
    assert [note.kind for note in step.notes] == [NoteKind.LATE]


def test_a_healthy_deployment_remembers_the_spec_for_a_rollback() -> None:
    """Section 2.1: previous, the last spec that was ever healthy."""
    d = Deployment.running(2)
    first = d.state.spec
    assert d.state.previous == first
    d.change(version="2")
    assert d.state.previous == first
    d.settle()
    assert d.state.previous == d.state.spec
    assert d.state.previous.version == "2"


def test_every_stop_of_an_update_is_explained() -> None:
    """Section 2: notes say why."""
    d = Deployment.running(3, max_unavailable=1)
    d.change(version="2")
    d.settle()
    chosen = d.noted(NoteKind.STOP_CHOSEN)
    assert sorted(note.rank for note in chosen) == [0, 1, 2]
    assert all("version '2'" in note.because for note in chosen)
