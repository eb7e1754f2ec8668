"""R11: by default ranks steer neither scheduling nor eviction; opt-in policies do."""

import pytest

import rankcore
from rankcore import DeploymentSpec, NoteKind, ReplicaState
from rankcore.commands import InitializeReplica, KillReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import NodeChanged, ReplicaStopped
from tests.scripted import Deployment


def stops(d: Deployment) -> list[str]:
    return [stop.replica_id for stop in d.sent(StopReplica)]


# ---------------------------------------------------------------------------------------------------------------------
# whom a downscale stops


def test_by_default_the_node_with_the_fewest_replicas_is_freed_first() -> None:
    """R11, section 2.3: "any"."""
    d = Deployment.running(5, nodes=["a", "a", "b", "c", "c"])
    d.resize(4)
    assert stops(d) == ["llm#1.2"]
    d.settle()
    d.resize(2)
    d.settle()
    assert len({replica.node_id for replica in d.state.replicas.values()}) == 1


def test_by_default_ties_are_broken_by_newest() -> None:
    """Section 2.3."""
    d = Deployment.running(4, nodes=["a", "b", "a", "b"])
    d.resize(3)
    assert stops(d) == ["llm#1.3"]


def test_a_node_that_a_successor_leaves_is_looked_at_anew() -> None:
    """R11, section 2.3: who is stopped takes along a successor elsewhere, whose node has fewer from then on."""
    d = Deployment.running(9, nodes=[*"abbbccccc"], max_surge=1)
    d.nodes = ("b",)
    d.change(version="2")
    successor = d.sent(StartReplica)[9]
    assert successor.rank == 0, "that of the replica on a"
    d.place(successor.replica_id, "b")
    d.forget()
    d.resize(1)
    assert "".join(d.state.replicas[each].node_id or "" for each in stops(d)) == "babbbccc"


def test_by_default_an_old_replica_with_a_high_rank_is_not_stopped_for_its_rank() -> None:
    """R11: ranks do not steer eviction. The replacement with rank 0 is the newest."""
    d = Deployment.running(3)
    d.die("llm#1.0")
    d.settle()
    d.resize(2)
    assert stops(d) == ["llm#1.3"]


def test_highest_rank_stops_the_highest_ranks_and_a_downscale_then_moves_nobody() -> None:
    """R11, opt-in: whatever their age."""
    d = Deployment.running(5, victims="highest_rank")
    d.die("llm#1.0")
    d.settle()
    d.forget()
    d.resize(3)
    assert stops(d) == ["llm#1.4", "llm#1.3"]
    d.settle()
    assert d.ranks == {"llm#1.1": 1, "llm#1.2": 2, "llm#1.5": 0}
    assert d.sent(ReconfigureReplica) == []


def test_newest_stops_the_newest_whatever_its_rank() -> None:
    """R11, opt-in."""
    d = Deployment.running(3, nodes=["a", "b", "b"], victims="newest")
    d.nodes = ("b",)
    d.die("llm#1.1")
    d.settle()
    d.resize(1)
    assert stops(d) == ["llm#1.3", "llm#1.2"]


@pytest.mark.parametrize("victims", ["any", "highest_rank", "newest"])
def test_replicas_named_by_the_downscale_are_stopped_first(victims: str) -> None:
    """R11, section 2.3: whatever the policy."""
    d = Deployment.running(4, victims=victims)
    d.resize(2, stop_first=["llm#1.1", "llm#1.0"])
    assert stops(d) == ["llm#1.1", "llm#1.0"]
    assert [note.because for note in d.noted(NoteKind.STOP_CHOSEN)] == ["named by the caller"] * 2


def test_no_more_are_stopped_than_the_downscale_asks_for_although_more_are_named() -> None:
    """R11."""
    d = Deployment.running(4)
    d.resize(3, stop_first=["llm#1.1", "llm#1.0", "llm#1.2"])
    assert stops(d) == ["llm#1.1"]


def test_names_that_nobody_has_or_that_occur_twice_are_passed_over() -> None:
    """R11: the policy finds the rest."""
    d = Deployment.running(4, victims="highest_rank")
    d.resize(2, stop_first=["llm#1.77", "llm#1.0", "llm#1.0"])
    assert stops(d) == ["llm#1.0", "llm#1.3"]


def test_names_are_those_of_one_downscale_only() -> None:
    """R11: the next downscale does not remember them."""
    d = Deployment.running(5, victims="highest_rank")
    d.resize(4, stop_first=["llm#1.1", "llm#1.0"])
    d.settle()
    d.forget()
    d.resize(3)
    assert "llm#1.0" not in stops(d)


