"""Section 2: late news changes nothing, also where it is about nodes."""

import rankcore
from rankcore import DeploymentSpec
from rankcore.commands import KillReplica, StartReplica
from rankcore.events import NodeChanged, NodeLost

SPEC = DeploymentSpec(name="llm", target_replicas=2, placement="pack_ranks")


def told(*events):
    step = rankcore.deploy(SPEC)
    for event in events:
        step = rankcore.step(step.state, event)
    return step


def test_an_older_capacity_does_not_replace_a_newer_one():
    step = told(NodeChanged(node_id="a", capacity=4, at=10.0), NodeChanged(node_id="a", capacity=0, at=5.0))
    assert not [c for c in step.commands if isinstance(c, KillReplica)]
    assert [note.kind for note in step.notes] == ["late"]


def test_a_node_that_came_back_before_the_news_of_its_loss_has_room():
    step = told(NodeChanged(node_id="a", capacity=4, at=12.0), NodeLost(node_id="a", at=10.0))
    assert not [c for c in step.commands if isinstance(c, KillReplica)]
    assert len(step.state.replicas) == 2


def test_a_lost_node_has_no_room_until_it_is_back():
    lost = told(NodeLost(node_id="a", at=10.0), NodeChanged(node_id="a", capacity=4, at=9.0))
    assert lost.state.kept_ranks == ()
    assert not lost.state.replicas
    back = rankcore.step(lost.state, NodeChanged(node_id="a", capacity=4, at=11.0))
    assert [c.node_id for c in back.commands if isinstance(c, StartReplica)] == ["a", "a"]


def test_what_was_on_its_way_to_a_node_before_its_loss_is_wanted_elsewhere():
    step = told(NodeChanged(node_id="a", capacity=4, at=1.0), NodeLost(node_id="a", at=10.0))
    assert [c.replica_id for c in step.commands if isinstance(c, KillReplica)] == ["llm#1.0", "llm#1.1"]
