"""V14, V15: cordon, drain and replacement by name; whoever has to go has a successor first. `rankcore/rules/evict.py`."""

import pytest

from rankcore import DeploymentStatus, NoteKind
from rankcore.commands import KillReplica, StartReplica, StopReplica
from rankcore.errors import UnknownDeploymentError
from rankcore.evictions import Drain
from rankcore.placement import StaticPlacement
from rankcore.progress import progress_of
from rankcore.state import Replica
from rankcore.values import ReplicaState
from tests.scripted import Deployment

HEALTHY, UNHEALTHY = DeploymentStatus.HEALTHY, DeploymentStatus.UNHEALTHY


def started(d: Deployment) -> list[tuple[str, int]]:
    return [(start.replica_id, start.rank) for start in d.sent(StartReplica)]


def stopped(d: Deployment) -> list[str]:
    """Each once: who does not answer is told again."""
    return list(dict.fromkeys(stop.replica_id for stop in d.sent(StopReplica)))


def killed(d: Deployment) -> list[str]:
    return list(dict.fromkeys(kill.replica_id for kill in d.sent(KillReplica)))


def by_rank(d: Deployment) -> dict[int, Replica]:
    return {rank: d.state.replicas[replica_id] for replica_id, rank in d.ranks.items()}


def nodes_of(d: Deployment) -> dict[int, str | None]:
    """Where each rank is."""
    return {rank: d.state.replicas[replica_id].node_id for replica_id, rank in d.ranks.items()}


def two_nodes(target: int = 4, **spec: object) -> Deployment:
    """Ranks 0, 2 on n0 and 1, 3 on n1, and a third node that is empty."""
    d = Deployment.running(target, nodes=("n0", "n1"), **spec)
    d.nodes = ("n0", "n1", "n2")
    d.forget()
    return d


# ---------------------------------------------------------------------------------------------------------------------
# cordon


def test_a_cordon_touches_nobody() -> None:
    d = two_nodes()
    d.cordon("n0")
    assert (d.commands, d.status, d.state.nodes["n0"].cordoned) == ([], HEALTHY, True)


def test_who_comes_up_on_a_cordoned_node_is_taken_and_evicted_once_it_runs() -> None:
    d = two_nodes()
    d.die("llm#1.1")
    d.cordon("n2")
    d.place("llm#1.4", "n2")
    assert d.state.replicas["llm#1.4"].state is ReplicaState.STARTING
    assert started(d) == [("llm#1.4", 1)]
    d.ready("llm#1.4")
    assert started(d)[-1] == ("llm#1.5", 1)
    assert stopped(d) == []
    d.settle()
    assert (d.status, stopped(d)) == (HEALTHY, ["llm#1.4"])
    assert "n2" not in nodes_of(d).values()


def test_who_came_up_on_a_cordoned_node_may_stay_once_it_is_uncordoned() -> None:
    d = two_nodes()
    d.die("llm#1.1")
    d.cordon("n2")
    d.place("llm#1.4", "n2")
    d.uncordon("n2")
    d.settle()
    assert (d.status, stopped(d), nodes_of(d)[1]) == (HEALTHY, [], "n2")


def test_the_core_packs_no_ranks_on_a_cordoned_node() -> None:
    d = Deployment(1, placement="pack_ranks")
    d.node("a", 4)
    d.node("b", 1)
    d.settle()
    d.cordon("a")
    d.resize(3)
    assert [start.node_id for start in d.sent(StartReplica)] == ["a", "b"]
    d.uncordon("a")
    assert [start.node_id for start in d.sent(StartReplica)] == ["a", "b", "a"]


def test_what_was_only_wanted_on_a_cordoned_node_is_wanted_elsewhere() -> None:
    d = Deployment(1, placement="pack_ranks")
    d.node("a", 4)
    d.node("b", 1)
    d.cordon("a")
    d.settle()
    assert [start.node_id for start in d.sent(StartReplica)] == ["a", "b"]
    assert (killed(d), d.status) == (["llm#1.0"], HEALTHY)


@pytest.mark.parametrize("again", ["cordon", "drain"])
def test_of_the_news_of_a_node_the_newest_holds(again: str) -> None:
    d = two_nodes()
    d.uncordon("n0", at=5.0)
    getattr(d, again)("n0", at=4.0)
    assert not d.state.nodes["n0"].cordoned
    assert len(d.noted(NoteKind.LATE)) == 2, "of one that is not cordoned, and one that was overtaken"
    d.lose("n0", at=6.0)
    getattr(d, again)("n0", at=6.0)
    assert not d.state.nodes["n0"].cordoned
    getattr(d, again)("n0", at=7.0)
    assert d.state.nodes["n0"].cordoned
    d.lose("n0", at=8.0)
    assert (d.state.nodes["n0"].cordoned, d.state.nodes["n0"].drain) == (False, None)


