"""Models over GPUs and CPU memory, as `rankcore.testing.explore` explores them."""

from collections.abc import Iterator, Sequence

from rankcore.kernel import Violation
from rankcore.residency import Phase, Resident
from rankcore.residency.state import ResidencyNode
from rankcore.testing.explorable import SelfChecked
from rankcore.testing.model_residency.bounds import ResidencyBounds
from rankcore.testing.model_residency.canonical import canonical
from rankcore.testing.model_residency.world import FAIR, Move, ResidencyWorld, make, moves, root
from rankcore.testing.paths import replayed

AT_REST = (Phase.RESTING, Phase.WAITING, Phase.SERVING)


class ResidencySystem(SelfChecked[ResidencyWorld, Move]):
    """A few models within some bounds: T1 to T10, T12 and T13."""

    bounds: ResidencyBounds
    imports = "\n".join(
        [
            "from rankcore.residency import ModelSpec, ResidencyPolicy",
            "from rankcore.testing.model_residency import NodeBounds, ResidencyBounds, replay",
        ]
    )
    rest_rule = "T10"
    fair = FAIR

    def start(self) -> ResidencyWorld:
        """All nodes are there, and nobody has asked for anything."""
        return root(self.bounds)

    def moves(self, world: ResidencyWorld) -> Iterator[Move]:
        """What may happen next; the fair ones first."""
        return moves(world)

    def make(self, world: ResidencyWorld, move: Move) -> tuple[ResidencyWorld, tuple[Violation, ...]]:
        """The world after a move, and what it has broken."""
        return make(world, move)

    def unsettled(self, world: ResidencyWorld) -> Sequence[Violation]:
        """Nobody is on the way, and nobody waits beside room."""
        return list(at_rest(world))

    def key(self, world: ResidencyWorld) -> bytes:
        """Everything but the numbers of commands and requests, and the time."""
        return canonical(world)


def replay(bounds: ResidencyBounds, path: Sequence[str], *, settles: bool = False) -> ResidencyWorld:
    """Go a path that the checker has printed, and check every promise at each move: `rankcore.testing.paths.replayed`."""
    return replayed(ResidencySystem(bounds), path, settles=settles)


def at_rest(world: ResidencyWorld) -> Iterator[Violation]:
    """What is wrong with a world in which nothing is left to do but faults: somebody is on the way, or waits beside room."""
    state = world.state
    for replica_id in sorted(state.replicas):
        resident = state.replicas[replica_id]
        if resident.phase not in AT_REST:
            yield Violation("T10", f"{replica_id} stays {resident.phase} for ever")
        if resident.phase is Phase.WAITING:
            if not resident.because:
                yield Violation("T10", f"{replica_id} waits without a reason")
            if _has_room(world, resident):
                yield Violation("T7", f"{replica_id} waits beside room for it")


def _has_room(world: ResidencyWorld, resident: Resident) -> bool:
    """Whether so many GPUs of one node have room, free as they are."""
    spec, state = world.state.models[resident.model], world.state
    parts = spec.gpus or 1  # one holds any model that does not say
    shards = spec.shard_bytes or ((parts, -(-(spec.weight_bytes + spec.working_bytes) // parts)),)
    return any(has_room_for(node, shards) for node in state.nodes.values())


def has_room_for(node: ResidencyNode, shards: Sequence[tuple[int, int]]) -> bool:
    """Whether the fewest GPUs of a node that could hold it, were they empty, have room for it."""
    for parts, need in shards:
        if sum(gpu.capacity_bytes >= need for gpu in node.gpus) >= parts:
            return sum(gpu.free_bytes >= need for gpu in node.gpus) >= parts
    return False
