"""Cells as Ray tasks, on a local cluster that is started for them and shut down when they are done."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress

from executors.simulator.questions.cells import Cell, Outcomes, Workers, WorkersLost, run_cell

AHEAD = 2
"""Tasks that wait for each processor."""


def on_ray(jobs: int) -> Workers:
    """As many cells at once as there are jobs, each a task that takes one processor.

    Raises:
        ModuleNotFoundError: Ray is not installed.
    """
    # Before ray is imported, which reads it: nothing about this run is told to anybody.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    def work(cells: Sequence[Cell]) -> Outcomes:
        if not cells:
            return
        ray.init("local", num_cpus=jobs, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield from _feed(cells, AHEAD * jobs)
        except ray.exceptions.WorkerCrashedError:
            raise WorkersLost("a Ray worker that ran a part of the work has died; memory may have run out") from None
        finally:
            with suppress(KeyboardInterrupt):
                ray.shutdown()

    return work


def _feed(cells: Sequence[Cell], ahead: int) -> Outcomes:
    import ray

    task = ray.remote(num_cpus=1)(run_cell)
    waiting = iter(enumerate(cells))
    running: dict[object, int] = {}
    while True:
        for index, cell in waiting:
            running[task.remote(cell)] = index
            if len(running) >= ahead:
                break
        if not running:
            return
        ready, _ = ray.wait(list(running), num_returns=1)
        for reference in ready:
            yield running.pop(reference), ray.get(reference)
