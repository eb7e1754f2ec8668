"""How the requests of one process are sent: some at once, the others as answers come, and none keeps the process alive."""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable

LOG = logging.getLogger(__name__)

IN_FLIGHT_MAX = 256
"""Requests of one process that are asked at once; each takes a place in the controller until it is answered."""


class Sender:
    """Sends requests in their order, so many at once at most.

    The first ones go out in their callers' threads. Those that have to wait are sent by a thread of the sender's own, since
    who learns of an answer may be a thread of Ray's, which must not wait for Ray; at the end of the program it just ends.
    """

    def __init__(self, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self._room = in_flight_max
        self._held: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._to_send: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._send_all, name="fleet-sender", daemon=True).start()

    def submit(self, send: Callable[[], None]) -> None:
        """Send a request, now or once there is room; `done` is to be called once when it is over."""
        with self._lock:
            if not self._room:
                self._held.append(send)
                return
            self._room -= 1
        send()

    def done(self) -> None:
        """One of those that were sent is over: the next one may go."""
        with self._lock:
            if not self._held:
                self._room += 1
                return
            following = self._held.popleft()
        self._to_send.put(following)

    def again(self, send: Callable[[], None], after_s: float) -> None:
        """Send one of them again, after a while."""
        timer = threading.Timer(after_s, self._to_send.put, (send,))
        timer.daemon = True
        timer.start()

    def _send_all(self) -> None:
        while True:
            try:
                self._to_send.get()()
            except Exception:  # whatever Ray raises; who waits for it has a time-out
                LOG.exception("a request could not be sent")
