"""Percentiles that say of what: the one place that computes them.

What: a percentile of the requests that were answered hides those that were not: the more of them are lost, the better it looks,
and a run that is cut off in the middle of a jam has seen only those that got through. Therefore a percentile is of *all* that
have come. What is lost, turned away or expired takes for ever (`never`). What has no answer yet takes at least as long as it
has taken so far, and perhaps for ever: with the one value for each of these, then with the other, every percentile is computed
twice. Where both agree it is known. Otherwise the lower of them is what it is at least.

Why this is right: no request becomes faster by waiting for its end. Its value in the end lies between the two, and a percentile
grows with every value that it is of. So a known percentile is that of the same requests in the run that goes on, and a bound
holds there (promise W14).

What it costs: one sort of the answered, and one of those without an answer.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs

Known: TypeAlias = "float | Literal['never'] | None"
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@attrs.frozen(kw_only=True)
class Finished:
    """Percentiles of those that were answered alone; None: there were none."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


@attrs.frozen(kw_only=True)
class Percentiles:
    """Of some seconds, interpolated between neighbours.

    Attributes:
        of: Of what: "all" that came, or those that "finished".
        n: How many that are.
        censored: Of these, those without an answer when the run ended.
        failed: Of these, those that were lost or turned away, or expired: they take for ever.
        p50, p95, p99: None: it is not known, or is never, or nobody came.
        p50_at_least, p95_at_least, p99_at_least: What it is at least, where it is not known; "never": for ever.
        finished: The same of those that finished, where others did not; None: all did.
    """

    of: Literal["all", "finished"]
    n: int
    censored: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None
    p50_at_least: Known
    p95_at_least: Known
    p99_at_least: Known
    finished: Finished | None


def percentiles_of_all(done: Sequence[float], so_far: Sequence[float] = (), failed: int = 0) -> Percentiles:
    """Of all that came, in any order: what those took that are done, and the others so far, and how many never will be."""
    ordered = sorted(done)
    least, most = [*ordered, *so_far], [*ordered, *[math.inf] * (len(so_far) + failed)]
    least.sort()
    least += [math.inf] * failed
    found: dict[str, Any] = {}
    for name, share in SHARES.items():
        low, high = quantile(least, share), quantile(most, share)
        is_known = low == high and low != math.inf
        found[name] = low if is_known else None
        found[f"{name}_at_least"] = None if is_known else "never" if low == math.inf else low
    finished = Finished(n=len(ordered), **{name: quantile(ordered, share) for name, share in SHARES.items()})
    return Percentiles(
        of="all",
        n=len(most),
        censored=len(so_far),
        failed=failed,
        **found,
        finished=finished if len(most) > len(ordered) else None,
    )


def percentiles_of_finished(values: Sequence[float]) -> Percentiles:
    """Of those alone that have come to an end, in any order."""
    return attrs.evolve(percentiles_of_all(values), of="finished")


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Of ascending values, the last of which may be infinite; None: there are none."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = int(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low if low == high or place == below else low + (high - low) * (place - below)


def shown(values: Percentiles, name: str, digits: int = 2) -> str:
    """One of them in words, without its unit.

    `1.25`; `> 78.90` where it is at least that, `unknown` where that says nothing; `never`; `-`: nobody came.
    """
    known, at_least = getattr(values, name), getattr(values, f"{name}_at_least")
    if known is not None:
        return f"{known:,.{digits}f}"
    if at_least is None or at_least == "never":
        return at_least or "-"
    bound = math.floor(at_least * 10**digits) / 10**digits
    return f"> {bound:,.{digits}f}" if bound else "unknown"
