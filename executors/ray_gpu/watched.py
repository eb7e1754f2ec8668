"""The controller's half of the watchdog: answers it, and starts another when there is none."""

import asyncio
import logging
import os
import socket
import subprocess
import sys

from executors.ray_gpu import watchdog
from executors.ray_gpu.patience import controller_silence_s

LOG = logging.getLogger(__name__)

AGAIN_S = 1.0
"""Before another watchdog is started."""


class Watched:
    """Has a watchdog for this process. Runs on the event loop that is to be watched.

    Args:
        silence_s: So long the loop may be silent; None: as the environment says.
    """

    def __init__(self, silence_s: float | None = None) -> None:
        self._turn_s = (controller_silence_s() if silence_s is None else silence_s) / watchdog.TURNS
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Be watched from now on, to the end of this process."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        try:
            pidfd = os.pidfd_open(os.getpid())
        except (AttributeError, OSError) as error:
            LOG.warning("there is no watchdog for the controller: this system has no pidfd (%s)", error)
            return
        while True:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            with ours:
                try:
                    with theirs:
                        process = start_watchdog(pidfd, theirs, self._turn_s)
                except OSError as error:
                    problem = f"the watchdog does not start, and is tried again: {error}"
                else:
                    await self._answer(ours)
                    process.kill()  # one that is stopped asks nothing either
                    problem = f"the watchdog has ended with {await asyncio.to_thread(process.wait)}: another is started"
            await asyncio.sleep(AGAIN_S)
            LOG.warning(problem)  # where Ray ends it together with this process, nobody comes to here

    async def _answer(self, link: socket.socket) -> None:
        """Answer until nobody asks any more."""
        loop, silent = asyncio.get_running_loop(), 0
        while silent < watchdog.TURNS:
            try:
                async with asyncio.timeout(2 * self._turn_s):
                    asked = await loop.sock_recv(link, 4096)
                if not asked:
                    return
                await loop.sock_sendall(link, asked)
                silent = 0
            except TimeoutError:
                silent += 1
            except OSError:
                return


def start_watchdog(pidfd: int, link: socket.socket, turn_s: float) -> subprocess.Popen[bytes]:
    """Start the process; it has copies of the pidfd and of the link, and nothing else of ours but the log."""
    arguments = [str(os.getpid()), str(pidfd), str(link.fileno()), repr(turn_s)]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__, *arguments],
        pass_fds=(pidfd, link.fileno()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
