"""Routers and the replicas that they share, as `rankcore.testing.explore` explores them."""

from collections.abc import Iterator, Sequence

import msgspec

from rankcore.kernel import Violation
from rankcore.testing.explorable import SelfChecked
from rankcore.testing.model_routing.bounds import RoutingBounds
from rankcore.testing.model_routing.world import FAIR, Move, RoutingWorld, make, moves, root
from rankcore.testing.paths import replayed

_encode = msgspec.msgpack.Encoder(enc_hook=lambda pmap: sorted(pmap.items())).encode


class RouterSystem(SelfChecked[RoutingWorld, Move]):
    """A few requests within some bounds: Q1 to Q11 and C1 to C4.

    Every path is finite, since each move uses something up: so where all worlds without a fair move are well, every fair path
    leads to one where all requests are answered.
    """

    bounds: RoutingBounds
    imports = "from rankcore.testing.model_routing import RoutingBounds, replay"
    rest_rule = "Q1"
    fair = FAIR

    def start(self) -> RoutingWorld:
        """All replicas are routed, and nothing has been asked of anybody."""
        return root(self.bounds)

    def moves(self, world: RoutingWorld) -> Iterator[Move]:
        """What may happen next; the fair ones first."""
        return moves(world)

    def make(self, world: RoutingWorld, move: Move) -> tuple[RoutingWorld, tuple[Violation, ...]]:
        """The world after a move, and what it has broken."""
        return make(world, move)

    def unsettled(self, world: RoutingWorld) -> Sequence[Violation]:
        """Everything has exactly one answer (Q1)."""
        return at_rest(world)

    def key(self, world: RoutingWorld) -> bytes:
        """All of it: nothing here has a name that only compares."""
        messages = [
            [(type(each).__name__, each) for each in line] for lines in (world.up, world.down) for of in lines for line in of
        ]
        rest = (world.arrived, world.answers, world.spent, world.routed)
        return _encode((world.routers, world.books, world.work, messages, *rest))


def replay(bounds: RoutingBounds, path: Sequence[str], *, settles: bool = False) -> RoutingWorld:
    """Go a path that the checker has printed, and check every promise at each move: `rankcore.testing.paths.replayed`."""
    return replayed(RouterSystem(bounds), path, settles=settles)


def at_rest(world: RoutingWorld) -> tuple[Violation, ...]:
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