def test_a_loss_that_is_older_than_a_cordon_does_not_end_it() -> None:
    d = two_nodes()
    d.cordon("n0", at=5.0)
    d.lose("n0", at=4.0)
    assert d.state.nodes["n0"].cordoned


# ---------------------------------------------------------------------------------------------------------------------
# drain without a deadline


def test_a_drained_node_is_emptied_one_by_one_with_the_same_ranks_elsewhere() -> None:
    d = two_nodes()
    least = d.serving
    d.drain("n0")
    assert started(d) == [("llm#1.4", 0)], "max(1, max_surge) at once"
    assert (stopped(d), d.status) == ([], UNHEALTHY)
    assert d.state.message == "to be replaced: rank 0 from n0 (drain), for a place of llm#1.4, rank 2 from n0 (drain)"
    while d.outstanding:
        d.answer(sorted(d.outstanding)[0])
        least = min(least, d.serving)
    assert least == 3
    assert (d.status, stopped(d), killed(d)) == (HEALTHY, ["llm#1.0", "llm#1.2"], [])
    assert sorted(d.ranks.values()) == [0, 1, 2, 3]
    assert "n0" not in nodes_of(d).values()
    assert d.state.message == ""


@pytest.mark.parametrize("placement", [None, "pack_ranks"])
def test_ranks_are_below_a_lowered_target_while_a_drain_waits_for_room(placement: str | None) -> None:
    d = Deployment(4, nodes=("n0", "n1"), placement=placement)
    d.node("n0", 2)
    d.node("n1", 2)
    d.settle()
    d.drain("n0")
    d.resize(3)
    waiting = [each.replica_id for each in d.state.replicas.values() if each.state is ReplicaState.REQUESTED]
    d.settle(except_for=waiting)
    for successor in waiting:
        d.pending(successor)
    d.settle(except_for=waiting)
    assert (sorted(d.ranks.values()), d.serving, d.status is HEALTHY) == ([0, 1, 2], 3, False)


def test_nobody_is_stopped_before_a_successor_has_a_place_however_long_that_takes() -> None:
    d = two_nodes(surge_patience_s=10.0)
    d.drain("n0")
    d.wait(3600.0)
    assert (stopped(d), d.serving) == ([], 4)
    d.pending("llm#1.4")
    assert stopped(d) == []
    d.place("llm#1.4", "n1")
    assert stopped(d) == ["llm#1.0"]


def test_nobody_is_stopped_beyond_the_budget() -> None:
    d = two_nodes(max_unavailable=1, max_surge=4)
    d.drain("n0")
    assert started(d) == [("llm#1.4", 0), ("llm#1.5", 2)]
    d.place("llm#1.4", "n1")
    d.place("llm#1.5", "n1")
    assert stopped(d) == ["llm#1.0"]
    d.stopped("llm#1.0")
    assert stopped(d) == ["llm#1.0"], "its successor is not ready yet"
    d.ready("llm#1.4")
    assert stopped(d) == ["llm#1.0", "llm#1.2"]


def test_who_has_no_rank_yet_is_killed_and_who_starts_goes_once_it_runs() -> None:
    d = Deployment(3)
    d.place("llm#1.0", "n0")
    d.place("llm#1.1", "n1")
    d.ready("llm#1.1")
    d.change(version="2", max_surge=1)
    d.place("llm#1.4", "n0") if "llm#1.4" in d.outstanding else None
    d.nodes = ("n1",)
    d.drain("n0")
    d.settle()
    assert (d.status, set(nodes_of(d).values())) == (HEALTHY, {"n1"})


def test_a_successor_that_comes_up_on_a_drained_node_is_started_elsewhere() -> None:
    d = two_nodes()
    d.drain("n0")
    d.drain("n2")
    d.place("llm#1.4", "n2")
    assert (killed(d), stopped(d)) == (["llm#1.4"], [])
    d.settle()
    assert (d.status, set(nodes_of(d).values())) == (HEALTHY, {"n1"})


def test_uncordoned_who_was_not_told_to_stop_stays() -> None:
    d = two_nodes(max_surge=2)
    d.drain("n0")
    d.place("llm#1.4", "n1")
    assert stopped(d) == ["llm#1.0"]
    d.uncordon("n0")
    assert stopped(d) == ["llm#1.0", "llm#1.5"], "the second successor is not needed any more"
    d.settle()
    assert (d.status, nodes_of(d)) == (HEALTHY, {0: "n1", 1: "n1", 2: "n0", 3: "n1"})


def test_an_uncordon_amid_an_update_leaves_that_no_more_successors_than_max_surge() -> None:
    """Of those that a drain had started: the furthest one goes on for the update."""
    d = two_nodes(max_surge=1, max_unavailable=1)
    d.change(version="2", update_order="highest_rank", hand_over="prepared")
    d.drain("n0", 500.0)
    early = {rank: slot.successor for rank, slot in d.state.tables.slots.items() if slot.successor}
    assert set(early) == {0, 2, 3}
    d.place(early[2], "n1")
    d.forget()
    d.uncordon("n0")
    assert set(stopped(d)) == {early[0], early[3]}
    assert [d.state.tables.slots[rank].successor for rank in range(4)] == [None, None, early[2], None]
    d.settle()
    assert d.status is HEALTHY
    assert {each.version for each in d.state.replicas.values()} == {"2"}


