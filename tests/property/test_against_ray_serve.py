"""The rank table beside the rank manager of Ray Serve: equal where the promises agree, both shown where they do not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from rankcore.errors import DuplicateRankError, UnknownReplicaError
from rankcore.ranks import RankTable
from rankcore.values import ReplicaRank

try:
    from ray.serve._private.deployment_state import DeploymentRankManager
    from ray.serve.schema import ReplicaRank as RayRank
except ImportError as error:
    pytest.skip(f"Ray Serve cannot be imported ({error}): pip install 'ray[serve]'", allow_module_level=True)

NODES = st.sampled_from(["n0", "n1", "n2", "n3"])


class Stub:
    """What Ray's check looks at in a replica: `replica_id.unique_id`."""

    def __init__(self, replica_id):
        self.replica_id = self
        self.unique_id = replica_id


def numbers(rank):
    return (rank.rank, rank.node_rank, rank.local_rank)


def ray_view(manager):
    return {each: numbers(rank) for each, rank in manager.get_replica_ranks_mapping().items()}


def our_view(table):
    return {each: numbers(rank) for each, rank in table.ranks.items()}


def by_level(view, node_of):
    """The numbers in use at each level, whoever has them; the nodes by what they hold, whichever they are."""
    nodes = {}
    for replica, (_, node_rank, local_rank) in view.items():
        nodes.setdefault(node_of[replica], set()).add((node_rank, local_rank))
    return {
        "rank": sorted(rank for rank, _, _ in view.values()),
        "node rank": sorted({node_rank for _, node_rank, _ in view.values()}),
        "local rank": {node: sorted(local for _, local in there) for node, there in nodes.items()},
    }


def ray_compact(manager, replicas):
    moved = manager.check_rank_consistency_and_reassign_minimally([Stub(each) for each in replicas])
    return {each.unique_id for each in moved}


class BothTables(RuleBasedStateMachine):
    """Assign, release and compact: the same numbers are in use, and compaction moves the same replicas.

    Which of several movers gets which number differs: Ray goes by the order of the list that it is given, we by rank.
    So they are compared level by level, and continue from our outcome.
    """

    def __init__(self):
        super().__init__()
        self.manager, self.table = DeploymentRankManager(), RankTable()
        self.node_of, self.born = {}, 0

    @rule(node=NODES)
    def assign(self, node):
        new = f"r{self.born}"
        self.born += 1
        theirs = numbers(self.manager.assign_rank(new, node))
        self.table, rank = self.table.assign(new, node)
        self.node_of[new] = node
        assert numbers(rank) == theirs

    @precondition(lambda self: self.node_of)
    @rule(data=st.data())
    def release(self, data):
        gone = data.draw(st.sampled_from(sorted(self.node_of)))
        self.manager.release_rank(gone)
        self.table = self.table.release(gone)
        del self.node_of[gone]
        assert our_view(self.table) == ray_view(self.manager)

    @precondition(lambda self: self.node_of)
    @rule()
    def compact(self):
        theirs = ray_compact(self.manager, sorted(self.node_of))
        self.table, moves = self.table.compact()
        assert {move.replica_id for move in moves} == theirs
        assert by_level(our_view(self.table), self.node_of) == by_level(ray_view(self.manager), self.node_of)
        self.manager = DeploymentRankManager()
        for replica, rank in self.table.ranks.items():
            self.manager.recover_rank(replica, self.node_of[replica], RayRank(**dict(zip(LEVELS, numbers(rank), strict=True))))


LEVELS = ("rank", "node_rank", "local_rank")
BothTables.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestBothTables = BothTables.TestCase


@given(nodes=st.lists(NODES, max_size=20), data=st.data())
def test_a_sound_recovery_ends_in_the_same_table_whatever_the_order(nodes, data):
    table = RankTable()
    for index, node in enumerate(nodes):
        table, _ = table.assign(f"r{index}", node)
    for index in data.draw(st.sets(st.integers(0, 19))):
        if f"r{index}" in table:
            table = table.release(f"r{index}")
    reports = [(each, table.node_of(each), rank) for each, rank in table.ranks.items()]
    reports = data.draw(st.permutations(reports))
    manager = DeploymentRankManager()
    for replica, node, rank in reports:
        manager.recover_rank(replica, node, RayRank(**dict(zip(LEVELS, numbers(rank), strict=True))))
    recovered, moves = RankTable.recover(reports)
    assert moves == ()
    assert our_view(recovered) == ray_view(manager) == our_view(table)


def test_gaps_below_a_recovered_rank():
    """Ray hands out 6 while 0..4 are free, since it knows only of what it saw released; we hand out 0 (R10)."""
    manager = DeploymentRankManager()
    manager.recover_rank("a", "n0", RayRank(rank=5, node_rank=2, local_rank=3))
    assert numbers(manager.assign_rank("b", "n1")) == (6, 3, 0)
    table = RankTable().recover_rank("a", "n0", ReplicaRank(5, 2, 3))
    assert numbers(table.assign("b", "n1")[1]) == (0, 0, 0)
    assert numbers(table.assign("b", "n0")[1]) == (0, 2, 0)


