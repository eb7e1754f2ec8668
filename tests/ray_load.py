"""Calls without pause, for tests of what callers notice of a change."""

import threading
import time

from tests.ray_local import ANSWER_S, eventually


class Calls:
    """Calls without pause, from the beginning of a `with` to its end.

    Args:
        ask: Makes one, given the handle.
    """

    def __init__(self, handle, ask=lambda handle: handle.remote().result(ANSWER_S)):
        self.handle, self.answered, self.failed, self.slowest_s = handle, 0, [], 0.0
        self._ask = ask
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._call)

    def _call(self):
        while not self._over.is_set():
            begun = time.monotonic()
            try:
                self._ask(self.handle)
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                self.answered += 1
            except Exception as error:
                self.failed.append(error)

    def __enter__(self):
        self._thread.start()
        eventually(lambda: self.answered, "calls are answered")
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
