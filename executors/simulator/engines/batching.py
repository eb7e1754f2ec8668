"""What one replica with an engine does with its requests: continuous batching with chunked prefill, first come first served.

What: an iteration spends its tokens on running sequences in the order of their admission (one token each that decodes,
then the rest of a prompt), then on waiting ones. Where blocks of the KV cache lack, the newest running sequence is evicted to
the front of the queue, and nothing is admitted in that iteration. Without `chunked_prefill` whole prompts go first, in
iterations of their own.

A flight is an iteration with prompts in it, or a leap of many that only decode. Whoever drives an `EngineBatch` begins one at
a time and ends it when its time has come; what happens in between (an arrival, somebody gives up, a hang) may `cut` it to the
iteration under way.

Why the leap equals the loop: while every running sequence decodes and the first that waits is not admissible, an iteration
changes counts and nothing else: the context grows by b, so k iterations take `k T0 + kv b k (k-1) / 2`. Free blocks only
shrink meanwhile, so who was not admissible stays so. A leap ends with the iteration in which one finishes, and before that
in which blocks lack; evictions are carried out singly, by the rules.

Why it ends: a request that could never fit is not taken, so the first that waits is admissible in an empty batch;
the oldest running sequence is never evicted for another and gets a token in every iteration that decodes.

Only the newest running sequence can be in the middle of its prompt: another is admitted only where tokens are left, and then
it is through. All others decode, and every one of them in each iteration, since `max_num_seqs` is no more than
`max_num_batched_tokens`: they are kept together (`Decoders`).

What it costs: per flight and not per token, each O(prompts in it + who finishes x log batch); the iteration at which blocks
lack is a division and a scan of at most `block_size` phases. A crash takes O(batch).
"""

from collections import deque
from math import isqrt

import attrs

from executors.simulator.engines.decoders import NOT, Decoders, EngineSequence
from executors.simulator.engines.gaps import TokenGaps
from executors.simulator.engines.spec import Engine


@attrs.define(eq=False)
class EngineWork:
    """What a replica did.

    Attributes:
        iterations, busy_ps: Those that ended, and their time without hangs.
        extrapolated_ps: Of this, in iterations with more sequences or prompt tokens than any measured point.
        decoded: Sequences that decoded, summed over iterations: by iterations it is the mean batch.
        kv_ps: Blocks in use, summed over the time of iterations; in a leap the mean of its beginning and its end.
        kv_peak: Most blocks in use, or reserved, in any iteration that began.
        preemptions: How often a sequence was evicted.
        gaps: Times between the tokens of a sequence.
    """

    iterations: int = 0
    busy_ps: int = 0
    extrapolated_ps: int = 0
    decoded: int = 0
    kv_ps: int = 0
    kv_peak: int = 0
    preemptions: int = 0
    gaps: TokenGaps = attrs.Factory(TokenGaps)


