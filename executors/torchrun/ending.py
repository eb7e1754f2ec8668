"""The processes of an agent: which they are, and their end.

An agent's workers outlive it when it is killed, and are then nobody's children. So each inherits a variable of the environment
which names the agent, and who looks for them finds both: those below the agent, and those with the variable. Both may be
incomplete alone: a worker may clear its environment, and one that was forked without exec shows that of its parent.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

MEMBER = "RANKCORE_GANG_MEMBER"
"""The variable that names the agent."""
AGAIN_AFTER_S = 0.02


def machine() -> str:
    """Where process numbers mean the same: this boot of this machine, and its namespace of them; empty: not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def started_ticks(pid: int) -> int:
    """When a process was started, in ticks since boot; -1: there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields else -1


def processes_of(member: str, pid: int) -> list[int]:
    """The processes of an agent, but `pid`, which is the agent itself."""
    marker = f"{MEMBER}={member}".encode()
    parents, marked = dict[int, int](), set[int]()
    for each in _pids():
        fields = _stat(each)
        if not fields or fields[0] == "Z":  # ended, and its parent has not looked yet
            continue
        parents[each] = int(fields[1])
        with suppress(OSError), open(f"/proc/{each}/environ", "rb") as file:
            if marker in file.read().split(b"\0"):
                marked.add(each)
    return sorted((marked | _below(pid, parents)) - {pid, os.getpid()})


def kill_processes_of(member: str, pid: int) -> int:
    """Kill the processes of an agent, but the agent; how many were there. None is, where this says 0."""
    found = processes_of(member, pid)
    for each in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
    return len(found)


def terminate_this(why: str) -> None:
    """Say why, and ask this agent to end: torchrun stops its workers and exits."""
    sys.stderr.write(f"rankcore: error: {why}: this agent ends, since its rank may be another's\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGTERM)


def kill_this(member: str) -> None:
    """Kill the processes of this agent, and this one last."""
    while kill_processes_of(member, os.getpid()):
        time.sleep(AGAIN_AFTER_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _pids() -> Iterator[int]:
    try:
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit())
    except OSError:
        return


def _stat(pid: int) -> list[str]:
    """State, parent, and so on: what follows the name, which may hold anything."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _below(pid: int, parents: dict[int, int]) -> set[int]:
    found, more = set[int](), {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found
