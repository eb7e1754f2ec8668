"""What becomes of the requests of a simulated deployment, for a request file: what a process on Ray writes of its calls."""

from collections.abc import Iterable, Mapping
from typing import Any

from executors.engine.request_file import ClockReading, RecordedRequest, RequestWriter
from executors.simulator.load.requests import CallWatcher, RequestQueue
from executors.simulator.scenario.model import POLICY, ROUTING, Deployment
from rankcore.routing import FailureKind
from rankcore.routing.commands import Command, Decline, Expire, Fail, Reject
from rankcore.values import ReplicaId

NS = 1e9
OUTCOME_OF: dict[type, str] = {Reject: "rejected", Decline: "declined", Expire: "expired"}


class RequestWatch(CallWatcher):
    """Writes down the requests of one deployment, each when it ends. Ranks are not told: a queue does not know them.

    Args:
        first: The number of its first request: those of one file are numbered together.
    """

    def __init__(self, deployment: str, queue: RequestQueue, writer: RequestWriter, first: int) -> None:
        self._deployment = deployment
        self._queue = queue
        self._writer = writer
        self._first = first
        self._sent: dict[int, tuple[float, ReplicaId]] = {}

    def look(self, now: float, waiting: int, is_served: bool) -> None:
        """What waits is not written."""

    def begun(self, now: float, index: int, replica_id: ReplicaId) -> None:
        """A replica works on a request."""
        self._sent[index] = now, replica_id

    def done(self, now: float, index: int) -> None:
        """A request has its answer."""
        self._write(now, index, "done")

    def over(self, now: float, index: int, command: Command) -> None:
        """A request was told that there is no answer."""
        outcome = OUTCOME_OF.get(type(command))
        if outcome is None:
            is_lost = isinstance(command, Fail) and command.kind is FailureKind.LOST
            outcome = "lost" if is_lost else "closed"
        self._write(now, index, outcome)

    def used(self, replica_id: ReplicaId, in_flight: int) -> None:
        """How much a replica works on is not written."""

    def _write(self, now: float, index: int, outcome: str) -> None:
        sent_at, replica_id = self._sent.pop(index, (None, ""))
        self._writer.append(
            RecordedRequest(
                id=self._first + index,
                deployment=self._deployment,
                replica_id=replica_id,
                rank=None,
                arrived=round(self._queue.arrivals.at_s[index] * NS),
                dispatched=None if sent_at is None else round(sent_at * NS),
                first=None,
                ended=round(now * NS),
                outcome=outcome,
            )
        )


def about_routing(deployments: Iterable[Deployment]) -> dict[str, Any]:
    """How their requests are routed, which a journal of ranks alone does not say: for the first line of a request file."""
    return {
        each.spec.name: {**{key: getattr(each, key) for key in ROUTING}, POLICY: each.routing_policy} for each in deployments
    }


def watch_requests(queues: Mapping[str, RequestQueue], writer: RequestWriter) -> None:
    """Have the requests of all deployments of a world written; its clock is the journal's."""
    writer.read_clock(ClockReading(ns=0, at_s=0.0, error_s=0.0, wall_s=0.0))
    first = 0
    for deployment, queue in queues.items():
        queue.watcher = RequestWatch(deployment, queue, writer, first)
        first += queue.arrivals.total
