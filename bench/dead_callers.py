"""`python -m bench.dead_callers`: what a process keeps of callers that were killed; bare Ray actors, nothing of ours.

An actor calls one that lives, and is killed, several times over. Where none of its calls was under way the living one keeps
nothing; where one was, its socket stays, closed, until that call has ended.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ray

from bench.measure import print_table

DEATHS = 4
CALLS_S = (0.0, 5.0, 20.0)
"""How long the call takes that is under way when its caller is killed; 0: there is none."""
AFTER_S = (0.0, 10.0, 30.0)


@ray.remote(num_cpus=0, max_concurrency=100)
class Lives:
    """Is called. Asynchronous, as replicas are."""

    async def pid(self) -> int:
        return os.getpid()

    async def stay(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Dies:
    """Calls, is killed, and started again."""

    async def pid(self) -> int:
        return os.getpid()

    async def call(self, other: Any, seconds: float) -> None:
        if seconds:
            self.kept = other.stay.remote(seconds)
        await other.pid.remote()


def closed_sockets(pid: int) -> int:
    """Sockets of a process that no table of the kernel has any more: closed, but for the file."""
    known = set()
    for name, column in (("tcp", 9), ("tcp6", 9), ("udp", 9), ("unix", 6)):
        lines = Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        known |= {line.split()[column] for line in lines}
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue  # closed meanwhile
    return sum(link.startswith("socket:[") and link[8:-1] not in known for link in links)


def left_by_dead_callers(seconds: float) -> list[str]:
    """A row: how many closed sockets there are, right after the deaths and later."""
    lives, dies = Lives.remote(), Dies.remote()
    pid, dead = ray.get([lives.pid.remote(), dies.pid.remote()])
    for _ in range(DEATHS):
        ray.get(dies.call.remote(lives, seconds))
        os.kill(dead, signal.SIGKILL)
        while (born := ray.get(dies.pid.remote())) == dead:
            time.sleep(0.1)
        dead = born
    began, counts = time.monotonic(), []
    for after in AFTER_S:
        time.sleep(max(0.0, began + after - time.monotonic()))
        counts.append(str(closed_sockets(pid)))
    return [f"under way for {seconds:g} s" if seconds else "nothing under way", *counts]


def main() -> None:
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        rows = [left_by_dead_callers(seconds) for seconds in CALLS_S]
    finally:
        ray.shutdown()
    print(f"closed sockets of an actor, of whose callers {DEATHS} were killed", file=sys.stderr)
    print_table(["its calls", "at once", *(f"after {after:g} s" for after in AFTER_S[1:])], rows)


if __name__ == "__main__":
    main()
