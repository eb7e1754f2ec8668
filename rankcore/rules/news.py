"""What replicas say of themselves while they live: placed, ready, reconfigured, not reconfigured, unhealthy."""

from msgspec.structs import replace

from rankcore.book import nodes, readiness, replicas, slots
from rankcore.commands import KillReplica, QueryReplica, ReconfigureReplica
from rankcore.draft import Draft
from rankcore.events import (
    Event,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaUnhealthy,
)
from rankcore.lifecycle import REPLICA_MOVES
from rankcore.notes import MOVE_ACKNOWLEDGED, REPLICA_RUNNING, NoteKind
from rankcore.rules import evict, leaving, prepare, static, unready
from rankcore.rules.bind import go_without, wait_again
from rankcore.rules.configure import notice_config
from rankcore.rules.endings import ended
from rankcore.rules.failures import count_failure
from rankcore.rules.prove import prove
from rankcore.rules.unready import late
from rankcore.state import Replica, Waiting, without
from rankcore.timers import NO_TIMER
from rankcore.values import FAILED, PLACED, REQUESTED, ReplicaId, ReplicaState


def stranger(draft: Draft, event: Event, replica_id: ReplicaId) -> None:
    """News of a live replica that nobody here knows: it must not live on with a rank that is not in the book (R3)."""
    draft.note(NoteKind.UNKNOWN_REPLICA, "2", replica_id, f"{type(event).__name__} of a replica that is not in the book")
    draft.commands.append(KillReplica(replica_id, draft.epoch))


def on_placed(draft: Draft, event: ReplicaPlaced, replica: Replica) -> None:
    """A requested replica is on a node, where it can be initialised, unless that node is lost by now."""
    state = REPLICA_MOVES.get((replica.state, ReplicaPlaced))
    if state is None or replica.node_id is not None:
        return late(draft, event, replica)
    if replica.reserved_node_id is not None:
        nodes.unreserve(draft, replica.reserved_node_id, replica.replica_id)
    node = draft.nodes.get(event.node_id)
    replicas.disarm_start_timer(draft, replica)
    placed = replace(
        replica,
        state=state,
        node_id=event.node_id,
        pending=None if state is PLACED else replica.pending,
        seen_at=event.at,
        reserved_node_id=None,
        start_timer=NO_TIMER,
        waiting=None,
    )
    if state is PLACED:
        replicas.answered(draft, placed)
    else:
        replicas.write(draft, placed)
    nodes.join(draft, placed)
    holds = slots.is_holder(draft, placed)
    if holds and placed.slot is not None:
        slots.forget_requested(draft, placed.slot)
    if node is not None and event.at <= node.lost_at:
        # The node was lost after the replica came there, and the news overtook each other.
        static.lose_with_node(draft, placed, event.node_id, node.lost_at)
        return ended(draft, placed, f"node {event.node_id} was lost", node_lost=True)
    if state is PLACED:
        assert placed.slot is not None, f"{placed.replica_id} was started for no slot"
        if holds:
            draft.placed = draft.placed.set(placed.replica_id, placed.birth)
        else:
            prepare.await_preparation(draft, placed, placed.slot)
    if node is not None and node.cordoned:
        evict.notice_placed(draft, placed)


def on_ready(draft: Draft, event: ReplicaReady, replica: Replica) -> None:
    """A starting replica can take requests; it also acknowledges its initialisation."""
    if (replica.state, ReplicaReady) not in REPLICA_MOVES:
        return unready.on_ready_again(draft, event, replica)
    become_ready(draft, replica, event.at)


def become_ready(draft: Draft, replica: Replica, at: float, reason: str | None = None) -> None:
    """A starting replica takes requests from now on, unless it is unready, for this reason or one that is known.

    It may still owe the acknowledgement of a move (section 2.4).
    """
    state = REPLICA_MOVES[replica.state, ReplicaReady]
    moving = type(replica.pending) is ReconfigureReplica
    if reason is not None or replica.unready is not None:
        replica = replicas.write(draft, replace(replica, **unready.newest_of(replica, at, reason)))
    begins = readiness.begin(draft, replica)
    known_at = replica.readiness_at
    runs = replace(
        replica,
        state=REPLICA_MOVES[state, ReconfigureReplica] if moving else state,
        pending=replica.pending if moving else None,
        routed=replica.unready is None,
        readiness_at=at if at > known_at else known_at,
        **begins,
    )
    if moving:
        replicas.write(draft, runs)
    else:
        replicas.answered(draft, runs)
    replicas.begin_to_run(draft, replica, runs)
    prove(draft, runs)
    notice_config(draft, runs)
    draft.note(REPLICA_RUNNING, "2.2", runs.replica_id, after=runs.rank)


