"""Placed replicas take the ranks that lack one most: updates of full clusters end (V2), the lowest ranks run (V18).

**What.** An update with `max_surge` starts a successor for a rank whose holder still runs. Until it is initialised, one
successor is as good as another: it has no rank, believes none, and runs the version that all are to run. So it belongs to its
slot only as long as no other slot needs it more. A rank is *short* while it is vacant, or its holder has no place. In every
step, before any replica is started:

1. A slot that is vacant, and could be started now, takes a successor, and nothing is started for it. So does a rank without
   a slot: one that a higher target adds, or that a recovery found on its way out, once no replica believes it any more.
2. A successor that is placed takes a slot whose holder has no place yet. The two change places: the unplaced one waits for a
   place as a successor from now on.
3. A holder that is placed, and not initialised, takes a lower slot of its generation whose holder has no place, and that one
   has its slot; so it does with a lower slot in which a replica would be started now, and that one is started in its own. It
   knows no rank either, so that no live replica moves: with room for k of N, the first start ends with the ranks 0..k-1,
   whichever of the N the executor finds places for.
4. A rank below the partition (V12) is to have an older generation than those above, so that a successor fills only a rank on
   its own side. While one below has waited for a place for `surge_patience_s`, successors of ranks above that have a place give
   it up, and none is started.

The lowest ranks are served first. The successor is taken from the highest rank that has one, and where successors are
prepared it is one that is further than the others: it serves sooner.

**Why.** Without it a cluster with N places for N replicas stands still for ever (`surge-full` of `rankcore check`): rank 0
has a successor that waits for a place; rank 1 has none, and its holder is stopped within the budget; its place goes to the
successor of rank 0, which was requested first, and the replacement of rank 1 waits for one. No more replicas may be stopped
now, so no place ever becomes free. 1 is for this; but which of those that wait gets a free place is for the executor to say:
2 is for this.

**Why it ends.** 1 and 2 make fewer ranks short. 3 makes the sum of the short ones higher. And the update: once nothing is under
way, no successor has a place while a rank is short. So if one is short, only holders have places, of which there are less than
N: with N places one is free, and the executor gives it to a replica that waits, which is such a holder, or a successor that 2
makes one. If none is short, N are available, and the budget lets one go: at once if it has no successor, else when that is
placed, `surge_patience_s` have passed, or the executor says that there is no room for it (`ReplicaPending`). One such wait is
all that an update of a full cluster takes longer than one without surge: while a rank has no successor, those go first.

**What it costs.** O(log N) for each slot that is taken, nothing where no rank is short, or none is placed or early.

The races: a rank that another replica may still believe is taken all the same, but its taker is initialised only after that
(R3); one that did not take it would be initialised with a higher rank, and have to be moved later. A slot that rests takes no
successor: a build that fails in it would be started there without any back-off. Where the core packs ranks on nodes, it has
chosen a place for a rank: there only a placed successor takes a slot, only a vacant one, and only while no node has room. A
static placement has bundles for each rank, and none of this.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile

from msgspec.structs import replace

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.notes import RANK_INHERITED, NoteKind
from rankcore.rankset import RankSet
from rankcore.rules import budget, leaving, overlap
from rankcore.rules.fill import PACK, has_room, start
from rankcore.spec import DeploymentSpec
from rankcore.state import Replica
from rankcore.timers import NO_TIMER
from rankcore.values import DRAINING, REQUESTED


def bind(draft: Draft) -> None:
    """Let placed replicas, and those started early, fill the slots that are short of one."""
    packs = draft.spec.placement == PACK
    if packs and has_room(draft):
        return
    if draft.rollout.surging.size:
        _employ_successors(draft, packs)
    if draft.spec.placement is None and draft.placed:  # 3
        highest = max([draft.replicas[placed].slot or 0 for placed in draft.placed])
        if len(draft.slots) < draft.spec.target_replicas:
            _open_missing(draft, len(draft.placed), min(highest, draft.spec.target_replicas))
        if slots.is_startable_below(draft, highest):
            for placed in draft.those(draft.placed):
                _take_lowest_rank(draft, placed)
    if draft.rollout.surging.size and kept_rank_lacks_place(draft):  # 4
        waiting = _surging(draft) if packs else _arrived(draft)
        for rank in filter(partial(_is_dispensable, draft), waiting.members_from(draft.kept_below)):
            leaving.end_successor(draft, rank, "a rank below the partition has no place, and cannot take it")


def _is_dispensable(draft: Draft, rank: int) -> bool:
    return not budget.is_needed(draft, draft.replicas[draft.slots[rank].successor or ""])


def _employ_successors(draft: Draft, packs: bool) -> None:
    early = _arrived if packs else _surging
    _open_missing(draft, early(draft).size, draft.spec.target_replicas)
    for rank, donor in _served(draft, draft.ready, early):  # 1
        succeed(draft, donor, rank, f"it was started early for rank {donor}, and rank {rank} is vacant")
    if not packs:  # 2
        for rank, donor in _served(draft, draft.requested, _arrived):
            _change_places(draft, rank, donor)


def _open_missing(draft: Draft, most: int, below: int) -> None:
    """Let ranks that were to be given to newcomers be vacant slots, as many as there are replicas to take them (M9)."""
    missing = draft.spec.target_replicas - len(draft.slots) - len(draft.recovery.losers) - len(draft.recovery.owed)
    for _ in range(min(missing, most)):
        rank = draft.taken.lowest_free()
        if rank >= below:
            break
        slots.open_slot(draft, rank)


def _arrived(draft: Draft) -> RankSet:
    return draft.rollout.arrived


def _surging(draft: Draft) -> RankSet:
    return draft.rollout.surging


def _served(draft: Draft, lacking: RankSet, early: Callable[[Draft], RankSet]) -> Iterator[tuple[int, int]]:
    """Ranks that are short, the lowest first, each with its donor: on each side of the partition until none is left."""
    below = draft.kept_below
    for side in (takewhile(below.__gt__, lacking), lacking.members_from(below)):
        for rank in side:
            donor = _donor(draft, early(draft), rank)
            if donor is None:
                break
            yield rank, donor


def _donor(draft: Draft, early: RankSet, rank: int) -> int | None:
    """The rank whose successor may fill this one: the highest on the same side of the partition."""
    below = draft.kept_below
    if draft.spec.hand_over != "none" or draft.rollout.unwanted.size:
        return overlap.donor(draft, early, rank)
    if rank < below:
        return next((donor for donor in early.descending() if donor < below), None)
    highest = early.highest()
    return highest if highest >= below else None


def _take_lowest_rank(draft: Draft, placed: Replica) -> None:
    before = placed.slot
    assert before is not None, f"{placed.replica_id} was started for no slot"
    rank = min(_lowest_unplaced(draft, placed, before), _lowest_startable(draft, placed, before))
    if rank == before:
        return
    unplaced = draft.slots[rank].holder
    replicas.exchange(draft, rank, before)
    because = f"{unplaced}, which was to have it, has no place yet" if unplaced is not None else "nobody is started for it yet"
    draft.note(NoteKind.SLOT_CHANGED, "V18", placed.replica_id, because, rank=rank)
    if unplaced is not None:
        because = f"rank {rank} goes to {placed.replica_id}, which has a place"
        draft.note(NoteKind.SLOT_CHANGED, "V18", unplaced, because, rank=before)


def _lowest_unplaced(draft: Draft, placed: Replica, below: int) -> int:
    """The lowest rank that this one could have, of those whose holder has no place; if there is none, this bound."""
    for rank in takewhile(below.__gt__, draft.requested):
        if slots.holder_of(draft, rank).generation == placed.generation and not slots.is_resting(draft, rank):
            return rank
    return below


def _lowest_startable(draft: Draft, placed: Replica, below: int) -> int:
    """The lowest vacant rank for which one like this would be started now; if there is none, this bound."""
    startable = draft.ready if draft.recipe is not None else RankSet()
    for rank in takewhile(below.__gt__, startable):
        if draft.taken.count(rank) == 1 and placed.is_of(draft.recipe_of(rank)):
            return rank
    return below


def kept_rank_lacks_place(draft: Draft) -> bool:
    """Whether a rank below the partition, which no successor may fill, has waited for a place for `surge_patience_s`."""
    below = draft.kept_below
    if not below:
        return False
    if draft.ready.size and draft.ready.lowest() < below and not has_room(draft):
        return True
    due = _kept_due(draft)
    return due is not None and due <= draft.clock


def await_kept_rank(draft: Draft) -> None:
    """Have the core woken when a rank below the partition has waited for `surge_patience_s` for a successor's place."""
    due = _kept_due(draft)
    if due is not None and due > draft.clock:
        draft.wake(due)


