"""What requests may hold of a proxy's memory, and how many unfinished bodies a client may have.

Bytes that clients have sent and no replica has taken lie in the proxy: bodies that are still coming, what waits for a replica,
messages of websockets. Each connection has bounds of its own; together they have a budget. Whoever would exceed it is refused,
with 503 or a close of 1013, and nobody is made to wait for room: those who hold memory may all be in the middle of something,
and would wait for each other for ever.
"""

from collections import Counter


class Budget:
    """Bytes that all requests of a proxy may hold together.

    Attributes:
        limit_bytes: How many.
        held_bytes: How many they hold now.
    """

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0


class Account:
    """What one request, or one websocket, holds of the budget. What it holds at its end goes back by itself.

    Attributes:
        held_bytes: How much that is.
        overdrawn: Whether it was refused more.
    """

    __slots__ = ("_budget", "held_bytes", "overdrawn")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held_bytes = 0
        self.overdrawn = False

    def hold(self, size_bytes: int) -> bool:
        """Hold so much from now on; False: that is more than there is, and it holds what it held."""
        budget = self._budget
        after = budget.held_bytes + size_bytes - self.held_bytes
        if size_bytes > self.held_bytes and after > budget.limit_bytes:
            self.overdrawn = True
            return False
        budget.held_bytes = after
        self.held_bytes = size_bytes
        return True

    def __del__(self) -> None:
        self.hold(0)


class OpenBodies:
    """How many bodies of each client address have not come as a whole."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """One more; False: it has as many as it may have."""
        if self._counts[address] >= self.limit:
            return False
        self._counts[address] += 1
        return True

    def leave(self, address: str) -> None:
        """One less: it has come, or nobody waits for it any more."""
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
