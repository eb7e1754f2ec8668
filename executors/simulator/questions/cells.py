"""Many runs at once: one cell is one scenario with one seed, and its outcome the figures of that run."""

import multiprocessing
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeAlias

import attrs

from executors.simulator.load.sources import Source
from executors.simulator.record.flat_figures import Numbers, flatten
from executors.simulator.run import Run

AHEAD = 2
"""Cells that wait for each process: enough that none is idle, few enough that Ctrl-C has little to take back."""


@attrs.frozen
class Cell:
    """One run to be made."""

    source: Source
    seed: int


@attrs.frozen
class Outcome:
    """What a run came to.

    Attributes:
        figures: Of each deployment, by its name.
        failure: The promise that was broken, in words; None: all held.
    """

    figures: dict[str, Numbers]
    failure: str | None = None


class WorkersLost(Exception):
    """The processes that were to do the work have died, as they do when memory runs out."""


Outcomes: TypeAlias = Generator[tuple[int, Outcome], None, None]
Workers: TypeAlias = Callable[[Sequence[Cell]], Outcomes]
"""Runs cells, and hands over the place and the outcome of each as soon as it is known, in any order."""


def run_cell(cell: Cell) -> Outcome:
    """Make one run. It depends on nothing but the cell, whichever process does it."""
    scenario = cell.source.scenario(cell.seed)
    result = Run(scenario, cell.source.arrivals(scenario)).go()
    broken = result.failure
    failure = None if broken is None else f"promise {broken.rule} broken at t={broken.at:.6f} s: {broken.text}"
    return Outcome({figures.name: flatten(figures) for figures in result.deployments}, failure)


def in_this_process(cells: Sequence[Cell]) -> Outcomes:
    """One after another."""
    for index, cell in enumerate(cells):
        yield index, run_cell(cell)


def in_processes(jobs: int) -> Workers:
    """As many at once as there are jobs, each in a process of its own."""

    def work(cells: Sequence[Cell]) -> Outcomes:
        if jobs == 1 or len(cells) < 2:
            yield from in_this_process(cells)
            return
        # Spawned, not forked: a fork would copy the thread that draws the progress bar in the middle of its work.
        context = multiprocessing.get_context("spawn")
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(min(jobs, len(cells)), context, _leave_ctrl_c_to_the_parent)
        try:
            yield from _feed(pool, cells, AHEAD * jobs)
        except BrokenProcessPool:
            raise WorkersLost("a process that ran a part of the work has died; memory may have run out") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()  # what it was doing is of no use to anybody now

    return work


def _feed(pool: ProcessPoolExecutor, cells: Sequence[Cell], ahead: int) -> Outcomes:
    waiting = iter(enumerate(cells))
    running: dict[Future[Outcome], int] = {}
    while True:
        for index, cell in waiting:
            running[pool.submit(run_cell, cell)] = index
            if len(running) >= ahead:
                break
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
