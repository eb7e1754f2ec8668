"""R10 at the level of nodes: replicas of one node that report different node ranks, and nodes that report one."""

import pytest

import rankcore
from rankcore import DeploymentSpec, ReplicaRank
from rankcore.commands import InitializeReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import ReplicaPlaced, ReplicaReconfigured, ReplicaReported
from rankcore.invariants import check
from tests.scripted import Deployment


def recovered(reports, target=4):
    """A recovered deployment of which every replica has reported: (node, rank, node_rank, local_rank), oldest first."""
    ids = [f"llm#1.{index}" for index in range(len(reports))]
    step = rankcore.recover(DeploymentSpec(name="llm", target_replicas=target), ids, at=0.0, epoch=2)
    for replica_id, (node_id, *numbers) in zip(ids, reports, strict=True):
        report = ReplicaReported(
            replica_id=replica_id,
            node_id=node_id,
            rank=ReplicaRank(*numbers),
            version="1",
            ready=True,
            config_id=step.state.spec.config_id,
            epoch=2,
            at=1.0,
        )
        step = rankcore.step(step.state, report)
        assert check(step.state) == []
    return step


def told(step):
    return {c.replica_id: c.rank.node_rank for c in step.commands if isinstance(c, ReconfigureReplica)}


def acknowledge(step):
    """Acknowledge what was told, until nothing more is."""
    messages = [c for c in step.commands if isinstance(c, ReconfigureReplica)]
    while messages:
        message = messages.pop(0)
        event = ReplicaReconfigured(replica_id=message.replica_id, revision=message.revision, at=2.0)
        step = rankcore.step(step.state, event)
        assert check(step.state) == []
        messages += [c for c in step.commands if isinstance(c, ReconfigureReplica)]
    return step


def test_the_oldest_replica_on_a_node_speaks_for_its_node_rank():
    step = recovered([("a", 0, 0, 0), ("a", 1, 3, 1)], target=2)
    assert told(step) == {"llm#1.1": 0}


def test_a_node_rank_is_given_to_no_third_while_another_node_believes_it():
    # The oldest of node a says 1, which node b believes too and gives up; the other replica of a follows only then.
    step = recovered([("a", 0, 1, 0), ("b", 1, 1, 0), ("a", 2, 0, 1)], target=3)
    assert told(step) == {"llm#1.1": 2}
    (message,) = [c for c in step.commands if isinstance(c, ReconfigureReplica)]
    step = rankcore.step(step.state, ReplicaReconfigured(replica_id="llm#1.1", revision=message.revision, at=2.0))
    assert told(step)["llm#1.2"] == 1
    final = acknowledge(step).state
    assert final.status == "HEALTHY"
    assert sorted({(r.node_id, r.rank.node_rank) for r in final.replicas.values()}) == [("a", 1), ("b", 0)]


def test_nodes_that_claim_each_others_rank_do_not_wait_for_each_other():
    step = recovered([("a", 0, 1, 0), ("b", 1, 0, 0), ("a", 2, 0, 1), ("b", 3, 1, 1)])
    assert told(step)
    final = acknowledge(step).state
    assert final.status == "HEALTHY"
    node_ranks = {(r.node_id, r.rank.node_rank) for r in final.replicas.values()}
    assert {node_rank for _, node_rank in node_ranks} == {0, 1}
    assert len(node_ranks) == 2


def test_a_newcomer_on_a_disputed_node_waits_for_its_node_rank():
    step = recovered([("a", 0, 1, 0), ("b", 1, 1, 0)], target=3)
    (start,) = [c for c in step.commands if isinstance(c, rankcore.commands.StartReplica)]
    placed = rankcore.step(step.state, ReplicaPlaced(replica_id=start.replica_id, node_id="a", at=1.5))
    assert not [c for c in placed.commands if isinstance(c, InitializeReplica)]
    (message,) = [c for c in step.commands if isinstance(c, ReconfigureReplica)]
    moved = rankcore.step(placed.state, ReplicaReconfigured(replica_id="llm#1.1", revision=message.revision, at=2.0))
    (given,) = [c for c in moved.commands if isinstance(c, InitializeReplica)]
    assert given.rank == ReplicaRank(2, 1, 1)


def found_disagreeing(found):
    """A controller that came back to 5 replicas at most, of which one may be away: where each is, and what it says."""
    d = Deployment.recovered(5, {each: ranks for each, (_, ranks, _) in found.items()}, max_unavailable=1, nodes=("a", "b"))
    for replica_id, (node_id, _, about) in found.items():
        d.report(replica_id, node_id=node_id, **about)
    return d


OLDER = {"config_id": "older"}
"""Of a user_config that the new controller does not know: it is told the wanted one with whatever it is told next."""


def test_who_takes_a_user_config_along_to_its_node_rank_does_so_before_an_update_stops_anybody() -> None:
    """V1: with its move it is one more that is not available, so nobody is stopped beside it."""
    found = {
        "llm#1.0": ("a", (2, 1, 0), {}),
        "llm#1.1": ("b", (0, 1, 0), {"version": "0"}),
        "llm#1.2": ("b", (1, 1, 1), OLDER),
        "llm#1.3": ("a", (3, 0, 1), OLDER),
        "llm#1.4": ("a", (4, 1, 2), {}),
    }
    d = found_disagreeing(found)
    d.acknowledge("llm#1.1")
    d.forget()
    d.acknowledge("llm#1.2")
    assert [move.replica_id for move in d.sent(ReconfigureReplica)] == ["llm#1.3"]
    assert d.sent(StopReplica) == []
    d.settle()
    assert d.status == "HEALTHY"


