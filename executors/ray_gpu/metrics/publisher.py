"""Publishes what was counted, from a thread of its own, through Ray's metrics: a cluster's Prometheus has them with Ray's.

    RANKCORE_METRICS=0           publishes nothing, and starts no thread
    RANKCORE_METRICS_EVERY_S=5   how often, in seconds; Ray's own interval (`metrics_report_interval_ms`, 10 s) comes on top

What has not changed is not published again: Ray keeps the last value of each series for as long as its process lives. So a
series whose thing is gone (a replica, a tenure) is published once more, as 0. An idle process costs one look in five seconds.
"""

import atexit
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import ray

from executors.ray_gpu.metrics.catalogue import BY_NAME, COUNTER, HISTOGRAM
from executors.ray_gpu.metrics.counts import Histogram

LOG = logging.getLogger(__name__)

EVERY_S = 5.0
END_S = 2.0


class Sample(NamedTuple):
    """What one metric is at the moment.

    Attributes:
        labels: Values, in the order of the catalogue's names.
        value: Of a counter, all since the beginning.
    """

    name: str
    labels: tuple[str, ...]
    value: float | Histogram


Source = Callable[[Any], Iterable[Sample]]
"""What a thing is at the moment; it is asked as long as the thing is there."""
Key = tuple[str, tuple[str, ...]]


class _Asked:
    """A source with its thing, and what it has said that was published."""

    def __init__(self, thing: object, source: Source) -> None:
        self.thing = weakref.ref(thing)
        self.source = source
        self.published: dict[Key, float] = {}


class Publisher:
    """Keeps what was published last. One thread calls `publish`.

    Two things may have the same labels for a while, such as the router of a deployment that is gone and the one of the next:
    what a counter grows by is therefore found for each by itself.

    Args:
        instrument: Makes the one of a name: an object that has `inc` or `set`.
    """

    def __init__(self, instrument: Callable[[str, bool, tuple[str, ...], str], Any]) -> None:
        self._make = instrument
        self._instruments: dict[str, tuple[Any, tuple[str, ...]]] = {}
        self._asked: list[_Asked] = []

    def add(self, thing: object, source: Source) -> None:
        """Ask of this thing too from now on, which is not kept."""
        self._asked.append(_Asked(thing, source))

    def publish(self) -> None:
        """Publish what has changed."""
        for asked in tuple(self._asked):
            thing, there = asked.thing(), set[Key]()
            if thing is None:
                self._asked.remove(asked)
            else:
                try:
                    for name, labels, value in asked.source(thing):
                        there.update(self._put(asked, name, labels, value))
                except Exception:  # a count of ours may change while it is read
                    LOG.debug("a source of metrics has failed", exc_info=True)
                    continue
            for key in [each for each in asked.published if each not in there]:
                is_anothers = any(key in other.published for other in self._asked if other is not asked)
                if asked.published.pop(key) and not is_anothers and not self._is_counter(key[0]):
                    self._say(*key, 0.0)

    def _put(self, asked: _Asked, name: str, labels: tuple[str, ...], value: float | Histogram) -> Iterable[Key]:
        if not isinstance(value, Histogram):
            self._set(asked, name, labels, value)
            return ((name, labels),)
        counts, sum_now = list(value.counts), value.published_sum
        total = 0
        keys: list[Key] = []
        for bound, count in zip((*map(str, value.bounds), "+Inf"), counts, strict=True):
            total += count
            keys.append((f"{name}_bucket", (*labels, bound)))
            self._set(asked, *keys[-1], total)
        for part, number in (("sum", sum_now), ("count", total)):
            keys.append((f"{name}_{part}", labels))
            self._set(asked, *keys[-1], number)
        return keys

    def _set(self, asked: _Asked, name: str, labels: tuple[str, ...], value: float) -> None:
        key, is_counter = (name, labels), self._is_counter(name)
        before = asked.published.get(key)
        if before == value or (before is None and not value and is_counter):
            return
        # A counter that is less than before has begun again, as of a deployment that was deleted and is there again.
        grown = value if before is None or value < before else value - before
        asked.published[key] = value
        if not is_counter or grown:
            self._say(name, labels, grown if is_counter else value)

    def _say(self, name: str, labels: tuple[str, ...], value: float) -> None:
        instrument, keys = self._instrument(name)
        tags = dict(zip(keys, labels, strict=True))
        if self._is_counter(name):
            instrument.inc(value, tags)
        else:
            instrument.set(value, tags)

    def _is_counter(self, name: str) -> bool:
        return name in BY_NAME and BY_NAME[name].kind == COUNTER

    def _instrument(self, name: str) -> tuple[Any, tuple[str, ...]]:
        found = self._instruments.get(name)
        if found is None:
            metric, keys = BY_NAME.get(name), tuple[str, ...]()
            if metric is None:  # a part of a histogram
                whole, _, part = name.rpartition("_")
                metric = BY_NAME[whole]
                assert metric.kind == HISTOGRAM, name
                keys = ("le",) if part == "bucket" else ()
            keys = (*metric.labels, *keys)
            made = self._make(name, metric.kind == COUNTER, keys, metric.meaning)
            found = self._instruments[name] = made, keys
        return found


def of_ray(name: str, is_counter: bool, keys: tuple[str, ...], meaning: str) -> Any:
    """An instrument of Ray's."""
    from ray.util.metrics import Counter, Gauge

    return (Counter if is_counter else Gauge)(name, meaning, keys)


def every_s() -> float:
    """How often this process publishes; 0: never."""
    if os.environ.get("RANKCORE_METRICS", "1") == "0":
        return 0.0
    said = os.environ.get("RANKCORE_METRICS_EVERY_S", str(EVERY_S))
    try:
        found = float(said)
    except ValueError:
        found = math.nan
    if not 0.0 <= found < math.inf:
        LOG.warning("RANKCORE_METRICS_EVERY_S must be seconds, 0 (never) or more, got %.40r: it is %g", said, EVERY_S)
        return EVERY_S
    return found


_lock = threading.Lock()
_publisher: Publisher | None = None
_ends = threading.Event()


def publish(thing: object, source: Source) -> None:
    """Publish what the source says of a thing, as long as there is that; the first one of a process starts the thread."""
    global _publisher
    period_s = every_s()
    if not period_s:
        return
    with _lock:
        if _publisher is None:
            _publisher = Publisher(of_ray)
            thread = threading.Thread(target=_publish_on, args=(_publisher, period_s), name="metrics", daemon=True)
            thread.start()
            atexit.register(_end, thread)
        _publisher.add(thing, source)


def _publish_on(publisher: Publisher, period_s: float) -> None:
    while not _ends.wait(period_s):
        if ray.is_initialized():
            publisher.publish()


def _end(thread: threading.Thread) -> None:
    """Before Ray's own exit: what calls a Ray that is torn down crashes the process."""
    _ends.set()
    thread.join(END_S)
