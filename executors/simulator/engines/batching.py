"""What one replica with an engine does with its requests: continuous batching with chunked prefill, first come first served.

What: an iteration spends its tokens on running sequences in the order of their admission (one token each that decodes,
then the rest of a prompt), then on waiting ones. Where blocks of the KV cache lack, the newest running sequence is evicted to
the front of the queue, and nothing is admitted in that iteration. Without `chunked_prefill` whole prompts go first, in
iterations of their own.

A flight is an iteration, or a leap of many. Whoever drives an `EngineBatch` begins one at a time and ends it when its time has
come; what happens in between (an arrival, somebody gives up, a hang) may `cut` it to the iteration under way.

Why the leap equals the loop: while every running sequence decodes and the first that waits is not admissible, an iteration
changes counts and nothing else: the context grows by b, so k iterations take `k T0 + kv b k (k-1) / 2`. Free blocks only
shrink meanwhile, so who was not admissible stays so. A leap ends before the iteration in which one finishes or blocks lack;
that one is carried out singly, by the rules.

Why it ends: a request that could never fit is not taken, so the first that waits is admissible in an empty batch;
the oldest running sequence is never evicted for another and gets a token in every iteration that decodes.

What it costs: per flight and not per token, each O(sequences in the batch); a search for the iteration at which blocks lack
is O(batch x log output).
"""

from collections import deque
from math import isqrt

import attrs

from executors.simulator.engines.gaps import TokenGaps
from executors.simulator.engines.spec import Engine


@attrs.define(eq=False)
class EngineSequence:
    """A request in an engine.

    Attributes:
        key: Whose it is.
        prompt, output: In tokens.
        begun_ps, first_ps, last_ps: When its first iteration began, its first token was there, and its newest one.
        tokens: Of output, so far.
        preemptions: How often it was evicted.
        computed, held, step: Tokens in the KV cache, blocks that it holds, and tokens of the iteration under way.
        is_over: Whether it has left.
    """

    key: int
    prompt: int
    output: int
    begun_ps: int | None = None
    first_ps: int | None = None
    last_ps: int = 0
    tokens: int = 0
    preemptions: int = 0
    computed: int = 0
    held: int = 0
    step: int = 0
    is_over: bool = False

    @property
    def known(self) -> int:
        """Tokens of its context, prompt and output."""
        return self.prompt + self.tokens

    @property
    def decodes(self) -> bool:
        """Whether an iteration computes its newest token only."""
        return self.tokens > 0 and self.prompt + self.tokens - self.computed == 1


@attrs.define(eq=False)
class EngineWork:
    """What a replica did.

    Attributes:
        iterations, busy_ps: Those that ended, and their time without hangs.
        decoded: Sequences that decoded, summed over iterations: by iterations it is the mean batch.
        kv_peak: Most blocks in use, or reserved, in any iteration that began.
        preemptions: How often a sequence was evicted.
        gaps: Times between the tokens of a sequence.
    """

    iterations: int = 0
    busy_ps: int = 0
    decoded: int = 0
    kv_peak: int = 0
    preemptions: int = 0
    gaps: TokenGaps = attrs.Factory(TokenGaps)


