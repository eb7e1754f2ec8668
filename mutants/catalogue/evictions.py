"""Cordon, drain, replacement by name, and what is forgotten of nodes (V14, V15, V20)."""

from mutants.mutant import Mutant

EVICT = "rankcore/rules/evict.py"

EVICTIONS = (
    Mutant(
        "a-cordoned-node-has-room",
        "V14",
        "ranks are packed on a node that is cordoned and not drained",
        "rankcore/state.py",
        "        if self.cordoned:\n",
        "        if self.drain is not None:\n",
    ),
    Mutant(
        "stopped-before-its-successor-has-a-place",
        "V14",
        "a replica on a drained node is stopped once its successor has waited for long",
        EVICT,
        "holder.slot in draft.rollout.arrived and ",
        "",
    ),
    Mutant(
        "a-drain-exceeds-the-budget",
        "V14",
        "a drain stops one replica more than max_unavailable allows",
        EVICT,
        "        if budget.available(draft) <= budget.left_at_least(draft):\n            break\n        if holder.slot",
        "        if budget.available(draft) < budget.left_at_least(draft):\n            break\n        if holder.slot",
    ),
    Mutant(
        "an-update-rolls-who-is-evicted",
        "V14",
        "an update stops a replica whose room is on a cordoned node",
        "rankcore/rules/roll.py",
        "        waits = rank in misfits or rank in evicted\n",
        "        waits = rank in misfits\n",
    ),
    Mutant(
        "nobody-wakes-for-a-deadline",
        "V15",
        "who was told to stop is killed at its deadline only if something else happens then",
        "rankcore/book/evictions.py",
        "    return deadline_at if replica.state is DRAINING else",
        "    return NEVER if replica.state is DRAINING else",
    ),
    Mutant(
        "stopped-at-the-deadline",
        "V15",
        "who is left on a drained node is told to stop when nobody may be there any more",
        "rankcore/book/evictions.py",
        "    return deadline_at - draft.spec.graceful_shutdown_timeout_s\n",
        "    return deadline_at\n",
    ),
    Mutant(
        "who-reports-from-a-drained-node-stays",
        "V15",
        "a replica that is found on a drained node after a restart is not asked to go",
        "rankcore/rules/recovery.py",
        "            evict.notice_reported(draft, found)\n",
        "            pass\n",
    ),
    Mutant(
        "an-uncordoned-node-is-left-all-the-same",
        "V14",
        "who was asked to go with its node goes though that is uncordoned",
        EVICT,
        "        if asked is not None and asked.with_node:\n",
        "        if asked is not None and not asked.with_node:\n",
    ),
    Mutant(
        "a-cordon-ends-a-drain",
        "V14",
        "a node that is cordoned while it is drained is left by nobody any more",
        EVICT,
        "        _cordon(draft, event.node_id, replace(node, cordoned=True, cordon_at=event.at))\n",
        "        _cordon(draft, event.node_id, replace(node, cordoned=True, drain=None, cordon_at=event.at))\n",
    ),
    Mutant(
        "forgotten-with-somebody-on-the-way",
        "V20",
        "a lost node is forgotten though a replica may have come up there before its loss",
        "rankcore/rules/forget.py",
        "each.birth < births and",
        "each.birth > births and",
    ),
    Mutant(
        "an-uncordon-makes-the-surge-greater",
        "V14",
        "an update goes on with all the successors that a drain has started, though max_surge is less",
        EVICT,
        "    dismiss_surplus(draft)\n",
        "",
    ),
    Mutant(
        "what-was-given-up-is-updated-after-an-uncordon",
        "V14",
        "the successor of one that may stay, and runs what works, waits for its end for ever",
        EVICT,
        "        if draft.status is DEPLOY_FAILED or not slots.is_outdated(draft, replica.slot, replica):\n",
        "        if not slots.is_outdated(draft, replica.slot, replica):\n",
    ),
)
