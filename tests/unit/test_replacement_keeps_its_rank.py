"""R6, R7: a replacement gets the rank of the one it replaces; a rank is released when its replica has stopped."""

from itertools import permutations

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaState
from rankcore.commands import InitializeReplica, KillReplica, StartReplica
from tests.scripted import Deployment


@pytest.mark.parametrize("rank", range(4))
def test_replacement_keeps_the_rank_of_the_one_that_crashed(rank: int) -> None:
    """R6."""
    d = Deployment.running(4)
    d.forget()
    d.die(f"llm#1.{rank}")
    assert [start.rank for start in d.sent(StartReplica)] == [rank]
    d.settle()
    assert d.ranks["llm#1.4"] == rank


@pytest.mark.parametrize("crashes", list(permutations([1, 3])))
@pytest.mark.parametrize("arrivals", list(permutations(["llm#1.4", "llm#1.5"])))
def test_replacements_have_the_ranks_of_those_that_crashed_in_any_order(
    crashes: tuple[int, ...], arrivals: tuple[str, ...]
) -> None:
    """R6: in whichever order they crash, and their replacements come up; the first to come up has the lower one (V18)."""
    d = Deployment.running(4)
    for rank in crashes:
        d.die(f"llm#1.{rank}")
    for replica_id in arrivals:
        d.place(replica_id)
        d.ready(replica_id)
    assert [d.ranks[replica_id] for replica_id in arrivals] == [1, 3]


@pytest.mark.parametrize("arrivals", list(permutations(["llm#1.4", "llm#1.5", "llm#1.6"])))
def test_replacements_have_the_ranks_that_are_kept_whatever_starts_in_between(arrivals: tuple[str, ...]) -> None:
    """R6, section 2.3: ranks 1 and 3 crash and an upscale arrives; the newcomer is wanted for the lowest that is not kept."""
    d = Deployment.running(4)
    d.die("llm#1.1")
    d.die("llm#1.3")
    d.resize(5)
    assert {start.replica_id: start.rank for start in d.sent(StartReplica)[-3:]} == {"llm#1.4": 1, "llm#1.5": 3, "llm#1.6": 4}
    for replica_id in arrivals:
        d.place(replica_id)
        d.ready(replica_id)
    assert [d.ranks[replica_id] for replica_id in arrivals] == [1, 3, 4]


def test_replacement_keeps_its_rank_however_often_it_fails() -> None:
    """R6: before it is placed, while it starts, and when it runs."""
    d = Deployment.running(3, scarcity_after_s=None)
    d.die("llm#1.1")
    for number, fail in enumerate([d.die, d.start_fails, d.die, d.start_fails], start=3):
        replica_id = f"llm#1.{number}"
        if number > 4:
            d.place(replica_id)
        fail(replica_id)
        d.wait(120.0)
        assert d.state.holder_of(1) == f"llm#1.{number + 1}"
    d.settle()
    d.die("llm#1.7")
    d.wait(120.0)
    d.settle()
    assert d.ranks == {"llm#1.0": 0, "llm#1.8": 1, "llm#1.2": 2}
    assert {told.rank.rank for told in d.sent(InitializeReplica) if told.replica_id > "llm#1.2"} == {1}


def test_replacement_is_bound_to_its_slot_in_the_step_that_sees_the_crash() -> None:
    """R6, section 2.3."""
    d = Deployment.running(2)
    step = d.die("llm#1.0")
    assert [command.rank for command in step.commands if isinstance(command, StartReplica)] == [0]
    (kept,) = d.noted(NoteKind.RANK_KEPT, "llm#1.0")
    (inherited,) = d.noted(NoteKind.RANK_INHERITED, "llm#1.2")
    assert (kept.rank, inherited.rank) == (0, 0)


def test_a_rank_beyond_the_world_size_is_not_kept_when_its_holder_dies() -> None:
    """R6: downscaled and not yet compacted."""
    d = Deployment.running(3)
    d.resize(2, stop_first=["llm#1.0"])
    d.forget()
    d.die("llm#1.2")
    assert d.state.kept_ranks == ()
    assert d.sent(StartReplica) == []  # rank 0 is the draining one's still
    d.stopped("llm#1.0")
    assert [start.rank for start in d.sent(StartReplica)] == [0]


def test_a_rank_is_released_only_when_its_replica_has_fully_stopped() -> None:
    """R7: not when it is told to stop."""
    d = Deployment.running(3)
    d.resize(2)
    assert d.draining == ["llm#1.2"]
    assert d.full("llm#1.2") == (2, 0, 2)
    d.resize(3)
    d.forget()
    d.wait(10.0)
    assert d.sent(StartReplica) == []
    d.stopped("llm#1.2")
    assert [start.rank for start in d.sent(StartReplica)] == [2]
    assert [note.rank for note in d.noted(NoteKind.RANK_RELEASED, "llm#1.2")] == [2]


@pytest.mark.parametrize("end", ["stopped", "die", "missing", "start_fails"])
def test_any_final_news_of_a_draining_replica_releases_its_rank(end: str) -> None:
    """R7, section 2.2."""
    d = Deployment.running(2)
    d.resize(1)
    getattr(d, end)("llm#1.1")
    assert "llm#1.1" not in d.state.replicas
    assert d.status is DeploymentStatus.HEALTHY


def test_an_unhealthy_replica_is_replaced_with_its_rank_once_its_end_is_confirmed() -> None:
    """R6, R7, section 2.3: unhealthy but alive."""
    d = Deployment.running(2)
    d.forget()
    d.unhealthy("llm#1.0")
    assert [kill.replica_id for kill in d.sent(KillReplica)] == ["llm#1.0"]
    assert d.sent(StartReplica) == []
    d.stopped("llm#1.0")
    assert [start.rank for start in d.sent(StartReplica)] == [0]


def test_a_replacement_of_a_replica_that_was_never_initialised_keeps_its_slot_too() -> None:
    """R6: a REQUESTED and a PLACED replica die."""
    d = Deployment(3)
    d.die("llm#1.1")
    d.wait(1.0)
    assert d.state.holder_of(1) == "llm#1.3"
    d.place("llm#1.0")
    d.place("llm#1.3")
    d.place("llm#1.2")
    assert d.state.replicas["llm#1.2"].state is ReplicaState.STARTING
    d.die("llm#1.2")
    d.wait(5.0)
    assert d.state.holder_of(2) == "llm#1.4"


def test_a_lost_node_leaves_each_of_its_ranks_to_a_replacement() -> None:
    """R6."""
    d = Deployment.running(4, nodes="ab")
    d.nodes = ("b",)
    d.forget()
    d.lose("a")
    assert [start.rank for start in d.sent(StartReplica)] == [0, 2]
    d.settle()
    assert d.ranks == {"llm#1.1": 1, "llm#1.3": 3, "llm#1.4": 0, "llm#1.5": 2}