def test_an_uncordon_after_a_build_was_given_up_leaves_no_successor() -> None:
    """Nothing is updated any more, so that whoever runs what works stays."""
    d = two_nodes(max_unavailable=1, max_start_failures=1, max_surge=1)
    d.change(version="2")
    d.place("llm#1.4", "n2")
    d.start_fails("llm#1.4")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.settle()
    d.drain("n0")
    successor = started(d)[-1][0]
    d.forget()
    d.uncordon("n0")
    assert stopped(d) == [successor]
    d.settle()
    assert {each.replica_id for each in by_rank(d).values()} >= {"llm#1.0", "llm#1.2"}


def test_a_crash_meanwhile_takes_the_successor_that_waits() -> None:
    d = two_nodes()
    d.drain("n0")
    d.die("llm#1.1")
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (HEALTHY, [0, 1, 2, 3])
    assert "n0" not in nodes_of(d).values()


def test_a_downscale_takes_the_evicted_before_those_that_may_stay() -> None:
    d = two_nodes(victims="highest_rank")
    d.replace("llm#1.1", deadline_at=900.0)
    d.drain("n0", 500.0)
    holders = {f"llm#1.{serial}" for serial in range(4)}
    assert holders & set(stopped(d)) == set()
    d.resize(3)
    assert holders & set(stopped(d)) == {"llm#1.0"}, "the earliest deadline, the lowest rank"
    d.resize(1)
    assert holders & set(stopped(d)) == {"llm#1.0", "llm#1.1", "llm#1.2"}
    d.settle()
    assert d.status is HEALTHY


def test_an_update_passes_over_the_evicted_whose_successors_bring_the_version() -> None:
    """M10."""
    d = two_nodes(max_unavailable=1)
    d.drain("n0")
    d.change(version="2")
    d.forget()
    d.settle()
    assert (d.status, "n0" in nodes_of(d).values()) == (HEALTHY, False)
    assert {each.version for each in d.state.replicas.values()} == {"2"}


def test_an_update_leaves_the_evicted_to_their_successors_though_they_are_unready() -> None:
    d = two_nodes()
    d.drain("n0")
    d.unready("llm#1.0")
    d.change(version="2", max_unavailable=1)
    assert "llm#1.0" not in stopped(d)


def test_an_update_without_room_elsewhere_goes_on_beside_a_drain() -> None:
    """M10: rank 0 waits for room; were it rolled, its room on the cordoned node would be gone."""
    d = Deployment.running(2, nodes=("n0", "n1"), max_unavailable=1)
    d.drain("n0")
    d.change(version="2")
    assert stopped(d) == ["llm#1.2", "llm#1.1"], "the successor of another version, and who may stay"
    d.stopped("llm#1.1")
    d.stopped("llm#1.2")
    d.place(started(d)[-1][0], "n1")
    d.settle(except_for=[started(d)[-1][0]])
    assert "llm#1.0" not in stopped(d)


def packed(**spec: object) -> Deployment:
    """Ranks 0 and 1 on a, 2 and 3 on b, and both are full."""
    d = Deployment(4, placement="pack_ranks", **spec)
    d.node("a", 2)
    d.node("b", 2)
    d.settle()
    d.forget()
    return d


def test_an_update_stops_nobody_who_could_come_back_nowhere() -> None:
    """The room of a cordoned node is lost with who leaves it, and the core knows that there is no other."""
    d = packed(max_unavailable=2)
    d.cordon("a")
    d.cordon("b")
    d.change(version="2")
    assert (stopped(d), d.serving) == ([], 4)
    assert progress_of(d.state).because == (
        "no room elsewhere for what is to be updated on cordoned nodes: rank 0, rank 1, rank 2, rank 3"
    )
    d.uncordon("b")
    d.settle()
    assert {rank: each.version for rank, each in by_rank(d).items()} == {0: "1", 1: "1", 2: "2", 3: "2"}
    assert d.serving == 4
    d.uncordon("a")
    d.settle()
    assert (d.status, {each.version for each in d.state.replicas.values()}) == (HEALTHY, {"2"})


def test_an_update_takes_from_cordoned_nodes_as_many_as_find_room_elsewhere() -> None:
    d = packed(max_unavailable=3)
    d.cordon("a")
    d.cordon("b")
    d.node("c", 2)
    d.change(version="2")
    assert stopped(d) == ["llm#1.0", "llm#1.1"]
    d.stopped("llm#1.0")
    assert stopped(d) == ["llm#1.0", "llm#1.1"]
    d.settle()
    assert {rank: each.version for rank, each in by_rank(d).items()} == {0: "2", 1: "2", 2: "1", 3: "1"}


