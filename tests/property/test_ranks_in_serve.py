"""The rank manager that goes into Ray Serve: driven as Serve drives its own, whatever comes up, ends or reports when."""

import inspect
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rankcore.errors import DuplicateRankError, RankError, UnknownReplicaError
from rankcore.ranks import RankTable

pytest.importorskip("ray.serve._private.deployment_state", reason="Ray Serve is not installed: pip install 'ray[serve]'")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from ray.serve._private.common import ReplicaState
from ray.serve._private.deployment_state import DeploymentRankManager
from ray.serve.schema import ReplicaRank
from ray_serve_ranks import RankcoreDeploymentState, RankcoreRankManager

REPLICAS = 5
NODES = st.sampled_from(["n0", "n1", "n2"])


def rank(number, node_rank=0, local_rank=None):
    return ReplicaRank(rank=number, node_rank=node_rank, local_rank=number if local_rank is None else local_rank)


def stubs(names):
    return [SimpleNamespace(replica_id=SimpleNamespace(unique_id=name)) for name in names]


def ranks_of(manager):
    return {name: held.rank for name, held in manager.get_replica_ranks_mapping().items()}


def check(manager):
    """Serve's check of all that are there; returns whom it wants to be told."""
    moved = manager.check_rank_consistency_and_reassign_minimally(stubs(manager.get_replica_ranks_mapping()))
    return [each.replica_id.unique_id for each in moved]


def lowest(held):
    held = set(held)
    return next(number for number in range(len(held) + 1) if number not in held)


class ServeLike(RuleBasedStateMachine):
    """Replicas die and drain, and newcomers come up in any order, while the target stays what it is.

    Nobody ever has a rank that another has, or one beyond the target; and when all are back none of the ranks moves, which
    says that every replacement got one that was given up. Its node and local rank are the lowest that are free where it is,
    as in the core: those of a replica that has stopped are free at once, whether or not its rank waits for a successor.
    """

    def __init__(self):
        super().__init__()
        self.manager = RankcoreRankManager()
        self.running, self.starting, self.stopping = [], [], []
        self.nodes = {}  # where each replica is that has not stopped
        self.born = 0
        self.seats = {}  # of each newcomer: the ranks of those that were missing when it was made
        self.missing = set()
        for _ in range(REPLICAS):
            self.running.append(self.new())
            self.manager.assign_rank(self.running[-1], "n0")
            self.nodes[self.running[-1]] = "n0"

    def new(self):
        self.born += 1
        return f"r{self.born}"

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data):
        gone = data.draw(st.sampled_from(self.running))
        self.running.remove(gone)
        self.stopping.append(gone)
        self.missing.add(self.manager.get_replica_rank(gone).rank)

    @precondition(lambda self: self.stopping)
    @rule(data=st.data())
    def stop(self, data):
        gone = data.draw(st.sampled_from(self.stopping))
        self.stopping.remove(gone)
        self.manager.release_rank(gone)
        del self.nodes[gone]
        assert not self.manager.has_replica_rank(gone)

    @rule()
    def replace(self):
        """Serve's scaling: as many newcomers as are missing, at once, while others may still drain."""
        for _ in range(REPLICAS - len(self.running) - len(self.starting)):
            self.starting.append(self.new())
            self.seats[self.starting[-1]] = self.missing
        self.missing = set()
        self.manager.expect(self.starting, self.stopping)

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), node=NODES)
    def come_up(self, data, node):
        new = data.draw(st.sampled_from(self.starting))
        if not self.manager.must_wait(new):
            self.starting.remove(new)
            self.running.append(new)
            before = self.manager.get_replica_ranks_mapping()
            given = self.manager.assign_rank(new, node)
            assert given.rank in self.seats[new]
            node_ranks = {where: before[each].node_rank for each, where in self.nodes.items()}
            assert given.node_rank == node_ranks.get(node, lowest(node_ranks.values()))
            assert given.local_rank == lowest(before[each].local_rank for each, where in self.nodes.items() if where == node)
            self.nodes[new] = node

    @precondition(lambda self: self.starting)
    @rule(data=st.data())
    def fail_to_come_up(self, data):
        failed = data.draw(st.sampled_from(self.starting))
        self.starting.remove(failed)
        self.missing = self.missing | self.seats[failed]

    @precondition(lambda self: not self.starting and not self.stopping and len(self.running) == REPLICAS)
    @rule()
    def look(self):
        before = ranks_of(self.manager)
        told = check(self.manager)
        assert ranks_of(self.manager) == before
        assert sorted(before.values()) == list(range(REPLICAS))
        assert all(self.manager.get_replica_rank(each).rank == before[each] for each in told)

    @invariant()
    def ranks_are_unique_and_below_the_target(self):
        held = sorted(ranks_of(self.manager).values())
        assert len(set(held)) == len(held)
        assert all(0 <= each < REPLICAS for each in held)


