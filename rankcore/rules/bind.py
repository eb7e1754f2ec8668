"""Who was started early takes a rank that lacks somebody more, so that an update of a full cluster comes to its end (V2).

**What.** An update with `max_surge` starts a successor for a rank whose holder still runs. Until it is initialised, one
successor is as good as another: it has no rank, believes none, and runs the version that all are to run. So it belongs to its
slot only as long as no other slot needs it more. In every step, before anything is started:

1. A slot that is vacant, and could be started now, takes a successor, and nothing is started for it.
2. A successor that is placed takes a slot whose holder has no place yet. The two change places: who has none waits for one
   as a successor from now on.

The lowest ranks are served first. The successor is taken from the rank whose turn to be updated comes last.

**Why.** Without it a cluster with N places for N replicas stands still for ever (`surge-full` of `rankcore check`): rank 0
has a successor that waits for a place; rank 1 has none, and its holder is stopped within the budget; its place goes to the
successor of rank 0, who was requested first, and the replacement of rank 1 waits for one. No more replicas may be stopped
now, so no place ever becomes free. 1 is for this; but which of those that wait gets a free place is for the executor to say,
and a rank that is added by a higher target is never vacant: 2 is for these.

**Why it ends.** Each of the two makes the ranks that lack somebody fewer: the vacant ones, or those whose holder has no
place. And the update: once nothing is under way, no successor has a place while a rank lacks somebody. So if a rank lacks
somebody, only holders have places, of which there are less than N: with N places one is free, and the executor gives it to one
of those that wait, who is such a holder, or a successor that 2 makes one. If no rank lacks anybody, N are available, and the
budget lets one go: at once if it has no successor, else when that is placed, `surge_patience_s` have passed, or the executor
says that there is no room for it (`ReplicaPending`). One such wait is all that an update of a full cluster takes longer than
one without surge: while a rank has no successor, those go first.

**What it costs.** O(log N) for each slot that is taken, O(1) where nobody waits, and nothing where there is no successor.

The races: a rank that another may still believe is taken all the same, but nobody is initialised with it before that is over
(R3). A slot that rests takes nobody: a build that fails in it would be started there without any back-off. Where the core packs
ranks on nodes, it has chosen a place for a rank: there only who is placed takes a slot, only a vacant one, and only while no
node has room.
"""

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.notes import RANK_INHERITED, NoteKind
from rankcore.rules.fill import PACK, has_room
from rankcore.state import Replica
from rankcore.timers import NO_TIMER
from rankcore.values import PLACED


def bind(draft: Draft) -> None:
    """Let successors fill the slots that lack somebody."""
    packs = draft.spec.placement == PACK
    if packs and has_room(draft):
        return
    for rank in draft.ready:  # 1
        early = draft.rollout.arrived if packs else draft.rollout.surging
        if not early.size:
            break
        donor = early.highest()
        succeed(draft, donor, rank, f"it was started early for rank {donor}, and rank {rank} is vacant")
    while draft.rollout.arrived.size and draft.requested.size and not packs:  # 2
        _change_places(draft, draft.requested.lowest(), draft.rollout.arrived.highest())


def _change_places(draft: Draft, rank: int, donor: int) -> None:
    unplaced = slots.holder_of(draft, rank)
    slots.unseat(draft, rank, unplaced)
    succeed(draft, donor, rank, f"{unplaced.replica_id}, which was to have rank {rank}, has no place yet")
    await_successor(draft, donor, replicas.assign(draft, unplaced, slot=donor))
    draft.note(NoteKind.SLOT_CHANGED, "V2", unplaced.replica_id, f"rank {rank} goes to one that has a place", rank=donor)


def succeed(draft: Draft, donor: int, rank: int, because: str) -> None:
    """Let the successor of one rank hold the vacant slot of this one, which may be the same."""
    replica_id = draft.slots[donor].successor
    assert replica_id is not None, f"rank {donor} has no successor to fill rank {rank}"
    successor = draft.replicas[replica_id]
    slots.set_successor(draft, donor, None)
    replicas.disarm_start_timer(draft, successor)
    successor = replicas.assign(draft, successor, slot=rank, start_timer=NO_TIMER)
    slots.seat(draft, rank, successor)
    if successor.state is PLACED:
        draft.placed = draft.placed.set(replica_id, successor.birth)
    draft.note(RANK_INHERITED, "R6", replica_id, because, rank=rank)


def await_successor(draft: Draft, rank: int, successor: Replica) -> None:
    """Let a replica that has no place yet be the successor of a rank. The update waits for it, unless it has already."""
    slots.set_successor(draft, rank, successor)
    if successor.since + draft.spec.surge_patience_s <= draft.clock:
        slots.set_stoppable(draft, rank, arrived=False)
    else:
        timer = replicas.arm_patience(draft, successor.replica_id)
        replicas.change(draft, successor, since=draft.clock, start_timer=timer)


def go_without(draft: Draft, successor: Replica, because: str) -> None:
    """Let an update wait no longer for the place of this successor: the budget alone says when its predecessor is stopped."""
    assert successor.slot is not None, f"{successor.replica_id} is nobody's successor"
    replicas.disarm_start_timer(draft, successor)
    slots.set_stoppable(draft, successor.slot, arrived=False)
    early = f"{successor.replica_id}, which was started early for rank {successor.slot}"
    draft.note(NoteKind.WAITING, "V2", successor.replica_id, f"the update waits no longer for {early}: {because}")