def update_where_all_places_are_taken(d: Deployment, places: int) -> None:
    """Everything is answered, as long as it takes; who is requested gets a place only where another one has ended."""
    for _ in range(60):
        for replica_id in sorted(d.outstanding):
            waits = d.state.replicas[replica_id].state is ReplicaState.REQUESTED if replica_id in d.state.replicas else False
            taken = sum(each.state is not ReplicaState.REQUESTED for each in d.state.replicas.values())
            if replica_id in d.outstanding and not (waits and taken >= places):
                d.answer(replica_id)
        d.wait(10.0)


@pytest.mark.parametrize("names", [("llm#1.1",), ("llm#1.1", "llm#1.2"), ("llm#1.0", "llm#1.1", "llm#1.2")])
@pytest.mark.parametrize(("max_surge", "hand_over"), [(0, "none"), (1, "none"), (2, "prepared")])
def test_an_update_replaces_who_is_named_where_there_is_no_room_for_a_successor(
    names: tuple[str, ...], max_surge: int, hand_over: str
) -> None:
    """V2: its node is open, so what is started anew has a place there."""
    d = Deployment.running(3, max_unavailable=1, max_surge=max_surge, hand_over=hand_over)
    d.replace(*names)
    update_where_all_places_are_taken(d, 3)
    assert (set(stopped(d)) & set(d.ranks), d.serving) == (set(), 3), "without an update they wait for room"
    d.change(version="2")
    update_where_all_places_are_taken(d, 3)
    assert {each.version for each in d.state.replicas.values()} == {"2"}
    assert (d.status, sorted(d.ranks.values()), d.state.message) == (HEALTHY, [0, 1, 2], "")


def test_an_update_replaces_who_is_named_where_ranks_are_packed_and_no_node_has_room() -> None:
    d = Deployment(2, placement="pack_ranks", max_unavailable=1)
    d.node("a", 2)
    d.settle()
    d.replace("llm#1.0", "llm#1.1")
    d.change(version="2")
    d.settle()
    assert (d.status, {each.version for each in d.state.replicas.values()}) == (HEALTHY, {"2"})


def test_an_update_replaces_who_is_named_where_a_drain_waits_for_room_too() -> None:
    """M10: the drained one, whose successor waits in vain, goes neither with it nor before it."""
    d = Deployment.running(3, nodes=("n0", "n1", "n2"), max_unavailable=1)
    d.nodes = ("n1", "n2")
    d.drain("n0")
    d.replace("llm#1.1")
    d.change(version="2")
    update_where_all_places_are_taken(d, 3)
    assert ("llm#1.0" in stopped(d), d.state.replicas["llm#1.0"].version) == (False, "1")
    assert sorted(each.version for each in d.state.replicas.values() if each.rank is not None) == ["1", "2", "2"]


def test_an_update_stops_who_is_named_no_sooner_than_its_successor_has_a_place_or_finds_none() -> None:
    d = two_nodes(max_unavailable=1, surge_patience_s=30.0)
    d.replace("llm#1.0", "llm#1.1", "llm#1.2", "llm#1.3")
    d.change(version="2")
    d.stopped("llm#1.4")
    d.forget()
    d.wait(29.0)
    assert stopped(d) == []
    d.wait(1.0)
    assert stopped(d) == ["llm#1.0"]


def test_a_drain_goes_on_with_what_is_proven_while_a_build_has_failed() -> None:
    d = two_nodes(max_start_failures=1, max_unavailable=1)
    d.change(version="2")
    failing = stopped(d)[0]
    d.stopped(failing)
    d.place(started(d)[-1][0], "n1")
    d.start_fails(started(d)[-1][0])
    d.settle()
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.drain("n1")
    d.settle()
    assert "n1" not in nodes_of(d).values()
    assert {each.version for each in d.state.replicas.values()} == {"1"}


def test_nothing_that_works_is_known_so_nothing_is_started() -> None:
    d = Deployment(1, max_start_failures=1)
    d.place("llm#1.0")
    d.start_fails("llm#1.0")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.drain("n0")
    d.settle()
    assert d.ranks == {}


def test_packed_ranks_without_room_elsewhere_wait() -> None:
    d = Deployment(2, placement="pack_ranks")
    d.node("a", 2)
    d.settle()
    d.forget()
    d.drain("a")
    assert (d.commands[:0], started(d), stopped(d), d.status) == ([], [], [], UNHEALTHY)
    d.node("b", 2)
    d.settle()
    assert (d.status, nodes_of(d)) == (HEALTHY, {0: "b", 1: "b"})


# ---------------------------------------------------------------------------------------------------------------------
# deadlines


