"""Moving the deployment along its life cycle."""

from rankcore.draft import Draft
from rankcore.lifecycle import DEPLOYMENT_MOVES, Milestone
from rankcore.notes import STATUS_CHANGED
from rankcore.spec import DeploymentSpec
from rankcore.values import DEPLOY_FAILED


def reach(draft: Draft, milestone: Milestone, because: str) -> None:
    """Move to where this milestone leads from here, if anywhere."""
    status = DEPLOYMENT_MOVES.get((draft.status, milestone))
    if status is not None and status is not draft.status:
        draft.note(STATUS_CHANGED, "2.3", because=f"{draft.status} -> {status}: {because}")
        draft.status = status


def recipe(draft: Draft) -> DeploymentSpec | None:
    """Which version and user_config a replica is started with now; None: nothing that works is known (section 2.3)."""
    return draft.proven if draft.status is DEPLOY_FAILED else draft.spec


def is_resting(draft: Draft, rank: int) -> bool:
    """Whether what would be started now has just failed in this slot; another build goes straight in."""
    slot, started_with = draft.slots[rank], recipe(draft)
    return slot.retry_at > draft.clock and started_with is not None and slot.failed_build == started_with.build