ServeLike.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestServeLike = ServeLike.TestCase


@given(order=st.permutations([1, 3]))
def test_a_replacement_gets_the_rank_of_the_one_it_replaces_in_whichever_order_they_come_up(order):
    manager = RankcoreRankManager()
    for index in range(4):
        manager.assign_rank(f"r{index}", "n0")
    for crashed in (3, 1):  # one after the other, as a controller sees them
        manager.release_rank(f"r{crashed}")
        manager.expect([f"new-{each}" for each in (3, 1) if each >= crashed], leaving=[])
    assert {each: manager.assign_rank(f"new-{each}", "n1").rank for each in order} == {1: 1, 3: 3}


def test_the_replacements_of_a_lost_node_get_its_node_rank_and_not_one_beyond_the_nodes():
    manager = RankcoreRankManager()
    for name, node in (("a", "n0"), ("b", "n1"), ("c", "n1")):
        manager.assign_rank(name, node)
    for lost in ("b", "c"):
        manager.release_rank(lost)
    manager.expect(["new-b", "new-c"], leaving=[])
    given = [manager.assign_rank(each, "n2") for each in ("new-b", "new-c")]
    assert given == [rank(1, node_rank=1, local_rank=0), rank(2, node_rank=1, local_rank=1)]
    # What the core gives, which knows that the node is lost.
    table = RankTable()
    for name, node in (("a", "n0"), ("b", "n1"), ("c", "n1")):
        table, _ = table.assign(name, node)
    table = table.release("b").release("c")
    for name, ours in zip(("new-b", "new-c"), given, strict=True):
        table, core = table.assign(name, "n2")
        assert (core.rank, core.node_rank, core.local_rank) == (ours.rank, ours.node_rank, ours.local_rank)


@given(order=st.permutations(["new-b", "new-c", "third"]))
def test_who_succeeds_nobody_gets_no_rank_that_is_kept_for_a_successor(order):
    manager = RankcoreRankManager()
    for name, node in (("a", "n0"), ("b", "n1"), ("c", "n1")):
        manager.assign_rank(name, node)
    for lost in ("b", "c"):
        manager.release_rank(lost)
    manager.expect(["new-b", "new-c", "third"], leaving=[])
    assert {each: manager.assign_rank(each, "n2").rank for each in order} == {"new-b": 1, "new-c": 2, "third": 3}


def test_a_newcomer_waits_for_the_end_of_the_one_it_succeeds_and_for_nobody_else():
    manager = RankcoreRankManager()
    for name in ("a", "b"):
        manager.assign_rank(name, "n0")
    manager.expect(["after-b", "third"], leaving=["b"])
    assert (manager.must_wait("after-b"), manager.must_wait("third")) == (True, False)
    assert manager.assign_rank("third", "n0").rank == 2
    manager.release_rank("b")
    assert not manager.must_wait("after-b")
    assert manager.assign_rank("after-b", "n0").rank == 1


@given(size=st.integers(1, 6), ends=st.data())
def test_who_comes_after_a_downscale_even_to_nothing_gets_ranks_below_the_size(size, ends):
    manager = RankcoreRankManager()
    for index in range(size):
        manager.assign_rank(f"r{index}", "n0")
    for gone in (order := ends.draw(st.permutations(range(size)))):
        manager.release_rank(f"r{gone}")
    newcomers = [f"new-{index}" for index in range(ends.draw(st.integers(1, 8)))]
    manager.expect(newcomers, leaving=[])
    given = [manager.assign_rank(each, "n0").rank for each in newcomers]
    assert sorted(given) == list(range(len(newcomers)))
    if len(newcomers) >= size:
        assert given == [*order, *range(size, len(newcomers))]


@given(nodes=st.lists(NODES, min_size=1, max_size=8), down=st.data())
def test_after_a_downscale_only_those_beyond_the_size_are_told_another_rank(nodes, down):
    manager = RankcoreRankManager()
    for index, node in enumerate(nodes):
        manager.assign_rank(f"r{index}", node)
    for gone in down.draw(st.sets(st.sampled_from(sorted(manager.get_replica_ranks_mapping())), max_size=len(nodes) - 1)):
        manager.release_rank(gone)
    before = ranks_of(manager)
    told = set(check(manager))
    after = ranks_of(manager)
    assert sorted(after.values()) == list(range(len(before)))
    assert {each for each in before if before[each] != after[each]} == {each for each in before if before[each] >= len(before)}
    assert {each for each in before if before[each] != after[each]} <= told
    assert check(manager) == []


