"""What the suite needs of an executor, with its controller and replicas: ways to begin, to break, and to ask."""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from rankcore.frozen import FrozenJson
from rankcore.spec import DeploymentSpec
from rankcore.values import DeploymentStatus, NodeId, ReplicaId, ReplicaRank


@attrs.frozen
class Belief:
    """A replica has believed to have these ranks since then, in seconds on the system's clock."""

    since: float
    rank: ReplicaRank


@attrs.frozen(kw_only=True)
class SelfReport:
    """What one live replica says of itself.

    Attributes:
        at: When it said so, in seconds on one clock that all replicas of the system share.
        beliefs: Every rank that it has ever believed to have, the latest last; empty before it was initialised.
        world_size: The newest it knows; None: none yet.
        user_config: What its user code was last given.
        ready: Whether its user code has started up.
        draining: Whether it was told to stop.
        applied: How many changes, start-up included, its user code has been through; None: nobody counts.
    """

    replica_id: ReplicaId
    node_id: NodeId
    at: float
    beliefs: tuple[Belief, ...]
    world_size: int | None
    version: str
    user_config: FrozenJson
    ready: bool
    draining: bool
    applied: int | None = None

    @property
    def rank(self) -> ReplicaRank | None:
        """What it believes now."""
        return self.beliefs[-1].rank if self.beliefs else None


class System(Protocol):
    """A running system of an executor under test. Its replicas start within a second or so, unless told otherwise.

    Nothing here waits for an outcome but `until`. Promises of the system: at least two nodes, each with room for six
    replicas; a replica that ends is ended for good; a controller that has crashed comes back by itself.
    """

    def deploy(self, spec: DeploymentSpec) -> None:
        """Begin a deployment."""

    def change(self, spec: DeploymentSpec) -> None:
        """Want something else of it. While the controller is away, the system keeps this until it is back."""

    def delete(self, name: str) -> None:
        """Want it gone."""

    def status(self, name: str) -> DeploymentStatus | None:
        """What the controller says; None: it is away, or knows of no such deployment any more."""

    def reports(self, name: str) -> Sequence[SelfReport]:
        """Ask every live replica that can answer, draining ones included, without asking the controller."""

    def kill_replica(self, replica_id: ReplicaId) -> None:
        """End its process without a word, as SIGKILL does."""

    def lose_node(self, node_id: NodeId) -> None:
        """Take a node away for good, with all that runs on it."""

    def crash_controller(self) -> None:
        """End the controller without a word. It comes back by itself."""

    def fail_starts(self, name: str, count: int) -> None:
        """Let so many starts of user code fail from now on, wherever they are; then they work again."""

    def slow_starts(self, name: str, by_s: float) -> None:
        """Let starts of user code take so much longer from now on; 0: no longer."""

    def until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        """Let the world go on until the condition holds, looking often.

        Raises:
            TimeoutError: It did not within the system's patience; the text says what was waited for.
        """
