"""What users ask for: the world size (R9), who is stopped and what is started where (R11), user_config (R12)."""

from mutants.mutant import Mutant

REQUESTS_RULES = "rankcore/rules/requests.py"
SHRINK = "rankcore/rules/shrink.py"
CONFIGURE = "rankcore/rules/configure.py"

REQUESTS = (
    Mutant(
        "a-smaller-world-is-not-announced",
        "R9",
        "the world size is announced only when it grows",
        REQUESTS_RULES,
        '    announce(draft, f"target {before} -> {after}")\n',
        '    if after > before:\n        announce(draft, f"target {before} -> {after}")\n',
    ),
    Mutant(
        "the-world-is-who-is-there",
        "R9",
        "a replica is initialised with the number of live replicas for the world size",
        "rankcore/rules/messages.py",
        "        draft.spec.target_replicas,\n        recipe.user_config,",
        "        len(draft.replicas),\n        recipe.user_config,",
    ),
    Mutant(
        "the-lowest-rank-is-stopped",
        "R11",
        'victims="highest_rank" stops the lowest rank',
        SHRINK,
        "max(ranks.highest() for _, ranks in draft.running.items())",
        "min(ranks.lowest() for _, ranks in draft.running.items())",
    ),
    Mutant(
        "the-fullest-node-is-emptied",
        "2.3",
        'victims="any" frees the node with the most replicas first',
        SHRINK,
        "fewest = min(size",
        "fewest = max(size",
    ),
    Mutant(
        "names-are-ignored",
        "R11",
        "a downscale does not stop those that the caller has named",
        SHRINK,
        "(_vacant, _leaving_anyway, _named, _losers,",
        "(_vacant, _leaving_anyway, _losers,",
    ),
    Mutant(
        "the-lowest-vacancy-is-given-up",
        "2.3",
        "a downscale gives up vacant slots from the lowest rank up",
        SHRINK,
        "zip(draft.vacant.descending(), range(excess), strict=False)",
        "zip(draft.vacant, range(excess), strict=False)",
    ),
    Mutant(
        "a-downscale-stops-one-too-many",
        "2.3",
        "a downscale goes one below the target",
        SHRINK,
        "draft.owed.size - draft.spec.target_replicas",
        "draft.owed.size - max(0, draft.spec.target_replicas - 1)",
    ),
    Mutant(
        "stopped-by-name-and-forgotten",
        "R11",
        "the slot of a replica that is stopped by name is given up",
        REQUESTS_RULES,
        'leaving.stop(draft, replica, Leaving.REFILL, "R11",',
        'leaving.stop(draft, replica, Leaving.RELEASE, "R11",',
    ),
    Mutant(
        "one-too-many-on-a-node",
        "R11",
        "replicas on their way to a node do not count against its capacity",
        "rankcore/state.py",
        "(self.capacity or 0) - self.members.size - self.reserved.size)",
        "(self.capacity or 0) - self.members.size)",
    ),
    Mutant(
        "who-has-the-config-gets-it-again",
        "R12",
        "a user_config that a replica has applied is sent again",
        CONFIGURE,
        "if replica.version == draft.spec.version and replica.config_id != draft.spec.config_id:",
        "if replica.version == draft.spec.version:",
    ),
    Mutant(
        "who-comes-up-with-an-old-config-keeps-it",
        "R12",
        "a user_config that changed while a replica was starting is not sent to it",
        "rankcore/rules/news.py",
        "    prove(draft, replica)\n    notice_config(draft, replica)\n",
        "    prove(draft, replica)\n",
    ),
    Mutant(
        "a-move-without-the-config",
        "R12",
        "a rank change does not carry the existing user_config",
        "rankcore/rules/messages.py",
        "draft.configs.get(config_id) if config_id is not None else None",
        "None",
    ),
)
