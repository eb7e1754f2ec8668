"""Too few: who gets which rank, and when (R4, R6, section 2.5).

First the losers of duplicates, then the kept slots, then what is placed is initialised, then newcomers. On which node a replica
is started is chosen here only where ranks steer that: consecutive ranks on one node (R11).
"""

from msgspec.structs import replace

from rankcore.book import nodes, replicas, slots
from rankcore.commands import StartReplica
from rankcore.draft import Draft
from rankcore.events import TrialRequested
from rankcore.notes import LATE, RANK_CHOSEN, RANK_GIVEN, RANK_INHERITED, RANK_MOVED, NoteKind
from rankcore.placement import ANYWHERE
from rankcore.rules import budget, leaving, overlap, static
from rankcore.rules.messages import reconfigure
from rankcore.spec import DeploymentSpec
from rankcore.state import Node, Replica, without
from rankcore.values import DEPLOY_FAILED, RELEASE, REQUESTED, NodeId, ReplicaRank

PACK = "pack_ranks"


def fill(draft: Draft) -> None:
    """Bring the slots up to the target, and their holders to life."""
    if draft.recovery.losers:
        for loser in draft.those(draft.recovery.losers):
            rank = _rank_for_loser(draft, loser)
            if rank is not None:
                _move_loser(draft, loser, rank)
    if draft.ready.size and draft.recipe is not None:
        _start_kept(draft)
    if draft.placed:  # where there is no recipe, it was asked for once more
        for placed in draft.those(draft.placed):
            _initialize(draft, placed)
    if (len(draft.slots) < draft.spec.target_replicas or draft.waiting or draft.ready.size) and draft.recipe is not None:
        _start_newcomers(draft)


def on_trial_requested(draft: Draft, _event: TrialRequested) -> None:
    """Start one replica on a build that was given up, where there is none and nothing that works is known (section 2.3).

    The deployment stays DEPLOY_FAILED. If the replica becomes ready, its build is proven, and the other slots are filled; if
    not, nothing follows from it.
    """
    cannot = draft.status is not DEPLOY_FAILED or draft.proven is not None or draft.replicas or not has_room(draft)
    if cannot or not draft.spec.target_replicas or _is_held_back(draft, 0):
        draft.note(LATE, "2.3", because=f"TrialRequested while {draft.status}")
        draft.idle = True
        return
    replica = start(draft, 0, draft.spec)
    if 0 in draft.slots:
        slots.seat(draft, 0, replica)
    else:
        slots.open_held(draft, 0, replica)
    draft.note(RANK_CHOSEN, "2.3", replica.replica_id, "its version has failed, and is tried once more", rank=0)


def _rank_for_loser(draft: Draft, loser: Replica) -> int | None:
    """Its own, if nobody else has or believes that any more; else the lowest available; None: all are taken."""
    assert loser.told is not None, f"{loser.replica_id} lost a rank that it never reported"
    own, target = loser.told.rank, draft.spec.target_replicas
    if own < target and own not in draft.slots and draft.taken.count(own) == 1:
        return own
    rank = draft.taken.lowest_free()
    return rank if rank < target else None


def _move_loser(draft: Draft, loser: Replica, rank: int) -> None:
    assert loser.told is not None, f"{loser.replica_id} lost a rank that it never reported"
    assert loser.node_id is not None, f"{loser.replica_id} reported a rank, and no node"
    node = draft.nodes[loser.node_id]
    node_rank = _node_rank(draft, loser.node_id, node)
    if not nodes.believed_only_here(draft, loser.node_id, node_rank):
        return
    slots.open_slot(draft, rank)
    local_rank = loser.told.local_rank
    if node.locals.count(local_rank) > 1:
        local_rank = node.locals.lowest_free()
    to = ReplicaRank(rank, node_rank, local_rank)
    draft.recovery = replace(draft.recovery, losers=without(draft.recovery.losers, loser.replica_id))
    moved = reconfigure(draft, replicas.assign(draft, loser, slot=rank), to, loser.config_id)
    slots.seat(draft, rank, moved)
    because = "an older replica holds the rank that it reported"
    draft.note(RANK_MOVED, "R10", loser.replica_id, because, before=loser.told, after=to)


def _start_kept(draft: Draft) -> None:
    for rank in draft.ready:
        if not has_room(draft):
            break
        # A duplicate's loser may still believe this rank: then it is given to no third.
        if draft.taken.count(rank) == 1 and not _is_held_back(draft, rank):
            replica = start(draft, rank, draft.recipe_of(rank))
            slots.seat(draft, rank, replica)
            draft.note(RANK_INHERITED, "R6", replica.replica_id, "replaces its slot's last holder", rank=rank)


def _start_newcomers(draft: Draft) -> None:
    target = draft.spec.target_replicas
    # Ranks that have no slot yet, and nobody on the way to them.
    missing = target - len(draft.slots) - len(draft.recovery.losers) - len(draft.recovery.owed)
    while missing > 0:
        rank = draft.taken.lowest_free()
        if rank >= target or not has_room(draft):
            break
        missing -= 1
        if _is_held_back(draft, rank) or slots.would_rest(draft, rank):
            slots.open_slot(draft, rank, ready=False)
            continue
        replica = start(draft, rank, draft.recipe_of(rank))
        slots.open_held(draft, rank, replica)
        draft.note(RANK_CHOSEN, "R4", replica.replica_id, "the lowest available rank", rank=rank)
    without_room = draft.ready.size if draft.ready.size and not has_room(draft) else 0
    waiting = max(0, missing) + without_room
    if waiting != draft.waiting:
        draft.waiting = waiting
        if waiting:
            full = without_room or draft.taken.lowest_free() < target
            blocked = "no node has room" if full else f"all ranks below {target} are taken"
            draft.note(NoteKind.WAITING, "R4", because=f"{waiting} replicas to be started wait: {blocked}")


