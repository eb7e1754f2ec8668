"""V18: with room for k of N, the ranks 0..k-1 run. Section 2.3, `rankcore/rules/bind.py`, `rankcore/rules/scarcity.py`."""

from itertools import permutations

import pytest

from rankcore import DeploymentStatus, NoteKind
from rankcore.commands import InitializeReplica, ReconfigureReplica, StartReplica
from rankcore.progress import progress_of
from tests.scripted import Deployment


def given(d: Deployment) -> list[tuple[str, int]]:
    """Who was initialised with which rank."""
    return [(told.replica_id, told.rank.rank) for told in d.sent(InitializeReplica)]


def moves(d: Deployment) -> list[tuple[str, int]]:
    """Who was told to move to which rank."""
    return [(told.replica_id, told.rank.rank) for told in d.sent(ReconfigureReplica)]


def come_up(d: Deployment, *numbers: int) -> None:
    for number in numbers:
        d.place(f"llm#1.{number}")
        d.ready(f"llm#1.{number}")


def lose(d: Deployment, *numbers: int) -> None:
    """These are gone, and so is the room that they had: nobody who is asked for finds any."""
    for number in numbers:
        d.die(f"llm#1.{number}")
    d.find_no_room()


@pytest.mark.parametrize("lucky", list(permutations(range(5), 3)))
def test_a_first_start_with_room_for_three_of_five_runs_the_ranks_0_to_2_and_moves_nobody(lucky: tuple[int, ...]) -> None:
    d = Deployment(5, scarcity_after_s=60.0)
    come_up(d, *lucky)
    d.wait(1000.0)
    assert given(d) == [(f"llm#1.{number}", rank) for rank, number in enumerate(lucky)]
    assert moves(d) == []


def test_those_that_are_placed_before_any_is_initialised_share_out_the_lowest_ranks() -> None:
    """A predecessor may still be believed to have the rank: that delays the initialisation, and not who gets it."""
    d = Deployment.running(3, scarcity_after_s=5.0)
    lose(d, 0)
    d.wait(5.0)
    assert moves(d) == [("llm#1.2", 0)]
    d.place("llm#1.3")
    assert given(d)[3:] == [], "llm#1.2 may still believe that it has rank 2"
    d.acknowledge("llm#1.2")
    assert given(d)[3:] == [("llm#1.3", 2)]


def test_who_has_a_place_takes_the_rank_of_one_that_crashed_and_finds_none() -> None:
    d = Deployment(4)
    come_up(d, 0, 1, 2)
    lose(d, 0)
    d.place("llm#1.3")  # it was requested for rank 3, and waited for longer
    assert given(d)[3:] == [("llm#1.3", 0)]
    changed = [(note.replica_id, note.rank) for note in d.noted(NoteKind.SLOT_CHANGED) if note.rule == "V18"]
    assert changed == [("llm#1.3", 0), ("llm#1.4", 3)]


def test_a_rank_that_rests_is_not_taken() -> None:
    d = Deployment(2, start_backoff_s=8.0)
    d.start_fails("llm#1.0")
    d.place("llm#1.1")
    assert given(d) == [("llm#1.1", 1)]


def test_a_rank_of_another_version_is_not_taken() -> None:
    """What waits for rank 0 is of the old version, and about to be stopped."""
    d = Deployment(2)
    d.change(version="2")
    d.stopped("llm#1.1")
    d.place("llm#1.2")
    assert given(d) == [("llm#1.2", 1)]


def test_where_ranks_are_packed_nobody_takes_the_rank_of_another() -> None:
    """R11: the core has chosen a node for each rank."""
    d = Deployment(3, placement="pack_ranks")
    d.node("a", 3)
    d.place("llm#1.2", "a")
    assert given(d) == [("llm#1.2", 2)]


def test_a_starved_rank_is_taken_by_the_highest_that_runs_with_one_message() -> None:
    d = Deployment.running(5, scarcity_after_s=60.0)
    lose(d, 0, 1)
    d.wait(59.0)
    assert moves(d) == []
    d.wait(1.0)
    assert moves(d) == [("llm#1.4", 0), ("llm#1.3", 1)]
    d.acknowledge("llm#1.4")
    d.acknowledge("llm#1.3")
    assert sorted(d.ranks.values()) == [0, 1, 2]
    come_up(d, 5)
    assert given(d)[-1] == ("llm#1.5", 3), "the lowest that is free by now"
    come_up(d, 6)
    assert d.status is DeploymentStatus.HEALTHY
    assert len(moves(d)) == 2


