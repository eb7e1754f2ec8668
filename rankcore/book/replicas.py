"""Replicas: adding, changing and removing one, with every index that follows from it."""

from typing import Any

from msgspec.structs import replace

from rankcore.book import bundles, nodes, readiness, routes, slots
from rankcore.book.nodes import GLOBAL, beliefs
from rankcore.commands import Command
from rankcore.draft import Draft
from rankcore.lifecycle import REPLICA_MOVES, Loss
from rankcore.state import Replica, Slot, Unready, without
from rankcore.timers import NO_TIMER, Sent
from rankcore.values import PREPARED, RELEASE, REQUESTED, ReplicaId


def new_id(draft: Draft) -> ReplicaId:
    """An id that no replica of this deployment had or will have: name, epoch and serial."""
    serial = draft.next_serial
    draft.next_serial = serial + 1
    return f"{draft.spec.name}#{draft.epoch}.{serial}"


def add(draft: Draft, replica: Replica) -> None:
    """Enter a replica that was just made, with the birth that was next."""
    draft.next_birth += 1
    draft.replicas = draft.replicas.set(replica.replica_id, replica)
    if replica.bundles:
        bundles.occupy(draft, replica)


def write(draft: Draft, new: Replica) -> Replica:
    """Put a replica's new record in place of its old one. What else that concerns is written by who makes it. Returns it.

    Records are made by their makers: handing on keywords, twice, takes six times as long (1.5 against 0.2 us, measured).
    """
    draft.replicas = draft.replicas.set(new.replica_id, new)
    return new


def answered(draft: Draft, new: Replica) -> Replica:
    """A replica has done what it was told, as its record says: that is not repeated, and compaction does not wait for it."""
    assert new.pending is None, f"{new.replica_id} has done what it was told, and is still told it"
    draft.unacknowledged = draft.unacknowledged.discard(new.repeat_timer)
    if draft.compaction_waits_for:
        draft.compaction_waits_for = without(draft.compaction_waits_for, new.replica_id)
    draft.replicas = draft.replicas.set(new.replica_id, new)
    return new


def begin_to_run(draft: Draft, old: Replica, new: Replica) -> None:
    """A replica has started: if it does not yet, it takes requests from now on, unless it is unready."""
    disarm_start_timer(draft, new)
    if new.unready is not None:
        draft.unready = draft.unready.set(new.replica_id, new.birth)
        if old.routed:
            routes.leave(draft, old)
        _follow_serving(draft, new)
    elif old.routed:
        routes.renew(draft, new.replica_id)
    else:
        begin_to_serve(draft, new)


def begin_to_serve(draft: Draft, new: Replica) -> None:
    """A replica takes requests from now on, as its new record says."""
    routes.enter(draft, new)
    if draft.rollout.unstarted.size:
        _follow_serving(draft, new)


def _follow_serving(draft: Draft, new: Replica) -> None:
    """An update replaces who serves, or has started, otherwise than who has not."""
    rank, rollout = new.slot, draft.rollout
    if rank is not None and rank in rollout.unstarted and draft.slots[rank].holder == new.replica_id:
        draft.rollout = replace(rollout, unstarted=rollout.unstarted.discard(rank), running=rollout.running.add(rank))


def become_unready(draft: Draft, old: Replica, unready: Unready, readiness_at: float) -> None:
    """A replica that runs takes no requests from now on, and is not available (V16)."""
    waits = readiness.suspend(draft, old)
    write(draft, replace(old, unready=unready, readiness_at=readiness_at, routed=False, **waits))
    draft.unready = draft.unready.set(old.replica_id, old.birth)
    routes.leave(draft, old)


def become_ready_again(draft: Draft, old: Replica, at: float) -> Replica:
    """A replica that was unready takes requests again, and has to be ready anew for `min_ready_s`. Returns its record."""
    draft.unready = draft.unready.delete(old.replica_id)
    ready = write(draft, replace(old, unready=None, readiness_at=at))
    # Who owes a user_config is ready with that.
    begins = {} if ready.ready_at is None else readiness.begin(draft, ready)
    serves = write(draft, replace(ready, routed=True, **begins))
    routes.enter(draft, serves)
    return serves


def begin_to_leave(draft: Draft, old: Replica, new: Replica) -> None:
    """A replica is told to go: it takes no requests, and is no longer among those that stay."""
    if old.routed:
        stop_serving(draft, old)
    elif old.state is PREPARED:
        readiness.end_prepared(draft, old)
    elif old.unready is not None:
        readiness.end(draft, old)
        draft.unready = without(draft.unready, old.replica_id)
    disarm_start_timer(draft, old)
    rank = new.slot
    if rank is not None and new.leaving is not RELEASE and draft.slots[rank].holder == new.replica_id:
        slots.forget_holder(draft, rank, old)
    _forget_waiting(draft, new.replica_id)
    nodes.begin_to_leave(draft, new)


