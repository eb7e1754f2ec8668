"""Hand-over: a successor's user code is up before its predecessor goes, and it is told its rank after that (V4).

**What.** With `hand_over="none"` a successor waits for its rank with an empty process, so that its rank is out of service while
the predecessor drains and for all of the start-up: minutes, where weights are loaded. Most of a start-up needs no rank. So here
the successor is *prepared*: its user code starts without a rank, and what is left for after the predecessor's end is to be told
the ranks, the *adoption*. Rank k is then out of service for drain + adoption. Numbers as at the lines:

1. *Told.* A successor that has a place, and is one still when `bind` has looked at it, is told `PrepareReplica`. Who holds a
   slot is initialised at once: it has nobody to wait for. Another user_config is told with a higher revision.
2. *Prepared.* It says so with the revision that it has carried out; one of an earlier one is late.
3. *Far enough.* `min_ready_s` later its predecessor may go, within the budget: until then a version that dies a second after it
   came up has cost nobody's service.
4. *Adopted.* The slot falls vacant and goes to it as to any successor; it is initialised in that step. One that `bind` gives a
   slot while it prepares finishes that first: what runs in a process cannot be taken back.
5. *No room.* Where a successor found no room (`bind.go_without`), and none has got a place since, the budget alone says who
   goes (`roll`): the cluster is full, and nobody can be prepared in it. One that gets a place after that is prepared all the
   same.
6. *Found.* A restarted controller finds who is prepared, and nobody knows for whom. Once all have reported each takes a rank
   that nobody has (its predecessor had ended, and what it was told of its ranks did not arrive), waits for one that somebody
   who leaves still believes to have, or succeeds one who is still to go; else it is stopped. Who was being prepared is killed,
   like all that had no rank: only of a process that is at rest is it known what it has done.

**Who has no rank** counts nowhere: it believes nothing, so it is in no count of ranks, node ranks or local ranks (R3), and the
rank of its predecessor stays that one's until it has ended (R7).

**Why it ends.** A preparation ends within `start_timeout_s`, which is a failure in the successor's slot, as a start is. After
that the next one waits for its back-off, and the predecessor goes on: a version that cannot come up without a rank ends in
DEPLOY_FAILED, with all N old ones in service.

**What it costs.** One message and one piece of news for each successor; O(1) where nobody has a place yet.
"""

from typing import Any

from msgspec.structs import replace

from rankcore.book import nodes, readiness, replicas, slots
from rankcore.commands import PrepareReplica
from rankcore.draft import Draft
from rankcore.events import ReplicaPrepared
from rankcore.lifecycle import REPLICA_MOVES
from rankcore.notes import LATE, RANK_INHERITED, NoteKind
from rankcore.rules import budget, leaving, overlap
from rankcore.spec import DeploymentSpec
from rankcore.state import Replica
from rankcore.timers import NO_TIMER
from rankcore.values import DEPLOY_FAILED, PLACED, PREPARED, PREPARING, RELEASE

RULE = "V4"
EARLY = "none"
"""The hand-over in which nobody is prepared."""


def await_preparation(draft: Draft, successor: Replica, rank: int) -> None:
    """The successor of a rank has got a place: its predecessor may go, or it is prepared first."""
    slots.note_arrived(draft, rank)
    if draft.spec.hand_over == EARLY:
        slots.set_stoppable(draft, rank)
    else:
        draft.to_prepare.append(successor.replica_id)


def look_at_all(draft: Draft) -> None:
    """Another user_config, or another hand-over, is wanted: look at everybody who has a place, and waits for a rank."""
    those = (draft.slots[rank].successor for rank in draft.rollout.arrived)
    draft.to_prepare.extend(replica_id for replica_id in those if replica_id is not None)


def look_for_room_again(draft: Draft) -> None:
    """Another build is wanted, or one has found room: successors may find it, unless one that found none goes on waiting."""
    rollout = draft.rollout
    if rollout.full and all(rank in rollout.arrived for rank in rollout.stoppable):
        draft.rollout = replace(rollout, full=False)  # 5