@given(reports=st.lists(st.tuples(NODES, st.builds(rank, *[st.integers(0, 4)] * 3) | st.none()), min_size=1, max_size=8))
def test_the_first_to_report_a_rank_keeps_it_and_whoever_has_to_believe_another_is_told(reports):
    manager = RankcoreRankManager()
    for index, (node, believed) in enumerate(reports):
        manager.recover_rank(f"r{index}", node, believed)
    first = {believed.rank: f"r{index}" for index, (_, believed) in reversed(list(enumerate(reports))) if believed}
    assert {number: name for name, number in ranks_of(manager).items()}.items() >= first.items()
    told = check(manager)
    held = manager.get_replica_ranks_mapping()
    assert sorted(each.rank for each in held.values()) == list(range(len(reports)))
    assert set(told) == {f"r{index}" for index, (_, believed) in enumerate(reports) if held[f"r{index}"] != believed}
    for node in {node for node, _ in reports}:
        there = [held[f"r{index}"] for index, (where, _) in enumerate(reports) if where == node]
        assert sorted(each.local_rank for each in there) == list(range(len(there)))
        assert len({each.node_rank for each in there}) == 1


def test_the_seat_of_a_duplicate_that_dies_before_the_check_goes_to_its_successor():
    manager = RankcoreRankManager()
    for name, believed in (("a", rank(0)), ("b", rank(0, local_rank=1)), ("c", rank(2))):
        manager.recover_rank(name, "n0", believed)
    manager.release_rank("b")
    manager.recover_rank("d", "n0", rank(1))  # where the second of the two was to go
    assert manager.assign_rank("new", "n0").rank == 3
    assert sorted(ranks_of(manager).values()) == [0, 1, 2, 3]


def test_a_mistake_is_an_error_that_changes_nothing_whatever_the_setting():
    manager = RankcoreRankManager(fail_on_rank_error=False)
    manager.assign_rank("a", "n0")
    manager.assign_rank("gone", "n0")
    manager.release_rank("gone")
    before = manager.get_replica_ranks_mapping()
    for unknown in ("nobody", "gone"):
        with pytest.raises(UnknownReplicaError, match=unknown):
            manager.get_replica_rank(unknown)
        with pytest.raises(UnknownReplicaError, match=unknown):
            manager.release_rank(unknown)
    for call in (manager.assign_rank, lambda *where: manager.recover_rank(*where, rank(4))):
        with pytest.raises(DuplicateRankError):
            call("a", "n0")
    with pytest.raises(UnknownReplicaError):
        manager.check_rank_consistency_and_reassign_minimally(stubs(["a", "nobody"]))
    manager.assign_rank("b", "n0")
    with pytest.raises(RankError):
        manager.check_rank_consistency_and_reassign_minimally(stubs(["a"]))
    manager.release_rank("b")
    assert manager.get_replica_ranks_mapping() == before
    manager.clear()
    assert manager.get_replica_ranks_mapping() == {}


def test_it_has_the_shape_of_the_original():
    for name, theirs in inspect.getmembers(DeploymentRankManager, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            ours = inspect.signature(getattr(RankcoreRankManager, name)).parameters
            assert list(ours) == list(inspect.signature(theirs).parameters), name


class Replicas(dict):
    """What the deployment state asks of Serve's container of replicas: name -> state."""

    def get(self, states):
        return [SimpleNamespace(replica_id=SimpleNamespace(unique_id=name)) for name, state in self.items() if state in states]

    def count(self, states):
        return len(self.get(states))


def test_no_newcomer_is_ranked_before_all_have_reported_and_its_predecessor_has_ended():
    state = object.__new__(RankcoreDeploymentState)
    state._rank_manager, state._replicas = RankcoreRankManager(), Replicas()

    def held():
        return [each.unique_id for each in state._without_a_rank_yet()]

    state._replicas.update(old=ReplicaState.RECOVERING, new=ReplicaState.STARTING)
    assert held() == ["new"]
    state._rank_manager.recover_rank("old", "n0", rank(0))
    state._replicas["old"] = ReplicaState.STOPPING
    assert held() == []  # nobody said that it succeeds anybody
    state._rank_manager.expect(["new"], ["old"])
    assert held() == ["new"]
    state._rank_manager.release_rank("old")
    assert held() == []
    state._rank_manager.assign_rank("new", "n0")
    state._replicas["other"] = ReplicaState.RECOVERING
    assert held() == []  # it has its rank already, and goes on starting
