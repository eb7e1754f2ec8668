"""Rules and ranks in words."""

from collections.abc import Iterable

from rankcore import StaticPlacement
from rankcore.values import ReplicaRank

RULES = {
    "R1": "a healthy deployment has exactly the ranks 0..N-1",
    "R2": "a running replica has exactly one rank",
    "R3": "no two live replicas hold, or believe that they hold, one rank: what is given up stays taken until acknowledged",
    "R4": "a new replica gets the lowest rank that is neither held, nor believed, nor kept",
    "R5": "an upscale, or another replica's death, changes no survivor's rank",
    "R6": "the replacement of a replica gets the rank of the one it replaces",
    "R7": "a rank is released only once its replica has fully stopped",
    "R8": "gaps are closed with the least possible number of moves",
    "R9": "the world size is the target at all times",
    "R10": "after a restart of the controller, ranks are learnt from the replicas, and what disagrees is repaired",
    "R11": "who is stopped and what is placed where follows the policies of the deployment, or names given by the caller",
    "R12": "a new user_config is sent in place, and to every replica of the current version",
    "S1": "a static placement has as many replicas as ranks with bundles",
    "S2": "each rank is on its own bundles, and nowhere else",
    "S3": "a failed replica starts again on the same bundles, with the same rank",
    "S4": "two replicas are never on one bundle, not even for a moment",
    "S5": "while a bundle of a rank is lost, nothing is started for it",
    "S6": "a static placement moves no rank while its replica lives",
    "S7": "another mapping replaces only those whose bundles change, each in place",
    "S8": "a restarted controller leaves everybody on their bundles, and replaces who is not",
    "V18": "where there is room for fewer than are wanted, the lowest ranks run",
    "V2": "an update comes to its end where there is room for as many replicas as are wanted",
    "T1": "what is free on a GPU or in CPU memory, and what is held there, is what there is",
    "T2": "a replica has one record, its weights are at one level on one node, and late news changes nothing",
    "T3": "who is wanted HOT goes back to its place, else beside its copy, else where it fits best, else where room is made",
    "T4": "only those are displaced who serve, are not dedicated, are not of higher priority and have been HOT for long enough",
    "T5": "who is displaced is the cheapest set that suffices",
    "T6": "who leaves the GPUs becomes WARM if the node's CPU memory allows, else COLD",
    "T7": "what fits nowhere disturbs nobody, says why, and is tried again where room appears",
    "T8": "what is held covers what replicas say that they take",
    "T9": "a victim finishes what it has in flight before the newcomer is loaded",
    "T10": "as many replicas of a deployment serve as are wanted, or the missing ones wait, each with its reason",
    "T11": "after a restart the books are the sum of what workers report, and nothing is placed beside one that has not",
    "T16": "a load is broken off for a higher priority alone, while half of it at least is to come",
    "P2": "what a successor has to know is saved before any command that depends on it",
    "P4": "a replica is one worker that is HOT, from the end of its load to the end of its offload",
    "P6": "a bug in one deployment's rules is that deployment's outage",
    "Q11": "while nobody serves, nor is about to, all that waits fails with its reason",
    "A8": "a scaling policy that fails leaves the target as it is",
    "D7": "what cannot be had is answered with the reason",
    "2": "news that is late changes nothing; a replica that nobody knows is killed",
    "2.3": "how updates, start failures and deletions go (section 2.3 of the design)",
    "2.4": "what is not acknowledged is repeated, and who never answers is killed (section 2.4 of the design)",
    "2.5": "the order of the rules in one step (section 2.5 of the design)",
}

LEVELS = (("rank", "rank"), ("node_rank", "node rank"), ("local_rank", "local rank"))


def rule_shown(rule: str | None) -> str:
    """A rule as it stands behind what it decided; nothing where it is the way of things."""
    return f" ({rule})" if rule in RULES else ""


def all_ranks(rank: ReplicaRank) -> str:
    """All three."""
    return f"rank {rank.rank}, node rank {rank.node_rank} and local rank {rank.local_rank}"


def move(before: ReplicaRank, after: ReplicaRank) -> str:
    """What changed: `from rank 3 to rank 1`."""
    changed = [(words, getattr(before, level), getattr(after, level)) for level, words in LEVELS]
    parts = [(words, old, new) for words, old, new in changed if old != new]
    return " and ".join(f"from {words} {old} to {words} {new}" for words, old, new in parts)


def placed(placement: object) -> str:
    """A placement policy, or what a static placement is on."""
    if isinstance(placement, StaticPlacement):
        return f"static on {placement.group_shown} ({listed((str(list(each)) for each in placement.bundles), 4)})"
    return str(placement)


def gpus_shown(gpus: Iterable[int]) -> str:
    """`GPU 0`, `GPUs 0, 1`."""
    numbers = list(map(str, gpus))
    return f"GPU{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def listed(words: Iterable[str], most: int = 8) -> str:
    """Some words, and how many more there are."""
    found = list(words)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def plural(count: int, what: str) -> str:
    """`1 replica`, `2 replicas`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
