"""A wrapper of any executor that does what the world may do: news late, lost, repeated, reordered; lost starts; zombies."""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import attrs

from rankcore.commands import Command, StartReplica, StopReplica
from rankcore.events import NEVER_LOST, ClockAdvanced, Event, ReplicaReady, ReplicaStopped, ReplicaUnready
from rankcore.testing.conformance.bench import Bench, Executor
from rankcore.values import ReplicaId


@attrs.frozen(kw_only=True)
class Faults:
    """How often what goes wrong; each is a probability from 0 to 1, but for the seconds.

    Attributes:
        late: That news is held back, each for a time of its own, so that later news overtakes it.
        late_s: For how long at most.
        lost: That news is lost; never what `NEVER_LOST` names.
        repeated: That news comes a second time, later.
        lost_starts: That the first `StartReplica` of a replica gets lost.
        zombies: That the first `StopReplica` of a replica gets lost, so that it lives on; and, once a replica has stopped, that
            the last that it said before comes once more after its end.
    """

    late: float = 0.3
    late_s: float = 0.4
    lost: float = 0.1
    repeated: float = 0.2
    lost_starts: float = 0.3
    zombies: float = 0.4


class FaultyExecutor:
    """Keeps the contract if the wrapped one does, and no more than that.

    Final news, and news of bundles and of lost readiness, is never lost, though it may be late and come twice; nothing is made
    up; every command that gets lost is one that the core repeats. `ClockAdvanced` is not touched: the alarm is the
    controller's own.

    The same seed makes the same choices: each is drawn from the seed and from what it is about (the kind of news, the replica,
    the how-manieth), and not from the order in which replicas happen to answer.

    Args:
        inner: The executor that is wrapped.
        seed: Chooses what goes wrong.
        now: Seconds on the executor's clock.
        faults: How often what goes wrong.

    Attributes:
        inner: As given.
    """

    def __init__(self, inner: Executor, *, seed: int, now: Callable[[], float], faults: Faults | None = None) -> None:
        self.inner = inner
        self._seed = seed
        self._now = now
        self._faults = faults if faults is not None else Faults()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._unready: set[ReplicaId] = set()
        self._last_said: dict[ReplicaId, Event] = {}
        self._held: list[tuple[float, int, Event]] = []
        self._numbers = count()

    def execute(self, command: Command) -> None:
        """Hand a command on, or let it get lost."""
        if isinstance(command, StartReplica):
            lost = self._is_first(command) and self._happens(self._faults.lost_starts, "start", command.replica_id)
        elif isinstance(command, StopReplica):
            lost = self._is_first(command) and self._happens(self._faults.zombies, "stop", command.replica_id)
        else:
            lost = False
        if not lost:
            self.inner.execute(command)

    def poll(self) -> Event | None:
        """The next news that is due."""
        now = self._now()
        while (event := self.inner.poll()) is not None:
            if isinstance(event, ClockAdvanced):
                return event
            self._take(event, now)
        if self._held and self._held[0][0] <= now:
            return heapq.heappop(self._held)[2]
        return None

    def _take(self, event: Event, now: float) -> None:
        kind, whose = type(event).__name__, str(getattr(event, "replica_id", ""))
        about = (kind, whose, self._seen[kind, whose])
        self._seen[kind, whose] += 1
        if isinstance(event, ReplicaUnready):
            self._unready.add(whose)
        kept = isinstance(event, NEVER_LOST) or (isinstance(event, ReplicaReady) and whose in self._unready)
        if kept or not self._happens(self._faults.lost, "lost", *about):
            late = self._happens(self._faults.late, "late", *about)
            self._hold(event, now + (self._draw("by", *about) * self._faults.late_s if late else 0.0))
        if self._happens(self._faults.repeated, "repeated", *about):
            self._hold(event, now + self._draw("again", *about) * self._faults.late_s)
        if not kept:
            self._last_said[whose] = event
        elif isinstance(event, ReplicaStopped) and self._happens(self._faults.zombies, "ghost", *about):
            ghost = self._last_said.get(whose, event)
            self._hold(ghost, now + self._faults.late_s)

    def _hold(self, event: Event, until: float) -> None:
        heapq.heappush(self._held, (until, next(self._numbers), event))

    def _is_first(self, command: StartReplica | StopReplica) -> bool:
        key = (type(command).__name__, command.replica_id)
        self._seen[key] += 1
        return self._seen[key] == 1

    def _happens(self, probability: float, *about: object) -> bool:
        return self._draw(*about) < probability

    def _draw(self, *about: object) -> float:
        """From 0 to 1, the same for the same seed and subject."""
        digest = hashlib.sha256(repr((self._seed, *about)).encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


class _FaultyBench:
    repeats = True

    def __init__(self, bench: Bench, seed: int, faults: Faults | None) -> None:
        self._bench, self._seed, self._faults = bench, seed, faults

    def open(self, epoch: int) -> FaultyExecutor:
        return FaultyExecutor(self._bench.open(epoch), seed=self._seed, now=self._bench.now, faults=self._faults)

    def crash(self, executor: FaultyExecutor) -> None:
        self._bench.crash(executor.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bench, name)


def with_faults(bench: Bench, *, seed: int, faults: Faults | None = None) -> Bench:
    """The same bench, but that each executor which it opens is wrapped in a `FaultyExecutor`."""
    return cast(Bench, _FaultyBench(bench, seed, faults))
