"""One seed of one part, run: what was seen, and which promise broke."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from executors.engine.deployments import Beginning
from executors.simulator.fields import FieldProblem
from executors.simulator.questions.healed import go_and_heal
from executors.simulator.record.happenings import Failure
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.structuring import structure_scenario
from executors.swarm.coverage import NETWORK_FAULTS
from executors.swarm.scenarios import draw_scenario
from executors.swarm.schedules import draw_schedule
from rankcore import DeploymentState, Step
from rankcore.events import Event
from rankcore.testing.schedules import BrokenScheduleError, run

PARTS = ("pure", "simulator")
BOOK_EVERY = 64
"""The pure part checks steps and beliefs at every event, and the whole book at every so-manyth: it costs three steps."""
SAME_INSTANT_MAX = 10_000
"""These worlds are small: so many actions at one instant are a loop, and waiting for a million would take a minute."""

Watch = Callable[[DeploymentState, Event | None, Step], None]


@attrs.frozen
class Ran:
    """What a seed came to.

    Attributes:
        events: That the core was told, each of them checked.
        faults: What happened, or was drawn.
        rule: The promise that is broken, by its number; None: all hold.
        text: How it is broken.
        record: Everything that happened, line by line; empty unless it was asked for.
    """

    events: int
    faults: frozenset[str]
    rule: str | None = None
    text: str = ""
    record: str = attrs.field(default="", repr=False)


def run_seed(part: str, seed: int, watch: Watch | None = None, *, record: bool = False) -> Ran:
    """Run a seed to its end, or up to the first broken promise."""
    return (_run_schedule if part == "pure" else _run_scenario)(seed, watch, record)


def _run_schedule(seed: int, watch: Watch | None, record: bool) -> Ran:
    schedule = draw_schedule(seed)
    world = schedule.world(book_every=BOOK_EVERY, log_max=None if record else 0)
    world.watch = watch
    broken: tuple[str, ...] = ()
    try:
        run(schedule, world)
    except BrokenScheduleError as error:
        broken = error.broken
    lines = [*world.story(notes=True), *broken, repr(sorted(world.state.replicas))] if record else []
    rule = broken[0].partition(":")[0] if broken else None
    return Ran(world.steps, frozenset(world.seen), rule, "; ".join(broken), "\n".join(lines))


def _run_scenario(seed: int, watch: Watch | None, record: bool) -> Ran:
    data = draw_scenario(seed)
    observer = Observer(watch, record)
    failure, result = run_data(data, observer)
    figures = repr(result) if record and result is not None else ""
    lines = [*observer.lines, figures] if record else []
    rule, text = (failure.rule, failure.text) if failure is not None else (None, "")
    return Ran(observer.events, frozenset(_faults_of(data)), rule, text, "\n".join(lines))


def run_data(data: dict[str, Any], observer: "Observer | None" = None) -> tuple[Failure | None, RunResult | None]:
    """Run a scenario of plain data. Returns the broken promise, if any, and what the run came to; None: the core raised.

    Raises:
        FieldProblem: The data is no scenario.
    """
    scenario = structure_scenario(data)
    whole = Run(scenario, load_arrivals(scenario, Path(), scenario.seed), observer)
    whole.world.loop.patience = SAME_INSTANT_MAX
    try:
        result = go_and_heal(whole)
    except FieldProblem:
        raise
    except Exception as error:  # whatever a broken core may raise, the seed that leads to it is what is wanted
        return Failure(whole.now, scenario.name, "", "2", f"the core raised {type(error).__name__}: {error}"), None
    return result.failure, result


def _faults_of(data: dict[str, Any]) -> set[str]:
    kinds = {fault["kind"] for key in ("faults", "fault_rates") for fault in data.get(key, ())}
    network = {name for name in NETWORK_FAULTS if name in data["network"]}
    wishes = {f"change of {key}" for change in data.get("changes", ()) for key in change if key not in ("at", "deployment")}
    return kinds | network | wishes


class Observer:
    """A journal that keeps nothing but what a swarm asks for.

    Attributes:
        events: That the cores were told.
        lines: What happened, if it is to be recorded.
    """

    def __init__(self, watch: Watch | None, record: bool) -> None:
        self.events = 0
        self.lines: list[str] = []
        self._watch = watch
        self._record = record
        self._states: dict[str, DeploymentState] = {}

    def begin(self, how: Beginning, first: Step) -> None:
        """A deployment begins."""
        self._follow(first.state, None, first, how)

    def append(self, event: Event, result: Step) -> None:
        """Something happened."""
        self.events += 1
        self._follow(self._states[result.state.spec.name], event, result, event)

    def _follow(self, before: DeploymentState, event: Event | None, result: Step, what: object) -> None:
        self._states[result.state.spec.name] = result.state
        if self._watch is not None:
            self._watch(before, event, result)
        if self._record:
            self.lines += [str(what), *(f"    {each}" for each in (*result.commands, *result.notes))]
