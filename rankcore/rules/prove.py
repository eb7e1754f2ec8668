"""What proves a build: that one slot had somebody ready on it for `min_ready_s`, one or one after the other (2.3, V7).

**What.** What is proven is tried for ever, and is what DEPLOY_FAILED falls back to; what is not fails after
`max_start_failures`. So what is taken for proven too early cannot be left any more: a version that dies one second after it was
ready was ready, N times. And what is never taken for proven is ended by three failed loads after it has served for days, where
weights come and go and nobody stays for `min_ready_s`. So a build is proven

1. by one replica that is available: it has been ready for `min_ready_s` all the while; or
2. by those that were told to go while they were ready, whose times in one slot add up to `min_ready_s` (`Slot.served_s`), once
   the last of them is gone. Why it was told to go does not matter: scaled down, preempted, idle, evicted, restarted.

**What does not help.** A replica adds what it was ready for only when it is told to go, so one that fails adds nothing. And it
takes what was added in its slot back to nothing: else a version that dies after a second would be proven by those that were
told to go before their second was over, one in each lull, however many die in between. So the sum is of times in a row, as
`failures` is of ends in a row. Of one that is unready when it goes nobody knows whether it would have come back: it adds
nothing. A lost node, which is no fault, and of which nobody was told, changes nothing.

**Nothing is proven in parallel.** The sum is a slot's. It counts a replica from when the slot was last left or opened
(`Slot.unplaced_at`), so that one who is moved into it brings no time along in which another served there; so the parts of a sum
do not overlap, and a hundred replicas of one second each are one second. A controller's restart begins the sums anew.

**What it costs.** O(log N) for each that is told to go and for each that is gone; nothing is woken for a sum, since it grows
only when somebody is told to go. What is proven already is not added up.
"""

from rankcore.book import readiness, slots
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
        _prove(draft, f"{replica.replica_id} runs version {spec.version!r}, user_config {spec.config_id}")


def prove_served(draft: Draft, gone: Replica) -> None:
    """A replica that was told to go is gone: it may have served long enough, with those before it in its slot."""
    if gone.slot is None or not slots.is_unproven(draft, gone.build):
        return
    slot = draft.slots.get(gone.slot) or draft.former.get(gone.slot)
    if slot is None or slot.failed_build != gone.build or not slot.served_s or slot.served_s < draft.spec.min_ready_s:
        return
    version, config_id = gone.build
    _prove(draft, f"rank {gone.slot} was served for {slot.served_s:g} s by version {version!r}, user_config {config_id}")


def _prove(draft: Draft, because: str) -> None:
    draft.proven = draft.spec
    if draft.status is DEPLOY_FAILED:
        change_config(draft, draft.spec)
    draft.reach(Milestone.PROVEN, because)


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
