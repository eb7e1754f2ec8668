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
    """Wanted HOT; it fits nowhere now."""
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

MOVES: dict[tuple[Phase, Phase], str] = {
    (Phase.RESTING, Phase.RESERVING): "wanted, a place is found",
    (Phase.RESTING, Phase.WAITING): "wanted, fits nowhere",
    (Phase.RESTING, Phase.DROPPING): "DropFromCpu",
    (Phase.WAITING, Phase.RESERVING): "room appears",
    (Phase.WAITING, Phase.RESTING): "not wanted",
    (Phase.WAITING, Phase.DROPPING): "not wanted, its copy goes",
    (Phase.RESERVING, Phase.LOADING): "LoadToGpu",
    (Phase.RESERVING, Phase.WAITING): "its place is lost",
    (Phase.RESERVING, Phase.RESTING): "lost with its copy",
    (Phase.LOADING, Phase.SERVING): "LoadFinished",
    (Phase.LOADING, Phase.RESTING): "LoadFailed, lost",
    (Phase.LOADING, Phase.LEAVING): "not wanted, no room, displaced",
    (Phase.SERVING, Phase.LEAVING): "displaced, evicted, idle",
    (Phase.SERVING, Phase.RESTING): "ReplicaLost, NodeLost",
    (Phase.LEAVING, Phase.RESTING): "OffloadFinished",
    (Phase.DROPPING, Phase.RESTING): "OffloadFinished",
    (Phase.DROPPING, Phase.RESERVING): "wanted, a place is found",
    (Phase.DROPPING, Phase.WAITING): "wanted, fits nowhere",
}
"""From which phase to which a record may go, and what takes it there. It begins and ends RESTING, and COLD."""


def mermaid() -> str:
    """The table as a picture."""
    arrows = [f"    {before.name} --> {after.name}: {because}" for (before, after), because in MOVES.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> RESTING", *arrows, "    RESTING --> [*]: COLD"])
