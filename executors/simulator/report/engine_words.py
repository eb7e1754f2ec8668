"""The figures of engines in words."""

from collections.abc import Sequence

from executors.simulator.record.engine_figures import EngineFigures, TimesOfTokens

TOO_LONG = "  too long for any replica"
EXTRAPOLATED = "  beyond measured points"
LABELS = (
    "TTFT p50 / p95 / p99",
    "  to the first iteration",
    "TPOT p50 / p95 / p99",
    "ITL p50 / p95 / p99",
    "met request_slo",
    "  goodput",
    "output tokens",
    TOO_LONG,
    "batch, on average",
    "KV cache in use, on average",
    "KV cache in use at most",
    "preemptions",
    "engines busy",
    EXTRAPOLATED,
)


def engine_rows(figures: EngineFigures | None) -> Sequence[tuple[str, str, bool]]:
    """Label, value, and whether there is anything to tell; the same labels without an engine."""
    if figures is None:
        return tuple((label, "-", False) for label in LABELS)
    values = (
        _milliseconds(figures.ttft_s),
        _milliseconds(figures.scheduling_delay_s),
        _milliseconds(figures.tpot_s),
        _milliseconds(figures.itl_s),
        "-" if figures.attainment is None else f"{figures.attainment:.1%}",
        f"{figures.goodput_rps:.2f} requests/s",
        f"{figures.output_tokens_per_s:,.0f} tokens/s",
        f"{figures.too_long:,}",
        "-" if figures.batch_mean is None else f"{figures.batch_mean:.1f}",
        "-" if figures.kv_mean is None else f"{figures.kv_mean:.1%}",
        f"{figures.kv_peak:.1%}",
        f"{figures.preemptions:,}",
        f"{figures.utilisation:.1%}",
        f"{figures.extrapolated:.1%}",
    )
    told = {TOO_LONG: figures.too_long > 0, EXTRAPOLATED: figures.extrapolated > 0}
    return tuple((label, value, told.get(label, True)) for label, value in zip(LABELS, values, strict=True))


def _milliseconds(times: TimesOfTokens) -> str:
    found = (times.p50, times.p95, times.p99)
    if times.p50 is None:
        return "no token"
    return " / ".join("-" if each is None else f"{each * 1000:,.1f}" for each in found) + " ms"
