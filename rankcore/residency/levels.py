"""Where a replica's weights are, and what is going on with it."""

from enum import StrEnum


class Level(StrEnum):
    """Where the weights of a replica are."""

    HOT = "HOT"
    """On GPUs: it serves."""
    WARM = "WARM"
    """In the CPU memory of one node."""
    COLD = "COLD"
    """On disk only."""


class Phase(StrEnum):
    """What is going on with a replica's record."""

    RESTING = "resting"
    """WARM or COLD, and nobody wants it HOT."""
    WAITING = "waiting"
    """Wanted HOT; it fits nowhere now, or backs off after a failed load."""
    RESERVING = "reserving"
    """It has a place, and waits until those that it displaces there are gone, or until its copy elsewhere is."""
    LOADING = "loading"
    """`LoadToGpu` was commanded."""
    SERVING = "serving"
    """HOT."""
    LEAVING = "leaving"
    """It takes no more requests; its bytes on the GPUs are held until `OffloadFinished`."""
    DROPPING = "dropping"
    """`DropFromCpu` was commanded; its bytes in CPU memory are held until `OffloadFinished`."""


WANTED = frozenset({Phase.WAITING, Phase.RESERVING, Phase.LOADING, Phase.SERVING})
"""These count for the target of their model."""
