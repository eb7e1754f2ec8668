"""A replica's credits: how many calls of each caller it takes at once, which the core decides. Runs on the user's thread.

The core's part of it, and no more of the core, is imported when user code is started: a spare stays as small as a bare actor.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from executors.ray_gpu.requests.connection import Connection


class Granting:
    """Tells callers how many calls they may have under way here, all of them together at most the limit."""

    def __init__(self, limit: int) -> None:
        from rankcore.routing import credits

        self._core = credits
        self._book = credits.open_credits(limit)
        self._connections: dict[str, Connection] = {}

    def joined(self, connection: "Connection") -> None:
        """A caller has connected."""
        self._connections[connection.key] = connection
        self._tell(self._core.RouterJoined(router_id=connection.key))

    def lost(self, key: str) -> None:
        """A caller is gone."""
        self._connections.pop(key, None)
        self._tell(self._core.RouterLost(router_id=key))

    def asked(self, key: str, wanted: int, version: int) -> None:
        """A caller could use so many."""
        self._tell(self._core.CreditsAsked(router_id=key, wanted=wanted, version=version))

    def returned(self, key: str, credits: int, version: int) -> None:
        """A caller will have no more than so many under way under this grant."""
        self._tell(self._core.CreditsReturned(router_id=key, credits=credits, version=version))

    def take(self, key: str) -> bool:
        """Whether a call of this caller may begin; if so it counts from now on."""
        if not self._book.admits(key):
            return False
        self._tell(self._core.RequestTaken(router_id=key))
        return True

    def ended(self, key: str) -> None:
        """A call of this caller is not under way any more."""
        self._tell(self._core.RequestEnded(router_id=key))

    def limit(self, limit: int) -> None:
        """So many calls at once from now on."""
        self._tell(self._core.LimitChanged(limit=limit))

    def _tell(self, event: Any) -> None:
        self._book, commands, _ = self._core.credit_step(self._book, event)
        for command in commands:
            connection = self._connections.get(command.router_id)
            if connection is not None:
                connection.grant(command.credits, command.version)
