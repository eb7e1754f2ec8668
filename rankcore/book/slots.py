"""Slots: the global ranks to be filled. Opening, seating a holder, vacating and closing, with their indexes."""

from collections.abc import Callable

from msgspec.structs import replace

from rankcore.book import bundles
from rankcore.draft import Draft
from rankcore.rankset import RankSet
from rankcore.state import Replica, Slot, without
from rankcore.timers import Queue, Retry
from rankcore.values import (
    DELETING,
    DRAINING,
    PLACED,
    PREPARED,
    PREPARING,
    RELEASE,
    REQUESTED,
    STARTING,
    ReplicaId,
    ReplicaState,
)

RANKLESS = frozenset({REQUESTED, PLACED, PREPARING, PREPARED})
"""Never initialised: it knows no rank, and holds and keeps none beside that of its slot."""
UNSTARTED = RANKLESS | {STARTING}
INITIALISABLE = frozenset({PLACED, PREPARED})
RUNNING = frozenset({ReplicaState.RUNNING, ReplicaState.RECONFIGURING})
SERVED_S = 60.0
"""What was counted in a slot is over once those it was given up with were ready for so long, all together."""
Change = Callable[[RankSet, int], RankSet]


def is_serving(replica: Replica) -> bool:
    """Whether to end it takes something out of service: it runs, or takes requests before it does (V3)."""
    return replica.state in RUNNING or replica.routed


def holder_of(draft: Draft, rank: int) -> Replica:
    """The replica that holds a slot. Ask only for a slot that is indexed as held."""
    holder_id = draft.slots[rank].holder
    assert holder_id is not None, f"rank {rank} is indexed as held, and has no holder"
    return draft.replicas[holder_id]


def is_holder(draft: Draft, replica: Replica) -> bool:
    """Whether a slot is kept for it, or for its replacement once it has gone."""
    if replica.slot is None or replica.leaving is RELEASE:
        return False
    return draft.slots[replica.slot].holder == replica.replica_id


def is_successor(draft: Draft, replica: Replica) -> bool:
    """Whether it was started early, and its slot still has another holder."""
    if replica.slot is None or replica.leaving is RELEASE:
        return False
    return draft.slots[replica.slot].successor == replica.replica_id


def is_resting(draft: Draft, rank: int) -> bool:
    """Whether what would be started now has just failed in this slot; another build goes straight in."""
    slot = draft.slots[rank]
    if slot.retry_at <= draft.clock:
        return False
    return draft.recipe is not None and slot.failed_build == draft.recipe_of(rank).build


def roomless_since(slot: Slot, holder: Replica | None) -> float:
    """Since when a slot has lacked room that is vacant, or whose holder finds none; back-off is no lack of room (V18)."""
    found_none_at = holder.no_room_since if holder is not None else None
    return max(slot.unplaced_at, slot.retry_at, found_none_at or 0.0)


def has_served_long(draft: Draft, replica: Replica) -> bool:
    """Whether a replica has been ready on its build for `stable_after_s`: what its slot has counted before it is over."""
    return replica.ready_at is not None and replica.ready_at + draft.spec.stable_after_s <= _ready_until(draft, replica)


def _ready_until(draft: Draft, replica: Replica) -> float:
    return draft.clock if replica.unready is None else replica.unready.since


def forget_failures_before(draft: Draft, holder: Replica) -> None:
    """The holder of a slot goes, for no fault of its own: if it was ready for long, what was counted of its build is over."""
    if holder.slot is not None and is_holder(draft, holder) and has_served_long(draft, holder):
        slot = draft.slots[holder.slot]
        if slot.failures and slot.failed_build == holder.build:
            draft.slots = draft.slots.set(holder.slot, replace(slot, failures=0, retry_at=0.0))


def is_unproven(draft: Draft, build: tuple[str, str | None] | None) -> bool:
    """Whether it is the build that is wanted, and nothing has proven it."""
    return build == draft.spec.build and (draft.proven is None or draft.proven.build != build)


def forget_counts(draft: Draft, rank: int) -> None:
    """What failed in a slot counts no longer, nor what was served in it."""
    slot = draft.slots[rank]
    draft.slots = draft.slots.set(rank, replace(slot, failures=0, failed_build=None, retry_at=0.0, served_s=0.0))


