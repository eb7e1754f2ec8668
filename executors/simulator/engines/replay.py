"""One replica that serves a list of requests, with all that befalls it known beforehand: no router, no network."""

from collections.abc import Sequence

import attrs

from executors.simulator.engines.batching import EngineBatch
from executors.simulator.engines.decoders import EngineSequence
from executors.simulator.engines.spec import Engine


@attrs.frozen
class EngineRequest:
    """A request as it comes.

    Attributes:
        prompt, output: In tokens.
        expires_ps: When its caller gives up (at the end of an iteration).
        cached: Tokens of the prompt that need no computing, fewer than all.
    """

    arrived_ps: int
    prompt: int
    output: int
    expires_ps: int | None = None
    cached: int = 0


@attrs.frozen
class Hang:
    """The replica does nothing from `at_ps` on; the iteration it falls into ends so much later."""

    at_ps: int
    for_ps: int


@attrs.frozen
class Troubles:
    """What befalls the replica: hangs in ascending order that do not overlap, a crash, and from when on it takes no more."""

    hangs: tuple[Hang, ...] = ()
    crash_ps: int | None = None
    drain_ps: int | None = None


@attrs.define
class Answered:
    """What became of a request.

    Attributes:
        outcome: `finished`, `expired`, `lost` (crash), `too_long` or `refused` (draining).
        begun_ps, first_ps, ended_ps: When its first iteration began, its first token was there, and it ended.
        tokens: Of output.
        preemptions: How often it was evicted.
    """

    outcome: str = ""
    begun_ps: int | None = None
    first_ps: int | None = None
    ended_ps: int = 0
    tokens: int = 0
    preemptions: int = 0


@attrs.define
class Served:
    """What a replica did.

    Attributes:
        answers: One for each request, in the order of arrival.
        iterations, busy_ps, decoded, kv_peak, gaps: As in `EngineWork`; `gaps`: how many of each class.
    """

    answers: list[Answered]
    iterations: int = 0
    busy_ps: int = 0
    decoded: int = 0
    kv_peak: int = 0
    gaps: dict[int, int] = attrs.Factory(dict)


def serve(engine: Engine, requests: Sequence[EngineRequest], troubles: Troubles = Troubles()) -> Served:
    """Serve requests, in the order of their arrival, by one replica from 0 on until none is left."""
    return _Replica(engine, requests, troubles).run()


class _Replica:
    def __init__(self, engine: Engine, requests: Sequence[EngineRequest], troubles: Troubles) -> None:
        self.requests, self.troubles = requests, troubles
        self.answers = [Answered() for _ in requests]
        self.batch = EngineBatch(engine)
        self.there: dict[int, EngineSequence] = {}
        self.come = 0
        self.now_ps = 0
        self.expiring = [len(requests)] * (len(requests) + 1)
        """By request: the first from it on that can expire, also while it waits behind others."""
        for at in reversed(range(len(requests))):
            self.expiring[at] = self.expiring[at + 1] if requests[at].expires_ps is None else at

    def run(self) -> Served:
        while self._awake() and self.batch.begin(self.now_ps) and self._fly():
            pass
        work = self.batch.work
        gaps = work.gaps.counts
        return Served(self.answers, work.iterations, work.busy_ps, work.decoded, work.kv_peak, gaps)

    def _awake(self) -> bool:
        """Go to where the next iteration begins; False: there is none."""
        while True:
            for hang in self.troubles.hangs:
                if hang.at_ps <= self.now_ps < hang.at_ps + hang.for_ps:
                    self.now_ps = hang.at_ps + hang.for_ps
            if self.troubles.crash_ps is not None and self.troubles.crash_ps <= self.now_ps:
                self._crash(self.troubles.crash_ps)
                return False
            self._take(self.now_ps)
            for key, sequence in self.there.items():
                if self._expires_ps(key) <= self.now_ps:
                    self.batch.leave(sequence)
            for sequence in self.batch.drop():
                self._end(sequence, "expired", self.now_ps)
            if self.there:
                return True
            if self.come == len(self.requests):
                return False
            self.now_ps = self.requests[self.come].arrived_ps

    def _expires_ps(self, key: int) -> int:
        expires_ps = self.requests[key].expires_ps
        return NEVER_PS if expires_ps is None else expires_ps

    def _fly(self) -> bool:
        """Let the flight end, cut short where something happens; False: the replica crashes before."""
        batch, troubles = self.batch, self.troubles
        happens = [hang.at_ps for hang in troubles.hangs if hang.at_ps >= self.now_ps]
        happens += [self._expires_ps(key) for key in self.there]
        awaited = self.come if batch.heeds_arrivals else self.expiring[self.come]
        if awaited < len(self.requests):
            happens.append(self.requests[awaited].arrived_ps)
        crash_ps = NEVER_PS if troubles.crash_ps is None else troubles.crash_ps
        batch.cut(min([crash_ps, *happens]))
        for hang in troubles.hangs:
            assert batch.ends_ps is not None, "a flight is under way"
            if self.now_ps <= hang.at_ps < batch.ends_ps:
                batch.stretch(hang.for_ps)
        assert batch.ends_ps is not None, "a flight is under way"
        if batch.ends_ps > crash_ps:
            self._crash(crash_ps)
            return False
        self.now_ps = batch.ends_ps
        for sequence in batch.end():
            self._end(sequence, "finished", self.now_ps)
        return True

    def _crash(self, crash_ps: int) -> None:
        self.batch.lose(crash_ps)
        self._take(crash_ps)
        for sequence in tuple(self.there.values()):
            self._end(sequence, "lost", crash_ps)
        for at in range(self.come, len(self.requests)):
            self.answers[at] = Answered("lost", ended_ps=self.requests[at].arrived_ps)

    def _take(self, by_ps: int) -> None:
        drain_ps = self.troubles.drain_ps
        while self.come < len(self.requests) and self.requests[self.come].arrived_ps <= by_ps:
            key, asked = self.come, self.requests[self.come]
            self.come += 1
            if drain_ps is not None and asked.arrived_ps > drain_ps:
                self.answers[key] = Answered("refused", ended_ps=asked.arrived_ps)
            elif asked.prompt + asked.output > self.batch.engine.longest:
                self.answers[key] = Answered("too_long", ended_ps=asked.arrived_ps)
            else:
                self.there[key] = EngineSequence(key, asked.prompt, asked.output, asked.cached)
                self.batch.add(self.there[key])

    def _end(self, sequence: EngineSequence, outcome: str, at_ps: int) -> None:
        one = self.there.pop(sequence.key)
        self.answers[one.key] = Answered(outcome, one.begun_ps, one.first_ps, at_ps, one.tokens, one.preemptions)


NEVER_PS = 2**80