def test_a_start_that_takes_long_moves_nobody() -> None:
    """Its process starts, or its environment is installed, for three minutes: that is no want of room."""
    d = Deployment.running(4, scarcity_after_s=60.0)
    d.die("llm#1.0")
    d.wait(180.0)
    d.pending("llm#1.4", "its environment is installed", no_room=False)
    d.wait(10_000.0)
    assert moves(d) == []
    come_up(d, 4)
    assert d.ranks["llm#1.4"] == 0
    assert (d.status, moves(d)) == (DeploymentStatus.HEALTHY, [])


def test_one_that_starts_counts_among_those_who_have_a_place() -> None:
    """Four of five will have one: rank 2 needs the highest, and ranks 0 and 1 are on their way."""
    d = Deployment.running(5, scarcity_after_s=60.0)
    for number in (0, 1, 2):
        d.die(f"llm#1.{number}")
    d.pending("llm#1.7")
    d.wait(60.0)
    assert moves(d) == [("llm#1.4", 2)]
    d.acknowledge("llm#1.4")
    come_up(d, 5, 6)
    d.wait(1000.0)
    assert sorted(d.ranks.values()) == [0, 1, 2, 3]
    assert len(moves(d)) == 1


def test_one_that_starts_takes_the_starved_rank_itself_where_only_that_has_to_move() -> None:
    d = Deployment.running(4, scarcity_after_s=60.0)
    for number in (1, 3):
        d.die(f"llm#1.{number}")
    d.pending("llm#1.4")
    d.wait(1000.0)
    assert moves(d) == [], "three have a place or will have one, and only rank 3 is beyond"
    come_up(d, 5)
    assert (given(d)[-1], moves(d)) == (("llm#1.5", 1), [])


def test_room_counts_as_lacking_from_when_that_is_said() -> None:
    d = Deployment.running(2, scarcity_after_s=60.0)
    d.die("llm#1.0")
    d.wait(100.0)
    d.pending("llm#1.2")
    d.wait(59.0)
    d.pending("llm#1.2", "said once more")
    assert moves(d) == []
    d.wait(1.0)
    assert moves(d) == [("llm#1.1", 0)]


def test_who_finds_room_after_all_is_waited_for_and_one_that_finds_none_again_anew() -> None:
    d = Deployment.running(2, scarcity_after_s=60.0)
    lose(d, 0)
    d.wait(59.0)
    d.pending("llm#1.2", no_room=False)
    d.wait(1000.0)
    assert moves(d) == []
    d.pending("llm#1.2")
    d.wait(59.0)
    assert moves(d) == []
    d.wait(1.0)
    assert moves(d) == [("llm#1.1", 0)]


def test_what_is_said_of_room_late_is_told_by_its_time() -> None:
    d = Deployment.running(2, scarcity_after_s=60.0)
    d.die("llm#1.0")
    d.wait(20.0)
    d.pending("llm#1.2", no_room=False)
    d.pending("llm#1.2", at=5.0)
    d.wait(1000.0)
    assert moves(d) == []
    assert d.notes[-1].kind is not NoteKind.WAITING


def test_who_finds_no_room_keeps_that_when_it_changes_places() -> None:
    """Rank 3 is asked for since the beginning, rank 0 since its crash; who starts for rank 3 takes rank 0."""
    d = Deployment(4, scarcity_after_s=60.0)
    come_up(d, 0, 1, 2)
    lose(d, 0)
    d.place("llm#1.3")
    assert list(d.state.tables.roomless) == [3]
    come_up(d, 4)
    assert list(d.state.tables.roomless) == []


