"""What is seen of a deployment's replicas from outside: what they believe, who holds which rank, and what is counted."""

from collections.abc import Mapping

from executors.simulator.believers import Believers
from executors.simulator.record.figures import Tally
from executors.simulator.record.happenings import Failure, Story
from executors.simulator.record.timeline import Phase, Timeline
from executors.simulator.replicas.processes import SimulatedProcess
from executors.simulator.standings import Standings
from rankcore.commands import PublishRoutes
from rankcore.replica.messages import Message
from rankcore.replica.replica import ReplicaHalf
from rankcore.values import ReplicaId


class Watch:
    """Looks on and changes nothing."""

    def __init__(self, name: str, story: Story) -> None:
        self.beliefs = Believers()
        self.standings = Standings()
        self.timeline = Timeline()
        self.tally = Tally()
        self._name = name
        self._story = story

    def believes(self, now: float, process: SimulatedProcess, replica: ReplicaHalf, message: Message) -> None:
        """A message has changed what a replica believes: R3 is checked."""
        rank = replica.rank
        assert rank is not None, "a replica never forgets its rank"
        before = self.beliefs.of(process.replica_id)
        if before is not None:
            if before.rank != rank.rank:
                self.tally.ranks_moved += 1
            else:
                self.tally.other_ranks_moved += 1
        for violation in self.beliefs.changed(process.replica_id, replica.node_id, rank):
            event = f"{type(message).__name__} reached {process.replica_id}"
            self._story.fail(Failure(now, self._name, event, violation.rule, violation.detail))
        self.holds(now, process)

    def holds(self, now: float, process: SimulatedProcess) -> None:
        """A replica was asked for, placed, has begun or ceased to serve, or has another rank."""
        replica = process.replica
        rank = process.start.rank if replica is None or replica.rank is None else replica.rank.rank
        node_id = None if process.node is None else process.node.node_id
        self.timeline.hold(now, process.replica_id, node_id, rank, _phase(process))

    def routed(self, now: float, routes: PublishRoutes, processes: Mapping[ReplicaId, SimulatedProcess]) -> None:
        """These take requests, and those do no longer: some before they have a rank."""
        for replica_id in routes.added:
            process = processes.get(replica_id)
            if process is not None and process.replica is not None and process.replica.rank is None:
                self.timeline.serves_early(now, replica_id, True)
        for replica_id in routes.removed:
            self.timeline.serves_early(now, replica_id, False)

    def stands(self, now: float, process: SimulatedProcess) -> None:
        """A replica is where it was to be started: S4 is checked."""
        for violation in self.standings.began(process.replica_id, process.start.group_id, process.start.bundles):
            event = f"the start of {process.replica_id}"
            self._story.fail(Failure(now, self._name, event, violation.rule, violation.detail))

    def gone(self, now: float, process: SimulatedProcess) -> None:
        """A replica holds nothing any more, or never came to."""
        self.timeline.release(now, process.replica_id)

    def ended(self, now: float, process: SimulatedProcess) -> None:
        """A replica that had a place is gone."""
        self.beliefs.ended(process.replica_id)
        self.standings.ended(process.replica_id)
        self.account(now, process)

    def account(self, now: float, process: SimulatedProcess) -> None:
        """Count what a replica took and did, once, when it ends or the run does."""
        if process.node is not None:
            self.tally.replica_seconds += now - process.placed_at
            gpu_seconds, node_id = process.gpus * (now - process.placed_at), process.node.node_id
            self.tally.gpu_seconds += gpu_seconds
            self.tally.gpu_seconds_of[node_id] = self.tally.gpu_seconds_of.get(node_id, 0.0) + gpu_seconds
        self.tally.refused += process.refused


def _phase(process: SimulatedProcess) -> Phase:
    replica = process.replica
    if process.node is None:
        return Phase.WAITING
    if replica is None or (replica.rank is None and not replica.draining):
        return Phase.STARTING
    if process.hangs:
        return Phase.HUNG
    if replica.draining:
        return Phase.DRAINING
    if replica.ready and process.unready:
        return Phase.UNREADY
    return Phase.RUNNING if replica.ready else Phase.STARTING