def prepare(draft: Draft) -> None:
    """Tell successors that have a place to come up without a rank."""
    for replica_id in dict.fromkeys(draft.to_prepare):
        successor = draft.replicas.get(replica_id)
        if successor is None or successor.slot is None or not slots.is_successor(draft, successor):
            continue
        if successor.slot in draft.rollout.unwanted:
            continue
        wanted = draft.recipe_of(successor.slot)
        if successor.state is PLACED and draft.spec.hand_over != EARLY:
            draft.rollout = replace(draft.rollout, full=False)  # 5
            _tell(draft, successor, successor.slot, wanted)  # 1
        elif _lacks_config(draft, successor, wanted):
            _tell(draft, successor, successor.slot, wanted)  # 1
        elif successor.state is PREPARED and not successor.routed and overlap.is_wanted(draft):
            slots.keep_waiting(draft, successor.slot)
            readiness.end_prepared(draft, successor)
            notice_ripe(draft, overlap.publish(draft, successor))


def _lacks_config(draft: Draft, successor: Replica, wanted: DeploymentSpec) -> bool:
    """Whether one whose user code was started is prepared anew, with another user_config."""
    other = successor.state in (PREPARING, PREPARED) and successor.config_id != wanted.config_id
    return other and not overlap.keeps_config(draft, successor)


def _tell(draft: Draft, successor: Replica, rank: int, wanted: DeploymentSpec) -> None:
    slots.keep_waiting(draft, rank)
    replicas.disarm_start_timer(draft, successor)
    if successor.routed:
        replicas.stop_serving(draft, successor)
    else:
        readiness.end_prepared(draft, successor)
    revision = draft.next_revision()
    command = PrepareReplica(
        successor.replica_id, draft.spec.target_replicas, wanted.user_config, wanted.config_id, revision, draft.epoch
    )
    told = replace(
        successor,
        state=REPLICA_MOVES[successor.state, PrepareReplica],
        config_id=wanted.config_id,
        revision=revision,
        since=draft.clock,
        start_timer=replicas.arm_start_timer(draft, successor.replica_id),
        ready_at=None,
        ready_timer=NO_TIMER,
        routed=False,
    )
    replicas.ask(draft, told, command)
    because = f"while {draft.slots[rank].holder} has the rank"
    draft.note(NoteKind.PREPARATION_ASKED, RULE, successor.replica_id, because, rank=rank)


def on_prepared(draft: Draft, event: ReplicaPrepared, replica: Replica) -> None:
    """A replica's user code is up, without a rank."""
    state = REPLICA_MOVES.get((replica.state, ReplicaPrepared))
    if state is None or event.revision != replica.revision:  # 2
        draft.note(LATE, "2", replica.replica_id, f"ReplicaPrepared while {replica.state}")
        draft.idle = True
        return
    replicas.disarm_start_timer(draft, replica)
    prepared = replace(replica, state=state, pending=None, start_timer=NO_TIMER, **_readiness(draft, replica))
    replicas.answered(draft, prepared)
    if overlap.is_wanted(draft):
        prepared = overlap.publish(draft, prepared)
    draft.note(NoteKind.REPLICA_PREPARED, RULE, replica.replica_id, "it has no rank yet", rank=replica.slot)
    if slots.is_holder(draft, prepared):
        draft.placed = draft.placed.set(prepared.replica_id, prepared.birth)  # 4
    else:
        notice_ripe(draft, prepared)


def _readiness(draft: Draft, replica: Replica, prepared_for_s: float = 0.0) -> dict[str, Any]:
    return {} if overlap.is_wanted(draft) else readiness.begin_prepared(draft, replica, prepared_for_s)


def notice_ripe(draft: Draft, replica: Replica) -> None:
    """Let the predecessor of a replica go that has been prepared for `min_ready_s`."""
    ripe = replica.since + draft.spec.min_ready_s <= draft.clock
    if ripe and replica.slot is not None and slots.is_successor(draft, replica):
        if replica.slot not in draft.rollout.unwanted:
            slots.set_stoppable(draft, replica.slot)  # 3
        readiness.notice_available(draft, replica)


def find(draft: Draft, replica: Replica, prepared_for_s: float) -> None:
    """A restarted controller hears that this replica is prepared, and for how long it has been."""
    since = _readiness(draft, replica, prepared_for_s)
    found = replicas.answered(draft, replace(replica, state=PREPARED, pending=None, **since))
    if overlap.is_wanted(draft):
        found = overlap.publish(draft, found, prepared_for_s)
    nodes.join(draft, found)
    waiting = draft.recovery.prepared.set(found.replica_id, found.birth)
    draft.recovery = replace(draft.recovery, prepared=waiting)
    draft.note(NoteKind.REPORT_ADOPTED, "R10", found.replica_id, f"{PREPARED} on {found.node_id}")


