"""Where users' requests come in to a local controller, and what a request is: a socket in the deployment's folder.

One connection is one request: a line of JSON with a verb and its arguments, answered with a line that has the answer or what is
wrong. Nothing here waits for who asks: a request counts once its line is complete, and an answer that finds no room on its way
is given by a thread of its own; who does not take it within `TAKE_S` goes without.
"""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from executors.private_folder import PlaceError, bound, check_peer, connected, peer_of
from executors.ray_gpu.errors import NoAnswerError
from executors.run.files import DOOR

LINE_BYTES_MAX = 2**20
READ_BYTES = 65_536
TAKE_S = 10.0
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
                try:
                    check_peer(caller)
                except PlaceError:  # another user's
                    caller.close()
                else:
                    caller.setblocking(False)
                    self._callers[caller] = b""
        for caller in tuple(self._callers):
            if (line := self._line_of(caller)) is not None:
                del self._callers[caller]
                _give(caller, answer(line).encode() + b"\n" if line else b"")

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


def _give(caller: socket.socket, answer: bytes) -> None:
    """All of an answer; the caller hangs up then."""
    sent = 0
    with suppress(OSError):  # it is gone, or takes nothing at the moment
        sent = caller.send(answer)
    if sent < len(answer):
        threading.Thread(target=_give_slowly, args=(caller, answer[sent:]), daemon=True).start()
    else:
        caller.close()


def _give_slowly(caller: socket.socket, rest: bytes) -> None:
    with caller, suppress(OSError):
        caller.settimeout(TAKE_S)
        caller.sendall(rest)


def ask(folder: Path, verb: str, arguments: tuple[Any, ...], timeout_s: float = ANSWER_S) -> dict[str, Any]:
    """What the controller of a deployment answers.

    Raises:
        NoAnswerError: None has answered in time, or it has ended meanwhile.
        PlaceError: Other users could get at the folder.
    """
    pid = 0
    try:
        with connected(folder / DOOR, timeout_s) as connection:
            pid = peer_of(connection)
            connection.sendall(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
            said = b""
            while data := connection.recv(READ_BYTES):
                said += data
    except TimeoutError:
        raise NoAnswerError(
            f"the controller of {folder}, process {pid or 'unknown'}, has not answered within {timeout_s:g} s: `kill -CONT` "
            "lets one go on that was stopped, `kill -KILL` ends one that hangs, whose replicas live on for ten minutes"
        ) from None
    except (ConnectionError, FileNotFoundError):
        said = b""
    if not said.endswith(b"\n"):
        raise NoAnswerError(f"the controller of {folder} has ended before it answered: see `rankcore status --executor local`")
    answer: dict[str, Any] = json.loads(said)
    return answer