def assign(draft: Draft, old: Replica, **changes: Any) -> Replica:
    """Let a replica have another slot, or none, or give its own back when it ends. Returns its new record."""
    new = write(draft, replace(old, **changes))
    retake(draft, old, new)
    if new.bundles and new.slot != old.slot:
        bundles.recheck_owners(draft, new)
    return new


def believe(draft: Draft, old: Replica, new: Replica) -> None:
    """A replica may believe other ranks than before."""
    retake(draft, old, new)
    nodes.believe(draft, old, new)


def remove(draft: Draft, old: Replica) -> None:
    """Forget a replica that has ended. Its slot, if it holds one, has to be vacated or closed first."""
    draft.replicas = draft.replicas.delete(old.replica_id)
    if old.routed:
        stop_serving(draft, old)
    elif old.state is PREPARED:
        readiness.end_prepared(draft, old)
    elif old.unready is not None:
        readiness.end(draft, old)
        draft.unready = without(draft.unready, old.replica_id)
    draft.unacknowledged = draft.unacknowledged.discard(old.repeat_timer)
    disarm_start_timer(draft, old)
    for rank in outside_slot(old):
        draft.taken = draft.taken.discard(rank)
    nodes.leave(draft, old)
    if old.bundles:
        bundles.vacate(draft, old)
    if old.reserved_node_id is not None:
        nodes.unreserve(draft, old.reserved_node_id, old.replica_id)
    _forget_waiting(draft, old.replica_id)
    if old.replica_id in draft.evictions.asked:
        draft.evictions = replace(draft.evictions, asked=draft.evictions.asked.delete(old.replica_id))
    recovery = draft.recovery
    if recovery.unreported or recovery.disputed or recovery.owed or recovery.prepared:
        names = ("unreported", "disputed", "owed", "prepared")
        sets = {name: without(getattr(recovery, name), old.replica_id) for name in names}
        draft.recovery = replace(recovery, **sets)


def fail(draft: Draft, old: Replica, rank: int) -> Replica:
    """Let a replica that has ended keep its slot, as FAILED, for as long as a bundle of its rank is lost (S5)."""
    slots.forget_holder(draft, rank, old)
    remove(draft, old)
    failed = Replica(
        old.replica_id,
        old.birth,
        REPLICA_MOVES[old.state, Loss.ENDED_WITHOUT_BUNDLE],
        old.version,
        slot=rank,
        since=draft.clock,
        bundles=old.bundles,
        group_id=old.group_id,
    )
    draft.replicas = draft.replicas.set(old.replica_id, failed)
    return failed


def forget_failed(draft: Draft, failed: Replica) -> None:
    """Take a FAILED replica out of the book; its slot has to be vacated or closed first."""
    draft.replicas = draft.replicas.delete(failed.replica_id)


def _forget_waiting(draft: Draft, replica_id: ReplicaId) -> None:
    """A replica that leaves, or is gone, waits for nothing that only those who stay get. These sets are nearly always empty."""
    if draft.placed:
        draft.placed = without(draft.placed, replica_id)
    if draft.rollout.stale_config:
        draft.rollout = replace(draft.rollout, stale_config=without(draft.rollout.stale_config, replica_id))
    if draft.compaction_waits_for:
        draft.compaction_waits_for = without(draft.compaction_waits_for, replica_id)
    if draft.recovery.losers:
        draft.recovery = replace(draft.recovery, losers=without(draft.recovery.losers, replica_id))
    if draft.recovery.misplaced:
        draft.recovery = replace(draft.recovery, misplaced=without(draft.recovery.misplaced, replica_id))


def move_slot(draft: Draft, holder: Replica, rank: int) -> Replica:
    """Let a slot, with its holder, its failures and a successor if it has one, be another rank. Returns the holder's record."""
    before = holder.slot
    assert before is not None, f"{holder.replica_id} is to move, and holds no slot"
    slots.open_slot(draft, rank)
    exchange(draft, before, rank)
    slot, opened = draft.slots[before], draft.slots[rank]
    # What was counted in this rank before it was given up goes to the one that is given up now.
    draft.slots = draft.slots.set(before, _with_failures_of(opened, slot)).set(rank, _with_failures_of(slot, opened))
    slots.close_slot(draft, before)
    if slot.retry_at > draft.clock:
        slots.back_off(draft, rank, slot.retry_at - draft.clock, slot.retry_at)
    return draft.replicas[holder.replica_id]


