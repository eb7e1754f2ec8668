"""Every reachable state of a few models over a few GPUs: the exhaustive checker for T1 to T10, T12, T13.

A world holds the planner's state, the commands that nobody has answered yet, and whose weights really are in which memory.
An adversary wishes for models and evicts them, answers in any order, lets loads and copies fail, ends processes, takes nodes
away and brings them back, and repeats old answers. `ResidencySystem` says so to `rankcore.testing.explore`, which explores all
worlds within some bounds, breadth first, each once; worlds that differ only in the numbers of commands and requests are one.

    >>> search = explored(ResidencySystem(SYSTEMS["residency-two"]))
    >>> search.done, search.broken
    (True, None)
"""

from rankcore.testing.model_residency.bounds import SYSTEMS, NodeBounds, ResidencyBounds
from rankcore.testing.model_residency.system import ResidencySystem, replay
from rankcore.testing.model_residency.world import ResidencyWorld, make, moves, root
from rankcore.testing.renamed import renamed

__all__ = ["SYSTEMS", "NodeBounds", "ResidencyBounds", "ResidencySystem", "ResidencyWorld", "make", "moves", "replay", "root"]

__getattr__ = renamed(globals(), {"Bounds": "ResidencyBounds", "World": "ResidencyWorld"})
