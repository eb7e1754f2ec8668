"""Whoever calls the deployments: one process, with a router for each, that reports what waits (`rankcore.routing.demand`)."""

from collections.abc import Callable, Mapping

from executors.simulator.clock import EventLoop
from executors.simulator.load.requests import CallWatcher, RequestQueue
from executors.simulator.residency.record import DeploymentTally, Together
from rankcore.cluster.commands import Availability, Standing
from rankcore.cluster.events import LoadReported, ReportedLoad
from rankcore.cluster.names import DeploymentId
from rankcore.routing.commands import Command
from rankcore.routing.demand import NEVER, REPORT_EVERY_S, Reporting, WaitingSample, again, look
from rankcore.routing.events import AvailabilityChanged
from rankcore.values import ReplicaId

CALLER = "caller"
Send = Callable[[ReplicaId | None, LoadReported], None]
"""Called with a report, and the replica that it is of; None: the process that calls."""


class Calls(CallWatcher):
    """The calls to one deployment, as they are counted: misses, and what waits where nobody serves.

    A miss begins when a request waits and no replica is routed, and ends with the first answer to one that waited, or when
    nobody waits any more.

    Attributes:
        unserved: How many wait while there is no replica.
    """

    def __init__(
        self, queue: RequestQueue, tally: DeploymentTally, together: Together, when_unserved: Callable[[], None]
    ) -> None:
        self.queue = queue
        self.unserved = 0
        self.when_used: Callable[[ReplicaId, int], None] | None = None
        self._tally = tally
        self._together = together
        self._when_unserved = when_unserved
        self._missed_at: float | None = None
        self._due: set[int] = set()

    def look(self, now: float, waiting: int, is_served: bool) -> None:
        """So many wait, and there is a replica for them or not."""
        if waiting and not is_served and self._missed_at is None:
            self._tally.misses += 1
            self._missed_at = now
        elif not waiting and not self._due:
            self._missed_at = None  # whoever waited has given up
        unserved = 0 if is_served else waiting
        if unserved != self.unserved:
            self.unserved = unserved
            self._when_unserved()

    def begun(self, now: float, index: int, _: ReplicaId) -> None:
        """A request is worked on."""
        if self._missed_at is not None and now > self.queue.arrivals.at_s[index]:
            self._due.add(index)

    def done(self, now: float, index: int) -> None:
        """A request has its answer."""
        if index in self._due and self._missed_at is not None:
            self._tally.first_answers_s.append(now - self._missed_at)
            self._together.answers.add(now, now - self._missed_at)
            self._missed_at = None
            self._due.clear()

    def over(self, _now: float, index: int, _command: Command) -> None:
        """A request was told that there is no answer."""
        self._due.discard(index)

    def used(self, replica_id: ReplicaId, in_flight: int) -> None:
        """A replica works on so many."""
        if self.when_used is not None:
            self.when_used(replica_id, in_flight)


class Callers:
    """The process that calls, and what the replicas say of their calls. Both reach the controller as `LoadReported`."""

    def __init__(self, loop: EventLoop, sampled: Mapping[DeploymentId, float], send: Send) -> None:
        """`sampled`: of autoscaled deployments, how often their load is asked for."""
        self.calls: dict[DeploymentId, Calls] = {}
        self._loop = loop
        self._sampled = sampled
        self._send = send
        self._reporting = Reporting()
        self._is_soon = False
        self._alarms = 0
        self._uses: dict[ReplicaId, _Use] = {}

    def add(self, deployment: DeploymentId, calls: Calls) -> None:
        """It is called."""
        self.calls[deployment] = calls
        calls.when_used = self._used

    def begin(self) -> None:
        """A controller has begun: what waits is reported to it at once."""
        self._reporting = again(self._reporting)
        for use in self._uses.values():
            use.said = -1
        self.look_soon()

    def look_soon(self) -> None:
        """Something has changed; what changes at the same moment is looked at together."""
        if not self._is_soon:
            self._is_soon = True
            self._loop.after(0.0, self._look)

    def follow(self, deployment: DeploymentId, availability: Availability) -> None:
        """How a deployment stands: where nobody serves it, nor is about to, its calls are refused."""
        refuses = availability.standing is Standing.UNAVAILABLE
        after_s = availability.retry_after_s if refuses else None
        problem = f"{deployment} is unavailable: {availability.because}" if refuses else ""
        self.calls[deployment].queue.tell(
            AvailabilityChanged(problem=problem, retry_after_s=after_s, lasts_s=after_s, at=self._loop.now)
        )

    def forget(self, replica_id: ReplicaId) -> None:
        """A replica has ended."""
        self._uses.pop(replica_id, None)

    def _look(self) -> None:
        self._is_soon = False
        now = self._loop.now
        waiting = {each: calls.unserved for each, calls in self.calls.items() if calls.unserved}
        samples = {each: WaitingSample(self.calls[each].queue.waiting, every_s) for each, every_s in self._sampled.items()}
        self._reporting, report, due_at = look(self._reporting, waiting, now, samples)
        self._alarms += 1
        if due_at < NEVER:
            self._loop.at(due_at, self._look_again, self._alarms)
        if report is not None:
            entries = {each: ReportedLoad(waiting=count) for each, count in report.waiting.items()}
            self._send(None, LoadReported(reporter=CALLER, incarnation=1, seq=report.seq, entries=entries, at=now))
            if samples:
                self._sample()

    def _sample(self) -> None:
        """Replicas of autoscaled deployments say their load too, whether it has changed or not."""
        for replica_id, use in list(self._uses.items()):
            if replica_id.rpartition("#")[0] in self._sampled:
                use.said = -1
                self._say(use)

    def _look_again(self, number: int) -> None:
        if number == self._alarms:
            self._look()

    def _used(self, replica_id: ReplicaId, in_flight: int) -> None:
        """A replica says on how many calls it works: at once, and at most each `REPORT_EVERY_S`."""
        use = self._uses.get(replica_id)
        if use is None:
            use = self._uses[replica_id] = _Use(replica_id)
        use.in_flight = in_flight
        if not use.is_soon:
            use.is_soon = True
            self._loop.at(max(self._loop.now, use.at + REPORT_EVERY_S), self._say, use)

    def _say(self, use: "_Use") -> None:
        use.is_soon = False
        if use.in_flight == use.said or self._uses.get(use.replica_id) is not use:
            return
        use.said, use.at, use.seq = use.in_flight, self._loop.now, use.seq + 1
        load = {use.replica_id.rpartition("#")[0]: ReportedLoad(in_flight=use.in_flight)}
        self._send(use.replica_id, LoadReported(reporter=use.replica_id, incarnation=1, seq=use.seq, entries=load, at=use.at))


class _Use:
    """What a replica works on, and what it has said of that."""

    def __init__(self, replica_id: ReplicaId) -> None:
        self.replica_id = replica_id
        self.in_flight = 0
        self.said = -1
        self.seq = 0
        self.at = -REPORT_EVERY_S
        self.is_soon = False
