"""Random numbers of a seed, and the choice of which faults there are, which not, and which all the time."""

from collections.abc import Iterable, Mapping
from random import Random

OFF = 0.5
EXTREME = 0.1
EXTREME_FACTOR = 12.0


def chance_of(part: str, seed: int) -> Random:
    """The randomness of one part of a seed: the same on every machine, in every process."""
    return Random(f"{part} {seed}")  # a string is hashed with SHA-512, whatever the hash seed


def swarm_weights(chance: Random, usual: Mapping[str, float]) -> dict[str, float]:
    """Some of these are off, some come far too often, the others as often as usual; those that are off are left out."""
    weights = {}
    for name, weight in usual.items():
        luck = chance.random()
        if luck >= OFF:
            weights[name] = weight * (EXTREME_FACTOR if luck > 1.0 - EXTREME else 1.0)
    return weights


def some_of(chance: Random, items: Iterable[str], share: float = 0.5) -> list[str]:
    """Each of these with a probability of its own, in their order."""
    return [item for item in items if chance.random() < share]