def test_who_would_take_a_user_config_along_to_its_node_rank_waits_until_the_budget_allows_that() -> None:
    found = {
        "llm#1.0": ("a", (2, 1, 0), {}),
        "llm#1.1": ("b", (0, 0, 0), {}),
        "llm#1.2": ("b", (1, 0, 1), {}),
        "llm#1.3": ("a", (3, 7, 1), OLDER),
    }
    d = found_disagreeing(found)
    assert d.sent(ReconfigureReplica) == []
    (start,) = d.sent(StartReplica)
    d.place(start.replica_id, "a")
    assert d.sent(ReconfigureReplica) == []
    d.ready(start.replica_id)
    assert [move.rank for move in d.sent(ReconfigureReplica, "llm#1.3")] == [ReplicaRank(3, 1, 1)]
    d.settle()
    assert d.status == "HEALTHY"


@pytest.mark.parametrize("other", [1, 2])
def test_who_believes_another_nodes_rank_moves_whatever_the_budget_is(other: int) -> None:
    """R3. A newcomer there, or the loser of a duplicate, waits for its move, and would be waited for by it."""
    found = {
        "llm#1.0": ("a", (2, 1, 0), {}),
        "llm#1.1": ("b", (0, 0, 0), {}),
        "llm#1.2": ("b", (other, 0, 1), {}),
        "llm#1.3": ("a", (3, 0, 1), OLDER),
    }
    d = found_disagreeing(found)
    assert [move.replica_id for move in d.sent(ReconfigureReplica)] == ["llm#1.3"]
    (start,) = d.sent(StartReplica)
    d.place(start.replica_id, "b")
    assert d.sent(InitializeReplica) == []
    d.acknowledge("llm#1.3")
    assert [given.rank.node_rank for given in d.sent(InitializeReplica)] == [0]
    d.settle()
    assert d.status == "HEALTHY"


def test_nodes_that_claim_each_others_rank_take_no_more_user_configs_along_than_they_have_to() -> None:
    """One within the budget, and the one that believes the other node's rank."""
    found = {
        "llm#1.0": ("a", (0, 1, 0), OLDER),
        "llm#1.1": ("b", (1, 0, 0), OLDER),
        "llm#1.2": ("a", (2, 0, 1), OLDER),
        "llm#1.3": ("b", (3, 1, 1), OLDER),
        "llm#1.4": ("a", (4, 1, 2), OLDER),
    }
    d = found_disagreeing(found)
    for _ in range(20):
        owing = [each for each in d.state.replicas.values() if each.ready_at is None]
        assert len(owing) <= 2
        for each in owing:
            d.acknowledge(each.replica_id)
    d.settle()
    assert d.status == "HEALTHY"


def test_a_ring_of_node_ranks_is_broken_while_another_waits_for_the_budget() -> None:
    """The one that it waits for is placed on a node of the ring: neither of them would ever move."""
    found = {
        "llm#1.0": ("a", (0, 0, 0), {}),
        "llm#1.1": ("a", (1, 5, 1), OLDER),
        "llm#1.2": ("b", (2, 1, 0), {}),
        "llm#1.3": ("b", (3, 2, 1), {}),
        "llm#1.4": ("c", (4, 2, 0), {}),
        "llm#1.5": ("c", (5, 1, 1), {}),
    }
    d = Deployment.recovered(7, {each: ranks for each, (_, ranks, _) in found.items()}, max_unavailable=1)
    for replica_id, (node_id, _, about) in found.items():
        d.report(replica_id, node_id=node_id, **about)
    (start,) = d.sent(StartReplica)
    d.place(start.replica_id, "b")
    d.settle()
    assert d.status == "HEALTHY"


def test_a_node_rank_is_disputed_until_who_shares_it_has_moved_whatever_else_that_acknowledges() -> None:
    """R3. It was told a user_config before its node's rank: it believes the other node's all the while."""
    found = {
        "llm#1.0": ("b", (0, 3, 0), {}),
        "llm#1.1": ("a", (1, 0, 1), {}),
        "llm#1.2": ("a", (2, 3, 3), {"config_id": "old"}),
        "llm#1.3": ("c", (3, 0, 2), {}),
    }
    d = Deployment.recovered(
        5, {each: ranks for each, (_, ranks, _) in found.items()}, max_unavailable=2, min_ready_s=0.0, user_config={"a": 1}
    )
    for replica_id, (node_id, _, about) in found.items():
        d.report(replica_id, node_id=node_id, **about)
    d.acknowledge("llm#1.2")
    (start,) = d.sent(StartReplica)
    d.place(start.replica_id, "b")
    assert d.sent(InitializeReplica) == []
    d.acknowledge("llm#1.3")
    assert [move.rank.node_rank for move in d.sent(ReconfigureReplica, "llm#1.2")] == [3, 0]
    assert d.sent(InitializeReplica) == []
    d.acknowledge("llm#1.2")
    assert [given.rank.node_rank for given in d.sent(InitializeReplica)] == [3]
    d.settle()
    assert d.status == "HEALTHY"


def test_all_replicas_of_a_node_wait_for_its_node_rank_while_another_node_believes_it():
    step = recovered([("a", 0, 1, 0), ("b", 1, 1, 0), ("a", 2, 0, 1), ("a", 3, 0, 2)], target=4)
    assert told(step) == {"llm#1.1": 2}
    (message,) = [c for c in step.commands if isinstance(c, ReconfigureReplica)]
    step = rankcore.step(step.state, ReplicaReconfigured(replica_id="llm#1.1", revision=message.revision, at=2.0))
    assert told(step) == {"llm#1.2": 1, "llm#1.3": 1}
