"""When an agent's time is over: who cannot reach the coordinator ends before its rank may be another's.

An agent counts from the moment at which it sent what the coordinator has answered, the coordinator from the later one at which
it read it, so no delay of a message or of either process makes the agent's deadline the later one:

    agent          sends            is told to end      kills itself and all its processes
                   |---- lease - 1 -----|------ 5 ------|
    coordinator      reads, answers                       gives the rank away
                     |----------------- lease + 5 ----------|

A process that is stopped (SIGSTOP, a paused machine) cannot keep this: it is killed by itself once it goes on. The clock goes
on while a machine sleeps.
"""

import threading
import time
from collections.abc import Callable
from enum import Enum

MARGIN_S = 1.0
GRACE_S = 5.0
LOOK_EVERY_S = 0.1
RENEWALS_PER_LEASE = 5
LEASE_S_MIN = 2.0


def now_s() -> float:
    """The time, which does not stand still while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Deadline(Enum):
    """Which deadline of a lease is over."""

    NONE = "none"
    TERM = "term"
    KILL = "kill"


def deadline(renewed_s: float, lease_s: float, at_s: float) -> Deadline:
    """Which deadline of an agent is over, if the newest answered message was sent at `renewed_s`."""
    over_s = at_s - renewed_s - (lease_s - MARGIN_S)
    return Deadline.KILL if over_s >= GRACE_S else Deadline.TERM if over_s >= 0 else Deadline.NONE


def has_lapsed(read_s: float, lease_s: float, at_s: float) -> bool:
    """Whether an agent is gone of which the newest message was read at `read_s`."""
    return at_s - read_s > lease_s + GRACE_S


class LeaseGuard:
    """A thread that ends this process when the coordinator has not answered for too long, whatever other threads wait for."""

    def __init__(self, terminate: Callable[[str], None], kill: Callable[[], None], clock: Callable[[], float] = now_s) -> None:
        self._terminate, self._kill, self._clock = terminate, kill, clock
        self._why = ""
        self._lock = threading.Lock()
        self._renewed_s, self._lease_s = 0.0, float("inf")
        self._stopped = threading.Event()
        self._is_told = False
        self._thread = threading.Thread(target=self._run, name="rankcore-lease", daemon=True)
        self._thread.start()

    def renewed(self, sent_s: float, lease_s: float) -> None:
        """The coordinator has answered what was sent then. A deadline that is over stays over: the rank may be another's."""
        with self._lock:
            if deadline(self._renewed_s, self._lease_s, self._clock()) is Deadline.NONE:
                self._renewed_s, self._lease_s = max(self._renewed_s, sent_s), lease_s

    def lapse(self, why: str) -> None:
        """The coordinator says that the rank is another's: end at once, and be killed `GRACE_S` later."""
        with self._lock:
            if deadline(self._renewed_s, self._lease_s, self._clock()) is Deadline.NONE:
                self._renewed_s, self._lease_s, self._why = self._clock(), MARGIN_S, why

    def stop(self) -> None:
        """There is no rank any more which could be another's."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_EVERY_S):
            with self._lock:
                over = deadline(self._renewed_s, self._lease_s, self._clock())
            if over is Deadline.NONE:
                continue
            if not self._is_told:
                self._is_told = True
                self._terminate(self._why or f"no coordinator has answered for {self._lease_s - MARGIN_S:g} s")
            if over is Deadline.KILL:
                self._kill()
                return
