"""Breadth first through all worlds of routers within some bounds, each once, with a shortest path to what is broken."""

import attrs

from rankcore.routing.invariants import Violation
from rankcore.testing.model_routing.bounds import Bounds
from rankcore.testing.model_routing.world import Move, World, make, moves, root

FAIR = ("up", "down", "ends", "time passes", "arrives")
"""Moves that have to happen at some time: without a fault, they lead to a world where everything is answered."""


@attrs.frozen(kw_only=True)
class Found:
    """What a search has come to.

    Attributes:
        bounds: Of the worlds.
        worlds: How many different ones there are.
        edges: How many moves were tried.
        depth: How many moves the longest of all shortest paths has.
        broken: The promises that do not hold; empty when all do.
        path: A shortest path to there.
        complete: Whether all worlds were explored; else `worlds_max` was reached.
    """

    bounds: Bounds
    worlds: int
    edges: int
    depth: int
    broken: tuple[Violation, ...] = ()
    path: tuple[Move, ...] = ()
    complete: bool = True


def search(bounds: Bounds, worlds_max: int = 1_000_000) -> Found:
    """Explore every world, and demand of each without a move left that everything has exactly one answer (Q1, liveness).

    Every path is finite, since each move uses something up: so where all worlds without a move are well, every fair path
    leads to one where all requests are answered.
    """
    begin = root(bounds)
    parents: dict[World, tuple[World | None, Move | None]] = {begin: (None, None)}
    level, depth, edges = [begin], 0, 0
    while level and len(parents) <= worlds_max:
        following: list[World] = []
        for world in level:
            is_at_rest = True
            for move in moves(world):
                is_at_rest = is_at_rest and move[0] not in FAIR
                after, broken = make(world, move)
                edges += 1
                if broken:
                    path = (*_path(parents, world), move)
                    return Found(bounds=bounds, worlds=len(parents), edges=edges, depth=depth, broken=broken, path=path)
                if after not in parents:
                    parents[after] = (world, move)
                    following.append(after)
            if is_at_rest and (unwell := at_rest(world)):
                path = _path(parents, world)
                return Found(bounds=bounds, worlds=len(parents), edges=edges, depth=depth, broken=unwell, path=path)
        level = following
        depth += bool(level)
    return Found(bounds=bounds, worlds=len(parents), edges=edges, depth=depth, complete=not level)


def at_rest(world: World) -> tuple[Violation, ...]:
    """What is wrong with a world in which nothing is left to do but faults: a request without an answer, a credit lost.

    A request that waits is well only where no replica is alive that could take it.
    """
    found = []
    for image in world.routers:
        for request in image.requests if image is not None else ():
            dead = [book is None for book in world.books]
            hopeless = all(dead) if request.rank is None and not request.is_broadcast else any(dead)
            if not request.answered and not hopeless:
                found.append(Violation("Q1", f"request {request.request_id} never gets an answer"))
    for replica, book in enumerate(world.books):
        for router_id, holder in book.holders.items() if book is not None else ():
            if holder.at_work or holder.lost:
                found.append(Violation("C4", f"replica {replica} keeps credits for what {router_id} had at work"))
    return tuple(found)


def _path(parents: dict[World, tuple[World | None, Move | None]], world: World) -> tuple[Move, ...]:
    path: list[Move] = []
    before, move = parents[world]
    while before is not None and move is not None:
        path.append(move)
        before, move = parents[before]
    return tuple(reversed(path))