def test_what_an_update_waits_for_is_room_only_once_that_is_said() -> None:
    d = Deployment.running(2, max_unavailable=1, repeat_period_s=5.0, scarcity_after_s=None)
    d.change(version="2")
    d.stopped("llm#1.0")
    d.wait(5.0)
    assert str(progress_of(d.state)).endswith("waits: no place yet, 1 of 2: rank 0 has no place")
    d.find_no_room()
    assert str(progress_of(d.state)).endswith("waits: no room, 1 of 2: rank 0 has no place (all places are taken)")


def test_the_core_is_woken_when_a_rank_is_starved() -> None:
    d = Deployment.running(2, scarcity_after_s=3.0)
    d.wait(10.0)
    lose(d, 0)
    assert d.state.wake_at == 13.0


def test_nobody_waits_for_a_rank_above_all_that_run() -> None:
    d = Deployment(3, scarcity_after_s=3.0, repeat_period_s=100.0)
    come_up(d, 0)
    assert d.state.wake_at == 100.0


def test_a_rank_that_is_lost_later_beneath_is_waited_for() -> None:
    d = Deployment.running(5, scarcity_after_s=60.0)
    lose(d, 1)
    d.wait(50.0)
    lose(d, 0)
    d.wait(59.0)
    assert moves(d) == []
    d.wait(1.0)
    assert moves(d) == [("llm#1.4", 0), ("llm#1.3", 1)]


def test_who_starts_is_moved_once_it_runs_and_nobody_below_is_moved_for_it() -> None:
    d = Deployment.running(4, scarcity_after_s=60.0)
    lose(d, 3)
    d.place("llm#1.4")
    lose(d, 0)
    d.wait(60.0)
    assert moves(d) == []
    d.ready("llm#1.4")
    assert moves(d) == [("llm#1.4", 0)]


def test_who_owes_an_acknowledgement_is_moved_after_it() -> None:
    d = Deployment.running(2, user_config={"a": 1}, config_rollout="at_once", scarcity_after_s=60.0)
    lose(d, 0)
    d.wait(59.0)
    d.change(user_config={"a": 2})
    d.wait(1.0)
    assert moves(d) == [("llm#1.1", 1)]
    d.acknowledge("llm#1.1")
    assert moves(d) == [("llm#1.1", 1), ("llm#1.1", 0)]


def test_back_off_is_no_lack_of_room() -> None:
    d = Deployment.running(2, scarcity_after_s=10.0, start_backoff_s=20.0, max_start_failures=5)
    lose(d, 0)
    d.start_fails("llm#1.2")
    rests_s = d.state.tables.slots[0].retry_at
    assert rests_s >= 20.0
    d.wait(rests_s - d.state.clock)
    d.find_no_room()
    d.wait(9.0)
    assert moves(d) == []
    d.wait(1.0)
    assert moves(d) == [("llm#1.1", 0)]


def test_back_off_is_no_lack_of_room_of_packed_ranks_either() -> None:
    d = Deployment(2, placement="pack_ranks", scarcity_after_s=10.0, start_backoff_s=20.0, max_start_failures=5)
    d.node("a", 1)
    d.node("b", 1)
    d.settle()
    d.die("llm#1.0")
    d.start_fails("llm#1.2")
    d.node("a", 0)
    d.wait(d.state.tables.slots[0].retry_at + 9.0 - d.state.clock)
    assert moves(d) == []
    d.wait(1.0)
    assert moves(d) == [("llm#1.1", 0)]


def test_without_a_time_nobody_moves_and_with_none_at_all_at_once() -> None:
    patient = Deployment.running(2, scarcity_after_s=None)
    lose(patient, 0)
    patient.wait(10_000.0)
    assert moves(patient) == []
    hasty = Deployment.running(2, scarcity_after_s=0.0)
    hasty.die("llm#1.0")
    assert moves(hasty) == []
    hasty.find_no_room()
    assert moves(hasty) == [("llm#1.1", 0)]


def test_a_successor_goes_where_its_predecessor_goes() -> None:
    d = Deployment.running(3, max_surge=1, max_unavailable=1, scarcity_after_s=60.0, surge_patience_s=1000.0)
    lose(d, 0)
    d.change(version="2")
    d.stopped("llm#1.3")
    d.find_no_room()
    d.wait(60.0)
    assert d.state.tables.rollout.surging.size == 1
    assert [rank for _, rank in moves(d)] == [0]
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2])


