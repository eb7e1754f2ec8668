"""Lines of text over a connection at which nobody waits: what cannot be sent yet is kept, what came in is handed out whole."""

import select
import socket

READ_BYTES = 65_536
ASK_HEALTH, WELL, ASK_READY = "health", "well", "ready"
"""Lines that are neither commands nor events: how are you, that all is well, and whether it takes requests; the last with the
seconds that user code has to say so."""


class Conversation:
    """One end of a connection, once there is one: what is said before is kept for it.

    Attributes:
        is_over: Whether the other end has hung up, as far as was heard.
    """

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection: socket.socket | None = None
        self.is_over = False
        self._outbox = self._inbox = b""
        if connection is not None:
            self.connect(connection)

    def connect(self, connection: socket.socket, greeting: str = "") -> None:
        """Go on over this connection, which it has for itself, and may be in the making; with a greeting before all else."""
        connection.setblocking(False)
        self._connection, self.is_over = connection, False
        self._outbox = greeting.encode() + self._outbox
        self.flush()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._connection is not None

    @property
    def awaits(self) -> int:
        """What `select.poll` has to wait for here: that it can hear, or say what it could not."""
        return select.POLLIN | (select.POLLOUT if self._outbox else 0)

    def send(self, line: str) -> None:
        """Say something, now or as soon as the other end reads."""
        self._outbox += line.encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Say what could not be said before."""
        if self._connection is None:
            return
        try:
            while self._outbox:
                self._outbox = self._outbox[self._connection.send(self._outbox) :]
        except BlockingIOError:
            pass
        except OSError:  # it is gone, or about to be
            self._outbox = b""

    def hear(self) -> list[str]:
        """The lines that have come in."""
        if self._connection is None:
            return []
        try:
            while data := self._connection.recv(READ_BYTES):
                self._inbox += data
            self.is_over = True
        except BlockingIOError:
            pass  # nothing more for now
        except OSError:
            self.is_over = True
        *lines, self._inbox = self._inbox.split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def fileno(self) -> int:
        """What becomes readable when there is something to hear; -1: there is no connection."""
        return self._connection.fileno() if self._connection is not None else -1

    def hang_up(self) -> None:
        """Close it. What was not said to the end, or not heard to the end, is lost."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self.is_over = None, False
        self._outbox = self._inbox = b""
