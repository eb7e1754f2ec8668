"""V2: an update with surge comes to its end where no more than N places are there. Section 2.3, `rankcore/rules/bind.py`."""

import pytest

from rankcore import DeploymentStatus, NoteKind
from rankcore.commands import InitializeReplica, StartReplica, StopReplica
from rankcore.values import age_key
from tests.scripted import Deployment


def given(d: Deployment) -> list[tuple[str, int]]:
    """Who was initialised with which rank."""
    return [(told.replica_id, told.rank.rank) for told in d.sent(InitializeReplica)]


def started(d: Deployment) -> list[tuple[str, int]]:
    return [(start.replica_id, start.rank) for start in d.sent(StartReplica)]


def update_on(d: Deployment, places: int, *, newest_first: bool) -> float:
    """Let an update go on, on so many places, and one of those that wait get a free one. Returns for how long all waited."""
    waited_s = 0.0
    for _ in range(1000):
        if not d.outstanding:
            return waited_s
        waiting = sorted((each for each, told in d.outstanding.items() if isinstance(told, StartReplica)), key=age_key)
        others = [each for each in d.outstanding if each not in waiting]
        if others:
            d.answer(min(others, key=age_key))
        elif sum(process.node_id is not None for process in d.processes.values()) < places:
            d.answer(waiting[-1 if newest_first else 0])
        else:
            d.wait(1.0)
            waited_s += 1.0
    raise AssertionError(f"the update stands still: {d.status}, {d.outstanding}")


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("max_unavailable", [1, 2, None])
@pytest.mark.parametrize("max_surge", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_an_update_of_a_full_cluster_ends_after_one_wait(
    count: int, max_surge: int, max_unavailable: int | None, newest_first: bool
) -> None:
    out_at_once = count if max_unavailable is None else min(max_unavailable, count)
    d = Deployment.running(count, max_surge=max_surge, max_unavailable=out_at_once, surge_patience_s=10.0)
    d.change(version="2")
    waited_s = update_on(d, places=count, newest_first=newest_first)
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == list(range(count))
    assert waited_s == (10.0 if max_surge else 0.0)


def test_a_successor_takes_a_rank_that_is_vacant_before_anybody_is_started_for_it() -> None:
    d = Deployment.running(2, max_surge=1, max_unavailable=1)
    d.change(version="2")
    assert started(d)[-1] == ("llm#1.2", 0)
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.1"]
    d.forget()
    d.stopped("llm#1.1")
    assert started(d) == [("llm#1.3", 0)], "the next successor"
    d.place("llm#1.2")
    assert given(d) == [("llm#1.2", 1)]


def test_of_two_successors_the_one_that_is_placed_takes_the_vacant_rank() -> None:
    d = Deployment.running(4, max_surge=2, max_unavailable=1)
    d.change(version="2")
    assert started(d)[-2:] == [("llm#1.4", 0), ("llm#1.5", 1)]
    d.place("llm#1.4")
    d.forget()
    d.stopped("llm#1.3")
    assert given(d) == [("llm#1.4", 3)]


def test_a_place_that_goes_to_a_successor_is_that_of_the_rank_that_lacks_one() -> None:
    """Who has none waits on as a successor, in the other's place."""
    d = Deployment.running(2, max_surge=1, max_unavailable=1)
    d.change(version="2")
    d.stopped("llm#1.1")
    d.forget()
    d.place("llm#1.3")
    assert given(d) == [("llm#1.3", 1)]
    (changed,) = d.noted(NoteKind.SLOT_CHANGED, "llm#1.2")
    assert changed.rank == 0
    d.ready("llm#1.3")
    d.place("llm#1.2")
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.0"]
    d.stopped("llm#1.0")
    assert given(d) == [("llm#1.3", 1), ("llm#1.2", 0)]


def test_a_target_that_is_raised_meanwhile_takes_the_place_of_a_successor() -> None:
    d = Deployment.running(2, max_surge=1, max_unavailable=1)
    d.stop_by_name("llm#1.1")  # so that nobody may be stopped for the update
    d.change(version="2")
    d.place(started(d)[-1][0])
    d.forget()
    d.resize(3)
    assert [rank for _, rank in given(d)] == [2], "in the step that raises it"
    d.stopped("llm#1.1")
    d.change(max_unavailable=3)
    update_on(d, places=3, newest_first=False)
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2])


def test_who_has_waited_long_enough_is_not_waited_for_once_more() -> None:
    d = Deployment.running(2, max_surge=1, max_unavailable=1, surge_patience_s=10.0)
    d.change(version="2")
    d.stopped("llm#1.1")
    d.wait(10.0)
    d.place("llm#1.3")
    d.forget()
    d.ready("llm#1.3")
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.0"]


def test_an_update_does_not_wait_for_a_successor_that_finds_no_room() -> None:
    """Nobody is lost by it: the one who has no room takes what the next one leaves."""
    d = Deployment.running(2, max_surge=2, max_unavailable=1)
    d.change(version="2")
    assert d.sent(StopReplica) == []
    d.forget()
    d.pending("llm#1.3", "CPU 1 is asked for, and CPU 0 is free")
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.1"]
    (note,) = d.noted(NoteKind.WAITING, "llm#1.3")
    assert note.because.endswith("started early for rank 1: there is no room for it: CPU 1 is asked for, and CPU 0 is free")
    d.stopped("llm#1.1")
    d.place("llm#1.3")
    assert given(d) == [("llm#1.3", 1)]
    d.ready("llm#1.3")
    d.pending("llm#1.2", "")
    assert [stop.replica_id for stop in d.sent(StopReplica)] == ["llm#1.1", "llm#1.0"]


