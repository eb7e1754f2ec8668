"""Who gets room on which node: in the order of arrival, and without a look at the whole line for each who joins it."""

from collections import Counter

import attrs
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.cluster.nodes import Cluster, SimulatedNode

NODES = ("n-0", "n-1", "n-2")


@attrs.define(eq=False)
class Want:
    """A claim that counts how often it is looked at."""

    number: int
    gpus: int
    node_id: str | None = None
    memory_mb: int = 0
    looks: int = 0
    node: SimulatedNode | None = None

    @property
    def wanted_node_id(self) -> str | None:
        self.looks += 1
        return self.node_id

    def placed_on(self, node: SimulatedNode) -> None:
        self.node = node


class NaiveLine:
    """The rule in as few words as it takes: after each change, try all in the order in which they came."""

    def __init__(self) -> None:
        self.free = dict.fromkeys(NODES, 4)
        self.down: set[str] = set()
        self.waiting: list[Want] = []
        self.placed: dict[int, str] = {}

    def serve(self) -> None:
        blocked = False
        for want in list(self.waiting):
            if want.node_id is None and blocked:
                continue
            able = [
                node_id
                for node_id in NODES
                if want.node_id in (None, node_id) and node_id not in self.down and self.free[node_id] >= want.gpus
            ]
            if not able:
                blocked = blocked or want.node_id is None
                continue
            chosen = max(able, key=lambda node_id: self.free[node_id])
            self.free[chosen] -= want.gpus
            self.waiting.remove(want)
            self.placed[want.number] = chosen


WANTS = st.tuples(st.just("claim"), st.integers(1, 4), st.sampled_from((None, None, *NODES)))
OTHERS = st.tuples(st.sampled_from(("withdraw", "give_back")), st.integers(0, 30))
SWITCHES = st.tuples(st.just("switch"), st.sampled_from(NODES))


@given(st.lists(st.one_of(WANTS, WANTS, OTHERS, SWITCHES), max_size=40))
def test_room_is_given_in_the_order_of_the_line(moves):
    told: Counter[str] = Counter()
    cluster = Cluster([SimulatedNode(node_id, 4) for node_id in NODES], lambda node: told.update([node.node_id]))
    naive, wants = NaiveLine(), []
    for kind, *arguments in moves:
        if kind == "claim":
            want = Want(len(wants), arguments[0], arguments[1])
            wants.append(want)
            naive.waiting.append(want)
            naive.serve()
            cluster.claim(want)
        elif kind == "switch":
            node = cluster.nodes[arguments[0]]
            node.faults ^= 1
            naive.down ^= {node.node_id}
            naive.serve()
            cluster.serve_waiting()
        elif wants:
            want = wants[arguments[0] % len(wants)]
            if kind == "withdraw":
                was_waiting = want in naive.waiting
                naive.waiting = [each for each in naive.waiting if each is not want]
                naive.serve()
                assert cluster.withdraw(want) == was_waiting
            elif (node := want.node) is not None:
                naive.free[naive.placed.pop(want.number)] += want.gpus
                naive.serve()
                want.node = None
                cluster.give_back(node, want)
        assert {want.number: want.node.node_id for want in wants if want.node is not None} == naive.placed
        assert {node.node_id: node.free_gpus for node in cluster.nodes.values()} == naive.free
    assert set(told) >= set(naive.placed.values())


def test_who_waited_behind_one_who_gives_up_is_served_at_once():
    cluster = Cluster([SimulatedNode("n-0", 2)], lambda node: None)
    wants = [Want(number, gpus) for number, gpus in enumerate((1, 2, 1))]
    for want in wants:
        cluster.claim(want)
    assert [want.node is not None for want in wants] == [True, False, False]
    assert cluster.withdraw(wants[1])
    assert wants[2].node is not None


def test_of_a_long_line_nobody_is_looked_at_for_one_who_joins_it_or_for_room_that_the_first_does_not_fit():
    cluster = Cluster([SimulatedNode("n-0", 4)], lambda node: None)
    small = Want(-1, 1)
    cluster.claim(small)
    line = [Want(number, 4) for number in range(500)]
    for want in line:
        cluster.claim(want)
    cluster.give_back(cluster.nodes["n-0"], Want(-2, 0))
    assert max(want.looks for want in line[1:]) <= 5
    assert all(want.node is None for want in line)