def _is_held_back(draft: Draft, rank: int) -> bool:
    return draft.spec.static_placement is not None and static.holds_back(draft, rank)


def has_room(draft: Draft) -> bool:
    """Whether a replica can be started now. Without a placement policy the executor finds the room, or waits for it."""
    return draft.spec.placement != PACK or bool(draft.nodes_by_room)


def choose_node(draft: Draft, rank: int) -> NodeId:
    """The node for a rank: next to its neighbours in rank, else where most fits. Ask only while there is room."""
    for neighbour in (rank - 1, rank + 1):
        slot = draft.slots.get(neighbour)
        holder = draft.replicas[slot.holder] if slot is not None and slot.holder is not None else None
        node_id = (holder.node_id or holder.reserved_node_id) if holder is not None else None
        if node_id is not None and draft.nodes[node_id].room:
            return node_id
    most = max(room for room, _ in draft.nodes_by_room.items())
    return draft.node_ids[draft.nodes_by_room[most].lowest()]


def start(draft: Draft, rank: int, started_with: DeploymentSpec) -> Replica:
    """Ask for a new replica for a slot. The caller seats it, or makes it the holder's successor."""
    node_id = choose_node(draft, rank) if draft.spec.placement == PACK else None  # None: the executor is free to choose
    replica_id = replicas.new_id(draft)
    group_id, bundles = draft.spec.place_of(rank) if draft.spec.static_placement is not None else ANYWHERE
    version, token = started_with.version, started_with.restart_token
    command = StartReplica(replica_id, rank, version, node_id, bundles, draft.epoch, group_id, token)
    now = draft.clock
    replica = Replica(
        replica_id,
        draft.next_birth,
        REQUESTED,
        version,
        slot=rank,
        pending=command,
        sent_at=now,
        repeat_timer=replicas.give(draft, replica_id, command),
        since=now,
        reserved_node_id=node_id,
        bundles=bundles,
        group_id=group_id,
        restart_token=token,
    )
    replicas.add(draft, replica)
    if node_id is not None:
        nodes.reserve(draft, node_id, replica)
    return replica


def _initialize(draft: Draft, replica: Replica) -> None:
    node_id = replica.node_id
    assert node_id is not None, f"{replica.replica_id} is placed on no node"
    assert replica.slot is not None, f"{replica.replica_id} was started for no slot"
    started_with = draft.recipe_of(replica.slot)
    if not replica.is_of(started_with) and not overlap.adopts_all_the_same(draft, replica):
        return
    if replica.slot >= draft.spec.target_replicas:
        moved = _take_lower_slot(draft, replica)
        if moved is None or moved.slot is None:
            return
        replica, started_with = moved, draft.recipe_of(moved.slot)
    rank = replica.slot
    if rank is None or draft.taken.count(rank) > 1:
        return
    node = draft.nodes[node_id]
    node_rank = _node_rank(draft, node_id, node)
    if draft.recovery.disputed and not nodes.believed_only_here(draft, node_id, node_rank):
        return
    ranks = ReplicaRank(rank, node_rank, node.locals.lowest_free())
    overlap.initialize(draft, replica, ranks, started_with)
    draft.placed = without(draft.placed, replica.replica_id)
    draft.note(RANK_GIVEN, "R4", replica.replica_id, f"placed on {node_id}", after=ranks)


def _take_lower_slot(draft: Draft, replica: Replica) -> Replica | None:
    """Nobody is initialised with a rank beyond the world size (R4): take the lowest that is for its generation, or wait."""
    before, free = replica.slot, draft.taken.taken.free_below(draft.spec.target_replicas)
    rank = next((each for each in free if replica.is_of(draft.recipe_of(each))), None)
    if before is None or rank is None:
        _give_up_unless_one_may_come_free(draft, replica)
        return None
    moved = replicas.move_slot(draft, replica, rank)
    draft.note(NoteKind.SLOT_CHANGED, "R6", replica.replica_id, f"rank {before} is beyond the world size", rank=rank)
    return moved


def _give_up_unless_one_may_come_free(draft: Draft, replica: Replica) -> None:
    """Below the world size all ranks without a slot are on the other side of the partition: a newcomer is to have one (V12)."""
    target = draft.spec.target_replicas
    open_ranks = (rank for rank in range(target) if rank not in draft.slots)
    if any(replica.is_of(draft.recipe_of(rank)) for rank in open_ranks):
        return
    because = f"rank {replica.slot} is beyond the world size, and none below is for its generation"
    if budget.is_needed(draft, replica):
        _let_serve_without_slot(draft, replica, because)
    else:
        leaving.stop(draft, replica, RELEASE, "V12", because)


def _let_serve_without_slot(draft: Draft, replica: Replica, because: str) -> None:
    """Who takes requests without a rank, and is needed, does so until a newcomer is up: like one that a recovery found."""
    rank = replica.slot
    assert rank is not None, f"{replica.replica_id} holds no slot"
    draft.note(NoteKind.SLOT_GIVEN_UP, "V12", replica.replica_id, because, rank=rank)
    slots.close_slot(draft, rank)
    draft.placed = without(draft.placed, replica.replica_id)
    waiting = draft.recovery.prepared.set(replica.replica_id, replica.birth)
    draft.recovery = replace(draft.recovery, prepared=waiting)
    replicas.assign(draft, replica, slot=None)


def _node_rank(draft: Draft, node_id: str, node: Node) -> int:
    if node.node_rank is not None:
        return node.node_rank
    node_rank = draft.node_ranks.lowest_free()
    nodes.set_node_rank(draft, node_id, node_rank)
    return node_rank
