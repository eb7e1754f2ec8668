"""R1, R2, R3: ranks are contiguous when all is quiet, one for each replica, and never shared while it is not."""

import pytest

from rankcore import DeploymentStatus, ReplicaState
from rankcore.commands import InitializeReplica, ReconfigureReplica, StartReplica
from tests.scripted import Deployment


@pytest.mark.parametrize("target", [0, 1, 2, 7])
@pytest.mark.parametrize("nodes", ["a", "ab", "abc"])
def test_healthy_ranks_are_contiguous_at_all_three_levels(target: int, nodes: str) -> None:
    """R1."""
    d = Deployment.running(target, nodes=nodes)
    ranks = d.state.ranks.values()
    assert sorted(rank.rank for rank in ranks) == list(range(target))
    assert {rank.node_rank for rank in ranks} == set(range(min(target, len(nodes))))
    for node_rank in {rank.node_rank for rank in ranks}:
        local_ranks = sorted(rank.local_rank for rank in ranks if rank.node_rank == node_rank)
        assert local_ranks == list(range(len(local_ranks)))


def test_all_replicas_of_a_node_have_its_node_rank_and_no_others_do() -> None:
    """R1."""
    d = Deployment.running(7, nodes="abc")
    by_node = {(replica.node_id, replica.rank.node_rank) for replica in d.state.replicas.values() if replica.rank}
    assert sorted(by_node) == [("a", 0), ("b", 1), ("c", 2)]


def test_ranks_are_contiguous_again_whatever_happened_before() -> None:
    """R1."""
    d = Deployment.running(6, nodes="abc")
    d.die("llm#1.1")
    d.lose("c")
    d.resize(9)
    d.place("llm#1.6", "a")
    d.resize(4)
    d.unhealthy("llm#1.0")
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == [0, 1, 2, 3]


def test_a_running_replica_has_exactly_one_rank_and_holds_its_slot() -> None:
    """R2."""
    d = Deployment.running(5, nodes="ab")
    d.die("llm#1.2")
    d.settle()
    for replica_id, replica in d.state.replicas.items():
        rank = d.state.rank_of(replica_id)
        assert replica.state is ReplicaState.RUNNING
        assert rank is not None
        assert d.state.holder_of(rank.rank) == replica_id


def test_a_rank_being_given_up_stays_taken_until_the_move_is_acknowledged() -> None:
    """R3, R4: who asks for it meanwhile waits."""
    d = Deployment.running(3)
    d.resize(2, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")
    assert d.full("llm#1.2") == (0, 0, 0)  # it was told so, and may believe 2 still
    d.forget()
    d.resize(3)
    assert d.sent(StartReplica) == []
    d.acknowledge("llm#1.2")
    assert [start.rank for start in d.sent(StartReplica)] == [2]


def test_a_local_rank_being_given_up_stays_taken_until_the_move_is_acknowledged() -> None:
    """R3: the newcomer on that node gets the next one."""
    d = Deployment.running(3, nodes=["a", "a", "b"])  # local ranks 0 and 1 on a, 0 on b
    d.resize(2, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")
    assert d.full("llm#1.1") == (1, 0, 0)
    d.acknowledge("llm#1.2")
    d.resize(3)
    d.place("llm#1.3", "a")
    assert d.full("llm#1.3") == (2, 0, 2)  # llm#1.1 may believe local rank 1, and is told 0
    d.settle()
    assert d.full("llm#1.3") == (2, 0, 1)


def test_a_node_rank_being_given_up_stays_taken_until_the_move_is_acknowledged() -> None:
    """R3: nor do two nodes have live replicas that believe the same node rank."""
    d = Deployment.running(2, nodes="ab")
    d.resize(1, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")
    assert d.full("llm#1.1") == (0, 0, 0)  # node b is told 0, and may believe 1 still
    d.resize(3)
    start = d.sent(StartReplica)[-1]
    assert start.rank == 2  # rank 1 is believed as well
    d.place(start.replica_id, "c")
    assert d.full(start.replica_id) == (2, 2, 0)
    d.acknowledge("llm#1.1")
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


def test_an_acknowledgement_of_an_older_revision_frees_nothing() -> None:
    """R3: what is given up is free when the latest change is acknowledged."""
    d = Deployment.running(3)
    d.resize(2, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")
    older = d.state.replicas["llm#1.2"].revision
    d.change(user_config={"a": 1}, config_rollout="at_once")
    d.resize(3)
    d.forget()
    d.acknowledge("llm#1.2", older)
    assert d.sent(StartReplica) == []
    d.acknowledge("llm#1.2")
    assert [start.rank for start in d.sent(StartReplica)] == [2]


def test_a_replica_that_ends_gives_back_what_it_held_and_what_it_may_have_believed() -> None:
    """R3: taken until its holder has acknowledged the new value, or is gone."""
    d = Deployment.running(3)
    d.resize(2, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")  # llm#1.2 is told to move from 2 to 0
    d.resize(3)
    d.forget()
    d.die("llm#1.2")
    assert sorted(start.rank for start in d.sent(StartReplica)) == [0, 2]


def test_a_leaving_replica_keeps_its_three_ranks_until_it_is_gone() -> None:
    """R3, R7."""
    d = Deployment.running(2, nodes="ab")
    d.stop_by_name("llm#1.1")
    d.resize(3)
    newcomer = d.sent(StartReplica)[-1]
    assert newcomer.rank == 2
    d.place(newcomer.replica_id, "b")
    assert d.full(newcomer.replica_id) == (2, 1, 1)  # local rank 0 on b is still llm#1.1's


def test_a_restart_during_an_unacknowledged_move_never_leads_to_two_with_one_rank() -> None:
    """R3: the move was told, and may or may not have arrived before the controller died."""
    for heard in (True, False):
        d = Deployment.running(3)
        d.resize(2, stop_first=["llm#1.0"])
        d.stopped("llm#1.0")
        d.resize(3)
        d.restart()
        d.report("llm#1.1")
        d.report("llm#1.2", rank=(0, 0, 0) if heard else (2, 0, 2))
        assert [start.rank for start in d.sent(StartReplica)][-1] == (2 if heard else 0)
        d.settle()
        assert sorted(d.ranks.values()) == [0, 1, 2]


def test_commands_that_arrive_late_find_no_other_replica_with_that_rank() -> None:
    """R3: two changes under way at once; each rank is told to one replica only."""
    d = Deployment.running(4)
    d.resize(2, stop_first=["llm#1.0", "llm#1.1"])
    d.stopped("llm#1.0")
    d.stopped("llm#1.1")
    moves = {move.replica_id: move.rank.rank for move in d.sent(ReconfigureReplica)}
    assert moves == {"llm#1.2": 0, "llm#1.3": 1}
    d.resize(6)
    d.forget()
    d.settle(except_for=["llm#1.2", "llm#1.3"])
    assert sorted(told.rank.rank for told in d.sent(InitializeReplica)) == [4, 5]
    d.settle()
    assert sorted(d.ranks.values()) == [0, 1, 2, 3, 4, 5]
