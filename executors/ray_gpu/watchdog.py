"""The watchdog: a small process beside a controller, which ends that if it does not answer.

Ray restarts a controller whose process has ended. A process that is stopped (SIGSTOP, a debugger, a frozen container) or whose
event loop hangs has not ended, and nobody else would end it: replicas and proxies go on without a controller, and drivers wait.

The two are joined by a pair of sockets. Each turn the watchdog writes a byte, and the controller's event loop sends it back
(`watched`). After `TURNS` turns in a row without one it ends the controller, through the pidfd that the controller opened of
itself: another process that has been given its number by then cannot be meant. The successor claims a new epoch, which fences
off whatever the old one left under way, and starts a watchdog of its own.

What counts is turns of the watchdog, not time: one that was itself stopped or starved for a minute finds that one turn has gone
by, and looks for answers before it judges. So a machine that stands still, or that has no processor for either, costs no
controller.

| controller | watchdog | then |
|---|---|---|
| answers | asks | nothing happens |
| stopped, or its loop hangs | asks | it is killed after `TURNS` turns; Ray restarts it |
| stopped for less, and goes on | asks | it answers all that was asked meanwhile: nothing happens |
| ended | asks | the pidfd says so: the watchdog ends. The successor starts its own |
| answers | ended | the socket says so: the controller starts another |
| answers | stopped | no question comes for as many turns of the controller: it kills the watchdog and starts another |
| stopped | ended, or stopped | nobody ends it until one of them goes on. Calls of drivers say so, `shutdown()` ends it |
| ended | stopped | Ray restarts the controller. This watchdog watches nothing, and ends as soon as it goes on |
| ended | ended | Ray restarts the controller, which starts a watchdog |

Both stay in one process group, so that what stops the whole group stops both, and kills neither when it goes on.
This file is run by itself, without Ray and without the rest of the package: 10 MiB, of which 4 are its own.
"""

import os
import select
import signal
import sys
import time

TURNS = 27


def watch(pidfd: int, link: int, turn_s: float) -> bool:
    """Return when the process is gone, or has let go of the link; True: it was silent, and has been killed."""
    events = select.poll()
    events.register(pidfd, select.POLLIN)
    events.register(link, select.POLLIN)
    silent = 0
    while silent < TURNS:
        answered = _turn(events, pidfd, link, turn_s)
        if answered is None:
            return False
        silent = 0 if answered else silent + 1
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    return True


def _turn(events: select.poll, pidfd: int, link: int, turn_s: float) -> bool | None:
    """Ask, and say after a turn whether an answer has come, be it to an earlier question; None: there is nobody to ask."""
    try:
        os.write(link, b"?")
    except BlockingIOError:
        pass  # it has left so many unread that one more says nothing
    except OSError:
        return None
    answered, until = False, time.monotonic() + turn_s
    while True:
        left_s = max(0.0, until - time.monotonic())
        for descriptor, _ in events.poll(left_s * 1000):
            if descriptor == pidfd or not _read(link):
                return None
            answered = True
        if left_s == 0.0:
            return answered


def _read(link: int) -> bytes:
    try:
        return os.read(link, 4096)
    except OSError:
        return b""


def main() -> None:
    """Watch the process whose pidfd, and whose end of the link, are inherited."""
    pid, pidfd, link, turn_s = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    os.set_blocking(link, False)
    if watch(pidfd, link, turn_s):
        silence = f"has not answered for {turn_s * TURNS:g} s"
        sys.stderr.write(f"rankcore: the controller, process {pid}, {silence} and was killed; Ray starts another\n")


if __name__ == "__main__":
    main()
