"""Every reachable state of a gang and its coordinator: the exhaustive checker for TR1 to TR8.

A world holds what the coordinator knows, and what each agent really is: whether it lives, what it believes, and what it has not
heard yet. An adversary lets agents crash, lets others come on their nodes, lets workers fail, starts the coordinator again
without its memory, and orders all of it. `GangSystem` says so to `rankcore.testing.explore`.

    >>> search = explored(GangSystem(SYSTEMS["gang-crashes"]))
    >>> search.done, search.broken
    (True, None)
"""

from rankcore.testing.model_gang.bounds import SYSTEMS, GangBounds
from rankcore.testing.model_gang.system import GangSystem, replay
from rankcore.testing.model_gang.world import Agent, GangWorld, make, moves, root

__all__ = ["SYSTEMS", "Agent", "GangBounds", "GangSystem", "GangWorld", "make", "moves", "replay", "root"]
