"""How long replicas take to begin, to change and to end, as its machine has it: from a command to the event that ends it.

A command that is repeated counts from its first time; what another controller began is not counted, since nobody knows since
when. A replica that is prepared has its initialization behind it: how long it waits for its rank says nothing of that.
"""

from collections.abc import Container
from typing import Any

from executors.ray_gpu.metrics.counts import LATENCY_MS, LIFETIME_MS, Latency
from rankcore.cluster.names import DeploymentId, owner_of
from rankcore.commands import (
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import (
    ReplicaDied,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaStartFailed,
    ReplicaStopped,
)
from rankcore.values import ReplicaId

STARTUP, INITIALIZATION = "serve_replica_startup_latency_ms", "serve_replica_initialization_latency_ms"
RECONFIGURE, SHUTDOWN = "serve_replica_reconfigure_latency_ms", "serve_replica_shutdown_duration_ms"
BEGINS: dict[type, str] = {
    StartReplica: STARTUP,
    PrepareReplica: INITIALIZATION,
    InitializeReplica: INITIALIZATION,
    ReconfigureReplica: RECONFIGURE,
    StopReplica: SHUTDOWN,
    KillReplica: SHUTDOWN,
}
"""What a command begins."""
BOUNDS = {STARTUP: LIFETIME_MS, INITIALIZATION: LIFETIME_MS, RECONFIGURE: LATENCY_MS, SHUTDOWN: LIFETIME_MS}
ENDS: dict[type, tuple[str, ...]] = {
    ReplicaReady: (STARTUP, INITIALIZATION),
    ReplicaPrepared: (INITIALIZATION,),
    ReplicaReconfigured: (RECONFIGURE,),
    ReplicaStopped: (SHUTDOWN,),
    ReplicaDied: (),
    ReplicaStartFailed: (),
}
"""What an event ends, of what has begun."""
LAST = (ReplicaStopped, ReplicaDied, ReplicaStartFailed)
"""After these there is no such replica."""


class Lifetimes:
    """Of the replicas of one controller.

    Attributes:
        took: How long each thing has taken, by deployment and by its name.
    """

    def __init__(self) -> None:
        self.took: dict[DeploymentId, dict[str, Latency]] = {}
        self._begun: dict[ReplicaId, dict[str, tuple[int, float | None]]] = {}

    def command(self, command: Command, at: float) -> None:
        """The machine has given one, which need not begin anything."""
        name = BEGINS.get(type(command))
        if name is not None:
            revision = command.revision if isinstance(command, ReconfigureReplica) else 0
            begun = self._begun.setdefault(command.replica_id, {})  # type: ignore[union-attr]
            if name not in begun or begun[name][0] < revision:
                begun[name] = revision, at

    def event(self, event: Any, at: float) -> None:
        """The machine was told of one, which need not end anything."""
        ended = ENDS.get(type(event))
        begun = self._begun.get(event.replica_id) if ended is not None else None
        if ended is None or begun is None:
            return
        for name in ended:
            revision, since = begun.pop(name, (0, None))
            if revision > getattr(event, "revision", revision):
                begun[name] = revision, since  # there was another change since
            elif since is not None:
                self._of(event.replica_id)[name].add(at - since)
        if isinstance(event, ReplicaPrepared):
            begun[INITIALIZATION] = 0, None
        if isinstance(event, LAST) or not begun:
            del self._begun[event.replica_id]

    def keep(self, deployments: Container[DeploymentId]) -> None:
        """There are no others any more."""
        self.took = {each: took for each, took in self.took.items() if each in deployments}
        self._begun = {each: begun for each, begun in self._begun.items() if owner_of("replica_id", each) in deployments}

    def _of(self, replica_id: ReplicaId) -> dict[str, Latency]:
        deployment = owner_of("replica_id", replica_id)
        found = self.took.get(deployment)
        return (
            found if found is not None else self.took.setdefault(deployment, {each: Latency(BOUNDS[each]) for each in BOUNDS})
        )