def count_served(draft: Draft, holder: Replica) -> None:
    """The holder of a slot is told to go while it is ready: its time adds up with that of those before it.

    That matters to a build that has failed here, or is not proven; one that is not proven takes over from what failed before
    it, as its failure would. Who was moved here counts from then on: two in one slot count one after the other (V7).
    """
    if holder.ready_at is None or holder.unready is not None or holder.state not in RUNNING or not is_holder(draft, holder):
        return
    assert holder.slot is not None, f"{holder.replica_id} holds a slot, and has none"
    slot, unproven = draft.slots[holder.slot], is_unproven(draft, holder.build)
    served_s = draft.clock - max(holder.ready_at, slot.unplaced_at)
    if slot.failed_build == holder.build and (unproven or slot.failures):
        slot = replace(slot, served_s=slot.served_s + served_s)
    elif unproven:
        slot = replace(slot, failures=0, failed_build=draft.spec.build, retry_at=0.0, served_s=served_s)
    else:
        return
    draft.slots = draft.slots.set(holder.slot, slot)


def open_slot(draft: Draft, rank: int, *, ready: bool = True) -> None:
    """Keep this rank taken from now on, for whoever will fill it. It has no holder yet, and may be started, if it is ready.

    What was counted in it before it was given up goes on: it may rest.
    """
    _open(draft, rank, None)
    draft.vacant = draft.vacant.add(rank)
    if ready and not (draft.slots[rank].failures and is_resting(draft, rank)):
        draft.ready = draft.ready.add(rank)


def _open(draft: Draft, rank: int, holder: ReplicaId | None) -> None:
    former = draft.former.get(rank) if draft.former else None
    if former is None:
        slot = Slot(holder, unplaced_at=draft.clock)
    else:
        draft.former = draft.former.delete(rank)
        slot = replace(former, holder=holder, unplaced_at=draft.clock)
        if former.retry_at > draft.clock:
            back_off(draft, rank, former.retry_at - draft.clock, former.retry_at)
    draft.slots = draft.slots.set(rank, slot)
    draft.taken = draft.taken.add(rank)


def would_rest(draft: Draft, rank: int) -> bool:
    """Whether a slot that is not open would rest if it were: it was given up while it did."""
    former = draft.former.get(rank) if draft.former else None
    return former is not None and former.retry_at > draft.clock and former.failed_build == draft.recipe_of(rank).build


def open_held(draft: Draft, rank: int, replica: Replica) -> None:
    """Keep this rank taken from now on, held from the beginning by this replica, whose `slot` says so already."""
    _open(draft, rank, replica.replica_id)
    note_holder(draft, rank, replica)


def close_slot(draft: Draft, rank: int) -> None:
    """Stop keeping this rank. Its holder, if any, has to be told to leave, or seated elsewhere, by the caller.

    What is counted in it stays, for when it is opened again: else a deployment that is scaled to nothing and back would start
    what fails at once, and never give it up. Nobody who is scaled away with each lull is ever ready for `stable_after_s`: so
    their times add up (`count_served`), and here `SERVED_S` of them are enough.
    """
    slot = draft.slots[rank]
    if (slot.failures or slot.served_s) and draft.status is not DELETING:
        _remember(draft, rank, slot)
    if slot.holder is not None:
        forget_holder(draft, rank, holder_of(draft, rank))
    draft.vacant = draft.vacant.discard(rank)
    draft.ready = draft.ready.discard(rank)
    assert slot.successor is None, f"rank {rank} is given up, and {slot.successor} is to succeed in it"
    draft.slots = draft.slots.delete(rank)
    draft.taken = draft.taken.discard(rank)


def _remember(draft: Draft, rank: int, slot: Slot) -> None:
    over = slot.served_s >= min(SERVED_S, draft.spec.stable_after_s)
    failures, retry_at = (0, 0.0) if over else (slot.failures, slot.retry_at)
    if failures or is_unproven(draft, slot.failed_build):
        kept = Slot(failures=failures, failed_build=slot.failed_build, retry_at=retry_at, served_s=slot.served_s)
        draft.former = draft.former.set(rank, kept)