def employ_found(draft: Draft) -> None:
    """Give each that was found prepared a rank that nobody has, or somebody to succeed (6)."""
    for found in draft.those(draft.recovery.prepared):
        rank = _unfilled(draft, found)
        needed = budget.is_needed(draft, found)
        if rank is None and needed:
            rank = overlap.any_unfilled(draft, _unfilled_ranks(draft))
        if rank is not None:
            holder = _leave_the_found(draft, found, rank)
            (slots.seat if rank in draft.slots else slots.open_held)(draft, rank, holder)
            draft.placed = draft.placed.set(holder.replica_id, holder.birth)
            killed = _killed(draft)
            if killed and len(draft.slots) + len(draft.recovery.owed) > draft.spec.target_replicas:
                leaving.release(draft, killed[-1], f"{found.replica_id}, which was found prepared, is there for it")
            draft.note(RANK_INHERITED, "R10", holder.replica_id, "it was found prepared, and nobody has the rank", rank=rank)
        elif _may_wait(draft, found):
            continue
        elif (rank := _to_be_succeeded(draft, found)) is not None:
            successor = _leave_the_found(draft, found, rank)
            slots.set_successor(draft, rank, successor)
            slots.note_arrived(draft, rank)
            if not _lacks_config(draft, successor, draft.recipe_of(rank)):
                notice_ripe(draft, successor)
            draft.to_prepare.append(successor.replica_id)
            because = f"it was found prepared, after {draft.slots[rank].holder}"
            draft.note(RANK_INHERITED, "R10", successor.replica_id, because, rank=rank)
        elif not needed:
            leaving.stop(draft, found, RELEASE, "R10", "it was found prepared, and is of no use")


def _leave_the_found(draft: Draft, found: Replica, rank: int) -> Replica:
    draft.recovery = replace(draft.recovery, prepared=draft.recovery.prepared.delete(found.replica_id))
    return replicas.assign(draft, found, slot=rank)


def _unfilled(draft: Draft, found: Replica) -> int | None:
    return next((rank for rank in _unfilled_ranks(draft) if _is_wanted(draft, found, rank)), None)


def _unfilled_ranks(draft: Draft) -> tuple[int, ...]:
    free = draft.taken.taken.free_below(draft.spec.target_replicas) if _missing(draft) else ()
    return (*draft.ready, *free)


def _missing(draft: Draft) -> int:
    """How many ranks nobody fills or is going to; of some of them, one who leaves may still believe to have it (R3).

    Who was killed because it was found without a rank is going to be replaced, unless somebody found is there for that.
    """
    filled = len(draft.slots) + len(draft.recovery.losers) + len(draft.recovery.owed) - len(_killed(draft))
    return max(0, draft.spec.target_replicas - filled)


def _killed(draft: Draft) -> list[Replica]:
    return [each for each in draft.those(draft.recovery.owed) if each.told is None]


def _may_wait(draft: Draft, found: Replica) -> bool:
    """Whether a rank for it will be free once those have ended that were found leaving."""
    older = sum(birth < found.birth for _, birth in draft.recovery.prepared.items())
    ends = (0, draft.spec.target_replicas - 1)
    return older < _missing(draft) and any(_is_wanted(draft, found, rank) for rank in ends)


def _to_be_succeeded(draft: Draft, found: Replica) -> int | None:
    evicted, outdated = draft.evictions.ranks, draft.rollout.running
    updates = draft.status is not DEPLOY_FAILED and len(draft.rollout.surging) < draft.spec.surge_max
    candidates: tuple[int, ...] = (*evicted, *(outdated if updates else ()))
    for rank in candidates:
        if draft.slots[rank].successor is None and _is_wanted(draft, found, rank):
            return rank
    return None


def _is_wanted(draft: Draft, found: Replica, rank: int) -> bool:
    known = draft.recipe is not None or rank < draft.kept_below
    return known and found.is_of(draft.recipe_of(rank)) and not overlap.has_to_go(draft, found)
