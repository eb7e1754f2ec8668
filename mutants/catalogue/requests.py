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
        "        draft.spec.target_replicas,\n        user_config,\n        config_id,\n        revision,",
        "        len(draft.replicas),\n        user_config,\n        config_id,\n        revision,",
    ),
    Mutant(
        "the-lowest-rank-is-stopped",
        "R11",
        'victims="highest_rank" stops the lowest rank',
        SHRINK,
        "for rank in draft.taken.taken.descending():",
        "for rank in draft.taken.taken:",
    ),
    Mutant(
        "the-fullest-node-is-emptied",
        "2.3",
        'victims="any" frees the node with the most replicas first',
        SHRINK,
        "_, newest, node_id = draft.nodes_by_staying.first()",
        "_, newest, node_id = max(draft.nodes_by_staying)",
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
        "who-has-the-config-gets-it-again",
        "R12",
        "a user_config that a replica has applied is sent again",
        CONFIGURE,
        "    if replica.config_id == wanted.config_id or replica.version != wanted.version:\n",
        "    if replica.version != wanted.version:\n",
    ),
)
