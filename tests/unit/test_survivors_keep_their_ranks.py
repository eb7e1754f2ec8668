"""R5: neither an upscale nor another replica's death changes a survivor's global rank."""

from itertools import combinations

import pytest

from rankcore.commands import ReconfigureReplica
from tests.scripted import Deployment


def test_an_upscale_tells_nobody_another_rank() -> None:
    """R5."""
    d = Deployment.running(3, nodes="ab")
    before = {replica_id: d.full(replica_id) for replica_id in d.ranks}
    d.forget()
    d.resize(8)
    d.settle()
    assert d.sent(ReconfigureReplica) == []
    assert {replica_id: d.full(replica_id) for replica_id in before} == before


@pytest.mark.parametrize("dead", [dead for size in (1, 2, 3) for dead in combinations(range(4), size)])
def test_no_death_changes_a_survivors_global_rank(dead: tuple[int, ...]) -> None:
    """R5, for any set of deaths."""
    d = Deployment.running(4, nodes="ab")
    before = d.ranks
    for number in dead:
        d.die(f"llm#1.{number}")
    d.settle()
    survivors = {replica_id: rank for replica_id, rank in before.items() if replica_id in d.ranks}
    assert len(survivors) == 4 - len(dead)
    assert {replica_id: d.ranks[replica_id] for replica_id in survivors} == survivors


def test_a_death_replaced_on_the_same_node_changes_nothing_for_the_others() -> None:
    """R5: no node or local rank moves where R8 does not force it."""
    d = Deployment.running(4, nodes="ab")
    d.forget()
    d.die("llm#1.0")
    d.place("llm#1.4", "a")
    d.settle()
    assert d.sent(ReconfigureReplica) == []
    assert d.full("llm#1.4") == (0, 0, 0)


def test_a_replacement_on_another_node_moves_only_the_local_ranks_that_are_beyond_their_node() -> None:
    """R5, R8: llm#1.2 is alone on its node, where its local rank 1 is too high."""
    d = Deployment.running(4, nodes="ab")
    d.forget()
    d.die("llm#1.0")
    d.place("llm#1.4", "b")
    d.settle()
    assert {move.replica_id for move in d.sent(ReconfigureReplica)} == {"llm#1.2"}
    assert d.full("llm#1.2") == (2, 0, 0)
    assert d.full("llm#1.4") == (0, 1, 2)


def test_a_lost_node_changes_no_survivors_global_rank() -> None:
    """R5: deaths by the dozen are deaths."""
    d = Deployment.running(6, nodes="abc")
    d.nodes = ("b",)
    before = d.ranks
    d.lose("a")
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1, 2, 3, 4, 5]
    assert all(d.ranks[replica_id] == rank for replica_id, rank in before.items() if replica_id in d.ranks)