def seat(draft: Draft, rank: int, replica: Replica) -> None:
    """Let this replica, whose `slot` says so already, hold a vacant slot."""
    slot = draft.slots[rank]
    counted = slot.failures, slot.failed_build, slot.retry_at
    held = Slot(replica.replica_id, slot.successor, *counted, slot.unplaced_at, slot.served_s)
    draft.slots = draft.slots.set(rank, held)
    draft.vacant = draft.vacant.discard(rank)
    draft.ready = draft.ready.discard(rank)
    note_holder(draft, rank, replica)


def unseat(draft: Draft, rank: int, holder: Replica) -> None:
    """Vacate a slot and keep its rank (R6). It may be started again at once or, when it is resting, once it is woken."""
    slot = draft.slots[rank]
    at = slot.unplaced_at if holder.state is REQUESTED else draft.clock
    counted = slot.failures, slot.failed_build, slot.retry_at
    draft.slots = draft.slots.set(rank, Slot(None, slot.successor, *counted, at, slot.served_s))
    forget_holder(draft, rank, holder)
    draft.vacant = draft.vacant.add(rank)
    if not is_resting(draft, rank):
        draft.ready = draft.ready.add(rank)


def back_off(draft: Draft, rank: int, wait_s: float, retry_at: float) -> None:
    """Look at a slot again when its back-off is over. What waits equally long falls due in order, in one queue."""
    queue: Queue[Retry] = draft.retries.get(wait_s, Queue())
    draft.retries = draft.retries.set(wait_s, queue.push(Retry(rank, retry_at)))
    draft.wake(retry_at)


def set_successor(draft: Draft, rank: int, replica: Replica | None) -> None:
    """Note who takes over a slot when its holder has ended; None: nobody any more."""
    successor = replica.replica_id if replica is not None else None
    draft.slots = draft.slots.set(rank, replace(draft.slots[rank], successor=successor))
    _note_successor(draft, rank, successor)


def _note_successor(draft: Draft, rank: int, successor: ReplicaId | None) -> None:
    rollout = draft.rollout
    surging = rollout.surging.discard(rank) if successor is None else rollout.surging.add(rank)
    stoppable, arrived = rollout.stoppable.discard(rank), rollout.arrived.discard(rank)
    unwanted = rollout.unwanted.discard(rank) if rollout.unwanted.size else rollout.unwanted
    draft.rollout = replace(rollout, surging=surging, stoppable=stoppable, arrived=arrived, unwanted=unwanted)


def set_stoppable(draft: Draft, rank: int) -> None:
    """Let the holder of a slot go: its successor is as far as it has to be, or has kept the update waiting for too long."""
    draft.rollout = replace(draft.rollout, stoppable=draft.rollout.stoppable.add(rank))


def note_arrived(draft: Draft, rank: int) -> None:
    """The successor of a slot has a place."""
    draft.rollout = replace(draft.rollout, arrived=draft.rollout.arrived.add(rank))


def keep_waiting(draft: Draft, rank: int) -> None:
    """The holder of a slot may not go yet: its successor is not as far as it has to be."""
    draft.rollout = replace(draft.rollout, stoppable=draft.rollout.stoppable.discard(rank))


def set_unwanted(draft: Draft, rank: int) -> None:
    """Let the successor of a slot go as soon as it is not needed any more; its holder does not go for it."""
    rollout = draft.rollout
    draft.rollout = replace(rollout, unwanted=rollout.unwanted.add(rank), stoppable=rollout.stoppable.discard(rank))


def are_alike(draft: Draft) -> bool:
    """Whether everybody holds a slot, serves, believes no other rank, and is of the spec's generation: O(1)."""
    held, taken = len(draft.slots), draft.taken
    if not draft.available == len(draft.replicas) == held == taken.taken.size or taken.extra:
        return False
    return not (draft.early or draft.rollout.running.size or draft.spec.partition)


def replace_all(draft: Draft) -> None:
    """Where all were alike, and another version is wanted from all, everybody is outdated: O(1)."""
    draft.rollout = replace(draft.rollout, running=draft.taken.taken)


def begin_rollout(draft: Draft) -> list[Replica]:
    """Find who runs, or starts, another generation than is wanted: O(N). Returns who holds a slot and runs."""
    runs = holders(draft, RUNNING)
    starts = holders(draft, UNSTARTED) if len(runs) < len(draft.slots) else []
    serving = _outdated(draft, [*runs, *(each for each in starts if each.routed)])
    unstarted = _outdated(draft, [each for each in starts if not each.routed])
    draft.rollout = replace(draft.rollout, unstarted=RankSet.of(unstarted), running=RankSet.of(serving))
    return runs


