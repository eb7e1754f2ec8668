"""A schedule as a value: what is deployed, and what an adversary does to it; as a test that is ready to run."""

from collections.abc import Iterable
from operator import itemgetter

import attrs

from rankcore.errors import RankcoreError
from rankcore.spec import DeploymentSpec
from rankcore.testing.schedules.healing import heal
from rankcore.testing.schedules.moves import MOVES, Move, play
from rankcore.testing.schedules.promises import BrokenScheduleError
from rankcore.testing.schedules.specs import spec_from, static_spec_from
from rankcore.testing.schedules.world import World


@attrs.frozen(kw_only=True)
class Schedule:
    """An adversary's plan. It can be played any number of times, always to the same end.

    Attributes:
        number: Chooses the policies of the first spec, as `spec_from` has them.
        timing: Chooses its time-outs.
        static: Whether it has a static placement.
        bad: Whether start-ups of version "2" always fail.
        moves: What the adversary does, one after the other: a name in `MOVES`, and a number that chooses whom it concerns.
    """

    number: int = 0
    timing: int = 0
    static: bool = False
    bad: bool = False
    moves: tuple[Move, ...] = ()

    @property
    def spec(self) -> DeploymentSpec:
        """What is deployed first."""
        return (static_spec_from if self.static else spec_from)(self.number, self.timing)

    def world(self, *, book_every: int = 1, log_max: int | None = None) -> World:
        """Where it begins."""
        return World(self.spec, bad_versions=("2",) if self.bad else (), book_every=book_every, log_max=log_max)


class UnknownMoveError(RankcoreError):
    """A schedule has a move that there is not."""


def run(schedule: Schedule, world: World | None = None) -> World:
    """Play a schedule, then turn faults off and demand that everything heals.

    Args:
        schedule: What to play.
        world: Where, if not in a new one that checks the whole book after every step.

    Returns:
        The world at the end.

    Raises:
        BrokenScheduleError: A promise does not hold, or the core has raised something.
        UnknownMoveError: A name is not in `MOVES`.
    """
    _check_names(schedule.moves)
    world = world if world is not None else schedule.world()
    try:
        play(world, schedule.moves)
        heal(world)
    except BrokenScheduleError:
        raise
    except Exception as error:  # whatever a broken core may raise, the schedule that leads to it is what is wanted
        raise BrokenScheduleError((f"2: the core raised {type(error).__name__}: {error}",), str(error)) from error
    return world


def _check_names(moves: Iterable[Move]) -> None:
    unknown = sorted(set(map(itemgetter(0), moves)) - set(MOVES))
    if unknown:
        raise UnknownMoveError(f"Schedule.moves must have names of rankcore.testing.schedules.MOVES, got {unknown}")


def as_test(schedule: Schedule, broken: BrokenScheduleError) -> str:
    """A test that fails as long as the promise is broken, and plays this schedule ever after."""
    chosen = [
        f"{name}={getattr(schedule, name)!r}" for name in ("number", "timing", "static", "bad") if getattr(schedule, name)
    ]
    what = "; ".join(broken.broken).replace("\\", "\\\\").replace('"', "'")
    return "\n".join(
        [
            f'"""{what}"""',
            "",
            "from rankcore.testing.schedules import Schedule, run",
            "",
            "MOVES = (",
            *(f'    ("{name}", {argument}),' for name, argument in schedule.moves),
            ")",
            "",
            "",
            "def test_a_schedule_found_by_the_swarm():",
            f"    run(Schedule({', '.join([*chosen, 'moves=MOVES'])}))",
            "",
        ]
    )
