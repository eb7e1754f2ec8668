"""When gaps are closed, and how it is told: each that has to move gets one message for all three levels (R8).

`rankcore.compaction` says who moves where, and has the theory. What is added here is the time between a command and its
acknowledgement. Numbers as at the lines:

1. A mover that owes an acknowledgement is waited for: with a third number on its way nobody could say which two it believes.
   Until it has answered, or is gone, the question is not asked again.
2. A duplicate's loser holds no rank; it gets one first, since a gap that a survivor took would be missing for it.
3. A number that somebody may still believe is no gap (R3). At rest, everybody above is moved in one go or nobody yet:
   with the gap that is waited for, a mover might have to move a second time. "immediate" does not wait.
4. A gap on a node that nobody can move into now is looked at again when a replica leaves that node or acknowledges.
5. A mover whose own user_config is not known, after a recovery, is told the wanted one with its ranks. Where those are rolled
   out that takes a part of the budget, so it waits for its turn (`configure`), and moves after that.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter

from rankcore.book import nodes, replicas, slots
from rankcore.compaction import Level, Shift, close_gaps
from rankcore.draft import Draft
from rankcore.frozen import EMPTY, PMap
from rankcore.notes import RANK_MOVED
from rankcore.rules import overlap
from rankcore.rules.configure import takes_config_along
from rankcore.rules.messages import reconfigure
from rankcore.state import Node, Replica, oldest_first
from rankcore.values import DRAINING, ReplicaId, ReplicaRank


def compact(draft: Draft, at_rest: bool) -> None:
    """Close the gaps. Called when the deployment is at rest, and at every step if the spec says so."""
    if draft.compaction_waits_for:
        return  # 1
    if draft.spec.static_placement is not None:
        return  # ranks are bound to bundles, and whoever shares those knows them by rank (S6)
    if draft.recovery.losers:
        return  # 2
    for node_id in draft.touched:
        if not draft.nodes[node_id].has_gap:
            draft.touched = draft.touched.delete(node_id)
    target, above = draft.spec.target_replicas, _above(draft)
    first = next(above, None)
    nodes_beyond = draft.node_ranks.taken.highest() >= draft.nodes_by_staying.size
    if not (draft.touched or nodes_beyond or first is not None):
        return
    free = draft.taken.taken.free_below(target) if first is not None else ()
    free_node_ranks = draft.node_ranks.taken.free_below(draft.nodes_by_staying.size) if nodes_beyond else ()
    above = chain(() if first is None else (first,), above)  # found once: many who only leave may stand before it
    shift = close_gaps(
        Level(above, free, lambda rank: slots.holder_of(draft, rank).replica_id),
        Level(_nodes_above(draft), free_node_ranks, draft.node_of_rank.__getitem__),
        (_locals(draft, draft.nodes[node_id]) for node_id in oldest_first(draft.touched)),
        lambda node_id: (replica.replica_id for replica in _ranked(draft, draft.nodes[node_id])),
    )
    movers = sorted([draft.replicas[replica_id] for replica_id in shift.movers()], key=attrgetter("birth"))
    owing = {mover.replica_id: mover.birth for mover in movers if mover.pending is not None}
    draft.compaction_waits_for = PMap(owing)  # 1
    if draft.rollout.stale_config and any(takes_config_along(draft, mover) for mover in movers):
        return  # 5
    if owing or (at_rest and next(above, None) is not None):
        return  # 3
    for node_id, node_rank in shift.node_ranks.items():
        nodes.set_node_rank(draft, node_id, node_rank)
    for replica in movers:
        _move(draft, replica, shift)
    draft.touched = EMPTY  # 4


def _above(draft: Draft) -> Iterator[int]:
    """Global ranks of running replicas that are >= N, ascending; none where no rank below N is free for any of them.

    They may be many, and free ranks few: take no more of them than can move.
    """
    target = draft.spec.target_replicas
    if draft.taken.lowest_free() >= target:
        return iter(())
    return (rank for rank in draft.taken.taken.members_from(target) if _is_running(draft, rank))


def _is_running(draft: Draft, rank: int) -> bool:
    slot = draft.slots.get(rank)
    return slot is not None and slot.holder is not None and draft.replicas[slot.holder].state in slots.RUNNING


def _nodes_above(draft: Draft) -> Iterator[int]:
    """Ranks >= M of nodes where somebody stays, ascending."""
    for node_rank in draft.node_ranks.taken.members_from(draft.nodes_by_staying.size):
        node_id = draft.node_of_rank.get(node_rank)
        if node_id is not None and draft.nodes[node_id].staying:
            yield node_rank


def _locals(draft: Draft, node: Node) -> Level[ReplicaId]:
    bound = node.staying
    by_local = {r.told.local_rank: r.replica_id for r in _ranked(draft, node) if r.told is not None}
    return Level(
        sorted(number for number in by_local if number >= bound), node.locals.taken.free_below(bound), by_local.__getitem__
    )


def _ranked(draft: Draft, node: Node) -> list[Replica]:
    return [each for each in draft.those(node.members) if each.told is not None and each.state is not DRAINING]


_BOUNDS: dict[str, Callable[[Draft, Replica], str]] = {
    "local_rank": lambda draft, mover: f"the {draft.nodes[mover.node_id or ''].staying} replicas on {mover.node_id}",
    "node_rank": lambda draft, _: f"the {draft.nodes_by_staying.size} nodes in use",
    "rank": lambda draft, _: f"the world size {draft.spec.target_replicas}",
}


def _move(draft: Draft, replica: Replica, shift: Shift[ReplicaId]) -> None:
    told, replica_id = replica.told, replica.replica_id
    assert told is not None, f"{replica.replica_id} is to move, and has no rank"
    to = ReplicaRank(
        shift.ranks.get(replica_id, told.rank),
        shift.node_ranks.get(replica.node_id or "", told.node_rank),
        shift.local_ranks.get(replica_id, told.local_rank),
    )
    if to.rank != replica.slot:
        replica = replicas.move_slot(draft, replica, to.rank)
        if to.rank in draft.rollout.surging:  # below the partition nobody is to be succeeded
            overlap.check_successor(draft, to.rank)
    reconfigure(draft, replica, to, replica.config_id)
    levels = [(name, bound, getattr(told, name), getattr(to, name)) for name, bound in _BOUNDS.items()]
    moved = [each for each in levels if each[2] != each[3]]
    because = "; ".join([f"{name} {a} is beyond {bound(draft, replica)}, and {b} is free" for name, bound, a, b in moved])
    draft.note(RANK_MOVED, "R8", replica.replica_id, because, before=told, after=to)