def _kept_due(draft: Draft) -> float | None:
    lowest = draft.requested.lowest() if draft.requested.size else draft.kept_below
    return slots.holder_of(draft, lowest).since + draft.spec.surge_patience_s if lowest < draft.kept_below else None


def _change_places(draft: Draft, rank: int, donor: int) -> None:
    unplaced, unwanted = slots.holder_of(draft, rank), donor in draft.rollout.unwanted
    slots.unseat(draft, rank, unplaced)
    succeed(draft, donor, rank, f"{unplaced.replica_id}, which was to have rank {rank}, has no place yet")
    await_successor(draft, donor, replicas.assign(draft, unplaced, slot=donor))
    draft.note(NoteKind.SLOT_CHANGED, "V2", unplaced.replica_id, f"rank {rank} goes to one that has a place", rank=donor)
    if unwanted:
        overlap.check_successor(draft, donor)


def succeed(draft: Draft, donor: int, rank: int, because: str) -> None:
    """Let the successor of one rank hold the vacant slot of this one, which may be the same."""
    replica_id = draft.slots[donor].successor
    assert replica_id is not None, f"rank {donor} has no successor to fill rank {rank}"
    successor = draft.replicas[replica_id]
    slots.set_successor(draft, donor, None)
    if successor.state is REQUESTED:
        replicas.disarm_start_timer(draft, successor)
        successor = replicas.write(draft, replace(successor, start_timer=NO_TIMER))
    successor = replicas.assign(draft, successor, slot=rank)
    slots.seat(draft, rank, successor)
    if successor.state in slots.INITIALISABLE:
        draft.placed = draft.placed.set(replica_id, successor.birth)
    draft.note(RANK_INHERITED, "R6", replica_id, because, rank=rank)