def test_that_a_replica_finds_no_room_has_nobody_stopped_but_for_a_successor_that_is_waited_for() -> None:
    d = Deployment.running(2, max_surge=1, max_unavailable=1, scarcity_after_s=None)
    d.pending("llm#1.0")
    d.change(version="2")
    d.stopped("llm#1.1")
    d.pending("llm#1.2")  # it has taken rank 1, and holds it
    assert [note.replica_id for note in d.noted(NoteKind.LATE)] == ["llm#1.0"]
    d.pending("llm#1.3", "its environment is installed", no_room=False)
    stops = len(d.sent(StopReplica))
    d.pending("llm#1.3")
    d.pending("llm#1.3")
    assert [note.rule for note in d.noted(NoteKind.WAITING)] == ["V18", "V2"]
    assert len(d.sent(StopReplica)) == stops, "the budget is used up"


def test_a_successor_that_has_room_and_no_process_yet_is_waited_for() -> None:
    d = Deployment.running(2, max_surge=2, max_unavailable=1, surge_patience_s=30.0)
    d.change(version="2")
    d.pending("llm#1.2", "its environment is installed", no_room=False)
    assert d.sent(StopReplica) == []
    d.pending("llm#1.2")
    assert len(d.sent(StopReplica)) == 1


def test_another_patience_counts_from_when_the_waiting_began() -> None:
    d = Deployment.running(2, max_surge=2, max_unavailable=1, surge_patience_s=100.0)
    d.change(version="2")
    d.wait(10.0)
    assert d.sent(StopReplica) == []
    d.change(surge_patience_s=12.0)
    d.wait(2.0)
    assert len(d.sent(StopReplica)) == 1


def test_a_rank_that_rests_takes_no_successor_before_its_back_off_is_over() -> None:
    d = Deployment.running(3, max_surge=1, max_unavailable=1, max_start_failures=5, start_backoff_s=8.0)
    d.change(version="2")
    d.stopped("llm#1.2")
    d.start_fails("llm#1.3")
    d.place("llm#1.4")
    assert given(d)[3:] == []
    d.wait(9.0)
    assert given(d)[3:] == [("llm#1.4", 2)]


def test_a_successor_waits_for_a_rank_that_another_may_still_believe() -> None:
    """R3: the loser of a duplicate has not acknowledged that it gave rank 2 up."""
    d = Deployment.recovered(3, {"llm#1.0": (0, 0, 0), "llm#1.1": (2, 0, 1), "llm#1.2": (2, 0, 2)}, max_unavailable=1)
    for replica_id in list(d.outstanding):
        d.report(replica_id)
    d.change(version="2", max_surge=1)
    early = started(d)[-1][0]
    d.place(early)
    d.stopped("llm#1.1")
    assert given(d) == []
    d.acknowledge("llm#1.2")
    assert given(d) == [(early, 2)]


def test_where_ranks_are_packed_only_who_is_placed_takes_a_rank_and_only_without_room() -> None:
    """R11: the core has chosen a node for a rank."""
    d = Deployment(2, placement="pack_ranks", max_surge=1, max_unavailable=1)
    d.node("b", 2)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    d.node("a", 1)
    d.change(version="2")
    early = started(d)[-1][0]
    d.node("b", 1)
    d.forget()
    d.stopped("llm#1.1")
    assert (started(d), given(d)) == ([], []), "it waits for its own place"
    d.place(early, "a")
    assert given(d) == [(early, 1)]


def waiting_beside_one_that_comes_up() -> tuple[Deployment, str, str]:
    """An update for which nobody may go yet. Returns who will be up, and whose place the update waits for, beside it."""
    d = Deployment.running(3, max_surge=1, max_unavailable=1, surge_patience_s=30.0, hand_over="prepared")
    d.change(version="2")
    d.die("llm#1.2")
    (coming,) = [each.replica_id for each in d.state.replicas.values() if each.slot == 2]
    d.place(coming)
    (successor,) = [slot.successor for slot in d.state.tables.slots.values() if slot.successor is not None]
    d.forget()
    return d, coming, successor


def test_a_successor_that_has_room_by_now_is_waited_for_again() -> None:
    """Its process starts, for three minutes as it may: nobody goes for it meanwhile, until patience is over anew."""
    d, coming, successor = waiting_beside_one_that_comes_up()
    d.wait(10.0)
    d.pending(successor)
    d.wait(1.0)
    d.pending(successor, no_room=False)
    assert d.noted(NoteKind.WAITING, successor)[-1].because.startswith("the update waits again for")
    d.ready(coming)
    d.wait(29.0)
    assert d.sent(StopReplica) == []
    d.wait(1.0)
    assert len(d.sent(StopReplica)) == 1
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_a_successor_whose_patience_is_over_is_not_waited_for_again() -> None:
    d, coming, successor = waiting_beside_one_that_comes_up()
    d.wait(20.0)
    d.pending(successor)
    d.wait(10.0)
    d.pending(successor, no_room=False)
    d.ready(coming)
    assert len(d.sent(StopReplica)) == 1
