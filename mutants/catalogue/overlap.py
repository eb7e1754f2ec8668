"""Successors that take requests before they have their rank: V3, and what it does to the budget of V1."""

from mutants.mutant import Mutant

OVERLAP_RULE = "rankcore/rules/overlap.py"

OVERLAP = (
    Mutant(
        "nobody-serves-before-its-rank",
        "V3",
        "a prepared successor takes no requests, so that with a budget of 0 no predecessor ever goes",
        OVERLAP_RULE,
        '    return draft.spec.hand_over == "overlap"\n',
        "    return False\n",
    ),
    Mutant(
        "nothing-means-one",
        "V3",
        "a budget of 0 is taken for one of 1",
        "rankcore/spec.py",
        "        return 0 if share in NOTHING else max(",
        "        return max(",
    ),
    Mutant(
        "published-without-its-rank-alone",
        "Q9",
        "who took requests without a rank is not published once more when it has one",
        "rankcore/book/routes.py",
        "    draft.routes_added.setdefault(replica_id, False)\n",
        "",
    ),
    Mutant(
        "who-is-needed-is-dismissed",
        "V1",
        "a successor that serves is stopped for a newer version though its predecessor goes already",
        "rankcore/rules/leaving.py",
        "    if budget.is_available(draft, successor):\n",
        "    if False:\n",
    ),
    Mutant(
        "who-has-failed-is-counted",
        "V1",
        "a version fails as it is told its rank, and another that serves with it goes though too few are left",
        "rankcore/rules/failures.py",
        "    if not budget.is_needed(draft, holder, failed):\n",
        "    if not budget.is_needed(draft, holder):\n",
    ),
    Mutant(
        "who-starts-on-what-failed-goes-on",
        "V3",
        "one that is needed while its version is given up goes on with that when it is not needed any more",
        "rankcore/core.py",
        "        if draft.early and draft.status is DEPLOY_FAILED:\n",
        "        if False:\n",
    ),
    Mutant(
        "who-is-adopting-costs-nothing",
        "V1",
        "one that is told its rank is stopped for a newer version outside the budget, though it serves",
        "rankcore/book/slots.py",
        "    return replica.state in RUNNING or replica.routed\n",
        "    return replica.state in RUNNING\n",
    ),
    Mutant(
        "who-is-needed-is-prepared-anew",
        "V1",
        "another user_config takes a successor off the routes that the budget needs there",
        OVERLAP_RULE,
        "    return replica.routed and budget.is_available(draft, replica) and not budget.may_send_config(draft)\n",
        "    return False\n",
    ),
    Mutant(
        "the-unwanted-keep-their-place",
        "V3",
        "a successor that nobody wants is kept, and not given to a rank that lacks somebody: each waits for the other",
        OVERLAP_RULE,
        "    return next((each for each in others if each in early), None)\n",
        "    return None\n",
    ),
    Mutant(
        "who-is-kept-has-a-successor",
        "V12",
        "one that waits for its rank, and keeps it below a partition that was raised, has a successor of the new version",
        "rankcore/rules/roll.py",
        "        if not has_one and not kept and rank not in",
        "        if not has_one and rank not in",
    ),
    Mutant(
        "who-serves-is-killed-with-its-drained-node",
        "V14",
        "one that takes requests without a rank is killed when its node is drained",
        "rankcore/rules/evict.py",
        "not replica.bundles and not replica.routed:\n",
        "not replica.bundles:\n",
    ),
)
