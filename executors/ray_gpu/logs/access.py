"""A line for each request, written apart from it: who answers a request notes five values, and a thread makes lines of them.

A line that is formatted and written while its request is answered takes longer than the rest of what a small call needs.
**Race:** what a process has noted in its last half second is lost if it is killed.
"""

import atexit
import logging
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from executors.ray_gpu.logs.lines import on_one_line

ACCESS = "rankcore.access"
EVERY_S = 0.5
NOTED_MAX = 100_000
"""So many wait at most; the oldest are given up then."""
SHOWN_MAX = 200
"""So many characters of a path are written."""


class Answered(NamedTuple):
    """One request that has ended.

    Attributes:
        method: Of HTTP; "CALL" for one by a handle.
        route: The beginning of the path, or the method's name.
        status: Of HTTP; else "OK", or what was raised.
        at: By the system's clock, when it ended.
    """

    method: str
    route: str
    status: str
    latency_s: float
    request_id: str
    at: float


class AccessLog:
    """Takes what was answered, from any thread."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._noted: deque[Answered] = deque(maxlen=NOTED_MAX)
        self._thread: threading.Thread | None = None
        self._writing = threading.Lock()

    def note(self, method: str, route: str, status: str, latency_s: float, request_id: str) -> None:
        """A request has ended."""
        self._noted.append(Answered(method, route[:SHOWN_MAX], status, latency_s, request_id, time.time()))
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_on, name="access-log", daemon=True)
            self._thread.start()
            atexit.register(self.write)

    def write(self) -> None:
        """Write what was noted by now."""
        with self._writing:
            while self._noted:
                self._logger.handle(self._record(self._noted.popleft()))

    def _write_on(self) -> None:
        while True:
            time.sleep(EVERY_S)
            self.write()

    def _record(self, each: Answered) -> logging.LogRecord:
        latency_ms = each.latency_s * 1000.0
        text = on_one_line(f"{each.method} {each.route} {each.status} {latency_ms:.1f}ms")
        more: dict[str, Any] = {
            "method": each.method,
            "route": each.route,
            "status": each.status,
            "latency_ms": round(latency_ms, 3),
            "request_id": each.request_id,
        }
        record = self._logger.makeRecord(ACCESS, logging.INFO, __file__, 0, text, (), None, extra=more)
        record.created, record.msecs = each.at, each.at % 1.0 * 1000.0
        return record
