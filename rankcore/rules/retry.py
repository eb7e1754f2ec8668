"""Back-off ends at once, and a build that was given up is tried again, because a user asks for it (V19).

A user who has mended what made replicas fail (a bucket that was not there, a key that had expired) changes nothing about the
deployment, and would wait for a back-off of a minute, or for ever. What was counted stays where it only rests: what fails again
waits longer. Where the build was given up the counts begin anew, as for another build, and the deployment is UPDATING.
"""

from itertools import chain

from msgspec.structs import replace

from rankcore.book import slots
from rankcore.draft import Draft
from rankcore.events import RetryRequested
from rankcore.frozen import EMPTY
from rankcore.lifecycle import Milestone
from rankcore.notes import LATE, NoteKind
from rankcore.rules.configure import change_build
from rankcore.values import DELETED, DELETING, DEPLOY_FAILED

RULE = "V19"


def on_retry_requested(draft: Draft, event: RetryRequested) -> None:
    """Start again what failed, in this step."""
    if draft.status in (DELETING, DELETED):
        draft.note(LATE, RULE, because=f"RetryRequested while {draft.status}")
    elif draft.status is DEPLOY_FAILED:
        _try_again(draft)
    else:
        known = chain(draft.slots.items(), draft.former.items())
        resting = sorted({rank for rank, slot in known if slot.retry_at > draft.clock})
        for rank in event.ranks or resting:
            _end_back_off(draft, rank)


def _try_again(draft: Draft) -> None:
    for rank, _ in sorted(draft.slots.items()):
        slots.forget_counts(draft, rank)
    draft.former = EMPTY
    draft.reach(Milestone.VERSION_CHANGED, f"version {draft.spec.version!r} is tried again")
    change_build(draft, draft.spec)
    draft.progressed = True
    draft.note(NoteKind.RETRIED, RULE, because=f"version {draft.spec.version!r}, which was given up, is tried again")


def _end_back_off(draft: Draft, rank: int) -> None:
    slot = draft.slots.get(rank)
    known = slot or draft.former.get(rank)
    if known is None or known.retry_at <= draft.clock:
        draft.note(LATE, RULE, because=f"RetryRequested of rank {rank}, which does not rest", rank=rank)
        return
    if slot is None:
        draft.former = draft.former.set(rank, replace(known, retry_at=draft.clock))
    else:
        draft.slots = draft.slots.set(rank, replace(slot, retry_at=draft.clock))
        if slot.holder is None:
            draft.ready = draft.ready.add(rank)
    because = f"its back-off ends {known.retry_at - draft.clock:g} s early"
    draft.note(NoteKind.RETRIED, RULE, because=because, rank=rank)
