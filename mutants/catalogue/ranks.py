"""Ranks are contiguous, unique, the lowest available, kept for replacements, and released late: R1 to R8."""

from mutants.mutant import Mutant

COMPACT = "rankcore/rules/compact.py"
FILL = "rankcore/rules/fill.py"
ENDINGS = "rankcore/rules/endings.py"
MESSAGES = "rankcore/rules/messages.py"
NEWS = "rankcore/rules/news.py"
NODES = "rankcore/book/nodes.py"
REPLICAS = "rankcore/book/replicas.py"

RANKS = (
    Mutant(
        "the-rank-n-stays",
        "R1",
        "compaction takes rank N for one below N",
        COMPACT,
        "for rank in draft.taken.taken.members_from(target) if",
        "for rank in draft.taken.taken.members_from(target + 1) if",
    ),
    Mutant(
        "the-node-rank-m-stays",
        "R1",
        "compaction takes node rank M for one below M",
        COMPACT,
        "draft.node_ranks.taken.highest() >= draft.nodes_by_staying.size",
        "draft.node_ranks.taken.highest() > draft.nodes_by_staying.size",
    ),
    Mutant(
        "the-local-rank-k-stays",
        "R1",
        "compaction takes local rank K for one below K",
        "rankcore/state.py",
        "self.locals.taken.highest() >= self.staying",
        "self.locals.taken.highest() > self.staying",
    ),
    Mutant(
        "a-loser-has-its-rank-at-once",
        "R2",
        "the loser of a duplicate has a rank in the book before it has acknowledged it",
        MESSAGES,
        "rank=rank if replica.rank is not None else None,",
        "rank=rank,",
    ),
    Mutant(
        "a-move-frees-the-old-rank",
        "R3",
        "what a replica may still believe is free as soon as it is told another rank",
        MESSAGES,
        "believed = (*(older for older in believed if older not in (rank, replica.told)), replica.told)",
        "believed = ()",
    ),
    Mutant(
        "a-stranger-lives-on",
        "R3",
        "a live replica that is not in the book is not killed",
        NEWS,
        "    draft.commands.append(KillReplica(replica_id, draft.epoch))\n",
        "",
    ),
    Mutant(
        "a-newcomer-gets-the-next-rank-up",
        "R4",
        "a new replica gets the rank above the highest, and not the lowest available one",
        FILL,
        "        rank = draft.taken.lowest_free()\n        if rank >= target or not has_room(draft):",
        "        rank = draft.taken.taken.highest() + 1\n        if rank >= target or not has_room(draft):",
    ),
    Mutant(
        "everybody-closes-ranks",
        "R5",
        "compaction moves everybody above the lowest gap, and not only those beyond N",
        COMPACT,
        "    target = draft.spec.target_replicas\n    if draft.taken.lowest_free() >= target:",
        "    target = draft.taken.lowest_free()\n    if target >= draft.spec.target_replicas:",
    ),
    Mutant(
        "the-rank-of-the-dead-is-free",
        "R6",
        "the slot of a dead replica is closed: its replacement takes the lowest free rank",
        ENDINGS,
        "elif rank >= draft.spec.target_replicas:",
        "elif rank >= 0:",
    ),
    Mutant(
        "a-rank-is-released-before-the-end",
        "R7",
        "the rank of a replica that is told to stop is free before it has stopped",
        REPLICAS,
        "        ranks = beliefs(replica, GLOBAL)\n        return ranks if slot is None or slot in ranks else (*ranks, slot)",
        "        return ()",
    ),
    Mutant(
        "gaps-are-closed-at-once",
        "R8",
        "the two compaction policies are exchanged",
        "rankcore/core.py",
        'draft.spec.compaction == "immediate"',
        'draft.spec.compaction != "immediate"',
    ),
)