def test_with_a_deadline_all_successors_are_started_at_once() -> None:
    d = two_nodes()
    d.drain("n0", 120.0, reason="preemption")
    assert started(d) == [("llm#1.4", 0), ("llm#1.5", 2)]
    d.settle()
    assert (d.status, killed(d)) == (HEALTHY, [])


def test_who_is_left_is_stopped_a_grace_before_the_deadline_and_killed_at_it() -> None:
    d = two_nodes(graceful_shutdown_timeout_s=20.0)
    d.drain("n0", 120.0)
    d.wait(99.0)
    assert (stopped(d), d.serving) == ([], 4)
    d.wait(1.0)
    assert [(stop.replica_id, stop.timeout_s) for stop in d.sent(StopReplica)] == [("llm#1.0", 20.0), ("llm#1.2", 20.0)]
    d.wait(19.9)
    assert killed(d) == []
    d.wait(0.1)
    assert killed(d) == ["llm#1.0", "llm#1.2"]
    d.settle()
    assert (d.status, "n0" in nodes_of(d).values()) == (HEALTHY, False)


def test_a_notice_shorter_than_the_grace_stops_all_at_once_for_the_rest() -> None:
    d = two_nodes(graceful_shutdown_timeout_s=20.0)
    d.drain("n0", 5.0)
    assert [(stop.replica_id, stop.timeout_s) for stop in d.sent(StopReplica)] == [("llm#1.0", 5.0), ("llm#1.2", 5.0)]
    d.wait(5.0)
    assert killed(d) == ["llm#1.0", "llm#1.2"]


def test_a_deadline_that_is_over_kills_at_once() -> None:
    d = two_nodes()
    d.drain("n0", 0.0)
    assert killed(d) == ["llm#1.0", "llm#1.2"]


def test_who_was_told_to_stop_before_is_killed_at_the_deadline_too() -> None:
    d = two_nodes(graceful_shutdown_timeout_s=600.0)
    d.stop_by_name("llm#1.0")
    d.drain("n0", 30.0)
    d.wait(30.0)
    assert "llm#1.0" in killed(d)


def test_a_later_drain_replaces_the_deadline() -> None:
    d = two_nodes()
    d.drain("n0", 30.0)
    d.drain("n0", None, at=1.0)
    d.wait(3600.0)
    assert (stopped(d), killed(d)) == ([], [])
    d.drain("n0", d.now + 60.0)
    d.wait(60.0)
    assert killed(d) == ["llm#1.0", "llm#1.2"]


def test_a_cordon_takes_nothing_of_a_drain_back() -> None:
    """All pairs: `tests/property/test_pairs_of_node_news.py`."""
    d = two_nodes()
    d.drain("n0", 30.0)
    d.cordon("n0", at=1.0)
    assert d.state.nodes["n0"].drain == Drain(30.0, "drain", 0.0)


@pytest.mark.parametrize("final_first", [True, False])
@pytest.mark.parametrize(("asked", "until"), [(100.0, 60.0), (None, 60.0), (30.0, 30.0)])
def test_nobody_puts_off_the_end_of_a_node_that_is_final(asked: float | None, until: float, final_first: bool) -> None:
    d = two_nodes(graceful_shutdown_timeout_s=0.0)
    for final in (final_first, not final_first):
        d.drain("n0", 60.0 if final else asked, final=final)
    assert d.state.nodes["n0"].drain == Drain(until, "drain", 0.0, True)
    d.drain("n0", 90.0)
    d.wait(until)
    assert killed(d) == ["llm#1.0", "llm#1.2"]


def test_an_end_that_was_final_is_so_no_more_once_the_node_is_uncordoned() -> None:
    d = two_nodes()
    d.drain("n0", 60.0, final=True)
    d.uncordon("n0", at=1.0)
    d.drain("n0", 600.0, at=2.0)
    assert d.state.nodes["n0"].drain == Drain(600.0, "drain", 2.0)


def test_another_grace_is_taken_from_the_deadline() -> None:
    d = two_nodes(graceful_shutdown_timeout_s=20.0)
    d.drain("n0", 120.0)
    d.change(graceful_shutdown_timeout_s=50.0)
    d.wait(70.0)
    assert stopped(d) == ["llm#1.0", "llm#1.2"]


def test_a_longer_grace_that_has_begun_by_now_stops_who_is_left_in_that_step() -> None:
    d = two_nodes(graceful_shutdown_timeout_s=5.0, max_unavailable=1)
    d.cordon("n2")
    d.cordon("n1")
    d.drain("n0", deadline_at=d.now + 20.0)
    assert stopped(d) == []
    d.change(graceful_shutdown_timeout_s=30.0)
    assert stopped(d) == ["llm#1.0", "llm#1.2"]


