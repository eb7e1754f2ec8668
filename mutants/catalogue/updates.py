"""Updates, start failures, deletion and when a deployment is healthy: the decided cases of section 2.3."""

from mutants.mutant import Mutant

BIND = "rankcore/rules/bind.py"
ENDINGS = "rankcore/rules/endings.py"
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
        "            if draft.available <= left_at_least:\n",
        "            if draft.available < left_at_least:\n",
    ),
    Mutant(
        "one-successor-too-many",
        "2.3",
        "an update starts one replica more than max_surge allows",
        ROLL,
        "if len(draft.rollout.surging) >= draft.spec.max_surge or not has_room(draft):",
        "if len(draft.rollout.surging) > draft.spec.max_surge or not has_room(draft):",
    ),
    Mutant(
        "a-place-is-kept-for-the-rank-that-it-was-asked-for",
        "V2",
        "a successor that is placed waits for its own rank while another has no place",
        BIND,
        "and draft.requested.size and not packs:",
        "and draft.requested.size and packs:",
    ),
    Mutant(
        "a-vacant-rank-waits-for-a-newcomer",
        "V2",
        "a replica is started for a vacant rank though one waits that was started early",
        BIND,
        "        if not early.size:\n",
        "        if not packs or not early.size:\n",
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
        "if successor.since + draft.spec.surge_patience_s <= draft.clock:",
        "if successor.since > draft.clock:",
    ),
    Mutant(
        "given-up-one-failure-too-late",
        "2.3",
        "a build may fail once more than max_start_failures",
        ENDINGS,
        "if failures >= spec.max_start_failures and",
        "if failures > spec.max_start_failures and",
    ),
    Mutant(
        "a-proven-build-is-given-up",
        "2.3",
        "a version that was ready once is given up like one that never was",
        ENDINGS,
        "and build == spec.build and not proven:",
        "and build == spec.build:",
    ),
    Mutant(
        "a-lost-node-counts-as-a-failure",
        "2.3",
        "a replica that was starting on a lost node counts as a start failure",
        ENDINGS,
        "if start_failed or (replica.state is STARTING and not node_lost):",
        "if start_failed or replica.state is STARTING:",
    ),
    Mutant(
        "a-failed-build-is-sent-on",
        "2.3",
        "a user_config that has failed is sent to the replicas that run well",
        "rankcore/rules/configure.py",
        "if not draft.rollout.stale_config or draft.status is DEPLOY_FAILED:",
        "if not draft.rollout.stale_config:",
    ),
)
