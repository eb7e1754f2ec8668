"""The figures of a deployment as one flat table of numbers, to be averaged, compared and written into columns."""

from typing import Any, TypeAlias

import attrs

from executors.simulator.record.figures import DeploymentFigures
from executors.simulator.record.percentiles import SHARES, Percentiles
from executors.simulator.record.timeline import Gap
from executors.simulator.scenario.objectives import WINDOWS

Numbers: TypeAlias = dict[str, float | None]
"""Figures by key path, such as `requests.wait_s.p95`; None where a run has none, as too few requests were done."""

NOT_COMPARED = ("name", "status", "world_size", "world_size_most")

LABELS = {
    "ranks_without_room": "ranks that never fitted",
    "ranks_moved": "ranks moved",
    "other_ranks_moved": "node or local ranks moved",
    "reconfigures": "reconfigures",
    "reconfigures_sent": "reconfigures sent",
    "rank_gap_s": "time with a gap in the ranks",
    "incomplete_s": "time with a rank missing",
    "least_running": "fewest running at once",
    "below_floor_s": "time below N - U",
    "update_s": "time of updates",
    "longest_gap_s": "longest gap of a rank",
    "unserved_rank_s": "rank-seconds unserved",
    "unserved_at_first_rank_s": "rank-seconds before ranks first ran",
    "start_failures": "failed starts",
    "replica_starts": "replica starts",
    "replica_crashes": "replica crashes",
    "replicas_unready": "replicas unready",
    "controller_messages_refused": "messages of a replaced controller",
    "gpu_hours": "GPU-hours",
    "scaling.scale_events": "scale events",
    "scaling.replica_hours": "replica-hours",
    "requests.arrived": "requests arrived",
    "requests.done": "requests done",
    "requests.waited_over_1_s": "requests that waited over 1 s",
    "requests.failed": "requests failed",
    "requests.rejected": "requests rejected",
    "requests.lost": "requests lost",
    "requests.expired": "requests expired",
    "requests.retried": "requests retried",
    "requests.unfinished": "requests unfinished",
    "requests.not_done": "requests not done",
    **{f"engine.{name}_of_all_s.{share}": f"{name} {share} of all" for name in ("ttft", "tpot") for share in SHARES},
    "engine.attainment": "share that met request_slo",
    "engine.goodput_rps": "requests/s that met request_slo",
    "engine.output_tokens_per_s": "output tokens/s",
    "engine.too_long": "requests too long for any replica",
    "engine.batch_mean": "batch, on average",
    "engine.kv_mean": "share of the KV cache in use, on average",
    "engine.kv_peak": "share of the KV cache in use at most",
    "engine.preemptions": "preemptions",
    "engine.extrapolated": "share of their time beyond measured points",
    "engine.utilisation": "share of time that engines were busy",
    "cost.cost_usd": "cost",
    "cost.cost_per_mtok_output": "cost of a million output tokens",
    "cost.cost_per_mtok_total": "cost of a million tokens",
    "cost.cost_per_mtok_good": "cost of a million output tokens that met request_slo",
    "healthy": "healthy at the end",
    "memory.gpu_gb": "GPU memory of all nodes",
    "memory.gpu_used": "share of GPU memory used",
    "memory.gpu_used_most": "the highest share used",
    "memory.gpu_fragmented": "share of GPU memory fragmented",
    "memory.gpu_fragmented_most": "the highest share fragmented",
    "memory.cpu_gb": "CPU caches of all nodes",
    "memory.cpu_used": "share of CPU caches used",
    "misses.count": "misses",
    "misses.answered": "misses that were answered",
    "moves.loads_from_disk": "loads from disk",
    "moves.loads_from_cpu": "loads from CPU cache",
    "moves.load_failures": "failed loads",
    "moves.displaced": "replicas displaced",
    "moves.evicted": "replicas evicted, or idle",
    "moves.cant_accommodate": "times that one fitted nowhere",
    "moves.from_disk_gb": "moved from disk",
    "moves.from_cpu_gb": "moved from CPU cache",
    "moves.to_cpu_gb": "moved to CPU cache",
    "moves.moved_gb": "moved in all",
    "hot_s": "time HOT",
    "warm_s": "time WARM",
    "cold_s": "time COLD",
}


def flatten(figures: DeploymentFigures) -> Numbers:
    """All numbers among the figures, in their order."""
    found: Numbers = {"healthy": float(figures.status == "HEALTHY")}
    _walk(figures, "", found)
    return found


def flatten_any(figures: Any) -> Numbers:
    """All numbers among figures of any class."""
    found: Numbers = {}
    _walk(figures, "", found)
    return found


def _walk(value: Any, prefix: str, found: Numbers) -> None:
    for field in attrs.fields(type(value)):
        inner = getattr(value, field.name)
        key = prefix + field.name
        if key in NOT_COMPARED:
            continue
        if key == "longest_gap":
            found["longest_gap_s"] = inner.length_s if isinstance(inner, Gap) else 0.0
        elif key in ("scaling", "engine", "cost") and inner is None:
            continue
        elif isinstance(inner, Percentiles):
            found.update({f"{key}.{name}": getattr(inner, name) for name in SHARES})
        elif inner is None or (isinstance(inner, (int, float)) and not isinstance(inner, bool)):
            found[key] = None if inner is None else float(inner)
        elif attrs.has(type(inner)):
            _walk(inner, f"{key}.", found)


PERCENTILES_OF = {"misses": " of answered", "engine": " of done"}
"""Of what percentiles are that are not of all requests, by the part of a key before the first dot."""


def label(key: str) -> str:
    """A figure's name for people: `wait p95 of all`."""
    if key.startswith(WINDOWS):
        return f"share of windows that held {key.removeprefix(WINDOWS)}"
    plain = key.removeprefix("requests.").removeprefix("misses.").removeprefix("engine.")
    of = PERCENTILES_OF.get(key.partition(".")[0], " of all") if is_percentile(key) else ""
    return LABELS.get(key) or plain.replace("_s.", " ").replace(".", " ").replace("_", " ") + of


def is_percentile(key: str) -> bool:
    """Whether it is one; None says of it that it is never, or was not known when the run ended, or that nobody came."""
    return key.rpartition(".")[2] in SHARES


def unit(key: str) -> str:
    """What it is counted in; empty: in pieces."""
    if key.startswith("cost."):
        return "USD"
    if key.startswith(WINDOWS):
        return ""
    if key.endswith("_hours"):
        return "h"
    if key.endswith("_gb"):
        return "GB"
    return "s" if any(part.endswith("_s") for part in key.split(".")) and "over_1_s" not in key and "per_s" not in key else ""


def quantity(key: str, value: float | None, *, signed: bool = False) -> str:
    """A value of a figure in words, with its unit; `-` where there is none."""
    if value is None:
        return "-"
    return f"{number(value, signed=signed)} {unit(key)}".rstrip()


def number(value: float, *, signed: bool = False) -> str:
    """A number of any size in few characters: three digits that count, or all before the point."""
    sign = "+" if signed and value > 0 else ""
    size = abs(value)
    if size == int(size) and size < 1e15:
        return f"{sign}{int(value):,}"
    return sign + (f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 2}f}" if size >= 1 else f"{value:.3g}")
