"""Every reachable state of a few requests over a few replicas and routers: the exhaustive checker for Q1 to Q10 and C1 to C4.

A world holds routers, what each replica has granted and works on, and the messages between them, which keep their order on
each connection and else take any time. An adversary lets requests come, be cancelled, fail and run out of time, and
replicas and routers die. `search` explores all worlds within some bounds, breadth first, each once.

    >>> found = search(Bounds(requests=2, replicas=1))
    >>> found.broken
    ()
"""

from rankcore.testing.model_routing.bounds import SYSTEMS, Bounds
from rankcore.testing.model_routing.search import Found, search
from rankcore.testing.model_routing.world import World, make, moves, root

__all__ = ["SYSTEMS", "Bounds", "Found", "World", "make", "moves", "root", "search"]
"""Names that are fit for use from outside."""