def test_the_earlier_of_two_deadlines_holds() -> None:
    d = two_nodes(graceful_shutdown_timeout_s=10.0)
    d.drain("n0", 100.0)
    d.replace("llm#1.0", deadline_at=50.0)
    d.replace("llm#1.2", deadline_at=150.0)
    d.wait(40.0)
    assert stopped(d) == ["llm#1.0"]
    d.wait(50.0)
    assert stopped(d) == ["llm#1.0", "llm#1.2"]


def test_the_earliest_deadline_is_served_first() -> None:
    d = two_nodes(max_unavailable=1)
    d.replace("llm#1.2", deadline_at=1000.0)
    d.replace("llm#1.1", deadline_at=500.0)
    d.place("llm#1.4", "n2")
    d.place("llm#1.5", "n2")
    assert stopped(d) == ["llm#1.2"], "it was alone when its successor came"
    d.settle()
    assert (d.status, stopped(d)) == (HEALTHY, ["llm#1.2", "llm#1.1"])


# ---------------------------------------------------------------------------------------------------------------------
# by name


def test_who_is_named_is_replaced_with_its_own_rank_after_its_successor_has_a_place() -> None:
    d = two_nodes()
    d.replace("llm#1.3", "llm#1.3")
    assert (started(d), stopped(d)) == ([("llm#1.4", 3)], [])
    assert d.state.message == "to be replaced: rank 3 by name, for a place of llm#1.4"
    d.settle()
    assert (d.status, d.ranks["llm#1.4"], stopped(d)) == (HEALTHY, 3, ["llm#1.3"])


def test_who_is_named_goes_though_its_node_is_uncordoned() -> None:
    d = two_nodes()
    d.replace("llm#1.0")
    d.drain("n0")
    d.replace("llm#1.0", deadline_at=900.0)
    d.uncordon("n0")
    d.settle()
    assert [each for each in stopped(d) if each in ("llm#1.0", "llm#1.2")] == ["llm#1.0"]


def test_who_has_no_rank_yet_is_replaced_at_once() -> None:
    d = Deployment(2)
    d.place("llm#1.1")
    d.replace("llm#1.0")
    assert stopped(d) == ["llm#1.0"]
    d.settle()
    assert d.status is HEALTHY


def test_unknown_and_leaving_ones_are_only_noted() -> None:
    d = two_nodes()
    d.stop_by_name("llm#1.0")
    d.forget()
    d.replace("llm#1.0", "llm#1.99")
    assert (d.commands, len(d.noted(NoteKind.LATE)), len(d.noted(NoteKind.UNKNOWN_REPLICA))) == ([], 1, 1)
    with pytest.raises(UnknownDeploymentError):
        d.replace("other#1.0")


# ---------------------------------------------------------------------------------------------------------------------
# the controller crashes


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_controller_that_came_back_is_told_again_before_or_after_the_reports(when: str) -> None:
    d = two_nodes()
    d.drain("n0")
    d.restart()
    if when == "before":
        d.drain("n0", d.now + 100.0)
    d.forget()
    d.settle()
    if when == "after":
        assert d.status is HEALTHY
        d.drain("n0", d.now + 100.0)
        d.settle()
    assert (d.status, "n0" in nodes_of(d).values(), sorted(d.ranks.values())) == (HEALTHY, False, [0, 1, 2, 3])
    assert killed(d) == ["llm#1.4"], "the successor that had no rank yet"


def test_who_reports_from_a_cordoned_node_stays() -> None:
    d = two_nodes()
    d.restart()
    d.cordon("n0")
    d.forget()
    d.settle()
    assert (d.status, started(d)) == (HEALTHY, [])


def test_who_reports_from_a_drained_node_after_the_deadline_is_killed() -> None:
    d = two_nodes()
    d.restart()
    d.drain("n0", d.now)
    d.report("llm#1.0")
    assert "llm#1.0" in killed(d)
    d.settle()
    assert d.status is HEALTHY


def test_a_deadline_is_kept_while_reports_are_outstanding() -> None:
    d = two_nodes(graceful_shutdown_timeout_s=1.0)
    d.restart()
    d.drain("n0", d.now + 10.0)
    d.report("llm#1.0")
    d.wait(9.0)
    assert stopped(d) == ["llm#1.0"]


# ---------------------------------------------------------------------------------------------------------------------
# static placement


def static(**spec: object) -> Deployment:
    placement = StaticPlacement([[0], [1]], 2, group="g")
    d = Deployment(None, placement=placement, begin=True, **spec)
    d.bundle_nodes = {0: "a", 1: "b"}
    d.settle()
    d.forget()
    return d


def test_a_rank_with_one_place_stays_on_a_drained_node_and_the_state_says_so() -> None:
    d = static()
    d.drain("a")
    d.wait(3600.0)
    assert (d.commands, d.serving, d.status) == ([], 2, UNHEALTHY)
    assert d.state.message == "to be replaced: rank 0 from a (drain), and has no other place"
    d.uncordon("a")
    assert (d.status, d.state.message) == (HEALTHY, "")


