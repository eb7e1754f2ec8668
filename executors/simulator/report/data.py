"""What the page's script draws from: a run as JSON, bounded in size, with what was left out counted.

Times are whole milliseconds. The layout is that of `assets/model.js`, which reads it.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from executors.simulator.cluster.outages import CONTROLLER_DOWN, DOWN, PARTITION
from executors.simulator.record.series import Bucket
from executors.simulator.record.timeline import Gap, Hold, Phase
from executors.simulator.report.happened import HappenedRow, rows_of
from executors.simulator.run import RunResult
from rankcore.values import ReplicaId

HOLDS_MAX = 60_000
GAPS_MAX = 20_000
OUTAGES_MAX = 20_000
BUCKETS_MAX = 20_000
"""Of all deployments together. With these a page stays under some 4 MB, whatever the run was."""

PHASES = tuple(Phase)
OUTAGE_KINDS = (DOWN, PARTITION, CONTROLLER_DOWN)

Json: TypeAlias = dict[str, Any]
T = TypeVar("T", bound="Lasting")


class Lasting(Protocol):
    """Something that began and was over."""

    @property
    def since(self) -> float:
        """Virtual seconds."""

    @property
    def until(self) -> float:
        """Virtual seconds."""


def page_data(result: RunResult, runs: int = 1) -> Json:
    """All that the script knows of a run, one of so many on its page, which share the room."""
    rows, rows_left_out = rows_of(result)
    nodes = {node_id: index for index, node_id in enumerate(result.nodes)}
    outages, outages_left_out = longest_of(result.outages, OUTAGES_MAX // runs)
    names = [figures.name for figures in result.deployments]
    return {
        "version": 1,
        "end": milliseconds(result.ended_at),
        "busiest": None if result.busiest_minute_at is None else milliseconds(result.busiest_minute_at),
        "phases": [str(phase) for phase in PHASES],
        "nodes": list(result.nodes),
        "outages": [
            [nodes.get(each.subject, -1), OUTAGE_KINDS.index(each.kind), milliseconds(each.since), milliseconds(each.until)]
            for each in outages
        ],
        "deployments": [_deployment(result, name, nodes, max(1, len(names)) * runs) for name in names],
        "rows": [row_cells(row, names) for row in rows],
        "left_out": {"rows": rows_left_out, "outages": outages_left_out},
    }


def _deployment(result: RunResult, name: str, nodes: dict[str, int], share: int) -> Json:
    holds, holds_left_out = longest_of(result.holds[name], HOLDS_MAX // share)
    gaps, gaps_left_out = longest_of(result.gaps[name], GAPS_MAX // share)
    sizes = result.world_sizes[name]
    replicas = {replica_id: index for index, replica_id in enumerate(dict.fromkeys(hold.replica_id for hold in holds))}
    places = {hold.replica_id: nodes[hold.node_id] for hold in holds if hold.node_id in nodes}
    lanes = max([size for _, size in sizes] + [hold.rank + 1 for hold in holds], default=0)
    series = result.series[name]
    most = max(16, BUCKETS_MAX // (4 * share))
    return {
        "name": name,
        "lanes": lanes,
        "sizes": [[milliseconds(since), size] for since, size in sizes],
        "replicas": [short_id(replica_id, name) for replica_id in replicas],
        "places": [places.get(replica_id, -1) for replica_id in replicas],
        "holds": _holds(holds, replicas, lanes),
        "gaps": _gaps(gaps, lanes),
        "series": {
            "running": series_columns(series.running, most),
            "waiting": series_columns(series.waiting, most),
            "wait": series_columns(series.wait_s, most),
            "latency": series_columns(series.latency_s, most),
        },
        "left_out": {"holds": holds_left_out, "gaps": gaps_left_out},
    }


def milliseconds(seconds: float) -> int:
    """Whole ones, as the script takes them."""
    return round(seconds * 1000.0)


def short_id(replica_id: ReplicaId, name: str) -> str:
    """Ids begin with the deployment's name and `#`, or `@` and a version: the script puts it before what begins so."""
    return replica_id[len(name) :] if replica_id.startswith((f"{name}#", f"{name}@")) else replica_id


def longest_of(spans: Sequence[T], most: int) -> tuple[Sequence[T], int]:
    """As many as may be drawn, the longest ones, in their order."""
    if len(spans) <= most:
        return spans, 0
    order = sorted(range(len(spans)), key=lambda index: (spans[index].since - spans[index].until, index))
    return [spans[index] for index in sorted(order[:most])], len(spans) - most


def _holds(holds: Sequence[Hold], replicas: dict[ReplicaId, int], lanes: int) -> list[list[int]]:
    """Of each rank: since when after the end of the one before, how long, which replica, which phase, and so on."""
    found: list[list[int]] = [[] for _ in range(lanes)]
    ends = [0] * lanes
    for hold in holds:
        since, until = milliseconds(hold.since), milliseconds(hold.until)
        found[hold.rank] += (since - ends[hold.rank], until - since, replicas[hold.replica_id], PHASES.index(hold.phase))
        ends[hold.rank] = until
    return found


def _gaps(gaps: Sequence[Gap], lanes: int) -> list[list[int]]:
    """Of each rank: since when after the end of the one before, how long, and so on."""
    found: list[list[int]] = [[] for _ in range(lanes)]
    ends = [0] * lanes
    for gap in gaps:
        since, until = milliseconds(gap.since), milliseconds(gap.until)
        found[gap.rank] += (since - ends[gap.rank], until - since)
        ends[gap.rank] = until
    return found


def series_columns(buckets: Sequence[Bucket], most: int) -> Json:
    """Buckets in columns; neighbours are joined until there are few enough."""
    width_s = buckets[0].until - buckets[0].since if buckets else 1.0
    while len(buckets) > most:
        width_s *= 2
        buckets = _coarser(buckets, width_s)
    return {
        "width": milliseconds(width_s),
        "at": [milliseconds(bucket.since) // milliseconds(width_s) for bucket in buckets],
        "low": [_digits(bucket.low) for bucket in buckets],
        "mean": [_digits(bucket.mean) for bucket in buckets],
        "high": [_digits(bucket.high) for bucket in buckets],
        "count": [bucket.count for bucket in buckets],
    }


def _coarser(buckets: Sequence[Bucket], width_s: float) -> list[Bucket]:
    joined: dict[int, list[Bucket]] = {}
    for bucket in buckets:
        joined.setdefault(int(bucket.since / width_s), []).append(bucket)
    return [
        Bucket(
            index * width_s,
            (index + 1) * width_s,
            min(bucket.low for bucket in parts),
            sum(bucket.mean * bucket.count for bucket in parts) / sum(bucket.count for bucket in parts),
            max(bucket.high for bucket in parts),
            sum(bucket.count for bucket in parts),
        )
        for index, parts in joined.items()
    ]


def _digits(value: float) -> float | int:
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded == int(rounded) else rounded


def row_cells(row: HappenedRow, names: Sequence[str]) -> list[Any]:
    """A line of the list; `names`: of deployments, of which it has the index."""
    deployment = names.index(row.deployment) if row.deployment in names else -1
    until = None if row.until is None else milliseconds(row.until)
    return [milliseconds(row.at), until, row.group, deployment, row.what, row.whom, row.ranks, row.text, row.rule]
