"""`RankTable` does what the naive table does, whatever the sequence of calls, and the machine compacts as it does."""

import pickle
from itertools import permutations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rankcore import DeploymentSpec, deploy, step
from rankcore.commands import ReconfigureReplica, StartReplica
from rankcore.compaction import Level, forced_moves
from rankcore.errors import DuplicateRankError, RankError, UnknownReplicaError
from rankcore.events import ReplicaPlaced, ReplicaReady, ReplicaStopped, SpecChanged
from rankcore.ranks import RankTable
from rankcore.rankset import RankSet
from rankcore.values import ReplicaRank
from tests.property.naive_ranks import NaiveRanks

pytestmark = pytest.mark.traced

NODES = st.sampled_from([f"node-{index}" for index in range(5)])
RANKS = st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 6))


def numbers(rank: ReplicaRank):
    return (rank.rank, rank.node_rank, rank.local_rank)


def view(table):
    """What a table says about each replica, asked one by one."""
    return {each: (numbers(table.rank_of(each)), table.node_of(each)) for each in table.ranks}


def told(moves):
    assert [move.new_rank for move in moves] == sorted(move.new_rank for move in moves)
    return {move.replica_id: (numbers(move.before), numbers(move.after)) for move in moves}


def reports_of(raw):
    return [(replica, node, ReplicaRank(*ranks)) for replica, node, ranks in raw]


@st.composite
def raw_reports(draw):
    pairs = draw(st.lists(st.tuples(NODES, RANKS), max_size=12))
    return [(f"r{index}", node, ranks) for index, (node, ranks) in enumerate(pairs)]


class Tables(RuleBasedStateMachine):
    """The table and the naive one live side by side."""

    def __init__(self):
        super().__init__()
        self.naive = NaiveRanks()
        self.table = RankTable()
        self.born = 0
        self.past = []  # (table, what the naive table said at that time)

    def new_id(self):
        self.born += 1
        return f"r{self.born - 1}"

    def pick(self, data):
        return data.draw(st.sampled_from(sorted(self.naive.rank)))

    @initialize(raw=st.just([]) | raw_reports())
    def recover(self, raw):
        self.naive, moved = NaiveRanks.recover(raw)
        self.born = len(raw)
        self.table, moves = RankTable.recover(reports_of(raw))
        assert told(moves) == moved

    @rule(node=NODES)
    def assign(self, node):
        new = self.new_id()
        self.past.append((self.table, self.naive.view()))
        expected = self.naive.assign(new, node)
        self.table, rank = self.table.assign(new, node)
        assert numbers(rank) == expected

    @precondition(lambda self: self.naive.rank)
    @rule(data=st.data())
    def release(self, data):
        gone = self.pick(data)
        self.past.append((self.table, self.naive.view()))
        self.naive.release(gone)
        self.table = self.table.release(gone)

    @precondition(lambda self: self.naive.rank)
    @rule(data=st.data(), node=st.none() | NODES)
    def replace(self, data, node):
        old, new = self.pick(data), self.new_id()
        node = node or self.naive.node[old]
        rank_before = self.naive.rank[old]
        expected = self.naive.replace(old, new, node)
        self.table, rank = self.table.replace(old, new, node)
        assert numbers(rank) == expected
        assert rank.rank == rank_before

    @rule(node=NODES, ranks=RANKS)
    def recover_one(self, node, ranks):
        new = self.new_id()
        if self.naive.can_recover(new, node, ranks):
            self.naive.recover_one(new, node, ranks)
            self.table = self.table.recover_rank(new, node, ReplicaRank(*ranks))
        else:
            with pytest.raises(DuplicateRankError):
                self.table.recover_rank(new, node, ReplicaRank(*ranks))

    @rule(more=st.none() | st.integers(0, 4))
    def compact(self, more):
        size = None if more is None else len(self.naive.rank) + more
        was_compact = self.table.is_compact(size)
        self.past.append((self.table, self.naive.view()))
        moved = self.naive.compact(len(self.naive.rank) if size is None else size)
        assert was_compact == (not moved)
        self.table, moves = self.table.compact(size)
        assert told(moves) == moved
        assert self.table.is_compact(size)

    @rule()
    def too_small(self):
        with pytest.raises(RankError):
            self.table.compact(len(self.naive.rank) - 1)

    @rule(data=st.data(), node=NODES)
    def mistakes_change_nothing(self, data, node):
        table = self.table
        with pytest.raises(UnknownReplicaError):
            table.release("nobody")
        with pytest.raises(UnknownReplicaError):
            table.replace("nobody", "somebody", node)
        if self.naive.rank:
            known = self.pick(data)
            with pytest.raises(DuplicateRankError):
                table.assign(known, node)
            with pytest.raises(DuplicateRankError):
                table.replace(known, known, node)
            with pytest.raises(DuplicateRankError):
                table.recover_rank(known, node, ReplicaRank(20, 20, 20))

    @invariant()
    def both_agree(self):
        expected = self.naive.view()
        assert view(self.table) == expected
        assert len(self.table) == len(expected)
        by_rank = {ranks[0]: replica for replica, (ranks, _) in expected.items()}
        for rank in range(max(by_rank, default=-1) + 2):
            assert self.table.holder_of(rank) == by_rank.get(rank)
        assert list(self.table.ranks) == [by_rank[rank] for rank in sorted(by_rank)]

    @invariant()
    def equal_contents_make_equal_tables(self):
        again, _ = RankTable.recover((each, self.table.node_of(each), rank) for each, rank in self.table.ranks.items())
        assert again == self.table
        assert hash(again) == hash(self.table)
        assert pickle.loads(pickle.dumps(again)) == self.table

    def teardown(self):
        for table, expected in self.past:
            assert view(table) == expected


