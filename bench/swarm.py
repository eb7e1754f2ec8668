"""The pure part of the swarm: checked events per minute of one core, and where the time goes."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.measure import print_table, save
from executors.swarm import batches
from executors.swarm.batches import Batch, run_batch
from executors.swarm.runs import BOOK_EVERY
from rankcore.testing.schedules import World, world

SEEDS, QUICK_SEEDS = 400, 60
REPEATS = 5
COMPILED = not str(world.__file__).endswith(".py")
"""Compiled functions call each other past the names where a clock could be put between."""
FIRST = 1_000
"""Beyond the seeds in which every step is looked at for coverage, as in a long run."""
PARTS = {
    "all of it": "all",
    "the core's step": "step",
    "check_step": "check_step",
    f"the whole book, every {BOOK_EVERY}": "book",
    "world, beliefs, coverage, drawing": "rest",
}


class Clock:
    """Adds up the processor time that is spent in a function, less what looking at the clock costs."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        now = time.process_time
        begun = now()
        for _ in range(10_000):
            now()
        self._look_s = (now() - begun) / 10_000

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        now, look_s = time.process_time, self._look_s

        def timed(*arguments: Any) -> Any:
            begun = now()
            try:
                return function(*arguments)
            finally:
                self.spent_s += now() - begun - look_s

        return timed


def measure(seeds: int) -> dict[str, float]:
    """Microseconds per checked event: all of it, and its parts from a second run of the same seeds."""
    batch = Batch("pure", tuple(range(FIRST + 1, FIRST + 1 + seeds)), 0)
    whole = run_batch(batch)
    if COMPILED:
        return {"events": whole.events, "all": whole.busy_s / whole.events * 1e6}
    parts = {"step": (world, "step"), "check_step": (world, "check_step"), "book": (World, "check_book")}
    clocks = {name: Clock() for name in parts}
    honest = {name: getattr(owner, attribute) for name, (owner, attribute) in parts.items()}
    try:
        for name, (owner, attribute) in parts.items():
            setattr(owner, attribute, clocks[name].around(honest[name]))
        run_batch(batch)
    finally:
        for name, (owner, attribute) in parts.items():
            setattr(owner, attribute, honest[name])
    each = {name: clock.spent_s / whole.events * 1e6 for name, clock in clocks.items()}
    of_all = whole.busy_s / whole.events * 1e6
    return {"events": whole.events, "all": of_all, **each, "rest": of_all - sum(each.values())}


def run(quick: bool) -> None:
    """Measure, print and save."""
    second_runs, batches.differs = batches.differs, lambda part, seed: None
    try:
        found = [measure(QUICK_SEEDS if quick else SEEDS) for _ in range(REPEATS)]
    finally:
        batches.differs = second_runs
    print(
        f"The pure part of the swarm, {'compiled' if COMPILED else 'not compiled'}: {found[0]['events']:,.0f} checked events, "
        f"{REPEATS} times; microseconds of processor time"
    )
    rows = []
    for label, key in PARTS.items():
        values = [each[key] for each in found if key in each]
        if values:
            rows.append([label, f"{statistics.median(values):.1f}", f"{min(values):.1f}", f"{max(values):.1f}"])
    print_table(["per event", "median", "least", "most"], rows)
    rates = [60.0 / each["all"] for each in found]
    print(f"checked events per minute and core: {statistics.median(rates):.2f} M (best {max(rates):.2f} M)")
    print(f"saved: {save('swarm', {'repeats': found})}")
