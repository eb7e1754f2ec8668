"""Requests of one model: the router that they queue in, and whether anybody is there to answer them."""

from collections.abc import Callable

from executors.simulator.clock import EventLoop
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.requests import RequestQueue
from executors.simulator.residency.record import ModelTally, PartGauge, Together
from executors.simulator.scenario.residency.models import Model
from rankcore.commands import PublishRoutes
from rankcore.routing import RoutingSpec

EPOCH = 1


class ModelPort:
    """The router of a model, its replicas that are HOT, and the misses: times when somebody waits and none is HOT.

    What a replica has in flight when it ends is done again by another one, since nobody has seen an answer yet.

    Attributes:
        queue: Requests, and the router between them and the replicas.
        tally: What is counted of the model.
        serving: HOT replicas, by their ids, and the name that each has with the router.
    """

    def __init__(
        self, loop: EventLoop, model: Model, arrivals: Arrivals, together: Together, ask: Callable[[str], None]
    ) -> None:
        """`ask`: called with the name of the model when a request waits for it and no replica is HOT."""
        self.name = model.name
        self.tally = ModelTally()
        self.serving: dict[str, str] = {}
        self._loop = loop
        self._ask = ask
        self._together = together
        self._missed_at: float | None = None
        self._draining: dict[str, str] = {}
        self._served = 0
        self._told: dict[str, tuple[int, int]] = {}
        self.queue = RequestQueue(loop, arrivals, routing_of(model))
        self.queue.series.waiting = PartGauge(together.waiting)
        self.queue.when_one_waits = self._one_waits

    def open(self, replica_id: str) -> None:
        """A replica is HOT: it takes requests."""
        self._served += 1
        # A router never sees an id twice, and a replica may become HOT again.
        server_id = f"{replica_id}@{self._served}"
        self.serving[replica_id] = server_id
        if self._missed_at is not None and self.queue.waiting:
            self.queue.when_one_is_done = self._answered
        else:
            self._missed_at = self.queue.when_one_is_done = None  # whoever waited has given up
        self.queue.publish(PublishRoutes(added=(server_id,), removed=(), revision=self._served, epoch=EPOCH))
        self.queue.accept(server_id)

    def drain(self, replica_id: str, when_idle: Callable[[], None]) -> None:
        """A replica takes no more requests, and calls back once it has none in flight, perhaps at once."""
        self._draining[replica_id] = server_id = self.serving.pop(replica_id)
        self._told.pop(replica_id, None)
        if self.queue.waiting:
            self._one_waits()
        self.queue.drain(server_id, when_idle)

    def close(self, replica_id: str) -> None:
        """A replica is HOT no more; what it has in flight is done again elsewhere. One that never was changes nothing."""
        server_id = self.serving.pop(replica_id, None) or self._draining.pop(replica_id, None)
        self._told.pop(replica_id, None)
        if server_id is not None:
            waited = self.queue.waiting
            self.queue.lose(server_id)  # where nobody waited before, the queue says so itself
            if waited and self._missed_at is None:
                self._one_waits()

    def news_of_use(self) -> list[tuple[str, int]]:
        """(replica, requests in flight) of those that have been used since this was last asked."""
        done, found = self.queue.counts.done, []
        for replica_id, server_id in self.serving.items():
            use = (self.queue.in_flight_of(server_id), done)
            if use[0] or self._told.get(replica_id, (0, 0)) != use:
                self._told[replica_id] = use
                found.append((replica_id, use[0]))
        return found

    def _one_waits(self) -> None:
        """Somebody waits, and nobody did before, or nobody is left to wait for."""
        if self.serving:
            return
        self.tally.misses += 1
        self._missed_at = self._loop.now
        self._ask(self.name)

    def _answered(self) -> None:
        """The first answer after a miss."""
        assert self._missed_at is not None, "nobody listens but after a miss"
        self.queue.when_one_is_done = None
        self.tally.first_answers_s.append(self._loop.now - self._missed_at)
        self._together.answers.add(self._loop.now, self._loop.now - self._missed_at)
        self._missed_at = None


def routing_of(model: Model) -> RoutingSpec:
    """What the router of a model goes by."""
    return RoutingSpec(
        name=model.name,
        max_ongoing_requests=model.max_ongoing_requests,
        max_queued_requests=model.max_queued_requests,
        request_timeout_s=model.request_timeout_s,
        idempotent=True,
    )
