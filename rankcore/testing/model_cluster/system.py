"""A small cluster, as `rankcore.testing.explore` explores it."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rankcore.cluster.records import newest
from rankcore.frozen import PMap
from rankcore.kernel import Violation
from rankcore.testing.explorable import SelfChecked
from rankcore.testing.model_cluster.bounds import ClusterBounds
from rankcore.testing.model_cluster.world import FAIR, ClusterWorld, Move, make, moves, root
from rankcore.testing.paths import replayed
from rankcore.values import DEPLOY_FAILED, HEALTHY


class ClusterSystem(SelfChecked[ClusterWorld, Move]):
    """One or two deployments within some bounds: P2, P6, R9."""

    bounds: ClusterBounds
    imports = "from rankcore.testing.model_cluster import ClusterBounds, replay"
    rest_rule = "P2"
    fair = FAIR

    def start(self) -> ClusterWorld:
        """All that is deployed is healthy."""
        return root(self.bounds)

    def moves(self, world: ClusterWorld) -> Iterator[Move]:
        """What may happen next; the fair ones first."""
        return moves(world)

    def make(self, world: ClusterWorld, move: Move) -> tuple[ClusterWorld, tuple[Violation, ...]]:
        """The world after a move, and what it has broken."""
        return make(world, move)

    def unsettled(self, world: ClusterWorld) -> Sequence[Violation]:
        """All is healthy or given up, saved, and as the store says."""
        return list(at_rest(world))

    def key(self, world: ClusterWorld) -> bytes:
        """The whole world: what only differs in numbers and times counts as different, which costs time and hides nothing."""
        return _encode(world)


def _plain(value: Any) -> Any:
    assert isinstance(value, PMap), f"{type(value).__name__} has no canonical form"
    return sorted(value.items())


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def replay(bounds: ClusterBounds, path: Sequence[str], *, settles: bool = False) -> ClusterWorld:
    """Go a path that the checker has printed, and check every promise at each move: `rankcore.testing.paths.replayed`."""
    return replayed(ClusterSystem(bounds), path, settles=settles)


def at_rest(world: ClusterWorld) -> Iterator[Violation]:
    """What is wrong with a world in which nothing is left to do but faults."""
    assert world.state is not None, "a controller that has crashed comes back"
    stored = newest(world.store)
    for deployment, entry in sorted(world.state.deployments.items()):
        if entry.ranks.status not in (HEALTHY, DEPLOY_FAILED):
            yield Violation("P2", f"{deployment} stays {entry.ranks.status} for ever")
        if entry.outbox.held:
            yield Violation("P2", f"{len(entry.outbox.held)} commands of {deployment} wait for ever")
        if deployment not in stored or stored[deployment] != entry.outbox.record:
            yield Violation("P2", f"the store has another record of {deployment} than its deployment")
    living = {each.replica_id for each in world.living}
    known = {replica_id for entry in world.state.deployments.values() for replica_id in entry.ranks.replicas}
    if living != known:
        yield Violation("P2", f"{sorted(living)} live, and {sorted(known)} are known")
