"""A controller came back: the promises of R10 and of the end of section 2.4."""

from mutants.mutant import Mutant

RECOVERY_RULES = "rankcore/rules/recovery.py"
FILL = "rankcore/rules/fill.py"
CORE = "rankcore/core.py"

RECOVERY = (
    Mutant(
        "the-epoch-is-not-compared",
        "R10",
        "a report that answers another controller's question is believed",
        RECOVERY_RULES,
        "if event.epoch != draft.epoch:",
        "if event.epoch > draft.epoch:",
    ),
    Mutant(
        "ranks-are-given-before-all-have-reported",
        "R10",
        "the rules run while a discovered replica has neither reported nor ended",
        CORE,
        "if status is not DELETING and status is not DELETED and not draft.recovery.unreported:",
        "if status is not DELETING and status is not DELETED:",
    ),
    Mutant(
        "a-gap-is-not-used-after-a-recovery",
        "R10",
        "gaps below the highest rank are not available again after a restart",
        FILL,
        "        rank = draft.taken.lowest_free()\n        if rank >= target or not has_room(draft):",
        "        rank = draft.taken.lowest_free() if draft.epoch == 1 else draft.taken.taken.highest() + 1\n"
        "        if rank >= target or not has_room(draft):",
    ),
    Mutant(
        "a-duplicate-is-accepted",
        "R10",
        "two running replicas that report one rank both keep it",
        RECOVERY_RULES,
        "    if slot is not None and slot.holder is not None:\n        holder = draft.replicas[slot.holder]",
        "    if slot is not None and slot.holder and draft.replicas[slot.holder].state is not ReplicaState.RUNNING:\n"
        "        holder = draft.replicas[slot.holder]",
    ),
    Mutant(
        "the-younger-keeps-the-rank",
        "R10",
        "of two that report one rank, the younger keeps it",
        RECOVERY_RULES,
        "return order(holder) < order(other)",
        "return order(holder) > order(other)",
    ),
    Mutant(
        "who-leaves-keeps-the-rank",
        "2.4",
        "of two that report one rank, the older keeps it although it is draining",
        RECOVERY_RULES,
        "return replica.state is DRAINING, replica.birth",
        "return False, replica.birth",
    ),
    Mutant(
        "revisions-begin-anew",
        "2.1",
        "the revisions of a new controller are not above those of the last one",
        "rankcore/draft.py",
        "Tables(revision=epoch << 32,",
        "Tables(revision=epoch,",
    ),
    Mutant(
        "a-loser-does-not-take-its-rank-back",
        "R10",
        "who shared a rank with a replica that has ended since is moved all the same",
        RECOVERY_RULES,
        "if slot is not None and slot.holder is None:\n        draft.recovery = ",
        "if slot is None:\n        draft.recovery = ",
    ),
    Mutant(
        "nodes-agree-after-the-budget-is-spent",
        "V1",
        "who takes a user_config along to its node rank does so after an update has used up the budget",
        CORE,
        """        if draft.recovery.misplaced:
            recovery.align(draft)
        if draft.evictions.ranks.size:
            evict.evict(draft)
        if draft.rollout.unstarted.size or draft.rollout.running.size or draft.bundles.misfits.size:
            roll(draft)
""",
        """        if draft.evictions.ranks.size:
            evict.evict(draft)
        if draft.rollout.unstarted.size or draft.rollout.running.size or draft.bundles.misfits.size:
            roll(draft)
        if draft.recovery.misplaced:
            recovery.align(draft)
""",
    ),
    Mutant(
        "nodes-agree-outside-the-budget",
        "V1",
        "who takes a user_config along to its node rank does so however few are available",
        RECOVERY_RULES,
        "    if not draft.rollout.stale_config or not takes_config_along(draft, replica):\n",
        "    if True:\n",
    ),
    Mutant(
        "a-newcomer-waits-for-who-waits-for-it",
        "R10",
        "a newcomer waits for a node rank, and whoever believes that for the newcomer to be available",
        RECOVERY_RULES,
        "    return replica.told.node_rank not in draft.node_of_rank\n",
        "    return True\n",
    ),
    Mutant(
        "a-ring-waits-for-who-waits-for-the-budget",
        "R10",
        "nodes in a ring wait as long as anybody waits for the budget, which may be for a newcomer on one of them",
        RECOVERY_RULES,
        "        if stuck is None or any(",
        "        if stuck is None or for_budget or any(",
    ),
    Mutant(
        "a-user-config-ends-a-dispute",
        "R3",
        "a node rank that two nodes believe is given to a newcomer once who is to give it up has taken a user_config",
        "rankcore/rules/news.py",
        "    if replica.replica_id not in draft.recovery.misplaced:",
        "    if replica.replica_id in draft.replicas:",
    ),
)