class EngineBatch:
    """The sequences of a replica.

    Attributes:
        now_ps: When the present flight began, or the last one ended.
        ends_ps: When the present flight ends; None: there is none.
        heeds_arrivals: Whether the present flight is to be cut when a request arrives, which might be admitted.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.work = EngineWork()
        self.waiting: deque[EngineSequence] = deque()
        self.running: list[EngineSequence] = []
        self.now_ps = 0
        self.ends_ps: int | None = None
        self.heeds_arrivals = False
        self._free = engine.blocks
        self._leaving: list[EngineSequence] = []
        self._steps = 0
        self._first_ps = self._growth_ps = self._took_ps = 0
        self._planned: list[EngineSequence] = []
        self._decoding = 0
        self._all_decode: bool | None = None
        """Whether all that run do; None: that is to be looked up."""

    # -- what comes and goes

    def add(self, sequence: EngineSequence) -> None:
        """A request has arrived that the engine can hold; it is looked at when the next flight begins."""
        self.waiting.append(sequence)

    def leave(self, sequence: EngineSequence) -> None:
        """Nobody waits for it any more: it is gone once the present flight has ended."""
        self._leaving.append(sequence)

    def begin(self, now_ps: int) -> bool:
        """Begin a flight, now that none is under way; False: there is nothing to do."""
        self.now_ps = now_ps
        if not self.running and not self.waiting:
            return False
        if not self._leap():
            self._iterate()
        return True

    def cut(self, at_ps: int) -> None:
        """Let the present flight end with the iteration that is under way at a time; one that ends just then is."""
        if self._steps > 1:
            whole = _steps_within(at_ps - self.now_ps - 1, self._first_ps, self._growth_ps)
            self._leap_for(min(self._steps, whole + 1))

    def stretch(self, for_ps: int) -> None:
        """The iteration that is under way, to which the flight was cut, takes so much longer."""
        assert self.ends_ps is not None, "only a flight can be stretched"
        self.ends_ps += for_ps

    def end(self) -> list[EngineSequence]:
        """The present flight has come to its end: who is done now, and who left."""
        assert self.ends_ps is not None, "only a flight can end"
        if self._steps:
            self._land(self._steps, self.ends_ps)
            done: list[EngineSequence] = []
        else:
            done = self._landed(self.ends_ps)
        self.now_ps, self.ends_ps = self.ends_ps, None
        return [*done, *self.drop()] if self._leaving else done

    def drop(self) -> list[EngineSequence]:
        """Those go that were to leave, now that no flight is under way; returns them."""
        gone = [sequence for sequence in self._leaving if not sequence.is_over]
        self._leaving, self._all_decode = [], None
        for sequence in gone:
            (self.waiting if sequence in self.waiting else self.running).remove(sequence)
            self._release(sequence)
        return gone

    def lose(self, at_ps: int) -> None:
        """The replica is gone, with an iteration that has not ended by then."""
        if self.ends_ps is None or not self._steps:
            return
        steps = min(self._steps - 1, _steps_within(at_ps - self.now_ps, self._first_ps, self._growth_ps))
        ended_ps = self.now_ps + self._time_of(steps)
        if steps:
            self._land(steps, ended_ps)
        if ended_ps < at_ps:
            self.work.kv_peak = max(self.work.kv_peak, self._blocks_after(1))

    def _release(self, sequence: EngineSequence) -> None:
        sequence.is_over = True
        self._free += sequence.held
        sequence.held = 0

    # -- a leap

    def _leap(self) -> bool:
        """Begin the iterations that only count, all at once; False: there is none."""
        b = len(self.running)
        if self._all_decode is None:
            self._all_decode = all(one.decodes for one in self.running)
        if not b or not self._all_decode:
            return False
        left = self.engine.max_num_batched_tokens - b if self.engine.chunked_prefill else self.engine.max_num_batched_tokens
        full = b == self.engine.max_num_seqs or left == 0
        if self.waiting and not full and self._needed(self.waiting[0], left) <= self._free:
            return False
        context, steps = 0, self.running[0].output
        for one in self.running:
            context += one.prompt + one.tokens
            if one.output - one.tokens < steps:
                steps = one.output - one.tokens
        steps = self._steps_with_room(steps - 1)
        if steps < 1:
            return False
        self._first_ps = self.engine.step_time.of(b, context, 0, 0)
        self._growth_ps = self.engine.step_time.kv_ps * b
        self.heeds_arrivals = not full and not self.waiting
        self._leap_for(steps)
        return True

    def _leap_for(self, steps: int) -> None:
        self._steps = steps
        self.ends_ps = self.now_ps + self._time_of(steps)

    def _time_of(self, steps: int) -> int:
        return steps * self._first_ps + self._growth_ps * (steps * (steps - 1) // 2)

    def _land(self, steps: int, ended_ps: int) -> None:
        """So many iterations of the leap have ended, the last one at a time: later than usual by what stretched it."""
        took_ps = self._time_of(steps)
        late_ps = ended_ps - self.now_ps - took_ps
        self.work.gaps.after_leap(
            [one.last_ps for one in self.running], self.now_ps, self._first_ps, self._growth_ps, steps, late_ps
        )
        block_size = self.engine.block_size
        for one in self.running:
            one.computed += steps
            one.tokens += steps
            one.last_ps = ended_ps
            if one.computed > one.held * block_size:
                self._hold(one, one.computed)
        self._peak()
        self._count(len(self.running), steps, took_ps)

    def _blocks_after(self, steps: int) -> int:
        """Blocks in use once so many more tokens of each running sequence are there."""
        blocks = self.engine.blocks - self._free
        if self.engine.kv_policy == "reserve":
            return blocks
        return blocks + sum(self.engine.blocks_of(one.computed + steps) - one.held for one in self.running)

    def _steps_with_room(self, most: int) -> int:
        """Iterations, at most so many, for which the free blocks suffice."""
        if most < 1 or len(self.running) * (most // self.engine.block_size + 1) <= self._free:
            return most
        if self._blocks_after(most) <= self.engine.blocks:
            return most
        low, high = 0, most - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._blocks_after(middle) <= self.engine.blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def _count(self, decoding: int, steps: int, took_ps: int) -> None:
        self.work.iterations += steps
        self.work.busy_ps += took_ps
        self.work.decoded += decoding * steps

    def _needed(self, sequence: EngineSequence, left: int) -> int:
        """Blocks without which one that waits is not admitted; more than there are if its prompt has to be whole."""
        if self.engine.kv_policy == "reserve":
            blocks = self.engine.blocks_of(sequence.prompt + sequence.output)
        else:
            blocks = self.engine.blocks_of(min(sequence.known, left))
        return blocks if self.engine.chunked_prefill or sequence.known <= left else self.engine.blocks + 1

    def _hold(self, sequence: EngineSequence, tokens: int) -> None:
        more = self.engine.blocks_of(tokens) - sequence.held
        if more > 0:
            sequence.held += more
            self._free -= more

    def _peak(self) -> None:
        self.work.kv_peak = max(self.work.kv_peak, self.engine.blocks - self._free)

    # -- an iteration

    def _iterate(self) -> None:
        """Begin one iteration by the rules."""
        left = self.engine.max_num_batched_tokens
        self._planned, self._steps, self.heeds_arrivals = [], 0, False
        if not self.engine.chunked_prefill:
            self._admit(left)
        if not self._planned:
            left, evicted = self._go_on(left)
            if self.engine.chunked_prefill and not evicted:
                self._admit(left)
        self._peak()
        decoding = context = prompts = pairs = 0
        for one in self._planned:
            known, step = one.prompt + one.tokens, one.step
            if one.tokens and known - one.computed == 1:
                decoding += 1
                context += known
                continue
            prompts += step
            pairs += step * one.computed + step * (step + 1) // 2
            if one.begun_ps is None:
                one.begun_ps = self.now_ps
        self._decoding = decoding
        self._took_ps = self.engine.step_time.of(decoding, context, prompts, pairs)
        self.ends_ps = self.now_ps + self._took_ps

    def _landed(self, ended_ps: int) -> list[EngineSequence]:
        """The iteration has ended; says who is done."""
        self._count(self._decoding, 1, self._took_ps)
        self._all_decode = None
        done: list[EngineSequence] = []
        since: dict[int, int] = {}
        for one in self._planned:
            one.computed += one.step
            if one.computed < one.prompt + one.tokens:
                continue
            one.tokens += 1
            if one.first_ps is None:
                one.first_ps = ended_ps
            else:
                since[one.last_ps] = since.get(one.last_ps, 0) + 1
            one.last_ps = ended_ps
            if one.tokens == one.output:
                self._release(one)
                done.append(one)
        for last_ps, count in since.items():
            self.work.gaps.add(ended_ps - last_ps, count)
        if done:
            self.running = [one for one in self.running if not one.is_over]
        return done

    def _go_on(self, left: int) -> tuple[int, bool]:
        """Plan for running sequences; says how many tokens are left, and whether one was evicted."""
        evicted = False
        at, block_size = 0, self.engine.block_size
        while at < len(self.running) and left:
            one = self.running[at]
            step = one.prompt + one.tokens - one.computed
            if step > left:
                step = left
            if one.computed + step > one.held * block_size:
                while self.engine.blocks_of(one.computed + step) - one.held > self._free:
                    last = self.running.pop()
                    self._evict(last)
                    evicted = True
                    if last is one:
                        return left, True
                self._hold(one, one.computed + step)
            one.step = step
            left -= step
            self._planned.append(one)
            at += 1
        return left, evicted

    def _evict(self, one: EngineSequence) -> None:
        self._free += one.held
        one.held = one.computed = 0
        one.preemptions += 1
        self.work.preemptions += 1
        self.waiting.appendleft(one)

    def _admit(self, left: int) -> None:
        while self.waiting and left and len(self.running) < self.engine.max_num_seqs:
            one = self.waiting[0]
            needed = self._needed(one, left)
            if needed > self._free:
                return
            self.waiting.popleft()
            self.running.append(one)
            one.step = min(one.known, left)
            self._hold(one, needed * self.engine.block_size)
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
