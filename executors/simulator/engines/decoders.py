"""Sequences of an engine, and those of them that decode.

What: each of those who decode gets one token in every iteration in which any of them does. So what they have is kept for all
of them together, and brought up to date for one when it parts: a counter of steps (tokens of one: those it joined with, and
the steps since), the sum of their contexts, who is done at which step (a heap), how many enter a new block at which step
(counted by step modulo block size), and when they had their newest token (one time, but for those who joined since).

What it costs: O(log sequences) for each that joins or is done, O(1) for any number of steps, and O(block size) where it is
asked after how many steps blocks lack.
"""

from heapq import heappop, heappush

import attrs

NOT = -1


@attrs.define(eq=False)
class EngineSequence:
    """A request in an engine. While it decodes, `tokens`, `computed`, `held` and `last_ps` are of when it joined those who do.

    Attributes:
        key: Whose it is.
        prompt, output: In tokens.
        cached: Tokens of the prompt that are in a cache of prefixes: they fill blocks and take no time. Not all of it.
        begun_ps, first_ps, last_ps: When its first iteration began, its first token was there, and its newest one.
        tokens: Of output, so far.
        preemptions: How often it was evicted.
        computed, held, step: Tokens in the KV cache, blocks that it holds, and tokens of the iteration under way.
        order: Of its admission; `NOT`: it does not run.
        joined: At which step it joined those who decode; `NOT`: it is not among them.
        is_over: Whether it has left.
    """

    key: int
    prompt: int
    output: int
    cached: int = 0
    begun_ps: int | None = None
    first_ps: int | None = None
    last_ps: int = 0
    tokens: int = 0
    preemptions: int = 0
    computed: int = 0
    held: int = 0
    step: int = 0
    order: int = NOT
    joined: int = NOT
    is_over: bool = False


class Decoders:
    """Sequences that decode, all in step.

    Attributes:
        count: How many there are.
        context: Their tokens, prompt and output, together.
        newest_ps: When they had their newest token, those apart of whom `stale` knows better.
        stale: How many had it at another time.
    """

    def __init__(self, block_size: int, grows: bool) -> None:
        """`grows`: whether one takes its blocks as it goes; else it has them all from the beginning."""
        self.count = self.context = self.newest_ps = 0
        self.stale: dict[int, int] = {}
        self._block_size, self._grows = block_size, grows
        self._step = 0
        self._ends: list[tuple[int, int, EngineSequence]] = []
        """(step, admission, who) of those who finish, and of some who have parted since."""
        self._phases: dict[int, int] = {}
        """How many enter a new block in the steps that are so many before a multiple of the block size."""

    @property
    def since(self) -> list[tuple[int, int]]:
        """(when, how many had their newest token then)."""
        if not self.stale:
            return [(self.newest_ps, self.count)]
        left = self.count - sum(self.stale.values())
        return [*self.stale.items(), *([(self.newest_ps, left)] if left else [])]

    def join(self, one: EngineSequence) -> None:
        """It decodes from the next iteration on."""
        if not self.count:
            self.newest_ps = one.last_ps
        elif one.last_ps != self.newest_ps:
            self.stale[one.last_ps] = self.stale.get(one.last_ps, 0) + 1
        one.joined = step = self._step
        self.count += 1
        self.context += one.prompt + one.tokens
        if self._grows:
            phase = (one.computed - step) % self._block_size
            self._phases[phase] = self._phases.get(phase, 0) + 1
        heappush(self._ends, (step + one.output - one.tokens, one.order, one))

    def part(self, one: EngineSequence) -> None:
        """It decodes no more, or is to be looked at: its own counts are brought up to date."""
        since = self._step - one.joined
        one.joined = NOT
        one.tokens += since
        one.computed += since
        self.count -= 1
        self.context -= one.prompt + one.tokens
        if since:
            one.last_ps = self.newest_ps
        elif one.last_ps != self.newest_ps:
            _take(self.stale, one.last_ps)
        if self._grows:
            one.held = -(-one.computed // self._block_size)
            _take(self._phases, (one.computed - self._step) % self._block_size)

    def advance(self, steps: int, ended_ps: int) -> list[EngineSequence]:
        """Each has so many tokens more, the last one since a time; who has all of them now, by admission, has parted."""
        self._step = step = self._step + steps
        self.context += steps * self.count
        self.newest_ps = ended_ps
        if self.stale:
            self.stale = {}
        ends, found = self._ends, list[EngineSequence]()
        while ends and ends[0][0] <= step:
            _, order, one = heappop(ends)
            if one.order == order and one.joined != NOT:
                self.part(one)
                found.append(one)
        return found

    def steps_left(self) -> int:
        """Steps until the first of them has all its tokens."""
        ends = self._ends
        while ends[0][2].order != ends[0][1] or ends[0][2].joined == NOT:
            heappop(ends)
        return ends[0][0] - self._step

    def growth(self, steps: int) -> int:
        """Blocks that so many steps take."""
        if not self._grows:
            return 0
        size, step = self._block_size, self._step
        if steps == 1:
            return self._phases.get(-step % size, 0)
        blocks, rest = steps // size * self.count, steps % size
        if rest:
            for phase, count in self._phases.items():
                if -(phase + step) % size < rest:
                    blocks += count
        return blocks

    def steps_within(self, blocks: int) -> int:
        """Most steps that take no more than so many blocks, which are not enough for ever."""
        cycles, rest = divmod(blocks, self.count)
        entries = sorted((-(phase + self._step) % self._block_size, count) for phase, count in self._phases.items())
        for at, count in entries:
            rest -= count
            if rest < 0:
                return cycles * self._block_size + at
        raise AssertionError("whole cycles take a block each")


def _take(counts: dict[int, int], key: int) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
