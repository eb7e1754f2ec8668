"""R8: gaps are closed with the least possible number of moves, at all three levels, each by one message."""

from collections import Counter
from itertools import combinations

import pytest

from rankcore import DeploymentStatus, NoteKind, ReplicaRank, ReplicaState
from rankcore.commands import InitializeReplica, ReconfigureReplica, StartReplica
from tests.scripted import Deployment

POLICIES = ["when_healthy", "immediate"]


def moves(d: Deployment) -> dict[str, tuple[int, int, int]]:
    """Who was told to move, and where to; nobody twice."""
    sent = d.sent(ReconfigureReplica)
    assert len({move.replica_id for move in sent}) == len(sent), f"more than one message for a replica: {sent}"
    return {move.replica_id: (move.rank.rank, move.rank.node_rank, move.rank.local_rank) for move in sent}


def forced(ranks: dict[str, ReplicaRank], target: int) -> set[str]:
    """Who has to move: rank >= N, local_rank >= K on its node, or node_rank >= M."""
    nodes = Counter(rank.node_rank for rank in ranks.values())
    return {
        replica_id
        for replica_id, rank in ranks.items()
        if rank.rank >= target or rank.local_rank >= nodes[rank.node_rank] or rank.node_rank >= len(nodes)
    }


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("nodes", ["a", "ab", "abc", "aab"])
@pytest.mark.parametrize("stopped", [some for size in range(1, 6) for some in combinations(range(6), size)])
def test_exactly_those_move_that_have_to_and_each_by_one_message(policy: str, nodes: str, stopped: tuple[int, ...]) -> None:
    """R8: any set of victims of a downscale that all stop at once, on one, two and three nodes."""
    d = Deployment.running(6, nodes=nodes, compaction=policy, graceful_shutdown_timeout_s=0.0)
    victims = [f"llm#1.{number}" for number in stopped]
    before = {replica_id: rank for replica_id, rank in d.state.ranks.items() if replica_id not in victims}
    d.forget()
    d.resize(6 - len(victims), stop_first=victims)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    told = Counter(move.replica_id for move in d.sent(ReconfigureReplica))
    assert set(told) >= forced(before, 6 - len(victims))
    if policy == "when_healthy":
        assert set(told) == forced(before, 6 - len(victims))
        assert set(told.values()) <= {1}
        stayed = set(before) - set(told)
        assert all(d.state.ranks[replica_id] == before[replica_id] for replica_id in stayed)


def test_the_global_ranks_beyond_the_world_size_move_into_the_gaps() -> None:
    """R8: ranks 3 and 4 of 0..4 move to 0 and 1; 2 stays."""
    d = Deployment.running(5)
    d.resize(3, stop_first=["llm#1.0", "llm#1.1"])
    d.settle()
    assert d.ranks == {"llm#1.2": 2, "llm#1.3": 0, "llm#1.4": 1}


def test_local_ranks_move_where_a_node_has_fewer_replicas() -> None:
    """R8: the global rank stays."""
    d = Deployment.running(4, nodes=["a", "a", "b", "b"])
    d.nodes = ("b",)
    d.forget()
    d.die("llm#1.0")
    d.settle()
    assert moves(d) == {"llm#1.1": (1, 0, 0)}


def test_node_ranks_move_where_a_node_is_no_longer_used() -> None:
    """R8: every replica of the node with the highest node rank, and nobody else."""
    d = Deployment.running(6, nodes="aabbcc")
    d.nodes = ("b",)
    d.forget()
    d.lose("a")
    d.settle()
    assert moves(d) == {"llm#1.4": (4, 0, 0), "llm#1.5": (5, 0, 1)}


def test_one_message_moves_a_replica_at_all_three_levels() -> None:
    """R8: rank 5 of 6, local rank 1 on a node that it will have alone, node rank 2 of 2."""
    d = Deployment.running(6, nodes="abc")
    d.forget()
    d.resize(3, stop_first=["llm#1.0", "llm#1.3", "llm#1.2"])
    d.settle()
    assert moves(d)["llm#1.5"] == (2, 0, 0)


def test_ranks_are_not_compacted_before_the_deployment_is_healthy_by_default() -> None:
    """R8: two are stopped, one of them is not gone yet."""
    d = Deployment.running(4)
    d.resize(2, stop_first=["llm#1.0", "llm#1.1"])
    d.stopped("llm#1.0")
    assert d.status is DeploymentStatus.DOWNSCALING
    assert d.sent(ReconfigureReplica) == []
    d.stopped("llm#1.1")
    assert d.status is DeploymentStatus.HEALTHY
    assert {replica_id: rank for replica_id, (rank, _, _) in moves(d).items()} == {"llm#1.2": 0, "llm#1.3": 1}