def test_a_node_whose_bundle_nobody_stands_on_any_more_is_uncordoned() -> None:
    d = static(graceful_shutdown_timeout_s=10.0)
    d.drain("b", 100.0)
    d.wait(90.0)
    d.settle()
    assert d.state.failed_ranks == (1,)
    d.change(placement=StaticPlacement([[0]], 2, group="g"), target_replicas=1)
    d.forget()
    d.uncordon("b")
    assert (started(d), d.status) == ([], HEALTHY)


def test_a_controller_that_is_told_of_a_drain_again_takes_a_successor_for_no_downscale() -> None:
    d = Deployment.running(2)
    d.drain("n0")
    d.restart(found=["llm#1.0", "llm#1.1"])
    d.drain("n0")
    d.report("llm#1.0")
    d.report("llm#1.1")
    assert started(d)[-1] == ("llm#2.0", 0)
    assert d.status is UNHEALTHY


def test_who_is_to_go_and_takes_a_lower_rank_is_to_go_from_there() -> None:
    d = Deployment.running(3, compaction="immediate")
    d.replace("llm#1.2")
    d.resize(2, ["llm#1.0"])
    d.stopped("llm#1.0")
    assert (d.ranks["llm#1.2"], list(d.state.tables.evictions.ranks)) == (0, [0])


def test_with_a_deadline_its_rank_is_kept_empty_until_the_node_is_uncordoned() -> None:
    d = static(graceful_shutdown_timeout_s=10.0)
    d.drain("a", 100.0, reason="preemption")
    d.wait(90.0)
    assert stopped(d) == ["llm#1.0"]
    d.settle()
    assert (started(d), d.status, d.state.failed_ranks) == ([], UNHEALTHY, (0,))
    assert "node a is drained (preemption)" in d.state.message
    d.uncordon("a")
    d.settle()
    assert (started(d), d.status) == ([("llm#1.2", 0)], HEALTHY)


def test_its_rank_is_filled_again_where_it_is_mapped_to_or_its_bundle_is_restored() -> None:
    d = static(graceful_shutdown_timeout_s=10.0)
    d.drain("a", 5.0)
    d.settle()
    d.bundle_nodes[0] = "c"
    d.restore_bundles(0, group_id=d.state.tables.bundles.group_id)
    d.settle()
    assert (d.status, nodes_of(d)) == (HEALTHY, {0: "c", 1: "b"})


def test_who_comes_up_there_while_it_is_drained_is_taken() -> None:
    d = static(graceful_shutdown_timeout_s=10.0)
    d.die("llm#1.0")
    d.drain("a", 100.0)
    d.settle()
    assert (d.serving, killed(d)) == (2, [])
    d.die(next(each for each, rank in d.ranks.items() if rank == 0))
    d.wait(95.0)
    d.settle()
    assert (d.serving, d.state.failed_ranks) == (1, (0,))


def test_on_a_cordoned_node_a_rank_with_one_place_is_left_alone() -> None:
    d = static()
    d.cordon("a")
    d.die("llm#1.0")
    d.settle()
    assert (d.status, nodes_of(d)[0]) == (HEALTHY, "a")


def test_by_name_it_is_replaced_in_place_within_the_budget() -> None:
    d = static(max_unavailable=1)
    d.replace("llm#1.0", "llm#1.1")
    assert stopped(d) == ["llm#1.0"]
    d.settle()
    assert (d.status, stopped(d), started(d)) == (HEALTHY, ["llm#1.0", "llm#1.1"], [("llm#1.2", 0), ("llm#1.3", 1)])


# ---------------------------------------------------------------------------------------------------------------------
# forgotten (V20)


def test_who_is_to_leave_its_node_and_its_bundles_goes_once_its_successor_has_a_place() -> None:
    """V14: where ranks have bundles no more, its successor leaves them as well."""
    d = Deployment.running(None, placement=StaticPlacement({0: [0], 1: [1]}, 2), nodes=("n0", "n1"), max_unavailable=1)
    d.drain("n0")
    d.forget()
    d.change(placement=None)
    assert (stopped(d), started(d)) == (["llm#1.1"], [("llm#1.2", 0)])
    d.settle()
    assert (d.status, stopped(d), nodes_of(d)) == (HEALTHY, ["llm#1.1", "llm#1.0"], {0: "n1", 1: "n1"})


def test_of_many_lost_nodes_those_of_the_last_hour_are_remembered() -> None:
    d = Deployment.running(2, nodes=("n0",), node_memory_s=100.0)
    for number in range(1, 60):
        d.now += 10.0
        d.node(f"n{number}", 2)
        d.nodes = (f"n{number}",)
        d.lose(f"n{number - 1}")
        d.settle()
        assert len(d.state.nodes) <= 1 + 10
    assert d.status is HEALTHY
    assert d.noted(NoteKind.NODE_FORGOTTEN)[-1].because == "n48, lost at 490 s"