def _with_failures_of(other: Slot, slot: Slot) -> Slot:
    counted = other.failures, other.failed_build, other.retry_at
    return Slot(slot.holder, slot.successor, *counted, slot.unplaced_at, other.served_s)


def exchange(draft: Draft, *pair: int) -> None:
    """Let two slots exchange who holds them, and successors. What failed in a slot stays with its rank."""
    rollout, fillers = draft.rollout, [(rank, draft.slots[rank]) for rank in pair]
    for rank, slot in fillers:
        if slot.holder is not None:
            slots.unseat(draft, rank, draft.replicas[slot.holder])
        if slot.successor is not None:
            slots.set_successor(draft, rank, None)
    for rank, (before, slot) in zip(pair, reversed(fillers), strict=True):
        if slot.holder is not None:
            slots.seat(draft, rank, assign(draft, draft.replicas[slot.holder], slot=rank))
        if slot.successor is not None:
            slots.set_successor(draft, rank, assign(draft, draft.replicas[slot.successor], slot=rank))
            if before in rollout.arrived:
                slots.note_arrived(draft, rank)
            if before in rollout.stoppable:
                slots.set_stoppable(draft, rank)
            if before in rollout.unwanted:
                slots.set_unwanted(draft, rank)


def ask(draft: Draft, replica: Replica, command: Command) -> Replica:
    """Give a replica a command, to be repeated until it is acknowledged. Returns its record, which is new but for that."""
    draft.unacknowledged = draft.unacknowledged.discard(replica.repeat_timer)
    number = give(draft, replica.replica_id, command)
    return write(draft, replace(replica, pending=command, sent_at=draft.clock, repeat_timer=number))


def accepted(draft: Draft, replica: Replica) -> Replica:
    """The executor has the start of a replica, and will say what comes of it. Returns its record, which is new."""
    draft.unacknowledged = draft.unacknowledged.discard(replica.repeat_timer)
    return write(draft, replace(replica, repeat_timer=NO_TIMER))


def give(draft: Draft, replica_id: ReplicaId, command: Command) -> int:
    """Give out a command that is to be acknowledged. Returns the number of the timer that repeats it, for the record."""
    draft.commands.append(command)
    draft.unacknowledged = draft.unacknowledged.push(Sent(replica_id, draft.clock))
    draft.wake(draft.clock + draft.spec.repeat_period_s)
    return draft.unacknowledged.tail - 1


def arm_start_timer(draft: Draft, replica_id: ReplicaId) -> int:
    """Let the start time-out of a replica run from now on. Returns the timer's number, for the record."""
    draft.starting = draft.starting.push(Sent(replica_id, draft.clock))
    draft.wake(draft.clock + draft.spec.start_timeout_s)
    return draft.starting.tail - 1


def arm_patience(draft: Draft, replica_id: ReplicaId) -> int:
    """Let an update wait for this successor's place from now on. Returns the timer's number, for the record."""
    draft.patience = draft.patience.push(Sent(replica_id, draft.clock))
    draft.wake(draft.clock + draft.spec.surge_patience_s)
    return draft.patience.tail - 1


def disarm_start_timer(draft: Draft, replica: Replica) -> None:
    """Let the time-out of a replica run no longer, if it does: of its start, or of an update that waits for its place."""
    if replica.state is REQUESTED:
        draft.patience = draft.patience.discard(replica.start_timer)
    else:
        draft.starting = draft.starting.discard(replica.start_timer)


def outside_slot(replica: Replica) -> tuple[int, ...]:
    """Global ranks that it may believe, or gives back when it ends, and that no slot of its own keeps taken (R3, R7)."""
    slot = replica.slot
    if replica.leaving is RELEASE:
        ranks = beliefs(replica, GLOBAL)
        return ranks if slot is None or slot in ranks else (*ranks, slot)
    if not replica.believed and (replica.told is None or replica.told.rank == slot):
        return ()
    return tuple(rank for rank in beliefs(replica, GLOBAL) if rank != slot)


def retake(draft: Draft, old: Replica, new: Replica) -> None:
    """Follow which global ranks a replica keeps taken beside its slot's."""
    before, after = outside_slot(old), outside_slot(new)
    for rank in after:
        if rank not in before:
            draft.taken = draft.taken.add(rank)
    for rank in before:
        if rank not in after:
            draft.taken = draft.taken.discard(rank)


def stop_serving(draft: Draft, replica: Replica) -> None:
    """A replica takes no more requests; `replica`: its record until now."""
    readiness.end(draft, replica)
    routes.leave(draft, replica)
