"""What the system says about processes and processors. Replica processes import this."""

import asyncio
import os
import signal
import time
from pathlib import Path

STUCK_S = 0.25
"""A process that has not ended by itself after this long is ended by the system."""
LOOK_AGAIN_S = 0.002
REMOTE_TURN_S = 10.0


def stat_of(pid: int) -> list[str] | None:
    """What the system says about a process: its state first, when it started in place 19; None: there is none."""
    try:
        # A process is called what a user calls his application, cut after 15 bytes, perhaps within a character.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return None


def started_at(pid: int) -> int | None:
    """When a process started, in the system's ticks, which with its number names it; None: the system does not say."""
    found = stat_of(pid)
    return int(found[19]) if found is not None else None


def reap(pid: int, started: int | None) -> bool:
    """On the process's node: wait for its end, for a while; whether it is gone."""
    begin = time.monotonic()
    while time.monotonic() - begin < REMOTE_TURN_S:
        if ended(pid, started, force=time.monotonic() - begin > STUCK_S):
            return True
        time.sleep(LOOK_AGAIN_S)
    return False


def ended(pid: int, started: int | None, *, force: bool) -> bool:
    """Whether a process on this machine is gone; if not, and `force` says so, it is killed.

    Args:
        started: When it did, in the system's ticks, since numbers of processes are used again; None: not known.
    """
    fields = stat_of(pid)
    if fields is None or fields[0] in "ZX" or started not in (None, int(fields[19])):
        return True
    if force:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            return stat_of(pid) is None
    return False


async def processors_in_use(during_s: float) -> float:
    """The share of this machine's processor time that is in use, from 0 to 1; 0: the system does not say. Waits so long."""
    before = _processor_ticks()
    await asyncio.sleep(during_s)
    after = _processor_ticks()
    if before is None or after is None or after[1] <= before[1]:
        return 0.0
    return (after[0] - before[0]) / (after[1] - before[1])


def _processor_ticks() -> tuple[int, int] | None:
    """How long all processors have been in use since the start, and the whole time."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return None
    user, nice, system, idle, iowait, *others = map(int, first.split()[1:9])
    used = user + nice + system + sum(others)
    return used, used + idle + iowait
