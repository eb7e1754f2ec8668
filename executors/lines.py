"""Lines of text over a connection at which nobody waits: what cannot be sent yet is kept, what came in is handed out whole."""

import socket

READ_BYTES = 65_536
ASK_HEALTH, WELL, ASK_READY = "health", "well", "ready"
"""Lines that are neither commands nor events: how are you, that all is well, and whether it takes requests; the last with the
seconds that user code has to say so."""


class Conversation:
    """One end of a connection.

    Attributes:
        is_over: Whether the other end has hung up, as far as was heard.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.is_over = False
        self._outbox = self._inbox = b""
        connection.setblocking(False)

    def send(self, line: str) -> None:
        """Say something, now or as soon as the other end reads."""
        self._outbox += line.encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Say what could not be said before."""
        try:
            while self._outbox:
                self._outbox = self._outbox[self._connection.send(self._outbox) :]
        except BlockingIOError:
            pass
        except OSError:  # it is gone, or about to be
            self._outbox = b""

    def hear(self) -> list[str]:
        """The lines that have come in."""
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
        """What becomes readable when there is something to hear."""
        return self._connection.fileno()

    def hang_up(self) -> None:
        """Close it."""
        self._connection.close()