def test_a_duplicate_at_recovery():
    """Ray accepts it, and every later check fails; we let the older keep the rank and move the other (R10)."""
    manager = DeploymentRankManager()
    for replica, local_rank in (("a", 0), ("b", 1)):
        manager.recover_rank(replica, "n0", RayRank(rank=0, node_rank=0, local_rank=local_rank))
    assert [rank for rank, _, _ in ray_view(manager).values()] == [0, 0]
    with pytest.raises(RuntimeError, match="invalid state"):
        ray_compact(manager, ["a", "b"])
    table, moves = RankTable.recover([("a", "n0", ReplicaRank(0, 0, 0)), ("b", "n0", ReplicaRank(0, 0, 1))])
    assert [(move.replica_id, move.after) for move in moves] == [("b", ReplicaRank(1, 0, 1))]
    assert table.compact() == (table, ())
    with pytest.raises(DuplicateRankError):
        RankTable().recover_rank("a", "n0", ReplicaRank(0, 0, 0)).recover_rank("b", "n0", ReplicaRank(0, 0, 1))


def test_two_nodes_that_recover_one_node_rank():
    """Ray accepts it; we give the node with the younger replica another node rank (R3)."""
    manager = DeploymentRankManager()
    for rank, node in enumerate(("n0", "n1")):
        manager.recover_rank(f"r{rank}", node, RayRank(rank=rank, node_rank=0, local_rank=0))
    assert {node_rank for _, node_rank, _ in ray_view(manager).values()} == {0}
    table, moves = RankTable.recover([(f"r{rank}", f"n{rank}", ReplicaRank(rank, 0, 0)) for rank in range(2)])
    assert [(move.replica_id, move.after.node_rank) for move in moves] == [("r1", 1)]
    assert table.rank_of("r0").node_rank == 0


def test_the_replacement_of_one_of_two_crashed_replicas():
    """Ray gives the lowest released rank to whoever comes up first; we give each its predecessor's (R6)."""
    manager, table = DeploymentRankManager(), RankTable()
    for replica in "abcd":
        manager.assign_rank(replica, "n0")
        table, _ = table.assign(replica, "n0")
    for crashed in "bd":
        manager.release_rank(crashed)
    assert manager.assign_rank("d2", "n0").rank == 1
    assert table.replace("d", "d2", "n0")[1].rank == 3


def test_numbers_above_the_size_after_a_compaction():
    """Ray keeps vacated numbers above the size among the released ones, level by level; we forget them.

    What is handed out next is the same, while its set of released numbers stays as large as the largest deployment was.
    """
    manager, table = DeploymentRankManager(), RankTable()
    for index in range(6):
        manager.assign_rank(f"r{index}", "n0")
        table, _ = table.assign(f"r{index}", "n0")
    for index in range(3):
        manager.release_rank(f"r{index}")
        table = table.release(f"r{index}")
    ray_compact(manager, ["r3", "r4", "r5"])
    table, _ = table.compact()
    assert manager._replica_rank_manager._released_ranks == {3, 4, 5}
    assert list(table.holes) == []
    assert manager.assign_rank("new", "n0").rank == table.assign("new", "n0")[1].rank == 3


def test_the_order_of_the_movers():
    """Ray hands the gaps out in the order of the list that it is given; we in the order of rank, whatever the list."""
    manager, table = DeploymentRankManager(), RankTable()
    for index in range(4):
        manager.assign_rank(f"r{index}", f"n{index}")
        table, _ = table.assign(f"r{index}", f"n{index}")
    for index in range(2):
        manager.release_rank(f"r{index}")
        table = table.release(f"r{index}")
    ray_compact(manager, ["r3", "r2"])
    assert {each: rank for each, (rank, _, _) in ray_view(manager).items()} == {"r3": 0, "r2": 1}
    assert {each: rank.rank for each, rank in table.compact()[0].ranks.items()} == {"r2": 0, "r3": 1}


def test_a_mistake_that_is_swallowed():
    """As Ray Serve runs by default, an unknown replica and a double assignment both "succeed" as rank 0; we refuse."""
    manager = DeploymentRankManager(fail_on_rank_error=False)
    for replica in ("a", "b"):
        manager.assign_rank(replica, "n0")
    assert numbers(manager.get_replica_rank("nobody")) == numbers(manager.assign_rank("b", "n0")) == (0, 0, 0)
    table = RankTable().assign("a", "n0")[0].assign("b", "n0")[0]
    with pytest.raises(UnknownReplicaError):
        table.rank_of("nobody")
    with pytest.raises(DuplicateRankError):
        table.assign("b", "n0")


def test_a_check_with_a_replica_that_has_no_rank_yet():
    """Ray's check fails when it is asked about a replica without a rank; ours is about the table and needs no list."""
    manager = DeploymentRankManager()
    manager.assign_rank("a", "n0")
    with pytest.raises(RuntimeError, match="invalid state"):
        ray_compact(manager, ["a", "not placed yet"])
    table, _ = RankTable().assign("a", "n0")
    assert table.is_compact()
