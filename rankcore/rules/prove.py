"""What proves a build: one replica that has been ready on it for `min_ready_s` (section 2.3, V7).

What is proven is tried for ever, and is what DEPLOY_FAILED falls back to; what is not fails after `max_start_failures`. So what
is taken for proven too early cannot be left any more: a version that dies one second after it was ready was ready, N times.
"""

from rankcore.book import readiness
from rankcore.book.slots import RUNNING
from rankcore.draft import Draft
from rankcore.lifecycle import Milestone
from rankcore.rules import prepare
from rankcore.rules.budget import is_available
from rankcore.rules.configure import change_config
from rankcore.state import Replica
from rankcore.values import DEPLOY_FAILED


def prove(draft: Draft, replica: Replica) -> None:
    """A replica that runs and is available on the spec's build proves it: from now on it is retried for ever.

    One that takes requests without a rank does not: it may still fail when it is told one.
    """
    spec = draft.spec
    if draft.proven is spec or replica.version != spec.version or replica.config_id != spec.config_id:
        return
    if is_available(draft, replica):
        draft.proven = spec
        if draft.status is DEPLOY_FAILED:
            change_config(draft, spec)
        draft.reach(Milestone.PROVEN, f"{replica.replica_id} runs version {spec.version!r}, user_config {spec.config_id}")


def mature(draft: Draft) -> None:
    """Replicas have been ready for `min_ready_s` by now: they are available, and may prove their build."""
    # Compared as `next_due` adds it up: at - period and at + period do not round alike.
    while draft.maturing.items and draft.maturing.first().at + draft.spec.min_ready_s <= draft.clock:
        replica = draft.replicas[draft.maturing.first().replica_id]
        draft.maturing = draft.maturing.pop()
        if replica.state in RUNNING:
            readiness.notice_available(draft, replica)
            prove(draft, replica)
        else:
            prepare.notice_ripe(draft, replica)
    while draft.ripening.items and draft.ripening.first().at + draft.spec.min_ready_s <= draft.clock:
        replica = draft.replicas[draft.ripening.first().replica_id]
        draft.ripening = draft.ripening.pop()
        prepare.notice_ripe(draft, replica)


def follow_min_ready(draft: Draft) -> None:
    """Look at everybody who is ready by the spec's `min_ready_s`, which is another one, or waited for the last report: O(N)."""
    for replica in readiness.follow_spec(draft):
        if replica.state in RUNNING:
            if is_available(draft, replica):
                readiness.notice_available(draft, replica)
            prove(draft, replica)
        else:
            prepare.notice_ripe(draft, replica)
