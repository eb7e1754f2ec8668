"""Displacement: the cheapest sufficient set of victims over all nodes and all choices of their GPUs (T4, T5).

**What.** A newcomer fits nowhere. Some replicas may be displaced for it (`is_permitted`), each at a cost: the bytes that have
to be loaded again, times its priority, more for what it has in flight and for recent use. Wanted is the set of victims that
makes room at the least cost, wherever that is. On one node `cover` finds it; this module says which nodes to look at.

**How.** Best first. For each node there is a lower bound of what any displacement there costs, kept in order by the index
(`_bounds`), so nodes come cheapest bound first. A search can stop at the first node whose bound exceeds what was found: no
later one is cheaper. The cost of recent use fades with time and would reorder the shelf at every tick, so each node stands in
two orders, one without recent use and one with it as of time 0, from which the most that can have faded since is taken off.
The larger of the two bounds holds. A node that neither order has shown yet is in the rest of both, which is why one merged
pass over the two misses nothing. Only nodes where somebody's turn is over (T13) stand in them: on a full cluster whose turns
are not, one that waits looks at none. A dedicated newcomer, for which no turn counts, has the order of all nodes by bytes.

**Why it ends, and what it costs.** Each node is looked at once at most. Once something was found, no more than `NODES_MAX`
nodes are searched, and `NODES_SEEN_MAX` looked at: beyond those the answer is a sufficient set, and `exact` says that it may
not be the cheapest. docs/residency.md has the times.

**Loads.** Who is being loaded serves nobody yet, and has no turn. It is a victim like others for a strictly higher priority
while at least half of its load is to come (T16): so less is thrown away than is still to be waited for. No load is
broken off for one that could be broken off for it, so this ends; and a model that has lost one load keeps the next, unless that
comes more than `reuse_horizon_s` later.

**What is not decided here.** That a victim leaves and what becomes of it: `leaving`. Nothing is changed while this module
looks, so a search that finds nothing has disturbed nothing (T7). A victim that becomes busy after it was chosen finishes what
it has (T9).
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import takewhile
from typing import NamedTuple

from rankcore.residency.cover import Cover, Victim, cheapest_cover
from rankcore.residency.fit import Place, degree_on, share
from rankcore.residency.index import Shape
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Phase
from rankcore.residency.room import HELD, NOBODY_TO_DISPLACE, degrees_of
from rankcore.residency.roster import is_over
from rankcore.residency.spec import ModelSpec, ResidencyPolicy
from rankcore.residency.state import ResidencyNode, Resident
from rankcore.values import NodeId, ReplicaId

NODES_MAX = 64
"""Nodes that are searched once a set has been found: exact for so many, and for as many more as the bounds rule out."""
NODES_SEEN_MAX = 512
"""Nodes that are looked at then, searched or not."""
ROUNDING_BYTES = 1024
"""What bounds from floats of recent use may be off by."""


class Need(NamedTuple):
    """What is looked for.

    Attributes:
        total_bytes: On all GPUs together.
        asked: The number of the request.
        shapes: The shapes of nodes that will do.
        excluded: Nodes that will not, whatever their shape.
    """

    spec: ModelSpec
    total_bytes: int
    asked: int
    shapes: tuple[Shape, ...]
    excluded: frozenset[NodeId]


class Displacement(NamedTuple):
    """What was found.

    Attributes:
        exact: Whether nothing cheaper can exist; else the limits of the search were met.
    """

    place: Place
    victims: tuple[ReplicaId, ...]
    cost_bytes: int
    exact: bool


def cost_of(record: Resident, spec: ModelSpec, policy: ResidencyPolicy, clock: float) -> int:
    """What it weighs to displace a replica: bytes to load again, requests in flight, recent use; each more is a byte more.

    At least what it holds, which is what lets most nodes go unsearched.
    """
    cost = record.held_bytes * (1 + spec.priority) + record.in_flight * policy.in_flight_cost_bytes
    age_s = clock - record.last_used
    if age_s < policy.recent_use_s:
        cost += int(policy.recent_cost_bytes * (policy.recent_use_s - age_s) / policy.recent_use_s)
    return cost


def is_permitted(victim: Resident, ledger: Ledger, need: Need) -> bool:
    """Whether a replica may be displaced for this need (T4)."""
    return (
        victim.model != need.spec.model
        and ledger.asked[victim.model] != need.asked
        and yields_to(victim, ledger, need.spec.priority, need.spec.dedicated)
    )


def yields_to(victim: Resident, ledger: Ledger, priority: int, dedicated: bool) -> bool:
    """Whether a replica may be displaced for some model of another request."""
    spec = ledger.models[victim.model]
    if victim.phase not in HELD or spec.dedicated or spec.priority > priority or ledger.promised(victim.replica_id):
        return False
    if victim.phase is Phase.LOADING:
        return spec.priority < priority and may_be_broken_off(victim, ledger)
    return dedicated or is_ripe(victim, ledger)


def may_be_broken_off(victim: Resident, ledger: Ledger) -> bool:
    """Whether half of a load at least is to come, and it is not the second of its model in a row that would be lost (T16).

    In a row: it has not been HOT since, and the other one was not more than `reuse_horizon_s` ago.
    """
    last = ledger.broken_off.get(victim.model)
    if last is not None and ledger.clock - last < ledger.policy.reuse_horizon_s:
        return False
    return 2.0 * (victim.hot_by - ledger.clock) >= victim.hot_by - victim.since


def is_ripe(victim: Resident, ledger: Ledger) -> bool:
    """Whether the turn of a replica that serves is over (T13)."""
    return is_over(victim, ledger.models[victim.model], ledger.clock)


def victims_on(node_id: NodeId, ledger: Ledger, need: Need) -> list[Victim]:
    """Who may be displaced on a node, and what each weighs."""
    found = []
    for record in ledger.on_gpus(node_id):
        if is_permitted(record, ledger, need):
            cost = cost_of(record, ledger.models[record.model], ledger.policy, ledger.clock)
            found.append(Victim(record.replica_id, cost, dict(zip(record.gpus, record.gpu_bytes, strict=True))))
    return found


def shortfalls(node: ResidencyNode, each_bytes: int) -> dict[int, int]:
    """What each GPU that is large enough lacks.

    None of one where more is held than it has: what victims give up would end the excess, whoever it was meant for.
    """
    usable = [(number, gpu) for number, gpu in enumerate(node.gpus) if gpu.real_bytes >= each_bytes and not gpu.excess_bytes]
    return {number: max(0, each_bytes - gpu.free_bytes) for number, gpu in usable}


def cheapest_displacement(ledger: Ledger, need: Need, among: Iterable[NodeId] | None = None) -> Displacement | None:
    """Find where, and by whom, room could be made.

    Args:
        ledger: The books as they are.
        need: What for.
        among: Only these nodes; None: all of the shapes.

    Returns:
        The cheapest; of equals the one with the fewest victims, then by node id, GPU numbers and replica ids. None: none
        suffices.
    """
    best: tuple[int, int, NodeId, Cover, int] | None = None
    searched = seen = 0
    exact = True
    for least, node_id in _bounds(ledger, need) if among is None else ((0, node_id) for node_id in among):
        if best is not None:
            if least > best[0]:
                break
            if searched >= NODES_MAX or seen >= NODES_SEEN_MAX:
                exact = False
                break
            seen += 1
        if node_id in need.excluded:
            continue
        node = ledger.nodes[node_id]
        degree = degree_on(node, need.spec, need.total_bytes)
        if degree is None:
            continue
        each_bytes = share(need.spec, need.total_bytes, degree)
        short = shortfalls(node, each_bytes)
        lack = sum(sorted(short.values())[:degree])
        victims = victims_on(node_id, ledger, need)
        if not victims or (
            best is not None and lack + min([each.cost - sum(each.held.values()) for each in victims]) > best[0]
        ):
            continue
        searched += best is not None
        cover = cheapest_cover(victims, short, degree, best[0] if best is not None else None)
        if cover is not None:
            exact = exact and cover.exact
            found = (cover.cost, cover.size, node_id, cover, each_bytes)
            if best is None or found[:3] < best[:3]:
                best = found
    if best is None:
        return None
    cost, _, node_id, cover, each_bytes = best
    return Displacement(Place(node_id, cover.gpus, each_bytes), cover.victims, cost, exact)


def _bounds(ledger: Ledger, need: Need) -> Iterator[tuple[int, NodeId]]:
    """Nodes, each once, with what displacement costs at least on all that are yet to come."""
    faded = int(ledger.policy.recent_cost_bytes * ledger.clock / ledger.policy.recent_use_s)
    whole: list[Iterator[tuple[int, NodeId]]] = []
    steady: list[Iterator[tuple[int, NodeId]]] = []
    fading: list[Iterator[tuple[int, NodeId]]] = []
    for shape in need.shapes:
        for degree in degrees_of(shape, need.spec, need.total_bytes):
            shelf = ledger.shelf(shape, degree)
            total = degree * share(need.spec, need.total_bytes, degree)
            whole.append(_offset(iter(shelf.cheap), total))
            steady.append(_offset(iter(shelf.ripe), total))
            fading.append(_offset(iter(shelf.fresh), total - faded - ROUNDING_BYTES))
    if need.spec.dedicated:  # which waits for nobody's turn
        yield from takewhile(lambda each: each[0] <= NOBODY_TO_DISPLACE // 2, merge(*whole))
        return
    # Both orders hold the same nodes. One that neither has shown yet is in the rest of both: the larger bound holds for it.
    seen: set[NodeId] = set()
    for (least_steady, one), (least_fading, other) in zip(merge(*steady), merge(*fading), strict=True):
        least = max(least_steady, least_fading)
        for node_id in (one, other):
            if node_id not in seen:
                seen.add(node_id)
                yield least, node_id


def _offset(entries: Iterator[tuple[int, NodeId]], offset: int) -> Iterator[tuple[int, NodeId]]:
    return ((key + offset, node_id) for key, node_id in entries)
