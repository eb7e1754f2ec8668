"""How far a move is, and whether it is to stop."""

import threading
import time
from collections.abc import Callable

from executors.torch_weights.errors import MoveCancelledError

Listener = Callable[[int, int], None]
"""Is told how many bytes are done, and of how many."""


class Progress:
    """Of one move, which one thread makes and any other may stop.

    Args:
        total_bytes: Of the whole.
        listener: Is called in the thread that moves, after each piece.
    """

    def __init__(self, total_bytes: int = 0, listener: Listener | None = None) -> None:
        self.total_bytes = total_bytes
        self.done_bytes = 0
        self.moved_bytes = 0
        self.memory_at: float | None = None
        self._listener = listener
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Have the move end at its next piece. It undoes what it did, unless it was done."""
        self._stopped.set()

    def check(self) -> None:
        """Raise MoveCancelledError if it is to stop."""
        if self._stopped.is_set():
            raise MoveCancelledError("the move was told to stop")

    def wait(self, seconds: float) -> None:
        """Let time pass, less if the move is to stop, which raises as `check` does."""
        self._stopped.wait(seconds)
        self.check()

    def begin(self, total_bytes: int) -> None:
        """Say how much it is, before the first piece."""
        self.total_bytes = total_bytes
        self.again()

    def memory_taken(self) -> None:
        """There is memory for the whole, and copies begin."""
        self.memory_at = time.perf_counter()

    def again(self) -> None:
        """Nothing is done yet, or what was done by another is lost."""
        self.done_bytes = 0
        self._tell()

    def end(self) -> None:
        """All is done, whoever did it."""
        if self.done_bytes != self.total_bytes:
            self.done_bytes = self.total_bytes
            self._tell()

    def advance(self, nbytes: int) -> None:
        """Another piece is done, by this move."""
        self.moved_bytes += nbytes
        self.reach(self.done_bytes + nbytes)

    def reach(self, done_bytes: int) -> None:
        """So much is done, by whoever does it."""
        # Who else does it may count what lies between tensors too.
        self.done_bytes = min(done_bytes, self.total_bytes)
        self._tell()
        self.check()

    def _tell(self) -> None:
        if self._listener is not None:
            self._listener(self.done_bytes, self.total_bytes)
