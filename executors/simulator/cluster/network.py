"""The one place that messages pass through, between controller, replicas, nodes and routers."""

import math
from collections.abc import Callable
from random import Random
from typing import Any

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.load.distributions import Constant
from executors.simulator.scenario.hardware import NetworkModel
from executors.simulator.streams import Streams
from rankcore.values import NodeId

Arrive = Callable[..., object]


@attrs.define(eq=False)
class Link:
    """What lies between the controller and one other party; each draws from a stream of its own.

    Attributes:
        purpose: Name of its stream.
        node_id: The node at its other end, from which a partition cuts it off; None: no partition reaches it.
        last_sent_at: When something was last sent in order.
        last_in_order_at: When the last of what keeps its order arrives.
        last_arrival_at: When the last of all that was sent in order arrives.
    """

    purpose: tuple[str, ...]
    node_id: NodeId | None = None
    last_sent_at: float = -math.inf
    last_in_order_at: float = 0.0
    last_arrival_at: float = 0.0
    stream: Random | None = None


@attrs.define(eq=False)
class _Kept:
    """A message that is sent again until it has arrived."""

    link: Link
    sent_at: float
    arrive: Arrive
    arguments: tuple[Any, ...]


class Network:
    """Delivers messages late, twice, in another order or not at all, as its model says.

    Attributes:
        outstanding: How many of the messages that must not be lost have not arrived yet.
    """

    def __init__(self, loop: EventLoop, model: NetworkModel, streams: Streams) -> None:
        self.outstanding = 0
        self._loop = loop
        self._model = model
        self._streams = streams
        self._cut: set[NodeId] = set()
        self._written_off: set[NodeId] = set()
        self._held: dict[NodeId, list[_Kept]] = {}

    # -- sending

    def send(self, link: Link, arrive: Arrive, *arguments: object) -> None:
        """A message that may be lost: nobody repeats it but the core."""
        if link.node_id in self._cut:
            return
        for _ in range(self._copies(link)):
            if not self._happens(link, self._model.loss):
                self._loop.after(self._flight_s(link), self._arrive, link, arrive, arguments)

    def send_kept(self, link: Link, arrive: Arrive, *arguments: object) -> None:
        """A message that is sent again until it gets there: late, perhaps twice, but never lost."""
        self.outstanding += 1
        kept = _Kept(link, self._loop.now, arrive, arguments)
        self._loop.after(self._lost_s(link) + self._flight_s(link), self._arrive_kept, kept)
        if self._copies(link) > 1:
            self._loop.after(self._flight_s(link), self._arrive, link, arrive, arguments)

    def send_in_order(self, link: Link, arrive: Arrive, *arguments: object, steady: bool = False) -> None:
        """The same on a lasting connection, where nothing overtakes what was sent before it.

        A message that is reordered or repeated leaves that order, unless the connection is `steady`; what was sent at one
        instant never does, since its receiver could not tell what is newer.
        """
        now = self._loop.now
        self.outstanding += 1
        at = max(now + self._lost_s(link) + self._latency_s(link), link.last_in_order_at)
        if link.last_sent_at == now:
            at = max(at, link.last_arrival_at)
        if not steady and self._happens(link, self._model.reorder):
            at += self._model.reorder_s.sample(self._stream(link))
        else:
            link.last_in_order_at = at
        link.last_sent_at = now
        link.last_arrival_at = max(at, link.last_arrival_at)
        self._loop.at(at, self._arrive_kept, _Kept(link, now, arrive, arguments))
        if not steady and self._copies(link) > 1:
            self._loop.at(at + self._latency_s(link), self._arrive, link, arrive, arguments)

    def submit(self, link: Link, arrive: Arrive, *arguments: object) -> None:
        """A request to somebody beside the controller: it takes no time, but can go wrong like any other message."""
        for copy in range(self._copies(link)):
            if self._happens(link, self._model.loss):
                continue
            delay_s = self._latency_s(link) if copy else 0.0
            if self._happens(link, self._model.reorder):
                delay_s += self._model.reorder_s.sample(self._stream(link))
            if delay_s:
                self._loop.after(delay_s, arrive, *arguments)
            else:
                arrive(*arguments)

    # -- partitions

    def cut(self, node_id: NodeId) -> None:
        """Nothing passes between the controller and this node any more, nor what is on its way."""
        self._cut.add(node_id)

    def mend(self, node_id: NodeId) -> None:
        """They reach each other again; what must not be lost arrives with its next repetition."""
        self._cut.discard(node_id)
        self._written_off.discard(node_id)
        now, retry_s = self._loop.now, self._model.retry_s
        for kept in self._held.pop(node_id, ()):
            again_at = max(now, kept.sent_at + math.ceil((now - kept.sent_at) / retry_s) * retry_s)
            self._loop.at(again_at + self._flight_s(kept.link), self._arrive_kept, kept)

    def write_off(self, node_id: NodeId) -> None:
        """The node's lease has lapsed: what it could not say is told in its place."""
        self._written_off.add(node_id)
        for kept in self._held.pop(node_id, ()):
            self._loop.after(self._flight_s(kept.link), self._arrive_kept, kept)

    # -- on the way

    def _arrive(self, link: Link, arrive: Arrive, arguments: tuple[Any, ...]) -> None:
        if link.node_id not in self._cut:
            arrive(*arguments)

    def _arrive_kept(self, kept: _Kept) -> None:
        node_id = kept.link.node_id
        if node_id is not None and node_id in self._cut and node_id not in self._written_off:
            self._held.setdefault(node_id, []).append(kept)
            return
        self.outstanding -= 1
        kept.arrive(*kept.arguments)

    def _flight_s(self, link: Link) -> float:
        flight_s = self._latency_s(link)
        if self._happens(link, self._model.reorder):
            flight_s += self._model.reorder_s.sample(self._stream(link))
        return flight_s

    def _latency_s(self, link: Link) -> float:
        latency_s = self._model.latency_s
        return latency_s.value if isinstance(latency_s, Constant) else latency_s.sample(self._stream(link))

    def _lost_s(self, link: Link) -> float:
        """What repetitions cost a message that must arrive: each try is lost with the same probability."""
        loss = self._model.loss
        if not loss:
            return 0.0
        lost = int(math.log(1.0 - self._stream(link).random()) / math.log(loss))
        return lost * self._model.retry_s

    def _copies(self, link: Link) -> int:
        return 2 if self._happens(link, self._model.duplication) else 1

    def _happens(self, link: Link, probability: float) -> bool:
        return probability > 0.0 and self._stream(link).random() < probability

    def _stream(self, link: Link) -> Random:
        if link.stream is None:
            link.stream = self._streams.once("network", *link.purpose)
        return link.stream