def test_packed_ranks_without_room_are_starved_while_they_are_vacant() -> None:
    d = Deployment(4, placement="pack_ranks", scarcity_after_s=60.0)
    d.node("a", 2)
    d.node("b", 2)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    lost = d.full("llm#1.0")
    d.lose("a")
    d.wait(59.0)
    assert moves(d) == []
    d.wait(1.0)
    assert lost == (0, 0, 0)
    assert sorted(rank for _, rank in moves(d)) == [0, 1]
    d.node("a", 2)
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2, 3])


def test_packed_ranks_that_a_recovery_has_not_found_are_starved_too() -> None:
    found = {"llm#1.2": (2, 0, 0), "llm#1.3": (3, 0, 1)}
    d = Deployment.recovered(4, found, placement="pack_ranks", scarcity_after_s=60.0)
    for replica_id in found:
        d.report(replica_id)
    d.wait(60.0)
    assert moves(d) == [("llm#1.3", 0), ("llm#1.2", 1)]
    d.node("n0", 4)
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2, 3])


def test_a_failed_version_of_which_nothing_works_starves_nobody() -> None:
    d = Deployment(1, placement="pack_ranks", max_start_failures=1, scarcity_after_s=1.0)
    d.node("n0", 1)
    d.start_fails("llm#1.0")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.wait(10.0)
    assert [start.rank for start in d.sent(StartReplica)] == [0]


def test_what_is_said_names_the_ranks_without_a_place_once_they_were_asked_for_in_vain() -> None:
    d = Deployment(5, repeat_period_s=5.0)
    d.wait(4.0)
    assert d.state.message == ""
    d.wait(1.0)
    assert d.state.message == "ranks 0, 1, 2, 3, ... have no place: 0 of 5 have one"
    come_up(d, 0, 1, 2)
    assert d.state.message == "ranks 3, 4 have no place: 3 of 5 have one"
    d.resize(4)
    assert d.state.message == "rank 3 has no place: 3 of 4 have one"
    d.resize(3)
    assert d.state.message == ""


def test_what_is_said_of_packed_ranks_names_those_that_were_not_even_asked_for() -> None:
    d = Deployment(3, placement="pack_ranks")
    assert d.state.message == "ranks 0, 1, 2 have no place: 0 of 3 have one"
    d.node("a", 2)
    assert d.state.message == "rank 2 has no place: 0 of 3 have one"
    d.node("b", 1)
    assert d.state.message == ""
    d.node("b", 0)
    d.delete()
    assert d.state.message == ""


def test_one_that_is_stopped_before_it_has_a_place_is_waited_for_anew() -> None:
    """Found by a schedule at random: its end took longer than a rank may lack a place."""
    d = Deployment.running(2, scarcity_after_s=60.0, graceful_shutdown_timeout_s=100.0)
    lose(d, 0)
    d.stop_by_name("llm#1.2")
    d.wait(90.0)
    d.stopped("llm#1.2")
    d.find_no_room()
    assert moves(d) == []
    d.wait(60.0)
    assert moves(d) == [("llm#1.1", 0)]


def test_one_that_waits_for_a_rank_which_is_still_believed_takes_a_lower_one_that_falls_vacant_meanwhile() -> None:
    """Found by a schedule at random: another was started for the lower rank, and waited for a place there."""
    d = Deployment.running(3, scarcity_after_s=5.0)
    lose(d, 1)
    d.wait(5.0)
    assert moves(d) == [("llm#1.2", 1)]
    d.place("llm#1.3")
    lose(d, 0)
    assert given(d)[3:] == [("llm#1.3", 0)]
    d.acknowledge("llm#1.2")
    assert d.state.holder_of(2) == "llm#1.4"


def test_it_takes_a_lower_rank_as_well_that_a_recovery_found_on_its_way_out_and_kept_for_nobody() -> None:
    found = {f"llm#1.{number}": (rank, 0, number) for number, rank in enumerate((0, 1, 3, 4))}
    d = Deployment.recovered(5, found, scarcity_after_s=5.0)
    for replica_id in found:
        d.report(replica_id, draining=replica_id == "llm#1.0")
    d.find_no_room()
    d.wait(5.0)
    assert moves(d) == [("llm#1.3", 2)]
    d.place("llm#2.0")
    d.stopped("llm#1.0")
    assert given(d) == [("llm#2.0", 0)]
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2, 3, 4])


