"""What an engine is: its limits, and how long one iteration takes.

Times are integer picoseconds, each measured value rounded once: sums of them are exact in any order, so that a closed form
of many iterations equals the loop over them.
"""

from bisect import bisect_right
from typing import Any

import attrs

from executors.simulator.fields import FieldProblem, choice, flag, integer, optional

PS_PER_S = 10**12
TOKENS_MAX = 10**9
SEQUENCES_MAX = 65_536
KNOWN_MAX = 8_192

_tokens = integer(1, TOKENS_MAX)
_picoseconds = integer(0, PS_PER_S)


@attrs.frozen
class Curve:
    """A piecewise linear function; beyond its knots it goes on as between the last two, and one knot is a constant.

    Attributes:
        knots: (x, picoseconds), x ascending: measured points.
    """

    knots: tuple[tuple[int, int], ...]
    _xs: tuple[int, ...] = attrs.field(init=False, repr=False, eq=False)
    _known: dict[int, int] = attrs.field(init=False, repr=False, eq=False, factory=dict)
    """What it is at small x, where that was asked for: batches come again and again."""

    @_xs.default
    def _xs_of_knots(self) -> tuple[int, ...]:
        return tuple(x for x, _ in self.knots)

    def __attrs_post_init__(self) -> None:
        xs = list(self._xs)
        if not xs or xs != sorted(set(xs)) or xs[0] < 0 or min(y for _, y in self.knots) < 0:
            raise FieldProblem(("knots",), self.knots, "one or more pairs (x, ps), none negative, x ascending")

    @property
    def measured_to(self) -> float:
        """Up to which x there are points; a constant is one everywhere."""
        return self._xs[-1] if len(self.knots) > 1 else float("inf")

    def at(self, x: int) -> int:
        """Picoseconds at x, rounded down, never negative."""
        found = self._known.get(x)
        if found is None:
            found = self._between(x)
            if x <= KNOWN_MAX:
                self._known[x] = found
        return found

    def _between(self, x: int) -> int:
        if len(self.knots) == 1:
            return self.knots[0][1]
        right = bisect_right(self._xs, x, 1, len(self.knots) - 1)
        (x0, y0), (x1, y1) = self.knots[right - 1], self.knots[right]
        return max(y0 + (y1 - y0) * (x - x0) // (x1 - x0), 0)


@attrs.frozen
class StepTime:
    """`T = base(b) + kv K + prompt(p) + pair a` of one iteration.

    Attributes:
        base: By b, the sequences that decode; at least 1 ps is taken, so that time goes on.
        prompt: By p, the prompt tokens of the iteration; without any it is 0, whatever the curve says there.
        kv_ps: Of each token of context that a decoding sequence attends to, its own included.
        pair_ps: Of each pair of a prompt token and a token it attends to.
    """

    base: Curve
    prompt: Curve
    kv_ps: int = attrs.field(default=0, validator=_picoseconds)
    pair_ps: int = attrs.field(default=0, validator=_picoseconds)

    def of(self, decoding: int, context: int, prompt: int, pairs: int) -> int:
        """Picoseconds of one iteration."""
        prefill_ps = self.prompt.at(prompt) if prompt else 0
        return max(self.base.at(decoding), 1) + self.kv_ps * context + prefill_ps + self.pair_ps * pairs

    def times(self, factor: float) -> "StepTime":
        """All of it so many times as long, each value rounded once."""
        base, prompt = (Curve(tuple((x, round(y * factor)) for x, y in each.knots)) for each in (self.base, self.prompt))
        kv_ps, pair_ps = (min(round(each * factor), PS_PER_S) for each in (self.kv_ps, self.pair_ps))
        return StepTime(base, prompt, kv_ps, pair_ps)


@attrs.frozen
class Engine:
    """Iteration-level batching of one replica, as in vLLM V1.

    Attributes:
        step_time: How long an iteration takes.
        kv_cache_tokens: Of the whole KV cache; what does not fill a block is not used.
        max_num_seqs: Sequences in a batch.
        max_num_batched_tokens: Tokens of one iteration.
        chunked_prefill: False: whole prompts, in iterations of their own, before decodes.
        block_size: Tokens of a block of the KV cache.
        kv_policy: `preempt`: the newest sequence is evicted and recomputes prompt and output so far; `reserve`: nothing is
            admitted without room for all of it.
        max_model_len: Prompt and output together; None: as many as the KV cache holds.
    """

    step_time: StepTime
    kv_cache_tokens: int = attrs.field(validator=_tokens)
    max_num_seqs: int = attrs.field(default=128, validator=integer(1, SEQUENCES_MAX))
    max_num_batched_tokens: int = attrs.field(default=2048, validator=_tokens)
    chunked_prefill: bool = attrs.field(default=True, validator=flag)
    block_size: int = attrs.field(default=16, validator=_tokens)
    kv_policy: str = attrs.field(default="preempt", validator=choice("preempt", "reserve"))
    max_model_len: int | None = attrs.field(default=None, validator=optional(_tokens))

    def __attrs_post_init__(self) -> None:
        self._least("kv_cache_tokens", self.kv_cache_tokens, self.block_size, "block_size")
        self._least("max_num_batched_tokens", self.max_num_batched_tokens, self.max_num_seqs, "max_num_seqs")
        if not self.chunked_prefill:
            self._least(
                "max_num_batched_tokens",
                self.max_num_batched_tokens,
                self.longest,
                "max_model_len, as chunked_prefill is false",
            )

    @staticmethod
    def _least(field: str, found: Any, least: int, of: str) -> None:
        if found < least:
            raise FieldProblem((field,), found, f"at least {least} ({of})")

    @property
    def blocks(self) -> int:
        """Blocks of the KV cache."""
        return self.kv_cache_tokens // self.block_size

    @property
    def longest(self) -> int:
        """Tokens of prompt and output that a request may have."""
        room = self.blocks * self.block_size
        return room if self.max_model_len is None else min(room, self.max_model_len)

    def blocks_of(self, tokens: int) -> int:
        """Blocks that so many tokens of one sequence take."""
        return -(-tokens // self.block_size)