def on_reconfigured(draft: Draft, event: ReplicaReconfigured, replica: Replica) -> None:
    """An acknowledgement counts only for the latest revision: an older one may have crossed a newer command (R3)."""
    if event.revision != replica.revision or not (replica.believed or type(replica.pending) is ReconfigureReplica):
        return late(draft, event, replica)
    state = REPLICA_MOVES.get((replica.state, ReplicaReconfigured))
    if state is None:
        # It is leaving, but what it gave up is free all the same.
        replicas.believe(draft, replica, replicas.write(draft, replace(replica, believed=())))
        return
    acknowledge(draft, replica, state)


def acknowledge(draft: Draft, replica: Replica, state: ReplicaState) -> None:
    """It has adopted what it was told last: what it believed before is free, and a duplicate's loser has its rank."""
    before = replica
    if replica.replica_id not in draft.recovery.misplaced:  # else it was told a user_config: it has its node's rank to come
        draft.recovery = replace(draft.recovery, disputed=without(draft.recovery.disputed, replica.replica_id))
    begins = state in slots.RUNNING and replica.ready_at is None
    ready = readiness.begin(draft, replica) if begins else {}
    if begins:
        replicas.disarm_start_timer(draft, replica)
    replica = replicas.answered(draft, replace(replica, state=state, pending=None, believed=(), rank=replica.told, **ready))
    if state in slots.RUNNING:
        prove(draft, replica)
    else:
        # It was found starting: only a question, repeated, makes up for a ReplicaReady that is lost.
        replica = replicas.ask(draft, replica, QueryReplica(replica.replica_id, draft.epoch))
    if before.believed:
        assert replica.node_id is not None, f"{replica.replica_id} was told a rank, and is on no node"
        replicas.believe(draft, before, replica)
        draft.touched = draft.touched.set(replica.node_id, draft.nodes[replica.node_id].index)
        draft.note(MOVE_ACKNOWLEDGED, "R3", replica.replica_id, after=replica.rank)


def on_reconfigure_failed(draft: Draft, event: ReplicaReconfigureFailed, replica: Replica) -> None:
    """Kill a replica whose `reconfigure` raised, and count it as a start failure."""
    if event.revision != replica.revision or type(replica.pending) is not ReconfigureReplica:
        return late(draft, event, replica)
    # What it believes is unknown, so that both ranks stay taken until it is gone.
    because = f"reconfigure failed: {event.reason}"
    count_failure(draft, replica, because)
    leaving.kill(draft, draft.replicas[replica.replica_id], "2.3", because)


def on_pending(draft: Draft, event: ReplicaPending, replica: Replica) -> None:
    """Without room, a successor is waited for no longer (V2), and the rank of who holds a slot may be starved (V18).

    That there is room by now takes both back. Another reason is told, and changes nothing else.
    """
    known, rank = replica.waiting, replica.slot
    if replica.state is not REQUESTED or rank is None or (known is not None and event.at < known.said_at):
        return late(draft, event, replica)
    before = replica.no_room_since
    since = (draft.clock if before is None else before) if event.no_room else None
    replica = replicas.write(draft, replace(replica, waiting=Waiting(since, event.at, event.reason)))
    if event.accepted:
        replica = replicas.accepted(draft, replica)
    because = "there is no room for it" if event.no_room else "there is room for it"
    if event.reason:
        because = f"{because}: {event.reason}"
    if slots.is_successor(draft, replica):
        if event.no_room and rank not in draft.rollout.stoppable:
            go_without(draft, replica, because)
        elif before is not None and not event.no_room and rank in draft.rollout.stoppable:
            wait_again(draft, replica, because)
            prepare.look_for_room_again(draft)
        return
    draft.roomless = draft.roomless.add(rank) if event.no_room else draft.roomless.discard(rank)
    is_said_anew = bool(event.reason) and (known is None or event.reason != known.reason)
    if is_said_anew or (before is None) is not (since is None):
        waits = "waits for a place" if event.no_room else "has its place made ready"
        draft.note(NoteKind.WAITING, "V18", replica.replica_id, f"{replica.replica_id} {waits}: {because}", rank=rank)


def on_unhealthy(draft: Draft, event: ReplicaUnhealthy, replica: Replica) -> None:
    """Kill a suspect; its slot waits until it is known to be gone (R6)."""
    if type(replica.pending) is KillReplica or replica.state is FAILED:
        return late(draft, event, replica)
    because = f"unhealthy: {event.reason}"
    count_failure(draft, replica, because)
    leaving.kill(draft, draft.replicas[replica.replica_id], "2.3", because)