def test_ranks_are_compacted_at_once_with_the_immediate_policy() -> None:
    """R8, opt-in: as soon as a rank is free, into free ranks only."""
    d = Deployment.running(4, compaction="immediate")
    d.resize(2, stop_first=["llm#1.0", "llm#1.1"])
    d.stopped("llm#1.0")
    assert d.status is DeploymentStatus.DOWNSCALING
    assert d.ranks["llm#1.2"] == 0
    assert d.ranks["llm#1.3"] == 3
    d.settle()
    assert d.ranks == {"llm#1.2": 0, "llm#1.3": 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_deployment_is_healthy_while_its_replicas_are_told_their_new_ranks(policy: str) -> None:
    """Section 2.3: RECONFIGURING counts."""
    d = Deployment.running(3, compaction=policy)
    d.resize(2, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")
    assert d.status is DeploymentStatus.HEALTHY
    assert d.state.replicas["llm#1.2"].state is ReplicaState.RECONFIGURING
    d.acknowledge("llm#1.2")
    assert d.state.replicas["llm#1.2"].state is ReplicaState.RUNNING


def test_compaction_waits_while_a_mover_is_unacknowledged() -> None:
    """Section 2.3: it starts in a step only when none of the movers is."""
    d = Deployment.running(4)
    d.change(user_config={"a": 1})
    d.settle(except_for=["llm#1.3"])
    d.forget()
    d.resize(2, stop_first=["llm#1.0", "llm#1.1"])
    d.settle(except_for=["llm#1.3"])
    assert moves(d) == {}  # llm#1.2 could move, and waits for the other
    d.acknowledge("llm#1.3")
    assert moves(d) == {"llm#1.2": (0, 0, 0), "llm#1.3": (1, 0, 1)}


def test_compaction_does_not_wait_for_a_replica_that_need_not_move() -> None:
    """Section 2.3: only movers count."""
    d = Deployment.running(3, config_rollout="at_once")
    d.change(user_config={"a": 1})
    d.settle(except_for=["llm#1.1"])
    d.forget()
    d.resize(2, stop_first=["llm#1.0"])
    d.settle(except_for=["llm#1.1"])
    assert moves(d) == {"llm#1.2": (0, 0, 0)}


def test_compaction_moves_nobody_into_a_rank_that_another_may_believe() -> None:
    """R3, R8, section 2.5: rank 2 is being given up by llm#1.2 when llm#1.3 would need it."""
    d = Deployment.running(3)
    d.resize(2, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")
    assert d.ranks["llm#1.2"] == 0
    d.resize(4)
    d.settle(except_for=["llm#1.2"])
    assert d.ranks == {"llm#1.1": 1, "llm#1.2": 0, "llm#1.3": 3}
    d.resize(3)
    assert d.ranks["llm#1.3"] == 3
    d.acknowledge("llm#1.2")
    assert d.ranks["llm#1.3"] == 2


def test_compaction_moves_nobody_into_a_kept_or_draining_rank() -> None:
    """R6, R7, R8, with the policy that does not wait."""
    d = Deployment.running(4, compaction="immediate")
    d.die("llm#1.0")
    d.start_fails("llm#1.4")  # rank 0 backs off, and is kept
    d.resize(3, stop_first=["llm#1.1"])  # the vacant slot is given up instead
    d.forget()
    d.settle()
    assert d.ranks == {"llm#1.1": 1, "llm#1.2": 2, "llm#1.3": 0}


def test_immediate_compaction_leaves_the_rank_of_a_slot_that_backs_off_to_its_replacement() -> None:
    """R6, R8: with "immediate" no survivor takes the global rank of a crashed replica."""
    d = Deployment.running(3, compaction="immediate")
    d.die("llm#1.0")
    d.start_fails("llm#1.3")
    d.wait(0.5)
    assert d.state.kept_ranks == (0,)
    assert d.ranks == {"llm#1.1": 1, "llm#1.2": 2}


def test_a_mover_keeps_its_user_config() -> None:
    """R8, R12: the message carries the config that it has."""
    d = Deployment.running(3, user_config={"a": 1})
    d.resize(2, stop_first=["llm#1.0"])
    d.stopped("llm#1.0")
    (move,) = d.sent(ReconfigureReplica)
    assert (move.user_config, move.config_id) == ({"a": 1}, d.state.spec.config_id)


def test_a_new_config_and_a_new_rank_that_fall_together_are_one_message() -> None:
    """R8: each by one message; the config arrives in the step in which the ranks are compacted."""
    d = Deployment.running(3, config_rollout="at_once")
    d.resize(2, stop_first=["llm#1.0"])
    d.forget()
    d.change(user_config={"a": 1})
    d.stopped("llm#1.0")
    d.settle()
    told = [move for move in d.sent(ReconfigureReplica) if move.replica_id == "llm#1.2"]
    assert [move.config_id for move in told] == [d.state.spec.config_id] * len(told)
    assert d.ranks == {"llm#1.1": 1, "llm#1.2": 0}


def test_a_crash_during_a_move_leaves_the_new_rank_to_the_replacement_and_frees_the_old_one() -> None:
    """Section 2.3: told to move from rank 3 to 1, it dies before it acknowledges."""
    d = Deployment.running(4)
    d.resize(3, stop_first=["llm#1.1"])
    d.stopped("llm#1.1")
    assert d.ranks["llm#1.3"] == 1
    d.forget()
    d.die("llm#1.3")
    assert [start.rank for start in d.sent(StartReplica)] == [1]
    d.resize(4)
    assert [start.rank for start in d.sent(StartReplica)] == [1, 3]


def test_a_move_is_explained_with_its_two_ranks() -> None:
    """R8."""
    d = Deployment.running(3)
    d.resize(2, stop_first=["llm#1.0"])
    d.settle()
    (moved,) = d.noted(NoteKind.RANK_MOVED)
    assert (moved.rule, moved.replica_id) == ("R8", "llm#1.2")
    assert (moved.before, moved.after) == (ReplicaRank(2, 0, 2), ReplicaRank(0, 0, 0))


def test_nobody_is_moved_where_there_is_no_gap() -> None:
    """R8: the least possible number is none."""
    d = Deployment.running(4, nodes="ab")
    d.forget()
    d.resize(2, stop_first=["llm#1.2", "llm#1.3"])
    d.settle()
    assert moves(d) == {}
    d.resize(4)
    d.settle()
    assert moves(d) == {}
    assert len(d.sent(InitializeReplica)) == 2


@pytest.mark.parametrize("compaction", ["immediate", "when_healthy"])
def test_the_loser_of_a_duplicate_gets_its_rank_when_nobody_else_has_it_any_more(compaction: str) -> None:
    """R10: rank 0 is found twice, its holder is stopped and not replaced, and no other rank is left below the target.

    Closing the gaps on its node waits until then, since who has no rank has none to move from.
    """
    keeper, loser, silent = "llm#1.0", "llm#1.1", "llm#1.2"
    found = {keeper: (0, 0, 0), loser: (0, 1, 1), silent: (1, 1, 0)}
    d = Deployment.recovered(2, found, compaction=compaction)
    d.report(keeper, node_id="b")
    d.report(loser, node_id="a")
    d.resize(1)
    d.stop_by_name(keeper)
    d.missing(silent)
    assert d.sent(ReconfigureReplica) == []
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert d.full(loser) == (0, 0, 0)


def test_who_is_told_an_unknown_user_config_with_its_move_waits_until_the_budget_allows_that() -> None:
    """V1: what it has is not known after a recovery, so it would be sent another one with its ranks."""
    found = {"llm#1.0": (0, 0, 0), "llm#1.1": (1, 0, 1), "llm#1.2": (3, 0, 2)}
    d = Deployment.recovered(3, found, compaction="immediate", max_unavailable=1)
    d.report("llm#1.0")
    d.report("llm#1.1", version="0")
    d.report("llm#1.2", config_id="of long ago")
    assert d.draining == ["llm#1.1"]
    assert d.sent(ReconfigureReplica) == []
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.HEALTHY, [0, 1, 2])


@pytest.mark.parametrize("victims", ["any", "newest"])
def test_gaps_are_closed_among_those_that_serve_on_after_a_version_was_given_up(victims: str) -> None:
    """R8: nobody knows when that is mended, and until then a rank would be beyond the world size."""
    d = Deployment.running(4, nodes=("n0", "n1"), max_start_failures=1, max_unavailable=1, victims=victims)
    d.change(version="2")
    d.settle(except_for=["llm#1.4"])
    d.start_fails("llm#1.4")
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.DEPLOY_FAILED, [0, 1, 2, 3])
    d.forget()
    d.resize(2)
    d.settle()
    assert (d.status, sorted(d.ranks.values())) == (DeploymentStatus.DEPLOY_FAILED, [0, 1])
    assert sum(told[0] == 0 for told in moves(d).values()) == 1
    assert d.sent(StartReplica) == []