def test_news_from_before_a_forgotten_loss_is_late() -> None:
    d = Deployment.running(1, nodes=("n0",), node_memory_s=10.0)
    d.node("a", 2)
    d.lose("a", at=5.0)
    d.wait(20.0)
    d.cordon("n0")
    assert set(d.state.nodes) == {"n0"}
    d.forget()
    d.node("a", 2, at=5.0)
    d.lose("a", at=4.0)
    d.cordon("a", at=3.0)
    assert (set(d.state.nodes), len(d.noted(NoteKind.LATE))) == ({"n0"}, 3)
    d.node("a", 2, at=6.0)
    assert set(d.state.nodes) == {"n0", "a"}


def test_a_node_that_is_there_again_in_the_instant_of_its_loss_is_not_forgotten() -> None:
    d = Deployment.running(1, nodes=("n0",), node_memory_s=10.0)
    d.node("a", 2)
    d.lose("a", at=5.0)
    d.node("a", 2, at=5.0)
    d.wait(20.0)
    d.cordon("n0")
    assert (d.state.nodes["a"].room, d.noted(NoteKind.NODE_FORGOTTEN)) == (2, [])


def test_a_node_is_not_forgotten_while_somebody_older_may_still_come_up_there() -> None:
    d = Deployment.running(1, nodes=("n0",), node_memory_s=10.0)
    d.node("a", 2)
    d.resize(2)
    d.lose("a", at=5.0)
    d.wait(20.0)
    d.cordon("n1")
    assert "a" in d.state.nodes
    d.place("llm#1.1", "a", at=4.0)
    assert d.state.replicas.get("llm#1.1") is None
    d.settle()
    d.wait(20.0)
    d.uncordon("n1")
    assert "a" not in d.state.nodes


def test_a_node_that_came_back_is_not_forgotten() -> None:
    d = Deployment.running(1, nodes=("n0",), node_memory_s=10.0)
    d.lose("a", at=5.0)
    d.node("a", 2, at=6.0)
    d.lose("b", at=7.0)
    d.lose("b", at=9.0)
    d.wait(9.5)
    d.cordon("n1")
    assert set(d.state.nodes) == {"n0", "n1", "a", "b"}
    d.wait(1.0)
    d.cordon("n1")
    assert set(d.state.nodes) == {"n0", "n1", "a"}
    d.settle()
    assert d.status is HEALTHY


def test_a_node_is_not_forgotten_while_somebody_is_there_who_came_after_its_loss() -> None:
    d = Deployment.running(1, nodes=("n0",), node_memory_s=10.0)
    d.lose("a", at=5.0)
    d.resize(2)
    d.place("llm#1.1", "a", at=6.0)
    d.ready("llm#1.1")
    d.wait(20.0)
    d.cordon("n0")
    assert "a" in d.state.nodes
    d.die("llm#1.1")
    d.nodes = ("n1",)
    d.settle()
    d.wait(20.0)
    d.uncordon("n0")
    assert "a" not in d.state.nodes


# ---------------------------------------------------------------------------------------------------------------------
# corners


def test_an_uncordon_that_was_overtaken_is_late() -> None:
    d = two_nodes()
    d.cordon("n0", at=5.0)
    d.uncordon("n0", at=4.0)
    assert d.state.nodes["n0"].cordoned


def test_uncordoned_during_an_update_the_successor_serves_the_update() -> None:
    d = two_nodes(max_unavailable=1, max_surge=1)
    d.drain("n0")
    d.change(version="2")
    waiting = started(d)[-1][0]
    d.uncordon("n0")
    assert waiting not in stopped(d)
    d.settle()
    assert (d.status, {each.version for each in d.state.replicas.values()}) == (HEALTHY, {"2"})


def test_where_nothing_that_works_is_known_a_serving_replica_stays_until_the_deadline() -> None:
    d = Deployment.recovered(1, {"llm#1.0": (0, 0, 0)}, failed=True, graceful_shutdown_timeout_s=1.0)
    d.report("llm#1.0", version="0")
    assert d.status is DeploymentStatus.DEPLOY_FAILED
    d.drain("n0", 50.0)
    assert (started(d), stopped(d)) == ([], [])
    d.wait(49.0)
    assert stopped(d) == ["llm#1.0"]


def test_a_static_rank_that_does_not_stop_is_killed_and_its_place_kept_empty_once() -> None:
    d = static(graceful_shutdown_timeout_s=10.0)
    d.drain("a", 100.0)
    d.wait(100.0)
    assert killed(d) == ["llm#1.0"]
    assert len(d.noted(NoteKind.BUNDLE_LOST)) == 1


def test_who_has_not_reported_is_killed_at_a_deadline_of_its_own() -> None:
    d = two_nodes()
    d.restart()
    d.replace("llm#1.0", deadline_at=d.now)
    assert killed(d) == ["llm#1.0"]
    d.settle()
    assert d.status is HEALTHY
