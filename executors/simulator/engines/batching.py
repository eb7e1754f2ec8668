"""What one replica with an engine does with its requests: continuous batching with chunked prefill, first come first served.

What: an iteration spends its tokens on running sequences in the order of their admission (one token each that decodes,
then the rest of a prompt), then on waiting ones. Where blocks of the KV cache lack, the newest running sequence is evicted to
the front of the queue, and nothing is admitted in that iteration. Without `chunked_prefill` whole prompts go first, in
iterations of their own.

Why the leap equals the loop: while every running sequence decodes and the first that waits is not admissible, an iteration
changes counts and nothing else: the context grows by b, so k iterations take `k T0 + kv b k (k-1) / 2`. Free blocks only
shrink meanwhile, so who was not admissible stays so. A leap ends at the last iteration boundary that is not after the next
arrival (if it could be admitted, or expire), expiry, hang or crash, and before the iteration in which one finishes or blocks
lack; that one is carried out singly, by the rules. The per-token loop in the tests knows no leap.

Why it ends: a request that could never fit is rejected on arrival, so the first that waits is admissible in an empty batch;
the oldest running sequence is never evicted for another and gets a token in every iteration that decodes.

What it costs: per event and not per token, each O(sequences in the batch); a search for the iteration at which blocks lack
is O(batch x log output).
"""

from collections import deque
from collections.abc import Sequence
from math import isqrt

import attrs

from executors.simulator.engines.spec import Engine