def test_nobody_is_initialised_with_a_lower_rank_that_another_may_still_believe_before_that_is_over() -> None:
    """R3: the loser of a duplicate believes it until it acknowledges that it has moved."""
    ranks = (0, 0, 1, 3, 4)
    found = {f"llm#1.{number}": (rank, 0, number) for number, rank in enumerate(ranks)}
    d = Deployment.recovered(5, found, scarcity_after_s=5.0, repeat_period_s=100.0)
    for replica_id in found:
        d.report(replica_id)
    lose(d, 2)
    d.wait(5.0)
    assert moves(d) == [("llm#1.1", 2), ("llm#1.4", 1)]
    d.place("llm#2.0")
    lose(d, 0)
    assert given(d) == []
    d.acknowledge("llm#1.1")
    assert given(d) == [("llm#2.0", 0)]


def test_a_rank_that_a_lower_target_has_left_without_a_slot_is_waited_for_by_who_waits_for_a_higher_one() -> None:
    """With a target lowered while rank 0 drains, nobody is started for it: rank 3, beyond the world size, is."""
    d = Deployment.running(4, max_unavailable=2, scarcity_after_s=60.0)
    lose(d, 3)
    d.stop_by_name("llm#1.0")
    d.resize(3)
    d.stopped("llm#1.0")
    d.wait(59.0)
    assert d.state.message == "rank 0 has no place: 2 of 3 have one"
    assert moves(d) == []
    d.wait(1.0)
    assert moves(d) == [("llm#1.2", 0)]
    d.acknowledge("llm#1.2")
    assert sorted(d.ranks.values()) == [0, 1]
    d.settle()
    assert (d.status, sorted(d.ranks.values()), len(moves(d))) == (DeploymentStatus.HEALTHY, [0, 1, 2], 1)


def test_nobody_is_moved_into_a_rank_without_a_slot_while_nothing_is_said_of_room() -> None:
    d = Deployment.running(4, scarcity_after_s=60.0)
    d.die("llm#1.2")
    d.stop_by_name("llm#1.0")
    d.resize(3)
    d.stopped("llm#1.0")
    d.wait(120.0)
    assert moves(d) == []
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2])


def test_it_is_waited_for_as_well_where_another_runs_beyond_the_world_size() -> None:
    d = Deployment.running(4, scarcity_after_s=60.0)
    lose(d, 2)
    d.stop_by_name("llm#1.0")
    d.resize(3)
    d.stopped("llm#1.0")
    d.wait(60.0)
    assert moves(d) == [], "that rank 2 is starved does not say that rank 0 is"
    d.wait(60.0)
    assert moves(d) == [("llm#1.3", 0)]
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2])
    assert set(moves(d)) == {("llm#1.3", 0)}, "its local rank is moved once more"


def test_who_would_be_told_an_unknown_user_config_with_its_move_waits_until_the_budget_allows_that() -> None:
    """V1: what it has is not known after a recovery, so a bad user_config would take it out of service, below N - U."""
    found = {f"llm#1.{rank}": (rank, 0, rank) for rank in range(4)}
    d = Deployment.recovered(5, found, max_unavailable=1, scarcity_after_s=5.0, user_config={"a": 2})
    for replica_id in found:
        d.report(replica_id, config_id="older")
    lose(d, 0)
    d.wait(60.0)
    assert (moves(d), d.serving) == ([], 3)
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2, 3, 4])
    assert moves(d) == [("llm#1.1", 1), ("llm#1.2", 2), ("llm#1.3", 3)]


def test_no_rank_beyond_the_world_size_is_opened_for_one_that_has_a_place() -> None:
    """R4: who leaves still believes 0 and 1; who is placed for rank 3 waits for them, and so does the one to come."""
    d = Deployment.running(3)
    d.resize(4)
    d.resize(2, stop_first=("llm#1.0", "llm#1.1"))
    d.place("llm#1.3")
    d.forget()
    d.die("llm#1.2")
    assert d.sent(StartReplica) == []
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1]
