"""Who hangs in `reconfigure` is no obstacle to the version that mends it (V1, V5).

**What.** Who is told another user_config is not available until it has acknowledged it (`rules/budget.py`). Where `reconfigure`
hangs, fewer than N - max_unavailable are available, so a version that mends it may stop nobody, and would wait until
`start_timeout_s` is over: ten minutes, since a model may load for so long. Who is outdated and has owed an acknowledgement for
`min_ready_s` + `health_check_timeout_s` is therefore replaced first and at no cost, as who is unready is (`rules/roll.py`): it
is not available as it is, so that its end takes nothing from what the budget counts. A well one that is as slow as that is
replaced sooner than the budget alone would let it be. Nothing failed by it, nobody is killed, and where nothing newer is wanted
all is left to the start time-out.

Who has acknowledged in the meantime is not of them: it becomes available `min_ready_s` later. Nor is anybody where who owes an
acknowledgement counts as available, since the budget pays for their ends.

**What it costs.** Who owes one is in `starting`, which is in the order of time: while its first has not waited for so long,
nobody has, and that costs O(1). Afterwards it is O(those who owe one) in a step.
"""

from rankcore.draft import Draft
from rankcore.rules import budget
from rankcore.state import Replica


def hanging(draft: Draft) -> list[Replica]:
    """Who has owed an acknowledgement for too long, the oldest first. The core is woken when the next one has."""
    if not draft.configuring or not budget.counts_owing(draft):
        return []
    found: list[Replica] = []
    first = overdue_at(draft, draft.starting.first().at)
    if first > draft.clock:
        draft.wake(first)
        return found
    for replica in draft.those(draft.configuring):
        if overdue_at(draft, replica.since) <= draft.clock:
            found.append(replica)
        else:
            draft.wake(overdue_at(draft, replica.since))
    return found


def overdue_at(draft: Draft, since: float) -> float:
    """When who was told a user_config at this time has owed its acknowledgement for too long."""
    return since + patience_s(draft)


def patience_s(draft: Draft) -> float:
    """For how long it may be owed while something newer is wanted."""
    return draft.spec.min_ready_s + draft.spec.health_check_timeout_s
