"""Every reachable state of a few requests over a few replicas and routers: the exhaustive checker for Q1 to Q11 and C1 to C4.

A world holds routers, what each replica has granted and works on, and the messages between them, which keep their order on
each connection and else take any time. An adversary lets requests come, be cancelled, fail and run out of time, and
replicas and routers die. `RouterSystem` says so to `rankcore.testing.explore`, which explores all worlds within some bounds,
breadth first, each once.

    >>> search = explored(RouterSystem(RoutingBounds(requests=2, replicas=1)))
    >>> search.done, search.broken
    (True, None)
"""

from rankcore.testing.model_routing.bounds import SYSTEMS, RoutingBounds
from rankcore.testing.model_routing.system import RouterSystem, replay
from rankcore.testing.model_routing.world import RoutingWorld, make, moves, root
from rankcore.testing.renamed import renamed

__all__ = ["SYSTEMS", "RouterSystem", "RoutingBounds", "RoutingWorld", "make", "moves", "replay", "root"]
"""Names that are fit for use from outside."""

__getattr__ = renamed(globals(), {"Bounds": "RoutingBounds", "World": "RoutingWorld"})
