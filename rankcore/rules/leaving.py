"""Telling a replica to go, and deciding what becomes of its slot when it has gone."""

from msgspec.structs import replace

from rankcore.book import evictions, replicas, slots
from rankcore.commands import KillReplica, StopReplica
from rankcore.draft import Draft
from rankcore.lifecycle import REPLICA_MOVES
from rankcore.notes import KILL_CHOSEN, STOP_CHOSEN, NoteKind
from rankcore.rules import budget
from rankcore.state import Replica, without
from rankcore.timers import NO_TIMER
from rankcore.values import DRAINING, REFILL, RELEASE, Leaving


def stop(draft: Draft, replica: Replica, leaving: Leaving, rule: str, because: str) -> None:
    """Let a replica that is not leaving yet finish its work, then end it."""
    draft.note(STOP_CHOSEN, rule, replica.replica_id, because, rank=replica.slot, before=replica.rank)
    slots.forget_failures_before(draft, replica)
    slots.count_served(draft, replica)
    _leave(draft, replica, _stop_command(draft, replica), leaving)


def kill(draft: Draft, replica: Replica, rule: str, because: str) -> None:
    """End a replica at once; its slot waits for it to be gone, then starts afresh (R6)."""
    draft.note(KILL_CHOSEN, rule, replica.replica_id, because, rank=replica.slot, before=replica.rank)
    command = KillReplica(replica.replica_id, draft.epoch)
    if replica.state is DRAINING:
        replicas.ask(draft, replica, command)
    else:
        _leave(draft, replica, command, REFILL)


def stop_again(draft: Draft, replica: Replica) -> None:
    """Tell a replica that was found draining to stop once more, in this epoch."""
    replicas.ask(draft, replace(replica, since=draft.clock), _stop_command(draft, replica))


def release(draft: Draft, replica: Replica, because: str) -> None:
    """Do not replace a replica that is leaving anyway: its rank goes free once it has stopped (R7)."""
    draft.note(NoteKind.SLOT_GIVEN_UP, "2.5", replica.replica_id, because, rank=replica.slot, before=replica.rank)
    draft.recovery = replace(draft.recovery, owed=without(draft.recovery.owed, replica.replica_id))
    _give_up_slot(draft, replica)
    replicas.assign(draft, draft.replicas[replica.replica_id], leaving=RELEASE)


def dismiss_successor(draft: Draft, rank: int, because: str) -> None:
    """Stop the replica that was started early for this slot, if there is one; one that is available once it is not needed.

    That is decided when all of this step's news has been taken in (`overlap.let_go`): whose failure is the reason is available
    until then, and so is who is killed after it.
    """
    slot = draft.slots[rank]
    if slot.successor is None:
        return
    successor = draft.replicas[slot.successor]
    if budget.is_available(draft, successor):
        slots.set_unwanted(draft, rank)
    else:
        stop(draft, successor, RELEASE, "2.3", because)


def end_successor(draft: Draft, rank: int, because: str) -> None:
    """Stop the replica that was started early for this slot, if there is one, whether it is needed or not."""
    slot = draft.slots[rank]
    if slot.successor is not None:
        stop(draft, draft.replicas[slot.successor], RELEASE, "2.3", because)


def _stop_command(draft: Draft, replica: Replica) -> StopReplica:
    timeout_s, deadline_at = draft.spec.graceful_shutdown_timeout_s, evictions.deadline_of(draft, replica)
    if deadline_at is not None:
        timeout_s = min(timeout_s, max(0.0, deadline_at - draft.clock))
    return StopReplica(replica.replica_id, timeout_s, draft.epoch)


def _leave(draft: Draft, replica: Replica, command: StopReplica | KillReplica, leaving: Leaving) -> None:
    if slots.is_successor(draft, replica) and replica.slot is not None:
        # It never held the rank: the slot goes on with its holder, and the update starts another successor if it needs one.
        slots.set_successor(draft, replica.slot, None)
        replica = replicas.assign(draft, replica, slot=None)
        leaving = RELEASE
    elif replica.replica_id in draft.recovery.prepared:
        draft.recovery = replace(draft.recovery, prepared=draft.recovery.prepared.delete(replica.replica_id))
        leaving = RELEASE
    elif leaving is RELEASE:
        _give_up_slot(draft, replica)
    elif replica.slot is None:
        draft.recovery = replace(draft.recovery, owed=draft.recovery.owed.set(replica.replica_id, replica.birth))
    state = REPLICA_MOVES[replica.state, type(command)]
    left = replace(replica, state=state, leaving=leaving, since=draft.clock, start_timer=NO_TIMER, routed=False)
    left = replicas.ask(draft, left, command)
    replicas.begin_to_leave(draft, replica, left)
    if leaving is RELEASE:
        replicas.retake(draft, replica, left)


def _give_up_slot(draft: Draft, replica: Replica) -> None:
    if replica.slot is not None and slots.is_holder(draft, replica):
        end_successor(draft, replica.slot, "its slot is given up")
        slots.close_slot(draft, replica.slot)


def give_up_vacancy(draft: Draft, rank: int, because: str) -> None:
    """Keep a vacant slot's rank no longer; nobody alive is stopped for it."""
    draft.note(NoteKind.SLOT_GIVEN_UP, "2.3", because=because, rank=rank)
    slots.close_slot(draft, rank)
