"""Slots: the global ranks to be filled. Opening, seating a holder, vacating and closing, with their indexes."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from rankcore.book import bundles
from rankcore.draft import Draft
from rankcore.frozen import PMap
from rankcore.rankset import RankSet
from rankcore.state import Replica, Slot
from rankcore.timers import Queue, Retry
from rankcore.values import PLACED, RELEASE, REQUESTED, STARTING, ReplicaId, ReplicaState

UNSTARTED = frozenset({REQUESTED, PLACED, STARTING})
RUNNING = frozenset({ReplicaState.RUNNING, ReplicaState.RECONFIGURING})
NO_RANKS = RankSet()

Key = TypeVar("Key", int, str)
Change = Callable[[PMap[str, RankSet], str, int], PMap[str, RankSet]]


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
    recipe = draft.recipe
    return recipe is not None and slot.failed_build == recipe.build


def open_slot(draft: Draft, rank: int, *, ready: bool = True) -> None:
    """Keep this rank taken from now on, for whoever will fill it. It has no holder yet, and may be started, if it is ready."""
    draft.slots = draft.slots.set(rank, Slot())
    draft.taken = draft.taken.add(rank)
    draft.vacant = draft.vacant.add(rank)
    if ready:
        draft.ready = draft.ready.add(rank)


def open_held(draft: Draft, rank: int, replica: Replica) -> None:
    """Keep this rank taken from now on, held from the beginning by this replica, whose `slot` says so already."""
    draft.slots = draft.slots.set(rank, Slot(replica.replica_id))
    draft.taken = draft.taken.add(rank)
    note_holder(draft, rank, replica)


def close_slot(draft: Draft, rank: int) -> None:
    """Stop keeping this rank. Its holder, if any, has to be told to leave, or seated elsewhere, by the caller."""
    slot = draft.slots[rank]
    if slot.holder is not None:
        forget_holder(draft, rank, holder_of(draft, rank))
    draft.vacant = draft.vacant.discard(rank)
    draft.ready = draft.ready.discard(rank)
    if slot.successor is not None:
        _note_successor(draft, rank, None)
    draft.slots = draft.slots.delete(rank)
    draft.taken = draft.taken.discard(rank)


def seat(draft: Draft, rank: int, replica: Replica) -> None:
    """Let this replica, whose `slot` says so already, hold a vacant slot."""
    slot = draft.slots[rank]
    draft.slots = draft.slots.set(
        rank, Slot(replica.replica_id, slot.successor, slot.failures, slot.failed_build, slot.retry_at)
    )
    draft.vacant = draft.vacant.discard(rank)
    draft.ready = draft.ready.discard(rank)
    note_holder(draft, rank, replica)


def unseat(draft: Draft, rank: int, holder: Replica) -> None:
    """Vacate a slot and keep its rank (R6). It may be started again at once or, when it is resting, once it is woken."""
    slot = draft.slots[rank]
    draft.slots = draft.slots.set(rank, Slot(None, slot.successor, slot.failures, slot.failed_build, slot.retry_at))
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
    draft.rollout = replace(rollout, surging=surging, stoppable=rollout.stoppable.discard(rank))


def set_stoppable(draft: Draft, rank: int) -> None:
    """Let the holder of a slot go: its successor is placed, or has kept the update waiting for too long."""
    draft.rollout = replace(draft.rollout, stoppable=draft.rollout.stoppable.add(rank))


def begin_rollout(draft: Draft) -> None:
    """Find what runs, or starts, another version than the spec's: O(N), when that has become another."""
    tables: dict[bool, dict[str, list[int]]] = {True: {}, False: {}}
    for holder in holders(draft, UNSTARTED | RUNNING):
        if holder.version != draft.spec.version and holder.slot is not None:
            tables[holder.state in RUNNING].setdefault(holder.version, []).append(holder.slot)
    unstarted, running = (PMap({key: RankSet.of(ranks) for key, ranks in tables[runs].items()}) for runs in (False, True))
    draft.rollout = replace(draft.rollout, unstarted=unstarted, running=running)


def holders(draft: Draft, states: frozenset[ReplicaState]) -> Iterator[Replica]:
    """Who holds a slot and is in one of these states, in any order: O(N)."""
    for slot in draft.slots.values():
        if slot.holder is not None and (holder := draft.replicas[slot.holder]).state in states:
            yield holder


def note_holder(draft: Draft, rank: int, holder: Replica) -> None:
    """Remember a slot whose holder has to be replaced: it has another version than wanted, or stands elsewhere."""
    if holder.version != draft.spec.version:
        note_outdated(draft, put, rank, holder.state, holder.version)
    if draft.spec.static_placement is not None or holder.bundles or holder.group_id is not None:
        bundles.notice_misfit(draft, rank, holder)


def forget_holder(draft: Draft, rank: int, holder: Replica) -> None:
    """Its holder leaves, or is gone: it has not to be replaced any more."""
    if holder.version != draft.spec.version:
        note_outdated(draft, drop, rank, holder.state, holder.version)
    if draft.bundles.misfits.size:
        bundles.forget_misfit(draft, rank)


def note_outdated(draft: Draft, change: Change, rank: int, state: ReplicaState, version: str) -> None:
    """Put a slot, whose holder has another version than wanted, into the update under way, or drop it, if its holder stays."""
    if state in UNSTARTED or state in RUNNING:
        name = "unstarted" if state in UNSTARTED else "running"
        draft.rollout = replace(draft.rollout, **{name: change(getattr(draft.rollout, name), version, rank)})


def put(sets: PMap[Key, RankSet], key: Key, member: int) -> PMap[Key, RankSet]:
    """With this member in the set under this key."""
    return sets.set(key, sets.get(key, NO_RANKS).add(member))


def drop(sets: PMap[Key, RankSet], key: Key, member: int) -> PMap[Key, RankSet]:
    """Without this member in the set under this key; empty sets are not kept."""
    rest = sets[key].discard(member)
    return sets.set(key, rest) if rest.size else sets.delete(key)
