"""The ranks of one deployment, as `rankcore.testing.explore` explores them: which worlds, which moves, which promises."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rankcore.invariants import Violation
from rankcore.testing.explorable import Explorable
from rankcore.testing.model.bounds import Bounds
from rankcore.testing.model.canonical import canonical
from rankcore.testing.model.coverage import Coverage
from rankcore.testing.model.moves import Move, make, moves
from rankcore.testing.model.promises import broken_by, unsettled
from rankcore.testing.model.steps import Told
from rankcore.testing.model.words import brief, describe
from rankcore.testing.model.world import RankWorld, begin
from rankcore.testing.paths import replayed
from rankcore.values import DeploymentStatus

Steps = tuple[Told, ...]


class RankSystem(Explorable[RankWorld, Move, Steps]):
    """One deployment within some bounds: its controller, its replicas with their beliefs, and the messages between them."""

    bounds: Bounds
    imports = "from rankcore.testing.model import Bounds, replay"
    rest_rule = "liveness"

    def start(self) -> RankWorld:
        """Just deployed; or with `healthy` once the first replicas run."""
        return root(self.bounds)

    def moves(self, world: RankWorld) -> Iterator[Move]:
        """What can happen next; the fair one first."""
        return moves(world)

    def is_fair(self, move: Move) -> bool:
        """Whatever costs nothing."""
        return move.costs is None

    def make(self, world: RankWorld, move: Move) -> tuple[RankWorld, Steps]:
        """The world after a move, and the controller's steps."""
        return make(world, move)

    def violations(self, before: RankWorld, after: RankWorld, steps: Steps) -> Sequence[Violation]:
        """R1 to R12, S1 to S8 and section 2.4, of what the move has changed."""
        return broken_by(before, after, steps)

    def unsettled(self, world: RankWorld) -> Sequence[Violation]:
        """At rest it has to be HEALTHY, DELETED or DEPLOY_FAILED, and everybody believes what the book says."""
        return unsettled(world)

    def key(self, world: RankWorld) -> bytes:
        """Everything but names."""
        return canonical(world)

    def describe(self, world: RankWorld, move: Move) -> str:
        """A move in words."""
        return describe(world, move)

    def comment(self, steps: Steps) -> str:
        """What was commanded."""
        commands = (command for told in steps for command in told.result.commands)
        return ", ".join(brief(command) for command in commands if hasattr(command, "replica_id"))

    def count(self, steps: Steps, exercised: "Counter[str]") -> None:
        """Rows of the life cycles and kinds of notes."""
        coverage = Coverage(exercised)
        for told in steps:
            coverage.count(told.before, told.event, told.result)


def root(bounds: Bounds) -> RankWorld:
    """The world in which an exploration begins."""
    world, _ = begin(bounds)
    while bounds.healthy and not (_is_up(world) and not world.commands and not world.events):
        move = next(moves(world))
        if move.kind == "start" and not (
            world.bundles or world.rooms
        ):  # spread over the nodes: who starts is on as many as there are
            move = Move("start", move.index, len(world.replicas) % bounds.nodes)
        world, _ = make(world, move)
    return world


def _is_up(world: RankWorld) -> bool:
    return world.state.status is DeploymentStatus.HEALTHY and not len(world.state.tables.maturing)


def replay(bounds: Bounds, path: Sequence[str], *, settles: bool = False) -> RankWorld:
    """Go a path that the checker has printed, and check every promise at each move: `rankcore.testing.paths.replayed`."""
    return replayed(RankSystem(bounds), path, settles=settles)