@attrs.frozen
class EngineRequest:
    """A request as it comes: its prompt and output in tokens, and when its caller gives up (at the end of an iteration)."""

    arrived_ps: int
    prompt: int
    output: int
    expires_ps: int | None = None


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
        iterations, busy_ps: Those that ended before a crash, and their time without hangs.
        decoded: Sequences that decoded, summed over iterations: by iterations it is the mean batch.
        kv_peak: Most blocks in use, or reserved, in any iteration that began.
    """

    answers: list[Answered]
    iterations: int = 0
    busy_ps: int = 0
    decoded: int = 0
    kv_peak: int = 0


@attrs.define(eq=False)
class _Sequence:
    asked: EngineRequest
    answer: Answered
    computed: int = 0
    held: int = 0
    step: int = 0

    @property
    def known(self) -> int:
        return self.asked.prompt + self.answer.tokens

    @property
    def decodes(self) -> bool:
        return self.answer.tokens > 0 and self.known - self.computed == 1


def serve(engine: Engine, requests: Sequence[EngineRequest], troubles: Troubles = Troubles()) -> Served:
    """Serve requests, in the order of their arrival, by one replica from 0 on until none is left."""
    return _Replica(engine, requests, troubles).run()


class _Replica:
    def __init__(self, engine: Engine, requests: Sequence[EngineRequest], troubles: Troubles) -> None:
        self.engine, self.requests, self.troubles = engine, requests, troubles
        self.served = Served([Answered() for _ in requests])
        self.waiting: deque[_Sequence] = deque()
        self.running: list[_Sequence] = []
        self.free = engine.blocks
        self.come = 0
        self.now_ps = 0
        self.expiring = [len(requests)] * (len(requests) + 1)
        """By request: the first from it on that can expire, also while it waits behind others."""
        for at in reversed(range(len(requests))):
            self.expiring[at] = self.expiring[at + 1] if requests[at].expires_ps is None else at

    def run(self) -> Served:
        while self._awake():
            if not self._leap():
                self._iterate()
        return self.served

    def _awake(self) -> bool:
        """Go to where the next iteration begins; False: there is none."""
        while True:
            for hang in self.troubles.hangs:
                if hang.at_ps <= self.now_ps < hang.at_ps + hang.for_ps:
                    self.now_ps = hang.at_ps + hang.for_ps
            if self._crashed(self.now_ps):
                return False
            self._take()
            self._expire()
            if self.running or self.waiting:
                return True
            if self.come == len(self.requests):
                return False
            self.now_ps = self.requests[self.come].arrived_ps

    def _crashed(self, by_ps: int) -> bool:
        crash_ps = self.troubles.crash_ps
        if crash_ps is None or by_ps < crash_ps:
            return False
        self._take(crash_ps)
        for sequence in (*self.running, *self.waiting):
            self._end(sequence, "lost", crash_ps)
        for at in range(self.come, len(self.requests)):
            self.served.answers[at].outcome = "lost"
            self.served.answers[at].ended_ps = self.requests[at].arrived_ps
        return True

    def _take(self, by_ps: int | None = None) -> None:
        by_ps = self.now_ps if by_ps is None else by_ps
        drain_ps = self.troubles.drain_ps
        while self.come < len(self.requests) and self.requests[self.come].arrived_ps <= by_ps:
            asked, answer = self.requests[self.come], self.served.answers[self.come]
            self.come += 1
            answer.ended_ps = asked.arrived_ps
            if drain_ps is not None and asked.arrived_ps > drain_ps:
                answer.outcome = "refused"
            elif asked.prompt + asked.output > self.engine.longest:
                answer.outcome = "too_long"
            else:
                self.waiting.append(_Sequence(asked, answer))

    def _expire(self) -> None:
        for sequence in (*self.running, *self.waiting):
            expires_ps = sequence.asked.expires_ps
            if expires_ps is not None and expires_ps <= self.now_ps:
                self._end(sequence, "expired", self.now_ps)
        self.running = [one for one in self.running if not one.answer.outcome]
        self.waiting = deque(one for one in self.waiting if not one.answer.outcome)

    def _end(self, sequence: _Sequence, outcome: str, at_ps: int) -> None:
        sequence.answer.outcome, sequence.answer.ended_ps = outcome, at_ps
        self.free += sequence.held
        sequence.held = 0

    def _leap(self) -> bool:
        """Carry out the iterations that only count, all at once; False: there is none."""
        b = len(self.running)
        if not b or not all(one.decodes for one in self.running):
            return False
        left = self.engine.max_num_batched_tokens - b if self.engine.chunked_prefill else self.engine.max_num_batched_tokens
        full = b == self.engine.max_num_seqs or left == 0
        if self.waiting and not full and self._needed(self.waiting[0], left) <= self.free:
            return False
        steps = min(one.asked.output - one.answer.tokens for one in self.running) - 1
        context = sum(one.known for one in self.running)
        first_ps = self.engine.step_time.of(b, context, 0, 0)
        ends = [hang.at_ps for hang in self.troubles.hangs if hang.at_ps >= self.now_ps]
        ends += [one.asked.expires_ps for one in (*self.running, *self.waiting) if one.asked.expires_ps is not None]
        if self.troubles.crash_ps is not None:
            ends.append(self.troubles.crash_ps)
        awaited = self.expiring[self.come] if full or self.waiting else self.come
        if awaited < len(self.requests):
            ends.append(self.requests[awaited].arrived_ps)
        growth_ps = self.engine.step_time.kv_ps * b
        if ends:
            steps = min(steps, _steps_within(min(ends) - self.now_ps, first_ps, growth_ps))
        steps = self._steps_with_room(steps)
        if steps < 1:
            return False
        took_ps = steps * first_ps + growth_ps * (steps * (steps - 1) // 2)
        for one in self.running:
            one.computed += steps
            one.answer.tokens += steps
            self._hold(one, one.computed)
        self._peak()
        self._count(b, steps, took_ps)
        self.now_ps += took_ps
        return True

    def _steps_with_room(self, most: int) -> int:
        """Iterations, at most so many, for which the free blocks suffice."""
        if self.engine.kv_policy == "reserve" or most < 1:
            return most
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if sum(self.engine.blocks_of(one.computed + middle) - one.held for one in self.running) <= self.free:
                low = middle
            else:
                high = middle - 1
        return low

    def _count(self, decoding: int, steps: int, took_ps: int) -> None:
        self.served.iterations += steps
        self.served.busy_ps += took_ps
        self.served.decoded += decoding * steps

    def _needed(self, sequence: _Sequence, left: int) -> int:
        """Blocks without which one that waits is not admitted; more than there are if its prompt has to be whole."""
        if self.engine.kv_policy == "reserve":
            blocks = self.engine.blocks_of(sequence.asked.prompt + sequence.asked.output)
        else:
            blocks = self.engine.blocks_of(min(sequence.known, left))
        return blocks if self.engine.chunked_prefill or sequence.known <= left else self.engine.blocks + 1

    def _hold(self, sequence: _Sequence, tokens: int) -> None:
        more = max(self.engine.blocks_of(tokens) - sequence.held, 0)
        sequence.held += more
        self.free -= more

    def _peak(self) -> None:
        self.served.kv_peak = max(self.served.kv_peak, self.engine.blocks - self.free)

    def _iterate(self) -> None:
        """Carry out one iteration by the rules."""
        left = self.engine.max_num_batched_tokens
        planned: list[_Sequence] = []
        if not self.engine.chunked_prefill:
            self._admit(left, planned)
        if not planned:
            left, evicted = self._go_on(left, planned)
            if self.engine.chunked_prefill and not evicted:
                self._admit(left, planned)
        self._peak()
        decoding = [one for one in planned if one.decodes]
        prefilled = [one for one in planned if not one.decodes]
        took_ps = self.engine.step_time.of(
            len(decoding),
            sum(one.known for one in decoding),
            sum(one.step for one in prefilled),
            sum(one.step * one.computed + one.step * (one.step + 1) // 2 for one in prefilled),
        )
        for one in planned:
            if one.answer.begun_ps is None:
                one.answer.begun_ps = self.now_ps
        end_ps = self.now_ps + took_ps
        for hang in self.troubles.hangs:
            if self.now_ps <= hang.at_ps < end_ps:
                end_ps += hang.for_ps
        if self.troubles.crash_ps is not None and end_ps > self.troubles.crash_ps:
            self.now_ps = self.troubles.crash_ps
            return
        self._count(len(decoding), 1, took_ps)
        self.now_ps = end_ps
        for one in planned:
            self._computed(one)
        self.running = [one for one in self.running if not one.answer.outcome]

    def _computed(self, one: _Sequence) -> None:
        one.computed += one.step
        if one.computed < one.known:
            return
        one.answer.tokens += 1
        if one.answer.tokens == 1:
            one.answer.first_ps = self.now_ps
        if one.answer.tokens == one.asked.output:
            self._end(one, "finished", self.now_ps)

    def _go_on(self, left: int, planned: list[_Sequence]) -> tuple[int, bool]:
        """Plan for running sequences; says how many tokens are left, and whether one was evicted."""
        evicted = False
        at = 0
        while at < len(self.running) and left:
            one = self.running[at]
            step = min(one.known - one.computed, left)
            while self.engine.blocks_of(one.computed + step) - one.held > self.free:
                last = self.running.pop()
                self._evict(last)
                evicted = True
                if last is one:
                    return left, True
            one.step = step
            self._hold(one, one.computed + step)
            left -= step
            planned.append(one)
            at += 1
        return left, evicted

    def _evict(self, one: _Sequence) -> None:
        self.free += one.held
        one.held = one.computed = 0
        one.answer.preemptions += 1
        self.waiting.appendleft(one)

    def _admit(self, left: int, planned: list[_Sequence]) -> None:
        while self.waiting and left and len(self.running) < self.engine.max_num_seqs:
            one = self.waiting[0]
            needed = self._needed(one, left)
            if needed > self.free:
                return
            self.waiting.popleft()
            self.running.append(one)
            one.step = min(one.known, left)
            self._hold(one, needed * self.engine.block_size)
            left -= one.step
            planned.append(one)


def _steps_within(time_ps: int, first_ps: int, growth_ps: int) -> int:
    """Most k with `k first + growth k (k - 1) / 2 <= time`; never negative."""
    if time_ps < first_ps:
        return 0
    if not growth_ps:
        return time_ps // first_ps
    half = 2 * first_ps - growth_ps
    return (isqrt(half * half + 8 * growth_ps * time_ps) - half) // (2 * growth_ps)
