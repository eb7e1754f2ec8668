"""Replicas of no deployment: the machine has them killed, and wants nothing else of them."""

from collections.abc import Callable

from rankcore.commands import Command, KillReplica
from rankcore.values import ReplicaId


class StrayReplicas:
    """The executor of a deployment that there is not.

    Args:
        kill: Ends a replica.
    """

    def __init__(self, kill: Callable[[ReplicaId], None]) -> None:
        self._kill = kill

    def execute(self, command: Command) -> None:
        """End a replica."""
        if isinstance(command, KillReplica):
            self._kill(command.replica_id)

    def poll(self) -> None:
        """Nobody asks what has become of them."""
        return
