"""R4: a new replica gets the lowest available rank, and waits where there is none."""

from rankcore import DeploymentStatus, NoteKind, ReplicaState
from rankcore.commands import InitializeReplica, StartReplica
from tests.scripted import Deployment


def test_a_new_deployment_starts_with_the_ranks_from_zero() -> None:
    """R4."""
    d = Deployment(4)
    assert [start.rank for start in d.sent(StartReplica)] == [0, 1, 2, 3]


def test_an_upscale_takes_the_lowest_ranks_that_nobody_has() -> None:
    """R4."""
    d = Deployment.running(2)
    d.forget()
    d.resize(4)
    assert [start.rank for start in d.sent(StartReplica)] == [2, 3]
    assert [note.rank for note in d.noted(NoteKind.RANK_CHOSEN)] == [2, 3]


def test_a_gap_is_filled_before_the_end() -> None:
    """R4, R10: gaps below the highest rank are available."""
    d = Deployment.recovered(4, {"llm#1.0": (0, 0, 0), "llm#1.1": (2, 0, 1)})
    d.report("llm#1.0")
    d.report("llm#1.1")
    assert [start.rank for start in d.sent(StartReplica)] == [1, 3]


def test_a_rank_kept_for_a_replacement_is_not_available() -> None:
    """R4, R6: the slot backs off after a failed start, and its rank is still its own."""
    d = Deployment.running(3)
    d.die("llm#1.0")
    d.start_fails("llm#1.3")
    assert d.state.kept_ranks == (0,)
    d.forget()
    d.resize(4)
    assert [start.rank for start in d.sent(StartReplica)] == [3]


def test_a_draining_replica_keeps_its_rank_and_the_newcomer_waits() -> None:
    """R4, R7: where every rank below the target is still taken, the newcomer waits."""
    d = Deployment.running(2)
    d.resize(1)
    assert d.draining == ["llm#1.1"]
    d.forget()
    d.resize(2)
    assert d.sent(StartReplica) == []
    d.stopped("llm#1.1")
    assert [start.rank for start in d.sent(StartReplica)] == [1]


def test_a_newcomer_never_gets_a_rank_beyond_the_world_size() -> None:
    """R4: an upscale while more are draining than there is room for."""
    d = Deployment.running(4)
    d.resize(1)
    assert len(d.draining) == 3
    d.forget()
    d.resize(3)
    d.stopped("llm#1.3")  # rank 3 is free, and beyond the world size
    assert d.sent(StartReplica) == []
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert all(told.rank.rank < told.world_size == 3 for told in d.sent(InitializeReplica))


def test_a_placed_replica_whose_rank_is_beyond_the_world_size_waits_for_the_lowest_available_one() -> None:
    """R4, R6: nobody is ever initialised with a rank >= world size."""
    d = Deployment.running(3)
    d.die("llm#1.2")
    d.resize(2, stop_first=["llm#1.0"])
    d.place("llm#1.3")
    assert d.state.replicas["llm#1.3"].state is ReplicaState.PLACED  # rank 0 is the draining one's, 1 is held
    d.forget()
    d.stopped("llm#1.0")
    assert [told.rank.rank for told in d.sent(InitializeReplica)] == [0]
    assert [note.rank for note in d.noted(NoteKind.SLOT_CHANGED, "llm#1.3")] == [0]


def test_node_and_local_ranks_are_the_lowest_available_where_the_replica_is_placed() -> None:
    """R4 at the other two levels; section 2.1: they are chosen on ReplicaPlaced."""
    d = Deployment(4)
    d.place("llm#1.2", "b")
    d.place("llm#1.0", "a")
    d.place("llm#1.3", "b")
    d.place("llm#1.1", "a")
    assert [told.rank for told in d.sent(InitializeReplica)] == [d.state.ranks[f"llm#1.{n}"] for n in (2, 0, 3, 1)]
    assert [d.full(f"llm#1.{n}") for n in (2, 0, 3, 1)] == [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)]


def test_start_replica_carries_the_rank_and_initialize_replica_all_three() -> None:
    """Section 2.1."""
    d = Deployment(1)
    (start,) = d.sent(StartReplica)
    assert (start.rank, start.version, start.node_id, start.bundles) == (0, "1", None, ())
    assert d.sent(InitializeReplica) == []
    d.place("llm#1.0")
    (told,) = d.sent(InitializeReplica)
    assert (told.rank.rank, told.rank.node_rank, told.rank.local_rank, told.world_size) == (0, 0, 0, 1)