class EngineBatch:
    """The sequences of a replica.

    Attributes:
        now_ps: When the present flight began, or the last one ended.
        ends_ps: When the present flight ends; None: there is none.
        leaving: Those who go once no flight is under way.
        heeds_arrivals: Whether the present flight is to be cut when a request arrives, which might be admitted.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.work = EngineWork()
        self.waiting: deque[EngineSequence] = deque()
        self.now_ps = 0
        self.ends_ps: int | None = None
        self.heeds_arrivals = False
        self._of, self._kv_ps = engine.step_time.of, engine.step_time.kv_ps
        self._measured = (engine.step_time.base.measured_to, engine.step_time.prompt.measured_to)
        self._base_ps: dict[int, int] = {}
        """By sequences that decode: of an iteration with nothing else."""
        self._blocks = self._free = engine.blocks
        self._reserves = engine.kv_policy == "reserve"
        self._running: dict[EngineSequence, None] = {}
        """By admission."""
        self._decoders = Decoders(engine.block_size, not self._reserves)
        self._partial: EngineSequence | None = None
        """Who is in the middle of its prompt."""
        self._admitted = 0
        self.leaving: list[EngineSequence] = []
        self._steps = 0
        """Of the present flight, all of which only decode; 0: there are prompts in its iteration."""
        self._first_ps = self._growth_ps = self._took_ps = 0
        """Of the present flight: its first iteration, how much longer each next one is, and all of it."""
        self._planned: list[EngineSequence] = []
        """With prompts in the iteration under way."""
        self._prompts = self._in_use = 0
        """Tokens of theirs in it, and blocks in use."""
        self._decodes = False
        """Whether those who decode are in it too."""

    @property
    def has_work(self) -> bool:
        """Whether a flight could begin."""
        return bool(self._running or self.waiting)

    # -- what comes and goes

    def add(self, sequence: EngineSequence) -> None:
        """A request has arrived that the engine can hold; it is looked at when the next flight begins."""
        self.waiting.append(sequence)

    def leave(self, sequence: EngineSequence) -> None:
        """Nobody waits for it any more: it is gone once the present flight has ended."""
        self.leaving.append(sequence)

    def pace(self, factor: float) -> None:
        """Iterations take so many times as long as usual, from the next flight on."""
        step_time = self.engine.step_time.times(factor)
        self._of, self._kv_ps, self._base_ps = step_time.of, step_time.kv_ps, {}

    def begin(self, now_ps: int) -> bool:
        """Begin a flight, now that none is under way; False: there is nothing to do."""
        self.now_ps = now_ps
        if not self._running and not self.waiting:
            return False
        if not self._leap():
            self._iterate()
        return True

    def cut(self, at_ps: int) -> None:
        """Let the present flight end with the iteration that is under way at a time; one that ends just then is."""
        if self._steps > 1:
            whole = _steps_within(at_ps - self.now_ps - 1, self._first_ps, self._growth_ps)
            if whole + 1 < self._steps:
                self._steps = whole + 1
                self._took_ps = self._time_of(whole + 1)
                self.ends_ps = self.now_ps + self._took_ps

    def stretch(self, for_ps: int) -> None:
        """The iteration that is under way, to which the flight was cut, takes so much longer."""
        assert self.ends_ps is not None, "only a flight can be stretched"
        self.ends_ps += for_ps

    def end(self) -> list[EngineSequence]:
        """The present flight has come to its end: who is done now, and who left."""
        assert self.ends_ps is not None, "only a flight can end"
        done = self._land(self._steps, self.ends_ps) if self._steps else self._landed(self.ends_ps)
        self.now_ps, self.ends_ps = self.ends_ps, None
        return [*done, *self.drop()] if self.leaving else done

    def drop(self) -> list[EngineSequence]:
        """Those go that were to leave, now that no flight is under way; returns them."""
        gone = [sequence for sequence in self.leaving if not sequence.is_over]
        self.leaving = []
        for sequence in gone:
            if sequence.order == NOT:
                self.waiting.remove(sequence)
                sequence.is_over = True
            else:
                self._stop(sequence)
                self._over(sequence)
        return gone

    def lose(self, at_ps: int) -> None:
        """The replica is gone, with an iteration that has not ended by then; all that it had is up to date now."""
        if self.ends_ps is not None and self._steps:
            steps = min(self._steps - 1, _steps_within(at_ps - self.now_ps, self._first_ps, self._growth_ps))
            self._took_ps = self._time_of(steps)
            ended_ps = self.now_ps + self._took_ps
            if steps:
                self._land(steps, ended_ps)
            if ended_ps < at_ps:
                self.work.kv_peak = max(self.work.kv_peak, self._blocks - self._free + self._decoders.growth(1))
        for one in self._running:
            self._stop(one)

    def _stop(self, one: EngineSequence) -> None:
        """One that runs is not to decode, or to go on with its prompt, any more."""
        if one.joined != NOT:
            self._decoders.part(one)
        elif one is self._partial:
            self._partial = None

    def _over(self, one: EngineSequence) -> None:
        """One that has stopped is gone."""
        del self._running[one]
        one.is_over = True
        self._free += one.held
        one.held = 0
        one.order = NOT

    # -- a leap

    def _leap(self) -> bool:
        """Begin the iterations that only decode, all at once; False: there is none."""
        decoders, engine = self._decoders, self.engine
        b = decoders.count
        if not b or self._partial is not None:
            return False
        left = engine.max_num_batched_tokens - b if engine.chunked_prefill else engine.max_num_batched_tokens
        full = b == engine.max_num_seqs or left == 0
        if self.waiting and not full and self._needed(self.waiting[0], left) <= self._free:
            return False
        steps = decoders.steps_left()
        if b * (steps // engine.block_size + 1) > self._free and decoders.growth(steps) > self._free:
            steps = decoders.steps_within(self._free)
            if not steps:
                return False
        self.heeds_arrivals = not full and not self.waiting
        self._decode_for(steps)
        return True

    def _decode_for(self, steps: int) -> None:
        b, first_ps = self._decoders.count, self._base_ps.get(self._decoders.count)
        if first_ps is None:
            first_ps = self._base_ps[b] = self._of(b, 0, 0, 0)
        self._first_ps = first_ps + self._kv_ps * self._decoders.context
        self._growth_ps = growth_ps = self._kv_ps * b
        self._steps = steps
        self._took_ps = steps * self._first_ps + growth_ps * (steps * (steps - 1) // 2)
        self.ends_ps = self.now_ps + self._took_ps

    def _time_of(self, steps: int) -> int:
        return steps * self._first_ps + self._growth_ps * (steps * (steps - 1) // 2)

    def _land(self, steps: int, ended_ps: int) -> list[EngineSequence]:
        """So many iterations of the leap have ended, the last one at a time: later than usual by what stretched it."""
        decoders, work = self._decoders, self.work
        late_ps = ended_ps - self.now_ps - self._took_ps
        work.gaps.after_leap(decoders.since, self.now_ps, self._first_ps, self._growth_ps, steps, late_ps)
        growth = decoders.growth(steps)
        self._free -= growth
        work.kv_ps += (2 * (self._blocks - self._free) - growth) * self._took_ps // 2
        work.iterations += steps
        work.busy_ps += self._took_ps
        work.decoded += decoders.count * steps
        if decoders.count > self._measured[0]:
            work.extrapolated_ps += self._took_ps
        if self._blocks - self._free > work.kv_peak:
            work.kv_peak = self._blocks - self._free
        done = decoders.advance(steps, ended_ps)
        for one in done:
            self._over(one)
        return done

    # -- an iteration

    def _iterate(self) -> None:
        """Begin one iteration by the rules."""
        engine, decoders = self.engine, self._decoders
        left = engine.max_num_batched_tokens
        planned: list[EngineSequence] = []
        self._planned, self.heeds_arrivals = planned, False
        if not engine.chunked_prefill:
            self._admit(left)
        self._decodes = not planned
        growth = 0
        if self._decodes:
            evicted, growth = self._make_room()
            self._free -= growth
            left -= decoders.count
            one = self._partial
            if one is not None:
                blocks = self._more(one, left)
                one.held += blocks
                self._free -= blocks
                left -= one.step
                planned.append(one)
            if self.waiting and engine.chunked_prefill and not evicted:
                self._admit(left)
        if not planned:
            self._free += growth  # a leap takes it at its end
            self._decode_for(1)
            return
        self._steps = 0
        self._in_use = in_use = self._blocks - self._free
        if in_use > self.work.kv_peak:
            self.work.kv_peak = in_use
        prompts = pairs = 0
        for one in planned:
            step = one.step
            prompts += step
            pairs += step * one.computed + step * (step + 1) // 2
            if one.begun_ps is None:
                one.begun_ps = self.now_ps
        self._prompts = prompts
        decoding, context = (decoders.count, decoders.context) if self._decodes else (0, 0)
        self._took_ps = self._of(decoding, context, prompts, pairs)
        self.ends_ps = self.now_ps + self._took_ps

    def _landed(self, ended_ps: int) -> list[EngineSequence]:
        """The iteration has ended; says who is done."""
        decoders, work, gaps = self._decoders, self.work, self.work.gaps
        done: list[EngineSequence] = []
        decoding = decoders.count if self._decodes else 0
        work.iterations += 1
        work.kv_ps += self._in_use * self._took_ps
        work.busy_ps += self._took_ps
        work.decoded += decoding
        if decoding > self._measured[0] or self._prompts > self._measured[1]:
            work.extrapolated_ps += self._took_ps
        if decoding:
            for last_ps, count in decoders.since:
                gaps.add(ended_ps - last_ps, count)
            done = decoders.advance(1, ended_ps)
            for one in done:
                self._over(one)
        for one in self._planned:
            one.computed += one.step
            left = one.prompt + one.tokens - one.computed
            if left:
                self._partial = one if left > 1 or not one.tokens else None
                if self._partial is None:
                    decoders.join(one)  # what is left of the prompt is its newest token
                continue
            if one is self._partial:
                self._partial = None
            one.tokens += 1
            if one.first_ps is None:
                one.first_ps = ended_ps
            else:
                gaps.add(ended_ps - one.last_ps)
            one.last_ps = ended_ps
            if one.tokens == one.output:
                self._over(one)
                done.append(one)
            else:
                decoders.join(one)
        return done

    def _make_room(self) -> tuple[bool, int]:
        """Evict the newest sequences for which blocks lack in this iteration; says whether any, and what decoding takes."""
        decoders, evicted = self._decoders, False
        while True:
            growth, one = decoders.growth(1), self._partial
            if one is None:
                needed = growth
            else:
                needed = growth + self._more(one, self.engine.max_num_batched_tokens - decoders.count)
            if needed <= self._free:
                return evicted, growth
            last, _ = self._running.popitem()
            self._stop(last)
            self._evict(last)
            evicted = True

    def _more(self, one: EngineSequence, left: int) -> int:
        """Blocks that the tokens of its prompt take which this iteration computes."""
        step = one.prompt + one.tokens - one.computed
        one.step = step = step if step < left else left
        return max(self.engine.blocks_of(one.computed + step) - one.held, 0)

    def _evict(self, one: EngineSequence) -> None:
        self._free += one.held
        one.held = one.computed = 0
        one.order = NOT
        one.preemptions += 1
        self.work.preemptions += 1
        self.waiting.appendleft(one)

    def _needed(self, sequence: EngineSequence, left: int) -> int:
        """Blocks without which one that waits is not admitted; more than there are if its prompt has to be whole."""
        known, reached = sequence.prompt + sequence.tokens, sequence.cached + left
        if known > reached and not self.engine.chunked_prefill:
            return self._blocks + 1
        if self._reserves:
            return self.engine.blocks_of(sequence.prompt + sequence.output)
        return self.engine.blocks_of(known if known < reached else reached)

    def _admit(self, left: int) -> None:
        waiting, running = self.waiting, self._running
        while waiting and left and len(running) < self.engine.max_num_seqs:
            one = waiting[0]
            needed = self._needed(one, left)
            if needed > self._free:
                return
            waiting.popleft()
            self._admitted = one.order = self._admitted + 1
            running[one] = None
            one.computed = one.cached
            one.step = min(one.prompt + one.tokens - one.cached, left)
            one.held = needed
            self._free -= needed
            left -= one.step
            self._planned.append(one)


def _steps_within(time_ps: int, first_ps: int, growth_ps: int) -> int:
    """Most k with `k first + growth k (k - 1) / 2 <= time`; never negative."""
    if time_ps < first_ps:
        return 0
    if not growth_ps:
        return time_ps // first_ps
    half = 2 * first_ps - growth_ps
    return (isqrt(half * half + 8 * growth_ps * time_ps) - half) // (2 * growth_ps)
