"""One replica's process as the executor sees it: its child, or one that an earlier controller has left behind."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from executors.line_executor import LineReplica
from executors.local.places import Address, survivors
from executors.run.files import LOG
from rankcore.codec import to_json
from rankcore.commands import StartReplica


class Process(LineReplica):
    """Its end is known for certain: a pidfd names this very process, whoever started it.

    Attributes:
        address: Which replica it is, and where.
    """

    def __init__(self, address: Address, connection: socket.socket, child: subprocess.Popen[bytes] | None = None) -> None:
        super().__init__(address.replica_id, address.node_id, connection)
        self.address = address
        self._pidfd = os.pidfd_open(address.pid)
        self._end = select.poll()
        self._end.register(self._pidfd, select.POLLIN)
        self._child = child

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return bool(self._end.poll(0))

    def kill(self) -> None:
        """End it at once."""
        if not self.has_ended():
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    @property
    def ending(self) -> int:
        """What becomes readable when it has ended."""
        return self._pidfd

    def close(self) -> str:
        """Let go of it; returns how it ended, where it has and was a child."""
        self.hang_up()
        os.close(self._pidfd)
        if self._child is None:
            return "it has ended"
        status = self._child.poll()
        return f"exit status {status}" if status is None or status >= 0 else f"killed by {signal.Signals(-status).name}"


def spawn(folder: Path, application: str, start: StartReplica, node_id: str, under: Sequence[str] = ()) -> Process:
    """Start a replica's process, in a session of its own: it outlives this process, and hears nothing of Ctrl-C.

    Args:
        under: A command that becomes the one which it is given, such as `nice -n 10`.

    Raises:
        OSError: There can be no process.
    """
    ours, theirs = socket.socketpair()
    # -P: a folder `executors` where this is run is not taken for ours; the application finds its modules there all the same.
    command = [sys.executable, "-P", "-m", "executors.local.replica", str(folder), application, node_id, str(theirs.fileno())]
    try:
        with theirs, (folder / LOG).open("ab") as log:
            child = subprocess.Popen(
                [*under, *command, to_json(start)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError:
        ours.close()
        raise
    return Process(Address(start.replica_id, node_id, child.pid), ours, child)


def found(folder: Path, deployment: str) -> Iterator[Process]:
    """The replicas' processes that earlier controllers have left behind."""
    for address, connection in survivors(folder, deployment):
        try:
            process = Process(address, connection)
        except ProcessLookupError:  # it has ended since
            connection.close()
            continue
        # It held the other end before the pidfd was opened: where it still does, its number was nobody else's in between.
        if hung_up(connection):
            process.close()
        else:
            yield process


def hung_up(connection: socket.socket) -> bool:
    """Whether the other end is closed."""
    poller = select.poll()
    poller.register(connection, select.POLLRDHUP)
    return bool(poller.poll(0))
