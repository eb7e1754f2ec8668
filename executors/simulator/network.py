"""The one place that messages pass through, between controller, replicas and routers."""

from collections.abc import Callable
from random import Random

from executors.simulator.clock import EventLoop
from executors.simulator.distributions import Distribution


class Network:
    """Delivers every message once, each after a latency of its own, so that one may overtake another.

    Loss, repetition and partitions belong into `send`, and into nothing else.
    """

    def __init__(self, loop: EventLoop, latency_s: Distribution, stream: Random) -> None:
        self._loop = loop
        self._latency_s = latency_s
        self._stream = stream
        self._last: dict[str, float] = {}

    def send(self, arrive: Callable[..., object], *arguments: object) -> None:
        """A single message: `arrive` runs when it gets there."""
        self._loop.after(self._latency_s.sample(self._stream), arrive, *arguments)

    def send_in_order(self, connection: str, arrive: Callable[..., object], *arguments: object) -> None:
        """A message on a lasting connection, where nothing overtakes what was sent before it."""
        at = max(self._loop.now + self._latency_s.sample(self._stream), self._last.get(connection, 0.0))
        self._last[connection] = at
        self._loop.at(at, arrive, *arguments)
