"""Who held which rank until a moment of a journal, as far as the controller knew."""

from collections.abc import Iterable

from executors.engine.deployments import Deployed, Entry, Recovered, Resumed
from executors.simulator.record.timeline import Phase, Timeline
from executors.simulator.replicas.known import acknowledged
from rankcore import DeploymentStatus, Replica, ReplicaState, Step
from rankcore.events import ClockAdvanced, NodeLost, SpecChanged
from rankcore.values import ReplicaId

PHASES = {
    ReplicaState.REQUESTED: Phase.WAITING,
    ReplicaState.PLACED: Phase.STARTING,
    ReplicaState.PREPARING: Phase.STARTING,
    ReplicaState.PREPARED: Phase.STARTING,
    ReplicaState.STARTING: Phase.STARTING,
    ReplicaState.RUNNING: Phase.RUNNING,
    ReplicaState.RECONFIGURING: Phase.RECONFIGURING,
    ReplicaState.DRAINING: Phase.DRAINING,
}
"""Left out is who was found by a restarted controller and has not reported: it goes on with what it did."""

OF_MANY = (Deployed, Recovered, Resumed, NodeLost, SpecChanged, ClockAdvanced)
"""What may concern any replica, and not only those that the line names."""


class Past:
    """Follows a journal up to the moment.

    Attributes:
        timelines: By deployment.
    """

    def __init__(self) -> None:
        self.timelines: dict[str, Timeline] = {}
        self._known: dict[str, set[ReplicaId]] = {}

    def look(self, entry: Entry, step: Step) -> None:
        """One line."""
        state, known = step.state, self._known.setdefault(entry.deployment, set())
        timeline = self.timelines.setdefault(entry.deployment, Timeline())
        timeline.resize(entry.at, 0 if state.status is DeploymentStatus.DELETING else state.world_size)
        timeline.availability.follow(entry.at, state)
        for replica_id in sorted(known.union(state.replicas) if isinstance(entry.cause, OF_MANY) else _named(entry)):
            replica = state.replicas.get(replica_id)
            if replica is None:
                known.discard(replica_id)
                timeline.release(entry.at, replica_id)
            elif replica.state in PHASES:
                known.add(replica_id)
                timeline.hold(entry.at, replica_id, replica.node_id, _rank(replica), _phase(replica))


def _named(entry: Entry) -> set[ReplicaId]:
    about: Iterable[object] = (entry.cause, *entry.commands)
    return {each.replica_id for each in about if hasattr(each, "replica_id")}


def _rank(replica: Replica) -> int:
    rank = acknowledged(replica)
    if rank is not None:
        return rank.rank
    return replica.slot if replica.slot is not None else replica.told.rank if replica.told is not None else 0


def _phase(replica: Replica) -> Phase:
    phase = PHASES[replica.state]
    moves = phase is Phase.RECONFIGURING and replica.told is not None and _rank(replica) != replica.told.rank
    return Phase.MOVING if moves else phase
