"""Who counts as available, which is what an update's budget is computed from (V1, V7).

A replica that serves is *available* once it has been ready for `min_ready_s` on the build that it runs: who has just said that
it is ready may be dead a second later, and an update that takes its word for it replaces the next old one with another of the
same kind, until none is left. Nor is it available while it owes the acknowledgement of another user_config: it may be about to
fail, and has not been ready on that. But where those are sent at once, and ready time is not asked for, that takes no budget.
Requests go to it all the while: `Draft.available` counts who is on the routes, with a rank or before it has one (V3). Who is
unready is not on them (V16), so that its end costs an update nothing; once it is ready again its `min_ready_s` begin anew.
"""

from rankcore.draft import Draft
from rankcore.state import Replica


def available(draft: Draft) -> int:
    """How many replicas are available."""
    return draft.available - len(draft.maturing) - (_owing(draft) if counts_owing(draft) else 0)


def counts_owing(draft: Draft) -> bool:
    """Whether who owes the acknowledgement of a user_config is not available."""
    return draft.spec.config_rollout == "rolling" or draft.spec.min_ready_s > 0.0


def _owing(draft: Draft) -> int:
    """How many who serve owe the acknowledgement of a user_config."""
    owing = len(draft.configuring)
    return owing - sum(each in draft.configuring for each in draft.unready) if owing and draft.unready else owing


def is_available(draft: Draft, replica: Replica) -> bool:
    """Whether a replica is available."""
    return replica.routed and replica.ready_at is not None and replica.ready_at + draft.spec.min_ready_s <= draft.clock


def left_at_least(draft: Draft) -> int:
    """How many have to be available for an update to stop another one: more than these."""
    return draft.spec.target_replicas - draft.spec.unavailable_max


def may_send_config(draft: Draft) -> bool:
    """Whether one more may be told another user_config now: one at a time may, however small the budget is (V5)."""
    return available(draft) > draft.spec.target_replicas - max(1, draft.spec.unavailable_max)


def is_needed(draft: Draft, replica: Replica, going: Replica | None = None) -> bool:
    """Whether an update may not end this one now: it is available, and no more are than have to be left (V1).

    Args:
        going: Who is available until the end of this step alone, if anybody is: it has just failed.
    """
    if not is_available(draft, replica):
        return False
    left = available(draft) - (going is not None and is_available(draft, going))
    return left <= left_at_least(draft)