Tables.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestTables = Tables.TestCase


@given(raw=raw_reports())
def test_a_duplicate_found_at_recovery_gets_a_rank_that_nobody_reported(raw):
    table, moves = RankTable.recover(reports_of(raw))
    reported = {ranks[0] for _, _, ranks in raw}
    for move in moves:
        assert move.new_rank == move.old_rank or move.new_rank not in reported
    first_to_report = {ranks[0]: replica for replica, _, ranks in reversed(raw)}
    assert all(table.holder_of(rank) == replica for rank, replica in first_to_report.items())


@given(held=st.sets(st.integers(0, 7), max_size=5), spare=st.integers(0, 2))
def test_no_other_choice_moves_fewer_global_ranks(held, spare):
    """R8 against brute force: of all ways to seat these replicas below N, none leaves more of them where they are."""
    size = len(held) + spare
    table = RankTable()
    for index, rank in enumerate(sorted(held)):
        table = table.recover_rank(f"r{index}", f"node-{index}", ReplicaRank(rank, index, 0))
    _, moves = table.compact(size)
    ways = permutations(range(size), len(held))
    least = min(sum(old != new for old, new in zip(sorted(held), way, strict=True)) for way in ways)
    assert len(moves) == least


@given(held=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=4, unique=True))
def test_no_other_choice_moves_fewer_replicas_over_all_three_levels(held):
    """Each level is forced on its own, so brute force over each level gives the set of replicas that must change."""
    table = RankTable()
    node_ranks = {}
    for rank, (node, local) in enumerate(held):
        node_rank = node_ranks.setdefault(node, 2 * len(node_ranks) + 1)
        table = table.recover_rank(f"r{rank}", f"node-{node}", ReplicaRank(rank, node_rank, local))
    forced = set()
    for rank, (node, local) in enumerate(held):
        there = [other for other_node, other in held if other_node == node]
        if local >= len(there) or node_ranks[node] >= len(node_ranks):
            forced.add(f"r{rank}")
    after, moves = table.compact()
    assert {move.replica_id for move in moves} == forced
    for node in node_ranks:
        ranks = [rank for each, rank in after.ranks.items() if after.node_of(each) == f"node-{node}"]
        assert sorted(rank.local_rank for rank in ranks) == list(range(len(ranks)))
        assert len({rank.node_rank for rank in ranks}) == 1
    assert sorted({rank.node_rank for rank in after.ranks.values()}) == list(range(len(node_ranks)))


@given(held=st.sets(st.integers(0, 40)), spare=st.integers(0, 10))
def test_compaction_moves_what_forced_moves_says(held, spare):
    size = len(held) + spare
    reports = [(f"r{rank}", "node", ReplicaRank(rank, 0, index)) for index, rank in enumerate(sorted(held))]
    table, _ = RankTable.recover(reports)
    _, moves = table.compact(size)
    pairs = sorted((move.old_rank, move.new_rank) for move in moves)
    above = [rank for rank in sorted(held) if rank >= size]
    assert pairs == [(old, new) for new, old in forced_moves(Level(above, RankSet.of(held).free_below(size), str))]


@given(nodes=st.lists(NODES, min_size=1, max_size=12), data=st.data())
def test_the_machine_compacts_as_the_table_does(nodes, data):
    """R8 is one law: whoever stays is told the ranks that the table finds for them, and nobody else is told anything."""
    state, commands, _ = deploy(DeploymentSpec(name="llm", target_replicas=len(nodes)))
    table = RankTable()
    starts = [command.replica_id for command in commands if isinstance(command, StartReplica)]
    for replica_id, node_id in zip(starts, nodes, strict=True):
        state, _, _ = step(state, ReplicaPlaced(replica_id=replica_id, node_id=node_id, at=0.0))
        state, _, _ = step(state, ReplicaReady(replica_id=replica_id, at=0.0))
        table, rank = table.assign(replica_id, node_id)
        assert state.rank_of(replica_id) == rank
    gone = data.draw(st.sets(st.sampled_from(starts), min_size=1, max_size=len(starts) - 1) if starts[1:] else st.just(set()))
    spec = attrs.evolve(state.spec, target_replicas=len(nodes) - len(gone))
    state, commands, _ = step(state, SpecChanged(spec=spec, stop_first=sorted(gone), at=1.0))
    for replica_id in sorted(gone):
        state, commands, _ = step(state, ReplicaStopped(replica_id=replica_id, at=2.0))
        table = table.release(replica_id)
    told_by_machine = {each.replica_id: each.rank for each in commands if isinstance(each, ReconfigureReplica)}
    assert told_by_machine == {move.replica_id: move.after for move in table.compact()[1]}