def start_successor(draft: Draft, rank: int, started_with: DeploymentSpec) -> None:
    """Start the replica that is to hold a slot once its holder has ended."""
    successor = start(draft, rank, started_with)
    await_successor(draft, rank, successor)
    draft.note(RANK_INHERITED, "2.3", successor.replica_id, f"after {draft.slots[rank].holder}", rank=rank)


def await_successor(draft: Draft, rank: int, successor: Replica) -> None:
    """Let a replica that has no place yet be the successor of a rank. The update waits for it, unless it has already."""
    slots.set_successor(draft, rank, successor)
    if successor.since + draft.spec.surge_patience_s <= draft.clock:
        slots.set_stoppable(draft, rank)
    else:
        timer = replicas.arm_patience(draft, successor.replica_id)
        replicas.write(draft, replace(successor, since=draft.clock, start_timer=timer))


def dismiss_surplus(draft: Draft) -> None:
    """Dismiss successors beyond `max_surge`, those least far first, of these the youngest: it was lowered, or evictions ended.

    Who succeeds one that leaves already, or is evicted, is not started for the surge.
    """
    surging, evicted = draft.rollout.surging, draft.evictions.ranks
    held = [rank for rank in surging if rank not in evicted and draft.slots[rank].holder is not None]
    those = [rank for rank in held if slots.holder_of(draft, rank).state is not DRAINING]
    surplus = max(0, len(those) - draft.spec.surge_max)
    for rank in sorted(those, key=partial(_worth, draft))[:surplus]:
        leaving.dismiss_successor(draft, rank, f"max_surge is {draft.spec.surge_max}")


def _worth(draft: Draft, rank: int) -> tuple[int, int]:
    return overlap.progress(draft, rank), -draft.replicas[draft.slots[rank].successor or ""].birth


def go_without(draft: Draft, successor: Replica, because: str) -> None:
    """Let an update wait no longer for the place of this successor: the budget alone says when its predecessor is stopped."""
    assert successor.slot is not None, f"{successor.replica_id} is nobody's successor"
    replicas.disarm_start_timer(draft, successor)
    slots.set_stoppable(draft, successor.slot)
    if draft.spec.hand_over != "none":
        draft.rollout = replace(draft.rollout, full=True)
    early = f"{successor.replica_id}, which was started early for rank {successor.slot}"
    draft.note(NoteKind.WAITING, "V2", successor.replica_id, f"the update waits no longer for {early}: {because}")


def wait_again(draft: Draft, successor: Replica, because: str) -> None:
    """Let an update wait again for the place of a successor that was said to find none, for `surge_patience_s` from now.

    Where its patience would be over by now anyway, it goes on without it.
    """
    assert successor.slot is not None, f"{successor.replica_id} is nobody's successor"
    if successor.since + draft.spec.surge_patience_s <= draft.clock:
        return
    slots.keep_waiting(draft, successor.slot)
    timer = replicas.arm_patience(draft, successor.replica_id)
    replicas.write(draft, replace(successor, since=draft.clock, start_timer=timer))
    early = f"{successor.replica_id}, which was started early for rank {successor.slot}"
    draft.note(NoteKind.WAITING, "V2", successor.replica_id, f"the update waits again for {early}: {because}")
