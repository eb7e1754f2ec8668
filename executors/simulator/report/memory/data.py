"""What the memory page's script draws from: a run as JSON, bounded in size, with what was left out counted.

Times are whole milliseconds, sizes whole megabytes. The layout is that of `assets/memory_model.js`, which reads it.
"""

from collections.abc import Sequence

from executors.simulator.cluster.outages import CONTROLLER_DOWN
from executors.simulator.record.series import Bucket
from executors.simulator.report.data import (
    BUCKETS_MAX,
    OUTAGES_MAX,
    Json,
    longest_of,
    milliseconds,
    row_cells,
    series_columns,
    short_id,
)
from executors.simulator.report.happened import HAPPENINGS_MAX, HappenedRow
from executors.simulator.residency.notebook import Noted
from executors.simulator.residency.record import CPU, Span, SpanPhase
from executors.simulator.residency.run import ResidencyResult
from executors.simulator.scenario.entries import shown
from executors.simulator.scenario.weights import GB
from rankcore.notes import RankNote
from rankcore.residency import ResidencyNote

SPANS_MAX = 80_000
COLOURS = 6
PHASES = tuple(SpanPhase)
MB = 10**6


def memory_data(result: ResidencyResult) -> Json:
    """All that the script knows."""
    names = [figures.name for figures in result.deployments]
    spans, spans_left_out = longest_of(result.spans, SPANS_MAX)
    outages, outages_left_out = longest_of(result.outages, OUTAGES_MAX)
    nodes = {shape.node_id: index for index, shape in enumerate(result.nodes)}
    rows, rows_left_out = rows_of_memory(result)
    workers = {span.worker_id: span.deployment for span in spans}
    colours = colours_of(result)
    places = {worker_id: index for index, worker_id in enumerate(workers)}
    series = {
        "used": _gigabytes(result.series.used),
        "fragmented": _gigabytes(result.series.fragmented),
        "cached": _gigabytes(result.series.cached),
        "waiting": result.series.waiting,
        "first_answer": result.series.first_answer_s,
    }
    return {
        "version": 1,
        "end": milliseconds(result.ended_at),
        "busiest": None if result.busiest_minute_at is None else milliseconds(result.busiest_minute_at),
        "deployments": [{"name": name, "colour": colours[name]} for name in names],
        "phases": [str(phase) for phase in PHASES],
        "nodes": [
            [shape.node_id, shape.kind, [size // MB for size in shape.gpu_bytes], shape.cpu_bytes // MB]
            for shape in result.nodes
        ],
        "outages": [
            [-1 if each.kind == CONTROLLER_DOWN else nodes[each.subject], milliseconds(each.since), milliseconds(each.until)]
            for each in outages
        ],
        "replicas": [[short_id(worker_id, deployment), names.index(deployment)] for worker_id, deployment in workers.items()],
        "spans": _spans(result, spans, places, nodes),
        "series": {name: series_columns(buckets, BUCKETS_MAX // 5) for name, buckets in series.items()},
        "rows": [row_cells(row, names) for row in rows],
        "left_out": {"rows": rows_left_out, "spans": spans_left_out, "outages": outages_left_out},
    }


def colours_of(result: ResidencyResult) -> dict[str, int]:
    """One of six for each model, so that those that lie side by side for long differ if possible.

    The models that held most come first; each takes the colour of which there is least on the GPUs where it was, weighed by
    how long both were there.
    """
    held: dict[str, dict[tuple[str, int], float]] = {figures.name: {} for figures in result.deployments}
    for span in result.spans:
        lanes = held[span.deployment]
        lanes[span.node_id, span.gpu] = lanes.get((span.node_id, span.gpu), 0.0) + (span.until - span.since)
    found: dict[str, int] = {}
    taken: list[dict[tuple[str, int], float]] = [{} for _ in range(COLOURS)]
    order = sorted(held, key=lambda name: (-sum(held[name].values()), name))
    for place, name in enumerate(order):
        clashes = [sum(min(seconds, colour.get(lane, 0.0)) for lane, seconds in held[name].items()) for colour in taken]
        first = place % COLOURS
        found[name] = min(range(COLOURS), key=lambda colour: (clashes[colour], (colour - first) % COLOURS))
        for lane, seconds in held[name].items():
            taken[found[name]][lane] = taken[found[name]].get(lane, 0.0) + seconds
    return found


def rows_of_memory(result: ResidencyResult) -> tuple[list[HappenedRow], int]:
    """What happened, and what the planner decided, by time; and how many there are no lines for."""
    half = HAPPENINGS_MAX // 2
    told = result.happenings
    shown = told if len(told) <= HAPPENINGS_MAX else told[:half] + told[-half:]
    rows = [HappenedRow(each.at, each.until, each.kind, None, each.kind, each.node or "", "", each.text, "") for each in shown]
    rows += [_of_note(each) for each in result.decisions]
    return sorted(rows, key=lambda row: row.at), len(told) - len(shown) + result.decisions_left_out


def _of_note(noted: Noted) -> HappenedRow:
    note = noted.note
    node_id = note.node_id if isinstance(note, ResidencyNote) else None
    whom = note.replica_id if isinstance(note, ResidencyNote | RankNote) else None
    return HappenedRow(
        at=noted.at,
        until=None,
        group="decision" if noted.is_eventful else "routine",
        deployment=noted.deployment,
        what=str(note.kind),
        whom=shown(whom or noted.deployment or node_id or ""),
        ranks="",
        text=note.because + (f" (on {node_id})" if node_id and node_id not in note.because else ""),
        rule=note.rule,
    )


def _spans(
    result: ResidencyResult, spans: Sequence[Span], places: dict[str, int], nodes: dict[str, int]
) -> list[list[list[int]]]:
    """Of each GPU of each node, and last of its CPU cache: since when, how long, which replica, how many MB, which phase."""
    found: list[list[list[int]]] = [[[] for _ in range(len(shape.gpu_bytes) + 1)] for shape in result.nodes]
    for span in spans:
        lane = found[nodes[span.node_id]][len(found[nodes[span.node_id]]) - 1 if span.gpu == CPU else span.gpu]
        since, until = milliseconds(span.since), milliseconds(span.until)
        lane += (since, until - since, places[span.worker_id], span.size_bytes // MB, PHASES.index(span.phase))
    return found


def _gigabytes(buckets: Sequence[Bucket]) -> list[Bucket]:
    return [Bucket(each.since, each.until, each.low / GB, each.mean / GB, each.high / GB, each.count) for each in buckets]
