"""Scarcity: with room for k of N, the ranks 0..k-1 run, and not another draw of luck (V18).

**What.** A rank *lacks room* while the executor finds none for its holder (`ReplicaPending`), or while it is vacant since the
core, which chooses nodes itself, knows of none. One whose holder was merely asked for lacks none: its process starts, or its
environment is installed, for as long as that takes. Where k holders have a place, or will have one, one of them has a rank >= k
exactly if a rank below k lacks room. A rank below k that lacks room for `scarcity_after_s` is *starved*: then the replica with
the highest rank moves into it, with one message, and the one requested for it waits for the rank that is left.

1. Only the lowest rank that lacks room is looked at: before it is starved no replica moves, and each moves once.
2. The mover has a rank >= k: it would have to move whatever is done about the others. One that has not started yet, or owes an
   acknowledgement, is passed over, never for one below k.
3. A rank that another replica may still believe is not moved into (R3): one that has just been left, by a move of this rule's.
4. Where the core packs ranks, nothing is opened for want of room, so a rank that a recovery has not found is opened here.
5. Else as many as the target are requested, but a lower target may have kept one with a rank >= k, and given up a lower rank
   with the slot of one on its way out. Then the replica that waits for the higher rank waits for that one: at once where its
   own is beyond the world size (`shrink`), else when its own is starved.
6. After a recovery, one whose own user_config is not known would be sent the wanted one with its rank. That takes a part of the
   budget, so it is passed over until it is its turn (`configure`): serving with fewer is worse than with a gap (V1).

**Fewest.** While the room stays as it is, each move takes a replica from k or above to below k, and none goes the other
way: as many as there are ranks below k without room, which no other way of coming to 0..k-1 can do with less. A first start
needs none: replicas that are not initialised yet change ranks freely (`bind`, 3).

**When.** `scarcity_after_s` after the last rank has lost its room all that lack it are starved, so that all movers that can
move do so in one step; the others with their acknowledgement. A rank that comes to lack room beneath one that is nearly
starved is waited for as well: the alternative is a second move of the same replica. A rank that no replica waits for lacks
room from when one does (5).

**What is said may be lost.** Nobody is moved for a rank of which nothing was said, however long it is away: executors say it
again while the start is repeated, and a new controller, which repeats its own, hears it too. That one finds room by now counts
from the step in which that is said, or in which it is placed.

**What it costs.** O(1) in steps in which no rank lacks room beneath another, or is starved; O(N - k) to find the movers.
"""

from itertools import takewhile

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.notes import RANK_MOVED, NoteKind
from rankcore.rules import overlap
from rankcore.rules.configure import takes_config_along
from rankcore.rules.fill import PACK, has_room
from rankcore.rules.messages import reconfigure
from rankcore.state import Replica
from rankcore.values import ReplicaRank, ReplicaState

RULE = "V18"


def relieve(draft: Draft) -> None:
    """Move those with the highest ranks into ranks that have lacked room for too long."""
    after_s, packs = draft.spec.scarcity_after_s, draft.spec.placement == PACK
    lacking = draft.ready if packs else draft.roomless
    places = _places(draft)
    if (not lacking.size or lacking.lowest() >= places) and draft.taken.lowest_free() >= places:
        return
    if after_s is None or draft.spec.static_placement is not None or draft.recipe is None or (packs and has_room(draft)):
        return
    while True:
        places = _places(draft)
        if packs and draft.taken.lowest_free() < places:
            slots.open_slot(draft, draft.taken.lowest_free())  # 4
            continue
        lacking = draft.ready if packs else draft.roomless
        if not lacking.size or (lacking.lowest() >= places and draft.taken.lowest_free() >= places):
            return
        rank = lacking.lowest()  # 1
        slot = draft.slots[rank]
        holder = draft.replicas[slot.holder] if slot.holder is not None else None
        starved_at = slots.roomless_since(slot, holder) + after_s
        if draft.clock < starved_at:
            return draft.wake(starved_at)
        if rank >= places:
            unasked = draft.taken.lowest_free()
            waiting = replicas.move_slot(draft, slots.holder_of(draft, rank), unasked)  # 5
            because = f"nobody is started for rank {unasked}, and rank {rank} is starved"
            draft.note(NoteKind.SLOT_CHANGED, RULE, waiting.replica_id, because, rank=unasked)
            continue
        mover = _mover(draft, places)
        if mover is None or draft.taken.count(rank) > 1:  # 3
            return
        _move(draft, mover, rank, f"it has had no room for {after_s:g} s, and only {places} have a place")


def _places(draft: Draft) -> int:
    """How many of those who hold a rank have a place, or will have one."""
    return len(draft.slots) - draft.roomless.size - draft.vacant.size


def _mover(draft: Draft, places: int) -> Replica | None:
    """The highest that can be told another rank now; None: nobody that has to move can."""
    for rank in takewhile(places.__le__, draft.taken.taken.descending()):  # 2
        slot = draft.slots.get(rank)
        holder = draft.replicas[slot.holder] if slot is not None and slot.holder is not None else None
        if holder is None or holder.state is not ReplicaState.RUNNING or holder.pending is not None:
            continue
        if not takes_config_along(draft, holder):  # 6
            return holder
    return None


def _move(draft: Draft, mover: Replica, rank: int, because: str) -> None:
    told, before, waiting = mover.told, mover.slot, draft.slots[rank].holder
    assert told is not None, f"{mover.replica_id} runs, and was never told a rank"
    assert before is not None, f"{mover.replica_id} runs, and has no slot"
    replicas.exchange(draft, rank, before)
    if rank in draft.rollout.surging:  # below the partition nobody is to be succeeded
        overlap.check_successor(draft, rank)
    to = ReplicaRank(rank, told.node_rank, told.local_rank)
    reconfigure(draft, draft.replicas[mover.replica_id], to, mover.config_id)
    draft.note(RANK_MOVED, RULE, mover.replica_id, f"rank {rank} is starved: {because}", before=told, after=to)
    if waiting is not None:
        draft.note(NoteKind.SLOT_CHANGED, RULE, waiting, f"rank {rank} goes to {mover.replica_id}, which runs", rank=before)
