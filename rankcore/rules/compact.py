"""Gaps are closed with the least possible number of moves, at all three levels, each by one message (R8).

Forced to move are only replicas whose rank is >= N, whose local rank is >= K, or whose node's rank is >= M. They move into
numbers that nobody holds or believes, and only when all of them have acknowledged what they were told before.
"""

from collections.abc import Iterator
from heapq import merge

from rankcore.book import nodes, replicas, slots
from rankcore.draft import Draft
from rankcore.notes import RANK_MOVED
from rankcore.rankset import NOTHING, RankSet, forced_moves
from rankcore.rules.messages import reconfigure
from rankcore.state import Birth, Node, Replica
from rankcore.values import NodeId, ReplicaRank


def compact(draft: Draft, settled: bool) -> None:
    """Close the gaps if this is the time for it: when the deployment has settled, or at once if the spec says so."""
    if draft.compaction_waits_for.size or not (settled or draft.spec.compaction == "immediate"):
        return
    if draft.spec.static_placement is not None:
        return  # ranks are bound to bundles, and whoever shares those knows them by rank (S6)
    if draft.losers.size:
        return  # a duplicate's loser has no rank to close a gap with; it gets one first
    if draft.touched.size:
        gappy = [index for index in draft.touched if _has_gap(draft, index)]
        draft.touched = RankSet.of(gappy) if gappy else NOTHING
    if not (draft.touched.size or draft.node_ranks.taken.highest() >= draft.nodes_used or _somebody_above(draft)):
        return
    moves: dict[Birth, dict[str, int]] = {}
    all_fit = _globals(draft, moves)
    renamed = _nodes(draft, moves)
    _locals(draft, moves)
    movers = {birth: draft.replicas[draft.ids[birth]] for birth in sorted(moves)}
    owing = [birth for birth, mover in movers.items() if mover.pending is not None]
    draft.compaction_waits_for = RankSet.of(owing) if owing else NOTHING
    # Where a gap is still believed, waiting for it saves somebody a second message; "immediate" does not wait.
    if owing or (settled and not all_fit):
        return
    for node_id, node_rank in renamed:
        nodes.set_node_rank(draft, node_id, node_rank)
    for birth, replica in movers.items():
        _move(draft, replica, moves[birth])
    # What could not be closed now is looked at again when a replica of that node leaves or acknowledges.
    draft.touched = NOTHING


def _globals(draft: Draft, moves: dict[Birth, dict[str, int]]) -> bool:
    """Moves of global ranks; returns whether everybody who has to move can."""
    if draft.taken.taken.highest() < draft.spec.target_replicas:
        return True
    above = _above(draft)
    for before, after in forced_moves(above, draft.taken.taken, draft.spec.target_replicas):
        moves.setdefault(slots.holder_of(draft, before).birth, {})["rank"] = after
    return next(above, None) is None


def _somebody_above(draft: Draft) -> bool:
    return draft.taken.taken.highest() >= draft.spec.target_replicas and next(_above(draft), None) is not None


def _above(draft: Draft) -> Iterator[int]:
    """Global ranks of running replicas that are >= N, ascending; none where no rank below N is free for any of them.

    They may be many, and free ranks few: take no more of them than can move.
    """
    target = draft.spec.target_replicas
    if draft.taken.lowest_free() >= target:
        return iter(())
    return merge(*(ranks.members_from(target) for _, ranks in draft.running.items() if ranks.highest() >= target))


def _nodes(draft: Draft, moves: dict[Birth, dict[str, int]]) -> list[tuple[NodeId, int]]:
    bound = draft.nodes_used
    renamed: list[tuple[NodeId, int]] = []
    if draft.node_ranks.taken.highest() < bound:
        return renamed
    for before, after in forced_moves(_nodes_above(draft, bound), draft.node_ranks.taken, bound):
        node_id = draft.node_of_rank[before]
        renamed.append((node_id, after))
        for replica in _ranked(draft, draft.nodes[node_id]):
            moves.setdefault(replica.birth, {})["node_rank"] = after
    return renamed


def _nodes_above(draft: Draft, bound: int) -> Iterator[int]:
    """Ranks >= M of nodes where somebody stays, ascending."""
    for node_rank in draft.node_ranks.taken.members_from(bound):
        node_id = draft.node_of_rank.get(node_rank)
        if node_id is not None and draft.nodes[node_id].staying.size:
            yield node_rank


def _has_gap(draft: Draft, index: int) -> bool:
    node = draft.nodes[draft.node_ids[index]]
    return node.locals.taken.highest() >= node.staying.size


def _locals(draft: Draft, moves: dict[Birth, dict[str, int]]) -> None:
    for index in draft.touched:
        node = draft.nodes[draft.node_ids[index]]
        bound = node.staying.size
        by_local = {r.told.local_rank: r for r in _ranked(draft, node) if r.told is not None}
        above = sorted(local_rank for local_rank in by_local if local_rank >= bound)
        for before, after in forced_moves(above, node.locals.taken, bound):
            moves.setdefault(by_local[before].birth, {})["local_rank"] = after


def _ranked(draft: Draft, node: Node) -> list[Replica]:
    members = [draft.replicas[draft.ids[birth]] for birth in node.staying]
    return [replica for replica in members if replica.told is not None]


def _cause(draft: Draft, replica: Replica, level: str, before: int, after: int) -> str:
    """Why a number has to change, and why into that one."""
    bounds = {
        "rank": f"the world size {draft.spec.target_replicas}",
        "node_rank": f"the {draft.nodes_used} nodes in use",
        "local_rank": f"the {draft.nodes[replica.node_id or ''].staying.size} replicas on {replica.node_id}",
    }
    return f"{level} {before} is beyond {bounds[level]}, and {after} is free"


def _move(draft: Draft, replica: Replica, changes: dict[str, int]) -> None:
    told = replica.told
    assert told is not None, f"{replica.replica_id} is to move, and has no rank"
    to = ReplicaRank(
        changes.get("rank", told.rank),
        changes.get("node_rank", told.node_rank),
        changes.get("local_rank", told.local_rank),
    )
    if to.rank != replica.slot:
        replica = replicas.move_slot(draft, replica, to.rank)
    reconfigure(draft, replica, to, replica.config_id)
    because = "; ".join(
        _cause(draft, replica, level, getattr(told, level), number) for level, number in sorted(changes.items())
    )
    draft.note(RANK_MOVED, "R8", replica.replica_id, because, before=told, after=to)
