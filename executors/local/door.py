"""Where users' requests come in to a local controller, and what a request is: a socket in the deployment's folder.

One connection is one request: a line of JSON with a verb and its arguments, answered with a line that has the answer or what is
wrong. Nothing here waits for who asks: a request counts once its line is complete, and who does not take its answer within
`TAKE_S` goes without.
"""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from executors.local.places import DOOR
from executors.private_folder import bound, check_peer, connected
from executors.ray_gpu.errors import NoAnswerError

LINE_BYTES_MAX = 2**20
READ_BYTES = 65_536
TAKE_S = 1.0
ANSWER_S = 60.0


class Door:
    """The controller's end.

    Raises:
        OSError: There can be no socket.
    """

    def __init__(self, folder: Path) -> None:
        self._listener = bound(folder / DOOR)
        self._listener.setblocking(False)
        self._listener.listen()
        self._callers: dict[socket.socket, bytes] = {}

    def files(self) -> tuple[int, ...]:
        """What becomes readable when somebody asks."""
        return (self._listener.fileno(), *(each.fileno() for each in self._callers))

    def serve(self, answer: Callable[[str], str]) -> None:
        """Answer whoever has asked by now, each by a line for a line."""
        with suppress(BlockingIOError):
            while True:
                caller, _ = self._listener.accept()
                caller.setblocking(False)
                self._callers[caller] = b""
        for caller in tuple(self._callers):
            if (line := self._line_of(caller)) is None:
                continue
            try:
                check_peer(caller)
                if line:
                    said = answer(line).encode() + b"\n"
                    caller.settimeout(TAKE_S)
                    caller.sendall(said)
            except OSError:
                pass  # it is gone, or another user's
            finally:
                del self._callers[caller]
                caller.close()

    def _line_of(self, caller: socket.socket) -> str | None:
        """What it asks; "": it says nothing that can be heard; None: not yet."""
        try:
            data = caller.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return ""
        self._callers[caller] += data
        line, newline, _ = self._callers[caller].partition(b"\n")
        if newline:
            return line.decode(errors="replace")
        return None if data and len(line) < LINE_BYTES_MAX else ""

    def close(self) -> None:
        """Nobody is answered any more."""
        for each in (self._listener, *self._callers):
            each.close()


def ask(folder: Path, verb: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """What the controller of a deployment answers.

    Raises:
        NoAnswerError: None has answered in time, or it has ended meanwhile.
        PlaceError: Other users could get at the folder.
    """
    try:
        with connected(folder / DOOR, ANSWER_S) as connection:
            connection.sendall(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
            said = b""
            while data := connection.recv(READ_BYTES):
                said += data
    except TimeoutError:
        raise NoAnswerError(f"the controller of {folder} has not answered within {ANSWER_S:g} s") from None
    except (ConnectionError, FileNotFoundError):
        said = b""
    if not said.endswith(b"\n"):
        raise NoAnswerError(f"the controller of {folder} has ended before it answered: see `rankcore status --executor local`")
    answer: dict[str, Any] = json.loads(said)
    return answer
