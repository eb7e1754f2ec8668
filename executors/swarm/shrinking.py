"""A failing seed made short: a schedule as a test, a scenario as a small file."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import attrs
import yaml

from executors.simulator.fields import FieldProblem
from executors.simulator.questions.healed import RULE as LIVENESS
from executors.simulator.scenario.errors import ScenarioError
from executors.swarm.batches import Failing
from executors.swarm.runs import run_data
from executors.swarm.scenarios import draw_scenario
from executors.swarm.schedules import draw_schedule
from rankcore.testing.schedules import as_test, shrink

Data: TypeAlias = dict[str, Any]
KeyPath: TypeAlias = tuple[str | int, ...]
TRIES_MAX = 600
"""Runs of scenarios that are getting shorter: half a minute."""
KEPT = {"seed", "duration_s", "nodes"}
"""The seed chooses how everything else plays out; without a duration, a run that never settles would be waited for."""


@attrs.frozen
class Short:
    """A failing seed, as short as it could be made.

    Attributes:
        failing: What fails, in the words of the short one.
        file_name: What to call it.
        text: What to write there.
        command: What reproduces it; "{file}" stands for where it was written.
    """

    failing: Failing
    file_name: str
    text: str
    command: str


def shorten(failing: Failing, tick: Callable[[int], None] = lambda _: None) -> Short | None:
    """Make a failing seed short; `tick` is called with the number of each try. None: there is nothing to be made shorter."""
    if failing.rule == "determinism":
        return None
    return _short_schedule(failing) if failing.part == "pure" else _short_scenario(failing, tick)


def _short_schedule(failing: Failing) -> Short | None:
    found = shrink(draw_schedule(failing.seed))
    if found is None:
        return None
    schedule, broken = found
    told = attrs.evolve(failing, rule=broken.rule, text="; ".join(broken.broken))
    return Short(told, f"test_swarm_seed_{failing.seed}.py", as_test(schedule, broken), "python -m pytest {file}")


def _short_scenario(failing: Failing, tick: Callable[[int], None]) -> Short | None:
    text, tries = failing.text, 0

    def fails(data: Data) -> bool:
        nonlocal text, tries
        tries += 1
        tick(tries)
        if tries > TRIES_MAX:
            return False
        try:
            failure, _ = run_data(data)
        except (FieldProblem, ScenarioError):
            return False
        if failure is None or failure.rule != failing.rule:
            return False
        text = failure.text
        return True

    data = draw_scenario(failing.seed)
    if not fails(data):
        return None
    before: Data = {}
    while before != data:
        before = data
        for change in (_paths, _numbers):
            data = _greedily(data, change, fails)
    lines = [f"# {failing.rule}: {line}" for line in text.split("\n")[:1]]
    body = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120)
    command = "rankcore simulate {file}" + (" --must-heal" if failing.rule == LIVENESS else "")
    name = f"swarm-seed-{failing.seed}.yaml"
    return Short(attrs.evolve(failing, text=text), name, "\n".join([*lines, body]), command)


Changes: TypeAlias = Callable[[Data], list[tuple[KeyPath, Any]]]
GONE = object()


def _greedily(data: Data, changes: Changes, fails: Callable[[Data], bool]) -> Data:
    """Make each change that leaves it failing, from the last to the first, so that paths stay what they are."""
    for path, value in reversed(changes(data)):
        candidate = copy.deepcopy(data)
        if _put(candidate, path, value) and fails(candidate):
            data = candidate
    return data


def _paths(data: Data) -> list[tuple[KeyPath, Any]]:
    """Everything that could be left out: whole parts, which come last here and so are tried first, and what is in them."""
    inner = [(path, GONE) for path, _ in _leaves(data) if path[0] not in KEPT]
    return sorted(inner, key=lambda each: (-len(each[0]), [str(part).zfill(3) for part in each[0]]))


def _numbers(data: Data) -> list[tuple[KeyPath, Any]]:
    """Smaller and rounder numbers."""
    found: list[tuple[KeyPath, Any]] = []
    for path, value in _leaves(data):
        key = path[-1]
        if key in ("target_replicas", "count", "gpus", "gpus_per_replica") and isinstance(value, int):
            found += [(path, smaller) for smaller in range(value - 1, 0, -1)]
        elif key == "at" and isinstance(value, float):
            found += [(path, float(round(value)))]
    return found


def _leaves(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every entry of mappings and lists, at any depth."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield (*path, key), value
        yield from _leaves(value, (*path, key))


def _put(data: Any, path: KeyPath, value: Any) -> bool:
    """Put a value there, or take away what is there; False: nothing is there any more, or it is that already."""
    *way, last = path
    try:
        for key in way:
            data = data[key]
        if data[last] == value:
            return False
    except (KeyError, IndexError):
        return False  # an earlier change has taken it away, or what it was in
    if value is GONE:
        del data[last]
    else:
        data[last] = value
    return True