def test_names_given_with_an_upscale_are_not_used() -> None:
    """Section 2.1: a downscale may name its victims."""
    d = Deployment.running(3)
    d.resize(4, stop_first=["llm#1.0"])
    d.settle()
    assert stops(d) == []


def test_those_not_running_yet_are_stopped_before_those_that_run_highest_rank_first() -> None:
    """Section 2.3."""
    d = Deployment.running(3)
    d.resize(6)
    d.place("llm#1.3")
    d.place("llm#1.4")
    d.forget()
    d.resize(4)
    assert stops(d) == ["llm#1.5", "llm#1.4"]


def test_vacant_slots_are_given_up_first_the_highest_rank_first() -> None:
    """Section 2.3: nobody alive is stopped for them."""
    d = Deployment.running(4)
    d.die("llm#1.1")
    d.die("llm#1.2")
    d.start_fails("llm#1.4")
    d.start_fails("llm#1.5")
    assert d.state.kept_ranks == (1, 2)
    d.resize(3)
    assert stops(d) == []
    assert d.state.kept_ranks == (1,)
    d.resize(2)
    assert stops(d) == []
    assert d.state.kept_ranks == ()
    d.settle()
    assert d.ranks == {"llm#1.0": 0, "llm#1.3": 1}


def test_a_slot_whose_holder_is_leaving_anyway_is_given_up_before_anybody_is_stopped() -> None:
    """Section 2.5."""
    d = Deployment.running(3)
    d.stop_by_name("llm#1.0")
    d.forget()
    d.resize(2)
    assert stops(d) == []
    d.settle()
    assert d.ranks == {"llm#1.1": 1, "llm#1.2": 0}
    assert d.sent(StartReplica) == []


def test_a_stop_carries_the_graceful_shutdown_time_out() -> None:
    """Section 2.1."""
    d = Deployment.running(2, graceful_shutdown_timeout_s=7.5)
    d.resize(1)
    assert [stop.timeout_s for stop in d.sent(StopReplica)] == [7.5]


# ---------------------------------------------------------------------------------------------------------------------
# replicas stopped by name


def test_a_replica_stopped_by_name_is_always_replaced_with_its_rank() -> None:
    """R11, R6: once it has stopped (R7)."""
    d = Deployment.running(3)
    d.forget()
    d.stop_by_name("llm#1.1")
    assert stops(d) == ["llm#1.1"]
    assert d.sent(StartReplica) == []
    d.stopped("llm#1.1")
    assert [start.rank for start in d.sent(StartReplica)] == [1]
    d.settle()
    assert d.ranks["llm#1.3"] == 1


def test_several_are_stopped_by_name_and_strangers_among_them_are_noted() -> None:
    """R11."""
    d = Deployment.running(3)
    d.stop_by_name("llm#1.2", "llm#1.9", "llm#1.0")
    assert stops(d) == ["llm#1.2", "llm#1.0"]
    assert [note.replica_id for note in d.noted(NoteKind.UNKNOWN_REPLICA)] == ["llm#1.9"]


def test_a_replica_that_is_leaving_already_is_not_stopped_twice() -> None:
    """R11; it was a downscale's, and is not replaced."""
    d = Deployment.running(3)
    d.resize(2)
    d.forget()
    d.stop_by_name("llm#1.2")
    assert stops(d) == []
    d.settle()
    assert d.sent(StartReplica) == []


def test_a_replica_that_starts_can_be_stopped_by_name_too() -> None:
    """R11: its slot goes on."""
    d = Deployment(2)
    d.place("llm#1.0")
    d.stop_by_name("llm#1.0", "llm#1.1")
    d.settle()
    assert d.ranks == {"llm#1.2": 0, "llm#1.3": 1}


# ---------------------------------------------------------------------------------------------------------------------
# where replicas are started


def test_by_default_the_executor_chooses_the_node() -> None:
    """R11."""
    d = Deployment(2)
    d.node("a", 8)
    d.resize(4)
    assert [start.node_id for start in d.sent(StartReplica)] == [None] * 4


def test_pack_ranks_puts_consecutive_ranks_on_one_node() -> None:
    """R11, opt-in: from the capacities that NodeChanged told."""
    d = Deployment(0, placement="pack_ranks")
    d.node("a", 3)
    d.node("b", 3)
    d.resize(6)
    d.settle()
    by_rank = {replica.rank.rank: replica.node_id for replica in d.state.replicas.values() if replica.rank}
    assert [by_rank[rank] for rank in range(6)] == ["a", "a", "a", "b", "b", "b"]


