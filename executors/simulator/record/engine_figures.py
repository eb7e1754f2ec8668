"""The figures of a deployment whose replicas serve by an engine; times are those of requests that were done."""

import math
from collections.abc import Sequence

import attrs

from executors.simulator.engines.gaps import TokenGaps
from executors.simulator.load.engine_queue import EngineQueue
from executors.simulator.record.percentiles import Percentiles, percentiles_of_all


@attrs.frozen(kw_only=True)
class TimesOfTokens:
    """Mean and percentiles of some seconds; None where there were none. Interpolated between neighbours."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "TimesOfTokens":
        """Of values in any order."""
        if not values:
            return cls(mean=None, p50=None, p95=None, p99=None)
        ordered = sorted(values)
        mean = math.fsum(ordered) / len(ordered)
        return cls(mean=mean, p50=_quantile(ordered, 0.5), p95=_quantile(ordered, 0.95), p99=_quantile(ordered, 0.99))

    @classmethod
    def of_gaps(cls, gaps: TokenGaps) -> "TimesOfTokens":
        """Of gaps between tokens, within a thousandth."""
        p50, p95, p99 = (gaps.quantile_s(share) for share in (0.5, 0.95, 0.99))
        return cls(mean=gaps.mean_s, p50=p50, p95=p95, p99=p99)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@attrs.frozen(kw_only=True)
class EngineFigures:
    """What engines did, and what requests felt of it.

    Attributes:
        ttft_s: From the arrival at the router to the first token.
        tpot_s: (e2e - TTFT) / (output - 1) of each request; those of one token have none.
        ttft_of_all_s, tpot_of_all_s: The same of all that arrived, those of one token apart in the second: who was not done
            takes for ever. Objectives are for these.
        e2e_s: From the arrival to the end.
        scheduling_delay_s: From the arrival to the first iteration that computes some of it.
        itl_s: Every gap between two tokens of a request, all of them together: with stalls that `tpot_s` averages away.
        attainment: Share of the requests that arrived which were done and met `request_slo`; None: none arrived.
        goodput_rps: How many of these there were in a second, from the first arrival to the end of the run.
        output_tokens_per_s: Of requests that were done, in the same time.
        too_long: Requests that were turned away, as no replica could hold them.
        batch_mean: Sequences that decoded, on the average of iterations; None: there was none.
        kv_mean: The share of a KV cache in use, or reserved, on the average of the time of iterations; None: there was none.
        kv_peak: The highest share of a KV cache in use, or reserved.
        preemptions: How often a sequence lost its KV cache to an older one, and was computed again.
        extrapolated: Share of the time of iterations that had more sequences or prompt tokens than any measured point.
        utilisation: Share of the time of replicas, from start-up to end, in which an iteration ran.
    """

    ttft_s: TimesOfTokens
    tpot_s: TimesOfTokens
    ttft_of_all_s: Percentiles
    tpot_of_all_s: Percentiles
    e2e_s: TimesOfTokens
    scheduling_delay_s: TimesOfTokens
    itl_s: TimesOfTokens
    attainment: float | None
    goodput_rps: float
    output_tokens_per_s: float
    too_long: int
    batch_mean: float | None
    kv_mean: float | None
    kv_peak: float
    preemptions: int
    utilisation: float
    extrapolated: float


def engine_figures(queue: object, end: float) -> EngineFigures | None:
    """Sum up a finished run; None: there is no engine."""
    if not isinstance(queue, EngineQueue):
        return None
    told, counts, at_s = queue.told, queue.counts, queue.arrivals.at_s
    lasts_s = end - at_s[0] if counts.arrived else 0.0
    per_s = 1 / lasts_s if lasts_s > 0 else 0.0
    not_done = counts.arrived - counts.done
    return EngineFigures(
        ttft_s=TimesOfTokens.of(told.ttft_s),
        tpot_s=TimesOfTokens.of(told.tpot_s),
        ttft_of_all_s=percentiles_of_all(told.ttft_s, failed=not_done),
        tpot_of_all_s=percentiles_of_all(told.tpot_s, failed=not_done),
        e2e_s=TimesOfTokens.of(counts.latencies_s),
        scheduling_delay_s=TimesOfTokens.of(told.delays_s),
        itl_s=TimesOfTokens.of_gaps(told.gaps),
        attainment=told.good / counts.arrived if counts.arrived else None,
        goodput_rps=told.good * per_s,
        output_tokens_per_s=told.output_tokens * per_s,
        too_long=told.too_long,
        batch_mean=told.decoded / told.iterations if told.iterations else None,
        kv_mean=told.kv_share_ps / told.busy_ps if told.busy_ps else None,
        kv_peak=told.kv_peak,
        preemptions=told.preemptions,
        extrapolated=told.extrapolated_ps / told.busy_ps if told.busy_ps else 0.0,
        utilisation=told.busy_ps / told.lived_ps if told.lived_ps else 0.0,
    )
