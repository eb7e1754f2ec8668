"""Updates, start failures, deletion and when a deployment is healthy: the decided cases of section 2.3."""

from mutants.mutant import Mutant

BIND = "rankcore/rules/bind.py"
ENDINGS = "rankcore/rules/endings.py"
FAILURES_RULES = "rankcore/rules/failures.py"
ROLL = "rankcore/rules/roll.py"
REQUESTS_RULES = "rankcore/rules/requests.py"
CONCLUDE = "rankcore/rules/conclude.py"
NEWS = "rankcore/rules/news.py"

UPDATES = (
    Mutant(
        "the-budget-is-exceeded-by-one",
        "2.3",
        "an update stops one running replica more than max_unavailable allows",
        ROLL,
        "            if budget.available(draft) <= budget.left_at_least(draft):\n",
        "            if budget.available(draft) < budget.left_at_least(draft):\n",
    ),
    Mutant(
        "one-successor-too-many",
        "2.3",
        "an update starts one replica more than max_surge allows",
        ROLL,
        "if len(draft.rollout.surging) >= draft.spec.surge_max or not has_room(draft):",
        "if len(draft.rollout.surging) > draft.spec.surge_max or not has_room(draft):",
    ),
    Mutant(
        "a-place-is-kept-for-the-rank-that-it-was-asked-for",
        "V2",
        "a successor that is placed waits for its own rank while another has no place",
        BIND,
        "    if not packs:  # 2",
        "    if packs:  # 2",
    ),
    Mutant(
        "a-vacant-rank-waits-for-a-newcomer",
        "V2",
        "a replica is started for a vacant rank though one waits that was started early",
        BIND,
        "in _served(draft, draft.ready, early):  # 1",
        "in _served(draft, draft.ready if packs else RankSet(), early):  # 1",
    ),
    Mutant(
        "a-rank-without-a-slot-waits-for-a-newcomer",
        "V2",
        "a replica is started for a rank that nobody has though one waits that was started early",
        BIND,
        "    _open_missing(draft, early(draft).size, draft.spec.target_replicas)\n",
        "",
    ),
    Mutant(
        "packed-ranks-without-room-wait",
        "V2",
        "where the core packs ranks, no successor takes a vacant rank though no node has room",
        BIND,
        "if packs and has_room(draft):",
        "if packs:",
    ),
    Mutant(
        "waited-for-once-more",
        "V2",
        "an update waits once more for a successor that it has waited for, when another rank gets it",
        BIND,
        "if successor.since + draft.spec.surge_patience_s <= draft.clock:\n        slots.set_stoppable(",
        "if successor.since > draft.clock:\n        slots.set_stoppable(",
    ),
    Mutant(
        "given-up-one-failure-too-late",
        "2.3",
        "a build may fail once more than max_start_failures",
        FAILURES_RULES,
        "if failures >= draft.spec.max_start_failures and",
        "if failures > draft.spec.max_start_failures and",
    ),
    Mutant(
        "a-proven-build-is-given-up",
        "2.3",
        "a version that was ready once is given up like one that never was",
        FAILURES_RULES,
        " and slots.is_unproven(draft, build):\n",
        " and build == draft.spec.build:\n",
    ),
    Mutant(
        "a-lost-node-counts-as-a-failure",
        "2.3",
        "a replica that was starting on a lost node counts as a start failure",
        ENDINGS,
        "        if node_lost:\n",
        "        if node_lost and replica.ready_at is not None:\n",
    ),
    Mutant(
        "a-failed-build-is-sent-on",
        "2.3",
        "a user_config that has failed is sent to the replicas that run well",
        "rankcore/rules/configure.py",
        "    wanted = draft.recipe\n    assert",
        "    wanted = draft.spec\n    assert",
    ),
)