def _outdated(draft: Draft, those: list[Replica]) -> list[int]:
    """The slots of those that are outdated."""
    if draft.kept_below:
        return [each.slot for each in those if each.slot is not None and is_outdated(draft, each.slot, each)]
    version, token = draft.spec.generation
    others = [each.slot for each in those if each.version != version or each.restart_token != token]
    return [rank for rank in others if rank is not None]


def is_outdated(draft: Draft, rank: int, holder: Replica) -> bool:
    """Whether a slot's holder, if it stays, is to be replaced by one of another generation."""
    if draft.spec.partition and rank < draft.kept_below:  # only who is not initialised yet: it would wait for that for ever
        return holder.told is None and not holder.is_of(draft.recipe_of(rank))
    return not holder.is_of(draft.spec)


def is_startable_below(draft: Draft, bound: int) -> bool:
    """Whether a slot below this rank could be started now, or has a holder without a place: O(1)."""
    if draft.requested.size and draft.requested.lowest() < bound:
        return True
    return draft.ready.size > 0 and draft.ready.lowest() < bound


def holders(draft: Draft, states: frozenset[ReplicaState]) -> list[Replica]:
    """Who holds a slot and is in one of these states, in any order: O(N), with a look at nobody's slot."""
    early = {draft.slots[rank].successor for rank in draft.rollout.surging}
    return [
        each
        for each in draft.replicas.values()
        if each.slot is not None and each.state in states and each.leaving is not RELEASE and each.replica_id not in early
    ]


def note_holder(draft: Draft, rank: int, holder: Replica) -> None:
    """Remember a slot whose holder has no place yet, or has to be replaced: it is outdated, or stands elsewhere."""
    if holder.state is REQUESTED:
        draft.requested = draft.requested.add(rank)
        if holder.no_room_since is not None:
            draft.roomless = draft.roomless.add(rank)
    if draft.rollout.stale_config and rank < draft.kept_below:
        draft.rollout = replace(draft.rollout, stale_config=without(draft.rollout.stale_config, holder.replica_id))
    if is_outdated(draft, rank, holder):
        note_outdated(draft, RankSet.add, rank, holder)
    if draft.spec.static_placement is not None or holder.bundles or holder.group_id is not None:
        bundles.notice_misfit(draft, rank, holder)
    if holder.replica_id in draft.evictions.asked and holder.state is not DRAINING:
        note_evicted(draft, rank)


def forget_holder(draft: Draft, rank: int, holder: Replica) -> None:
    """Its holder leaves, or is gone: it waits for no place, and has not to be replaced any more."""
    if holder.state is REQUESTED:
        forget_requested(draft, rank)
    rollout = draft.rollout
    if (rollout.running.size or rollout.unstarted.size) and is_outdated(draft, rank, holder):
        note_outdated(draft, RankSet.discard, rank, holder)
    if draft.bundles.misfits.size:
        bundles.forget_misfit(draft, rank)
    if draft.evictions.ranks.size:
        forget_evicted(draft, rank)


def forget_requested(draft: Draft, rank: int) -> None:
    """The holder of a slot waits for no place any more."""
    draft.requested = draft.requested.discard(rank)
    if draft.roomless.size:
        draft.roomless = draft.roomless.discard(rank)


def note_evicted(draft: Draft, rank: int) -> None:
    """The holder of a slot is to be replaced."""
    draft.evictions = replace(draft.evictions, ranks=draft.evictions.ranks.add(rank))


def forget_evicted(draft: Draft, rank: int) -> None:
    """It may stay, leaves, or is gone."""
    draft.evictions = replace(draft.evictions, ranks=draft.evictions.ranks.discard(rank))


def note_outdated(draft: Draft, change: Change, rank: int, holder: Replica) -> None:
    """Put a slot, whose holder is outdated, into the update under way, or drop it, if its holder stays."""
    if holder.state in UNSTARTED or holder.state in RUNNING:
        name = "running" if is_serving(holder) else "unstarted"
        draft.rollout = replace(draft.rollout, **{name: change(getattr(draft.rollout, name), rank)})