def test_pack_ranks_waits_for_room_and_goes_on_when_a_node_comes() -> None:
    """R11: nothing is started where nothing fits."""
    d = Deployment(3, placement="pack_ranks")
    assert d.sent(StartReplica) == []
    d.node("a", 2)
    assert [(start.rank, start.node_id) for start in d.sent(StartReplica)] == [(0, "a"), (1, "a")]
    d.node("b", 1)
    assert [(start.rank, start.node_id) for start in d.sent(StartReplica)][2:] == [(2, "b")]


def test_pack_ranks_never_asks_for_more_than_a_node_can_hold() -> None:
    """R11: requested, placed and leaving replicas count."""
    d = Deployment(0, placement="pack_ranks")
    d.node("a", 2)
    d.resize(2)
    d.settle()
    d.stop_by_name("llm#1.0")
    d.resize(3)
    assert len(d.sent(StartReplica)) == 2
    d.stopped("llm#1.0")
    assert [(start.rank, start.node_id) for start in d.sent(StartReplica)][2:] == [(0, "a")]


def test_pack_ranks_starts_a_replacement_next_to_its_neighbours() -> None:
    """R11, R6."""
    d = Deployment(0, placement="pack_ranks")
    d.node("a", 2)
    d.node("b", 4)
    d.resize(6)
    d.settle()
    d.forget()
    node_of_4 = d.state.replicas[d.state.holder_of(4)].node_id
    d.die(d.state.holder_of(5))
    assert [(start.rank, start.node_id) for start in d.sent(StartReplica)] == [(5, node_of_4)]


def test_a_replica_that_is_placed_elsewhere_than_the_core_wished_stays_there() -> None:
    """R11: the executor knows better; the room is counted where it is."""
    d = Deployment(0, placement="pack_ranks")
    d.node("a", 1)
    d.node("b", 1)
    d.resize(1)
    (start,) = d.sent(StartReplica)
    other = "b" if start.node_id == "a" else "a"
    d.place(start.replica_id, other)
    d.resize(2)
    assert d.sent(StartReplica)[-1].node_id == start.node_id


def test_what_the_core_wanted_on_a_node_that_is_lost_goes_elsewhere() -> None:
    """R11: once it is certain that it will not come there any more (R7)."""
    d = Deployment(0, placement="pack_ranks")
    d.node("a", 2)
    d.resize(1)
    d.node("b", 2)
    d.forget()
    d.lose("a", at=1.0)
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.0"]
    d.stopped("llm#1.0")
    assert [(start.rank, start.node_id) for start in d.sent(StartReplica)] == [(0, "b")]
    assert d.state.replicas["llm#1.1"].state is ReplicaState.REQUESTED


def test_a_node_that_came_back_is_used_again() -> None:
    """R11: NodeChanged after NodeLost."""
    d = Deployment(0, placement="pack_ranks")
    d.node("a", 1)
    d.resize(1)
    d.settle()
    d.lose("a", at=1.0)
    assert len(d.sent(StartReplica)) == 1
    d.node("a", 1, at=2.0)
    assert [start.rank for start in d.sent(StartReplica)] == [0, 0]
    d.settle()
    assert d.sent(InitializeReplica)[-1].rank.rank == 0


def test_news_of_a_node_from_before_it_was_lost_is_late() -> None:
    """Section 2."""
    d = Deployment(1, placement="pack_ranks")
    d.lose("a", at=5.0)
    d.node("a", 4, at=4.0)
    assert d.sent(StartReplica) == []
    assert len(d.noted(NoteKind.LATE)) == 1


def test_a_start_on_a_node_that_others_have_filled_goes_elsewhere():
    """R11, pack_ranks: what is on its way to a node is wanted elsewhere once the node has no room for it."""
    state = rankcore.deploy(DeploymentSpec(name="llm", target_replicas=2, placement="pack_ranks")).state
    for node_id in ("a", "b"):
        state = rankcore.step(state, NodeChanged(node_id=node_id, capacity=4, at=1.0)).state
    filled = rankcore.step(state, NodeChanged(node_id="a", capacity=1, at=2.0))
    assert [c for c in filled.commands if isinstance(c, KillReplica)] == [KillReplica("llm#1.1", 1)]
    again = rankcore.step(filled.state, ReplicaStopped(replica_id="llm#1.1", at=3.0))
    (start,) = [c for c in again.commands if isinstance(c, StartReplica)]
    assert (start.rank, start.node_id) == (1, "b")
