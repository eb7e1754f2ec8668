"""A replica is gone: its slot is kept for a replacement (R6), or its rank is released (R7)."""

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.notes import LATE, RANK_KEPT, RANK_RELEASED, REPLICA_LOST
from rankcore.rules import stall, static
from rankcore.rules.bind import succeed
from rankcore.rules.failures import count_failure
from rankcore.rules.prove import prove_served
from rankcore.state import Replica
from rankcore.values import DRAINING, FAILED, RELEASE


def ended(draft: Draft, replica: Replica, because: str, *, node_lost: bool = False) -> None:
    """A replica is gone, asked to or not.

    Args:
        node_lost: Its node is gone, which is no fault of the replica's.
    """
    if replica.state is FAILED:
        draft.note(LATE, "2", replica.replica_id, f"{because}: it had ended before")
        return
    if draft.progress_at is not None:
        stall.notice_end(draft, replica)
    asked_to = replica.state is DRAINING
    if not asked_to:
        draft.note(REPLICA_LOST, "R6", replica.replica_id, because, rank=replica.slot, before=replica.rank)
        if node_lost:
            slots.forget_failures_before(draft, replica)
        else:
            count_failure(draft, replica, because)
    rank = replica.slot
    held = slots.is_holder(draft, replica)
    if rank is not None and held and rank in draft.bundles.stranded:
        return static.fail(draft, draft.replicas[replica.replica_id], rank)
    if rank is not None and held:
        slots.unseat(draft, rank, draft.replicas[replica.replica_id])
    elif rank is not None and slots.is_successor(draft, replica):
        slots.set_successor(draft, rank, None)
    replicas.remove(draft, replica)
    if rank is not None and held:
        _pass_on(draft, rank, replica)
    elif replica.leaving is RELEASE:
        draft.note(RANK_RELEASED, "R7", replica.replica_id, because, rank=rank, before=replica.rank)
    if asked_to:
        prove_served(draft, replica)


def _pass_on(draft: Draft, rank: int, gone: Replica) -> None:
    if draft.slots[rank].successor is not None:
        succeed(draft, rank, rank, f"its predecessor {gone.replica_id} has ended")
    elif rank >= draft.spec.target_replicas:
        slots.close_slot(draft, rank)
        draft.note(RANK_RELEASED, "R6", gone.replica_id, "the world has become smaller", rank=rank)
    else:
        draft.note(RANK_KEPT, "R6", gone.replica_id, "for its replacement", rank=rank, before=gone.rank)
