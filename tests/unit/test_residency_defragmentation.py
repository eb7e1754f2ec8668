"""Moves that would let a model fit: proposed with what they cost, and never made by themselves."""

import pytest

from rankcore.errors import InvalidEventError
from rankcore.residency import propose_defragmentation
from tests.residents import Cluster, model


def test_a_model_fits_after_one_move():
    cluster = Cluster((80,)).deploy(model("a", 30, priority=1)).settle().join("n2", 30).deploy(model("x", 60))
    assert cluster.where("x#1")[1] == "waiting"
    before = cluster.state
    proposal = propose_defragmentation(cluster.state)
    (move,) = proposal.moves
    assert (proposal.model, proposal.node_id, proposal.gpus, proposal.bytes_moved) == ("x", "n1", (0,), 30)
    assert (move.replica_id, move.from_node, move.from_gpus, move.to_node, move.to_gpus) == ("a#0", "n1", (0,), "n2", (0,))
    assert cluster.state == before


def test_several_may_have_to_move_the_largest_first():
    cluster = (
        Cluster((80,)).deploy(model("a", 40, priority=1)).settle().join("n2", 70).deploy(model("b", 35, priority=1)).settle()
    )
    assert (cluster["a#0"].node_id, cluster["b#1"].node_id) == ("n1", "n1")
    cluster.join("n3", 40)
    cluster.deploy(model("x", 75))
    proposal = propose_defragmentation(cluster.state)
    assert [move.replica_id for move in proposal.moves] == ["a#0", "b#1"]
    assert (proposal.node_id, proposal.bytes_moved) == ("n1", 75)


def test_nobody_dedicated_or_too_young_is_moved():
    for keeps in ({"dedicated": True}, {"min_hot_s": 60.0}):
        cluster = Cluster((80,)).deploy(model("a", 30, **keeps)).settle().join("n2", 30).deploy(model("x", 60))
        proposal = propose_defragmentation(cluster.state, "x")
        assert (proposal.model, proposal.node_id, proposal.moves) == ("x", None, ())
        assert proposal.because == "no moves to free room would let it fit"


def test_without_room_elsewhere_there_is_no_proposal():
    cluster = Cluster((80,)).deploy((model("a", 35, priority=1), 2)).settle().deploy(model("x", 70))
    assert propose_defragmentation(cluster.state).moves == ()


def test_moves_that_do_not_fit_together_are_no_proposal():
    cluster = Cluster((80,)).deploy((model("a", 35, priority=1), 2)).settle().join("n2", 40).deploy(model("x", 70))
    assert propose_defragmentation(cluster.state).moves == ()


def test_what_fits_needs_no_move_and_what_waits_is_asked_for_by_size():
    cluster = Cluster((80,)).deploy(model("a", 30)).settle()
    assert propose_defragmentation(cluster.state).because == "nobody waits"
    proposal = propose_defragmentation(cluster.state, "a")
    assert (proposal.node_id, proposal.gpus, proposal.because) == ("n1", (0,), "it fits without any move")
    cluster.deploy(model("small", 100, gpus=1), model("large", 200))
    assert propose_defragmentation(cluster.state).model == "large"
    with pytest.raises(InvalidEventError, match="a model that was deployed"):
        propose_defragmentation(cluster.state, "x")


def test_replicas_move_within_their_node_too():
    cluster = Cluster((40, 80)).deploy(model("a", 40, priority=1)).settle().deploy(model("b", 30, priority=1)).settle()
    assert (cluster["a#0"].gpus, cluster["b#1"].gpus) == ((0,), (1,))
    cluster.evict(model="a").settle().deploy(model("x", 75))
    assert cluster.where("x#2")[1] == "waiting"
    (move,) = propose_defragmentation(cluster.state).moves
    assert (move.replica_id, move.to_node, move.to_gpus) == ("b#1", "n1", (0,))


def test_of_several_nodes_the_one_is_proposed_where_the_fewest_bytes_move():
    cluster = Cluster((80,), (82,)).deploy(model("a", 45, priority=1)).settle().deploy(model("b", 60, priority=1)).settle()
    cluster.join("n3", 45).join("n4", 60).deploy(model("x", 79, spread=True))
    proposal = propose_defragmentation(cluster.state)
    assert (proposal.node_id, proposal.bytes_moved) == ("n1", 45)
