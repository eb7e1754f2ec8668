"""Many pieces of work at once: in this process, or in several; what each comes to depends on nothing but the piece.

A process that is killed cannot end its workers, and a worker that waits for work reads a queue of which every worker holds
the other end, so that it never comes to an end. Each worker therefore has a thread that waits for the end of a pipe whose only
writer is the parent: the system closes it, whatever ended the parent.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for_end
from typing import TypeAlias, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")
AHEAD = 2
"""Pieces that wait for each process: enough that none is idle, few enough that Ctrl-C has little to take back."""

Results: TypeAlias = Generator[tuple[int, Result], None, None]
"""The place and the result of each piece, as soon as it is known, in any order."""


class WorkersLost(Exception):
    """The processes that were to do the work have died, as they do when memory runs out."""


def in_this_process(pieces: Sequence[Piece], task: Callable[[Piece], Result]) -> Results[Result]:
    """One after another."""
    for index, piece in enumerate(pieces):
        yield index, task(piece)


def in_processes(pieces: Sequence[Piece], task: Callable[[Piece], Result], jobs: int) -> Results[Result]:
    """As many at once as there are jobs, each in a process of its own; `task` is a function of a module.

    Args:
        pieces: A list of two or more may grow until the last result of those that it had was taken.

    Raises:
        WorkersLost: A process has died.
    """
    if jobs == 1 or len(pieces) < 2:
        yield from in_this_process(pieces, task)
        return
    # Spawned, not forked: a fork would copy the thread that draws the progress bar in the middle of its work.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, context, _begin)  # one that is spawned is so when there is a piece for it
    try:
        yield from _feed(pool, pieces, task, AHEAD * jobs)
    except BrokenProcessPool:
        raise WorkersLost("a process that ran a part of the work has died; memory may have run out") from None
    finally:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()  # what it was doing is of no use to anybody now
        # The pool's thread closes, at its end, the pipe to which the interpreter writes at its own: it ends first.
        pool.shutdown(wait=True, cancel_futures=True)


def _feed(pool: ProcessPoolExecutor, pieces: Sequence[Piece], task: Callable[[Piece], Result], ahead: int) -> Results[Result]:
    begun = 0
    running: dict[Future[Result], int] = {}
    while True:
        while begun < len(pieces) and len(running) < ahead:
            running[pool.submit(task, pieces[begun])] = begun
            begun += 1
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()


def _begin() -> None:
    """Leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker is a process that another one has started"
    end_with(parent.sentinel)


def end_with(pipe: int) -> None:
    """End this process when the last writer of a pipe has ended, whatever the other threads do."""

    def watch() -> None:
        wait_for_end([pipe])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()
