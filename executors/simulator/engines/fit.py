"""From measurements to the step time of an engine: non-negative least squares of relative errors.

What: measured are single iterations (steps), or benchmarks: so many users in a closed loop, and what they saw on average.
Both are sums of `base(b) + kv K + prompt p` over iterations, so both are linear in what is looked for; of a benchmark the
factors are counted by running the loop (`closed_loop`). Each equation is divided by what was measured: a millisecond of an
inter-token latency weighs as much as a second of a time to first token.

How far off: MAPE, the mean of absolute relative errors, of each figure; once with all rows, and once with each row predicted
by a fit without it, on the same KV cache.

What it costs: one loop for each row and size of KV cache that is tried, and a small least squares each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from executors.simulator.engines.closed_loop import Factors, closed_loop
from executors.simulator.engines.spec import Engine

Equation: TypeAlias = tuple[tuple[float, ...], float]
"""What each unknown counts for, and what was measured, in ms."""

KNOT_ROWS_MIN = 2
GRID = 12
ROUNDS = 3
STEPS = ("step_ms",)
BENCHMARK = ("ttft_ms", "itl_ms", "tokens_per_s")


@attrs.frozen
class StepPoint:
    """A measured iteration: sequences that decode, tokens of their context, tokens of prompts, and how long it took."""

    batch: int
    context_tokens: int
    prompt_tokens: int
    step_ms: float


@attrs.frozen
class BenchmarkPoint:
    """A measured closed loop: tokens of prompt and output, users, and what they saw on average; tokens of output of all."""

    isl: int
    osl: int
    concurrency: int
    ttft_ms: float
    itl_ms: float
    tokens_per_s: float


@attrs.frozen
class FittedRow:
    """What was measured of a row, what the fit says, and what a fit without the row says."""

    measured: tuple[float, ...]
    fitted: tuple[float, ...]
    left_out: tuple[float, ...]


@attrs.frozen(kw_only=True)
class Fit:
    """A step time, and how far off it is.

    Attributes:
        figures: What was measured of each row.
        base_ms, prompt_ms: Points of curves, as tables of engines have them.
        kv_ns: Of each token of context.
        kv_cache_tokens: None: iterations say nothing of it.
    """

    figures: tuple[str, ...]
    rows: tuple[FittedRow, ...]
    base_ms: tuple[tuple[int, float], ...]
    prompt_ms: tuple[tuple[int, float], ...]
    kv_ns: float
    kv_cache_tokens: int | None = None

    @property
    def mape(self) -> dict[str, float]:
        """Of each figure, of all rows."""
        return {name: _mape((row.measured[at], row.fitted[at]) for row in self.rows) for at, name in enumerate(self.figures)}

    @property
    def left_out_mape(self) -> dict[str, float]:
        """The same of rows that the fit did not see."""
        return {name: _mape((row.measured[at], row.left_out[at]) for row in self.rows) for at, name in enumerate(self.figures)}


def _mape(pairs: Any) -> float:
    errors = [abs(fitted - measured) / measured for measured, fitted in pairs]
    return math.fsum(errors) / len(errors)


def fit_steps(points: Sequence[StepPoint]) -> Fit:
    """Of single iterations. Where each batch was measured twice or more, `base` has a point for each; else it is a line.

    Raises:
        ValueError: There are fewer rows than unknowns.
    """
    batches = sorted({each.batch for each in points})
    counts = [sum(each.batch == batch for each in points) for batch in batches]
    knots = batches if len(batches) > 1 and min(counts) >= KNOT_ROWS_MIN else []

    def factors(each: StepPoint) -> tuple[float, ...]:
        base = tuple(float(each.batch == knot) for knot in knots) or (1.0, float(each.batch))
        return (*base, float(each.context_tokens), float(each.prompt_tokens))

    equations = [[(factors(each), each.step_ms)] for each in points]
    (*base, kv_ms, prompt_ms), rows = _fitted(equations, [(each.step_ms,) for each in points], [lambda ms: ms])
    most = max(each.prompt_tokens for each in points) or 1
    line = ((0, base[0]), (max(*batches, 1), base[0] + base[1] * max(*batches, 1))) if not knots else ()
    return Fit(
        figures=STEPS,
        rows=rows,
        base_ms=line or tuple(zip(knots, base, strict=True)),
        prompt_ms=((0, 0.0), (most, prompt_ms * most)),
        kv_ns=kv_ms * 1e6,
    )


def fit_benchmark(points: Sequence[BenchmarkPoint], engine: Engine, searches: bool) -> Fit:
    """Of closed loops, with the limits of an engine; `searches`: the size of its KV cache is looked for too.

    Raises:
        ValueError: There are fewer rows than unknowns, or a request is longer than the engine takes.
    """
    known: dict[tuple[BenchmarkPoint, int], list[Equation]] = {}
    needs = {each: -(-(each.isl + each.osl) // engine.block_size) * each.concurrency for each in points}

    def equations_with(blocks: int) -> list[list[Equation]]:
        for each in points:
            key = each, min(blocks, needs[each])
            if key not in known:
                limited = attrs.evolve(engine, kv_cache_tokens=key[1] * engine.block_size)
                known[key] = _equations(each, limited)
        return [known[each, min(blocks, needs[each])] for each in points]

    blocks = engine.blocks
    if searches:
        least = max(-(-(each.isl + each.osl) // engine.block_size) for each in points)
        blocks = _best(least, max(needs.values()), lambda size: _residual(equations_with(size)))
    measured = [(each.ttft_ms, each.itl_ms, each.tokens_per_s) for each in points]
    tokens = {each: each.concurrency * each.osl * 1000 for each in points}
    (base, slope, kv_ms, prompt_ms), rows = _fitted(
        equations_with(blocks), measured, [lambda ms: ms, lambda ms: ms, lambda ms: 1 / ms]
    )
    scaled = tuple(
        FittedRow(row.measured, *((*each[:2], each[2] * tokens[point]) for each in (row.fitted, row.left_out)))
        for point, row in zip(points, rows, strict=True)
    )
    most = max(each.concurrency for each in points)
    return Fit(
        figures=BENCHMARK,
        rows=scaled,
        base_ms=((0, base), (most, base + slope * most)),
        prompt_ms=((0, 0.0), (engine.max_num_batched_tokens, prompt_ms * engine.max_num_batched_tokens)),
        kv_ns=kv_ms * 1e6,
        kv_cache_tokens=blocks * engine.block_size,
    )


def _equations(point: BenchmarkPoint, engine: Engine) -> list[Equation]:
    """One for each figure; tokens per second as the time to the end, which in a closed loop says the same."""
    found = closed_loop(engine, point.concurrency, point.isl, point.osl)
    e2e_ms = point.concurrency * point.osl / point.tokens_per_s * 1000
    return [(_four(found.ttft), point.ttft_ms), (_four(found.itl), point.itl_ms), (_four(found.e2e), e2e_ms)]


def _four(factors: Factors) -> tuple[float, ...]:
    return factors.iterations, factors.decoding, factors.context, factors.prompt


def _fitted(
    equations: Sequence[Sequence[Equation]],
    measured: Sequence[tuple[float, ...]],
    as_figures: Sequence[Callable[[float], float]],
) -> tuple[list[float], tuple[FittedRow, ...]]:
    """What is looked for, and each row with a fit of all and with one of all others."""
    unknowns = len(equations[0][0][0]) if equations else 1
    if sum(map(len, equations)) < unknowns + len(as_figures):
        raise ValueError(f"expected at least {-(-unknowns // len(as_figures)) + 1} rows, found {len(equations)}")
    found, _ = _solved(equations)
    rows = []
    for at, row in enumerate(equations):
        without, _ = _solved([*equations[:at], *equations[at + 1 :]])
        said = [
            tuple(show(_dot(each, values)) for show, (each, _) in zip(as_figures, row, strict=True))
            for values in (found, without)
        ]
        rows.append(FittedRow(measured[at], *said))
    return found, tuple(rows)


def _residual(equations: Sequence[Sequence[Equation]]) -> float:
    return _solved(equations)[1]


def _solved(equations: Sequence[Sequence[Equation]]) -> tuple[list[float], float]:
    """Unknowns, none negative, and what is left of the relative errors."""
    from scipy.optimize import nnls  # a second of import

    rows = [[each / measured for each in factors] for row in equations for factors, measured in row]
    scales = [max(abs(row[at]) for row in rows) or 1.0 for at in range(len(rows[0]))]
    values, residual = nnls(
        [[each / scale for each, scale in zip(row, scales, strict=True)] for row in rows], [1.0] * len(rows)
    )
    return [float(value) / scale for value, scale in zip(values, scales, strict=True)], float(residual)


def _dot(factors: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(factor * value for factor, value in zip(factors, values, strict=True))


def _best(least: int, most: int, residual: Callable[[int], float]) -> int:
    """The size with the smallest residual, the largest of equals: a grid in equal ratios, then finer ones round the best."""
    tried: dict[int, float] = {}
    low, high = least, most
    for _ in range(ROUNDS):
        ratio = (high / low) ** (1 / (GRID - 1))
        for place in range(GRID):
            size = min(high, round(low * ratio**place))
            if size not in tried:
                tried[size] = residual(size)
        best = min(tried, key=lambda size: (round(tried[size], 9), -size))
        order = sorted(tried)
        low, high = (order[max(0, order.index(best) - 1)], order[min(len(order) - 1, order.index(best) + 1)])
    return best


def table_of(fit: Fit, gpu_type: str, tp: int) -> Mapping[str, Any]:
    """The table of an engine, as a scenario has it."""
    return {
        "gpu_type": gpu_type,
        "tp": tp,
        "base_ms": [[x, _rounded(ms)] for x, ms in fit.base_ms],
        "prompt_ms": [[x, _rounded(ms)] for x, ms in fit.prompt_ms],
        "kv_ns": _rounded(fit.kv_ns),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
