"""Pieces of work as Ray tasks, on a local cluster that is started for them and shut down when they are done, or on another."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from executors.workers import Results, WorkersLost

Piece = TypeVar("Piece")
Result = TypeVar("Result")
AHEAD = 2
"""Tasks that wait for each processor."""
LOCAL = "local"


def on_ray(pieces: Sequence[Piece], task: Callable[[Piece], Result], jobs: int, address: str) -> Results[Result]:
    """Each piece is a task that takes one processor.

    Args:
        pieces: What is to be done; a list may grow until the last result of those that it had was taken.
        task: What does it: a function of a module that the workers can import.
        jobs: How many processors a local cluster has; another one has as many as it has.
        address: "local" starts a cluster on this machine; else as for `ray.init`.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ConnectionError: There is no cluster at this address.
        WorkersLost: A worker has died.
    """
    if not pieces:
        return
    # Before ray is imported, which reads it: nothing about this run is told to anybody.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    if address == "auto":
        address = _address_of_this_machine()
    local = {"num_cpus": jobs, "include_dashboard": False} if address == LOCAL else {}
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        yield from _feed(pieces, task, AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1))))
    except ray.exceptions.WorkerCrashedError:
        raise WorkersLost("a Ray worker that ran a part of the work has died; memory may have run out") from None
    finally:
        with suppress(KeyboardInterrupt):
            ray.shutdown()


def _address_of_this_machine() -> str:
    from executors.ray_gpu.cluster_address import found_address
    from executors.ray_gpu.errors import UntrustedAddressError

    try:
        address = found_address()
    except UntrustedAddressError as error:
        raise ConnectionError(str(error)) from None
    if address is None:
        raise ConnectionError("no Ray cluster runs on this machine: start it with `ray start --head`")
    return address


def _feed(pieces: Sequence[Piece], task: Callable[[Piece], Result], ahead: int) -> Results[Result]:
    import ray

    remote = ray.remote(num_cpus=1)(task)
    begun = 0
    running: dict[object, int] = {}
    while True:
        while begun < len(pieces) and len(running) < ahead:
            running[remote.remote(pieces[begun])] = begun
            begun += 1
        if not running:
            return
        ready, _ = ray.wait(list(running), num_returns=1)
        for reference in ready:
            yield running.pop(reference), ray.get(reference)
