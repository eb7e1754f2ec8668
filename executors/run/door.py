"""Where users' requests come in to a local controller, and what a request is: a socket in the deployment's folder.

One connection is one request: a line of JSON with a verb and its arguments, answered with a line that has the answer or what is
wrong. Nothing here waits for who asks: a request counts once its line is complete, and an answer that finds no room on its way
is given by a thread of its own; who does not take it within `TAKE_S` goes without.
"""

import json
import logging
import math
import socket
import threading
import time
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
LOOK_EVERY_S = 0.2
SILENT_S = 2.0
"""After so long without an answer it is said who is waited for."""
STOPPED = ("T", "t")
"""States of processes in /proc: by a signal, by a debugger."""
AFTERWARDS = "; its replicas live on, and the same `rankcore run` takes them over"

LOGGER = logging.getLogger(__name__)


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
    """What the controller of a deployment answers. One that is stopped (SIGSTOP) is not waited for, and is asked nothing.

    Raises:
        NoAnswerError: None has answered in time, or it is stopped, begins, or has ended meanwhile; the text says what to do.
        PlaceError: Other users could get at the folder.
    """
    deadline, said_at = time.monotonic() + timeout_s, time.monotonic() + SILENT_S
    pid, said = 0, b""
    try:
        with connected(folder / DOOR, timeout_s) as connection:
            pid = peer_of(connection)
            _check_goes_on(folder, pid)
            connection.sendall(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
            while True:
                connection.settimeout(max(0.001, min(LOOK_EVERY_S, deadline - time.monotonic())))
                try:
                    data = connection.recv(READ_BYTES)
                except TimeoutError:
                    _check_goes_on(folder, pid)
                    if time.monotonic() >= deadline:
                        raise
                    if time.monotonic() >= said_at:
                        said_at = math.inf
                        LOGGER.warning("%s, is silent: it is waited for, for %g s in all", _named(folder, pid), timeout_s)
                    continue
                if not data:
                    break
                said += data
    except NoAnswerError:
        raise
    except TimeoutError:
        raise NoAnswerError(
            f"{_named(folder, pid)}, has not answered within {timeout_s:g} s, and may do what it was asked for later: "
            f"`kill -KILL {pid or 'PID'}` ends one that hangs{AFTERWARDS}"
        ) from None
    except (ConnectionError, FileNotFoundError):
        if not pid:
            raise NoAnswerError(
                f"the controller of {folder} takes no requests: it begins, or ends; `rankcore status --executor local` shows it"
            ) from None
    if not said.endswith(b"\n"):
        raise NoAnswerError(f"{_named(folder, pid)}, has ended before it answered: see `rankcore status --executor local`")
    answer: dict[str, Any] = json.loads(said)
    return answer


def _named(folder: Path, pid: int) -> str:
    return f"the controller of {folder}, process {pid or 'unknown'}"


def _check_goes_on(folder: Path, pid: int) -> None:
    """Raise if a process is stopped, and so answers nobody; where the system does not say how it is, it goes on."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return
    if state in STOPPED:
        raise NoAnswerError(
            f"{_named(folder, pid)}, is stopped (SIGSTOP) and does not answer: `kill -CONT {pid}` lets it go on, "
            f"`kill -KILL {pid}` ends it{AFTERWARDS}"
        )
