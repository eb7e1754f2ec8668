"""So many users of one replica, each of whom asks again as soon as he has his answer: what a benchmark measures.

What: all requests have the same prompt and output. Those of the first round are sent together and not counted; every user goes
on until those of the counted rounds are done.

Why it takes no step time: all that arrives does so at the end of an iteration, so who is in which iteration does not depend on
how long iterations take. What a request takes is a sum over iterations of `base + slope b + kv K + prompt p + pair a`: it is
linear in the five, and their factors are counted by one run. Its clock counts them side by side, in the digits of one integer.
"""

from typing import Any

import attrs

from executors.simulator.engines.batching import EngineBatch
from executors.simulator.engines.decoders import EngineSequence
from executors.simulator.engines.gaps import TokenGaps
from executors.simulator.engines.spec import Curve, Engine

DIGIT = 80
"""Bits of each factor: no run has so many of anything."""
FACTORS = 5
ROUNDS = 2
COUNTED_MIN = 8


@attrs.frozen
class Factors:
    """What a mean of times is made of: iterations, and sums over them.

    Attributes:
        iterations, decoding, context, prompt, pairs: Of each, on average.
    """

    iterations: float
    decoding: float
    context: float
    prompt: float
    pairs: float


@attrs.frozen
class LoopFigures:
    """Mean times of the counted requests, in factors: to the first token, between tokens, and to the end."""

    ttft: Factors
    itl: Factors
    e2e: Factors


class _Counting:
    """Stands for the time of an iteration, and counts instead."""

    kv_ps = 1 << 2 * DIGIT
    base = prompt = Curve(((0, 0),))

    def of(self, decoding: int, context: int, prompt: int, pairs: int) -> int:
        """A digit for each."""
        return 1 + (decoding << DIGIT) + (context << 2 * DIGIT) + (prompt << 3 * DIGIT) + (pairs << 4 * DIGIT)


class _NoGaps(TokenGaps):
    """Nobody asks for gaps between single tokens here."""

    def add(self, gap_ps: int, count: int = 1) -> None:
        """Forget it."""

    def after_leap(self, *_: Any) -> None:
        """Forget them."""


def closed_loop(engine: Engine, users: int, prompt: int, output: int) -> LoopFigures:
    """Let so many users ask; the step time of the engine does not matter.

    Raises:
        ValueError: The engine can't hold such a request.
    """
    if prompt + output > engine.longest:
        raise ValueError(f"{prompt} + {output} tokens are more than the {engine.longest} that a request may have")
    counting: Any = _Counting()
    batch = EngineBatch(attrs.evolve(engine, step_time=counting))
    batch.work.gaps = _NoGaps()
    counted = max(ROUNDS * users, COUNTED_MIN)
    sent_ps: list[int] = []
    sums = [0, 0, 0]
    left = counted

    def send() -> None:
        batch.add(EngineSequence(len(sent_ps), prompt, output))
        sent_ps.append(batch.now_ps)

    for _ in range(users):
        send()
    while left:
        batch.begin(batch.now_ps)
        for done in batch.end():
            if users <= done.key < users + counted:
                assert done.first_ps is not None, "who is done has a token"
                left -= 1
                sums[0] += done.first_ps - sent_ps[done.key]
                sums[1] += done.last_ps - done.first_ps
                sums[2] += done.last_ps - sent_ps[done.key]
            send()
    ttft, decode, e2e = (_factors(each, counted) for each in sums)
    return LoopFigures(ttft, _factors(sums[1], counted * max(output - 1, 1)) if output > 1 else decode, e2e)


def _factors(total: int, count: int) -> Factors:
    mask = (1 << DIGIT) - 1
    return Factors(*((total >> DIGIT * place & mask) / count for place in range(FACTORS)))
