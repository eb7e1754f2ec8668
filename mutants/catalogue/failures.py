"""Who counts as available, and failures after a replica was ready (section 2.3, V6 to V8)."""

from mutants.mutant import Mutant

ENDINGS = "rankcore/rules/endings.py"
FAILURES_RULES = "rankcore/rules/failures.py"

FAILURES = (
    Mutant(
        "a-crash-after-ready-is-not-counted",
        "V8",
        "who dies after it was ready is replaced at once, however often",
        ENDINGS,
        "        if node_lost:\n",
        "        if node_lost or replica.ready_at is not None:\n",
    ),
    Mutant(
        "the-first-crash-waits",
        "2.3",
        "who was ready and dies is not replaced at once the first time",
        FAILURES_RULES,
        "doublings = failures - 2 if was_ready else failures - 1",
        "doublings = failures - 1",
    ),
    Mutant(
        "long-service-counts-for-nothing",
        "2.3",
        "a replica that was ready for days and dies is one more failure in a row",
        FAILURES_RULES,
        " and not slots.has_served_long(draft, replica)",
        "",
    ),
    Mutant(
        "an-old-versions-crash-ends-the-wait",
        "2.3",
        "the crash of a replica that an update is to replace has the failed new version tried again at once",
        FAILURES_RULES,
        "    if build != started_with.build and (started_with is draft.spec or build != draft.spec.build):\n",
        "    if replica.version not in (build[0], draft.spec.version):\n",
    ),
    Mutant(
        "ready-is-available",
        "V7",
        "an update stops the next old replica as soon as the last newcomer is ready",
        "rankcore/rules/budget.py",
        "return draft.available - len(draft.maturing) - (",
        "return draft.available - (",
    ),
    Mutant(
        "ready-is-proven",
        "V7",
        "a version is proven by a replica that has just become ready",
        "rankcore/rules/prove.py",
        "    if is_available(draft, replica):\n",
        "    if replica.ready_at is not None:\n",
    ),
    Mutant(
        "nobody-wakes-for-who-matures",
        "V7",
        "what waits for min_ready_s is not what the core asks to be woken for",
        "rankcore/rules/timeouts.py",
        "    if draft.maturing.items:\n",
        "    if len(draft.maturing) > len(draft.replicas):\n",
    ),
    Mutant(
        "one-is-enough-for-healthy",
        "V7",
        "a spec is what a rollback goes to once one replica has proven it",
        "rankcore/rules/conclude.py",
        "proven.build == spec.build and not draft.maturing.items and",
        "proven.build == spec.build and",
    ),
    Mutant(
        "a-config-takes-no-budget",
        "V5",
        "another user_config is sent to all at once though it is to be rolled out",
        "rankcore/rules/configure.py",
        "            if not budget.may_send_config(draft):\n                break\n",
        "",
    ),
    Mutant(
        "a-config-that-hangs-is-waited-for",
        "V5",
        "a user_config that is never acknowledged keeps its replica, and the roll-out, for ever",
        "rankcore/rules/messages.py",
        '"start_timer": replicas.arm_start_timer(draft, replica.replica_id)}',
        '"start_timer": replica.start_timer}',
    ),
    Mutant(
        "who-took-a-failed-config-keeps-it",
        "V5",
        "after DEPLOY_FAILED nobody is sent the proven user_config",
        "rankcore/rules/failures.py",
        "    if draft.proven is not None:\n        change_config(draft, draft.proven)\n",
        "",
    ),
    Mutant(
        "healthy-before-the-config-is-there",
        "V6",
        "a deployment is HEALTHY while a user_config is not acknowledged",
        "rankcore/rules/conclude.py",
        "    if draft.configuring or draft.rollout.stale_config:\n        return True\n",
        "",
    ),
)
