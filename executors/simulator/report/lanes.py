"""The timeline of ranks as SVG: one lane per rank, coloured by the replica that holds it, gaps and faults marked."""

from collections.abc import Sequence
from html import escape

import attrs

from executors.simulator.happenings import Happening
from executors.simulator.report.words import duration, moment
from executors.simulator.timeline import Gap, Hold

WIDTH = 1120
LEFT = 64
RIGHT = 16
MARKS_HEIGHT = 56
AXIS_HEIGHT = 34
GOLDEN_ANGLE = 137.508
"""Steps of this around the colour circle keep any few neighbours far apart."""

TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800, 2592000)


@attrs.frozen
class Mark:
    """A happening with the number that it has in the list."""

    number: int
    happening: Happening


@attrs.frozen
class Frame:
    """Where things are in the picture."""

    end: float
    lanes: int

    @property
    def lane_height(self) -> float:
        """Tall enough to read where there are few ranks, and never so small that a lane vanishes."""
        return max(3.0, min(22.0, 760.0 / max(1, self.lanes)))

    @property
    def bottom(self) -> float:
        """Where the lanes end."""
        return MARKS_HEIGHT + self.lanes * self.lane_height

    def x(self, at: float) -> float:
        """Of a time."""
        return LEFT + (WIDTH - LEFT - RIGHT) * at / self.end

    def y(self, rank: int) -> float:
        """Of the top of a lane."""
        return MARKS_HEIGHT + rank * self.lane_height


def render_lanes(
    holds: Sequence[Hold],
    gaps: Sequence[Gap],
    world_sizes: Sequence[tuple[float, int]],
    marks: Sequence[Mark],
    end: float,
) -> str:
    """The picture of one deployment."""
    highest = max((hold.rank for hold in holds), default=-1)
    lanes = max([highest + 1, *(world_size for _, world_size in world_sizes)], default=1)
    frame = Frame(max(end, 1e-9), max(1, lanes))
    height = frame.bottom + AXIS_HEIGHT
    parts = [
        f'<svg class="lanes" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="Timeline of ranks">',
        *_backgrounds(frame, world_sizes),
        *_axis(frame),
        *_outages(frame, marks),
        *_holds(frame, holds),
        *_gaps(frame, gaps),
        *_labels(frame),
        *_marks(frame, marks),
        "</svg>",
    ]
    return "\n".join(parts)


def _rect(frame: Frame, css: str, since: float, until: float, top: float, height: float, rest: str = "") -> str:
    x = frame.x(since)
    return (
        f'<rect class="{css}" x="{x:.2f}" y="{top:.2f}" width="{max(0.6, frame.x(until) - x):.2f}" height="{height:.2f}"{rest}'
    )


def _backgrounds(frame: Frame, world_sizes: Sequence[tuple[float, int]]) -> list[str]:
    """The ranks that are wanted, from one change of the world size to the next."""
    ends = [since for since, _ in world_sizes[1:]] + [frame.end]
    return [
        _rect(frame, "wanted", since, until, MARKS_HEIGHT, world_size * frame.lane_height, "/>")
        for (since, world_size), until in zip(world_sizes, ends, strict=True)
        if world_size
    ]


def _axis(frame: Frame) -> list[str]:
    step = next((tick for tick in TICKS_S if frame.end / tick <= 12), TICKS_S[-1])
    parts = []
    for index in range(min(400, int(frame.end // step) + 1)):
        x = frame.x(index * step)
        parts.append(f'<line class="grid" x1="{x:.2f}" x2="{x:.2f}" y1="{MARKS_HEIGHT}" y2="{frame.bottom:.2f}"/>')
        parts.append(f'<text class="tick" x="{x:.2f}" y="{frame.bottom + 16:.2f}">{moment(index * step)}</text>')
    parts.append(f'<text class="caption" x="{WIDTH - RIGHT}" y="{frame.bottom + 30:.2f}">time of the run, h:mm:ss</text>')
    return parts


def _outages(frame: Frame, marks: Sequence[Mark]) -> list[str]:
    return [
        _rect(frame, "outage", mark.happening.at, mark.happening.until, MARKS_HEIGHT, frame.bottom - MARKS_HEIGHT)
        + "><title>no controller</title></rect>"
        for mark in marks
        if mark.happening.until is not None
    ]


def _holds(frame: Frame, holds: Sequence[Hold]) -> list[str]:
    hues: dict[str, float] = {}
    parts = []
    inset = 1.0 if frame.lane_height >= 8 else 0.25
    for hold in holds:
        hue = hues.setdefault(hold.replica_id, len(hues) * GOLDEN_ANGLE % 360)
        what = "running" if hold.running else "starting or draining"
        when = f"{moment(hold.since)} to {moment(hold.until)}, {duration(hold.until - hold.since)}"
        title = f"rank {hold.rank}: {hold.replica_id} on {hold.node_id}, {what}, {when}"
        top, height = frame.y(hold.rank) + inset, frame.lane_height - 2 * inset
        css = "hold" if hold.running else "hold waiting"
        style = f' style="--hue:{hue:.0f}"><title>{escape(title)}</title></rect>'
        parts.append(_rect(frame, css, hold.since, hold.until, top, height, style))
        label = f"{hold.replica_id.rpartition('#')[2]} on {hold.node_id}"
        if hold.running and height >= 12 and frame.x(hold.until) - frame.x(hold.since) > 7.0 * len(label) + 12:
            x, y = frame.x(hold.since) + 6, top + height / 2 + 4
            parts.append(f'<text class="holder" x="{x:.2f}" y="{y:.2f}">{escape(label)}</text>')
    return parts


def _gaps(frame: Frame, gaps: Sequence[Gap]) -> list[str]:
    parts = []
    for gap in gaps:
        title = f"rank {gap.rank} without a running replica for {duration(gap.length_s)}, from {moment(gap.since)}"
        top, height = frame.y(gap.rank) + 0.5, frame.lane_height - 1
        parts.append(_rect(frame, "gap", gap.since, gap.until, top, height, f"><title>{title}</title></rect>"))
    return parts


def _labels(frame: Frame) -> list[str]:
    every = max(1, round(11 / frame.lane_height + 0.49))
    parts = [f'<text class="caption" x="{LEFT - 8}" y="{MARKS_HEIGHT - 8}">rank</text>']
    for rank in range(0, frame.lanes, every):
        y = frame.y(rank) + frame.lane_height / 2 + 4
        parts.append(f'<text class="rank" x="{LEFT - 8}" y="{y:.2f}">{rank}</text>')
    return parts


def _marks(frame: Frame, marks: Sequence[Mark]) -> list[str]:
    """Numbered pins, on the highest of three levels on which they do not cover the one before."""
    parts = []
    free_from = [0.0, 0.0, 0.0]
    for mark in marks:
        happening = mark.happening
        x = frame.x(happening.at)
        level = next((index for index, free in enumerate(free_from) if x >= free), 2)
        free_from[level] = x + 20
        y = 11 + 16 * level
        parts.append(
            f'<g class="mark {escape(happening.kind)}"><title>{moment(happening.at)} {escape(happening.text)}</title>'
            f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{y}" y2="{frame.bottom:.2f}"/><circle cx="{x:.2f}" cy="{y}" r="8"/>'
            f'<text x="{x:.2f}" y="{y + 3.5}">{mark.number}</text></g>'
        )
    return parts
