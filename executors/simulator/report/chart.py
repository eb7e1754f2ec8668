"""One small chart as an SVG: means with their intervals over a few named places, some lines of them."""

import math
from collections.abc import Sequence
from html import escape

import attrs

from executors.simulator.questions.statistics import Estimate

WIDTH, HEIGHT = 320, 188
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 30
LABEL_MAX = 14


@attrs.frozen
class Point:
    """A mean and its interval, at one of the chart's places; of one value there is no interval."""

    place: int
    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, place: int, found: Estimate) -> "Point | None":
        """None: there was no value."""
        if found.mean is None:
            return None
        if found.low is None or found.high is None:
            return cls(place, found.mean, found.mean, found.mean, found.count)
        return cls(place, found.mean, found.low, found.high, found.count)


@attrs.frozen
class Chart:
    """What to draw.

    Attributes:
        labels: Of the places, from left to right.
        names: Of the lines.
        lines: Points of each, from left to right.
    """

    title: str
    labels: tuple[str, ...]
    names: tuple[str, ...]
    lines: tuple[tuple[Point, ...], ...]


@attrs.frozen
class _Frame:
    """Where things are."""

    places: int
    low: float
    high: float

    def x(self, place: int) -> float:
        """The middle of a place."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / max(1, self.places)

    def y(self, value: float) -> float:
        """The height of a value, kept inside the chart."""
        share = (value - self.low) / (self.high - self.low)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - min(1.0, max(0.0, share)))


def render_chart(chart: Chart) -> str:
    """The chart; each mark tells its numbers when pointed at."""
    points = [point for line in chart.lines for point in line]
    if not points:
        return '<p class="none">no run had a value</p>'
    ticks = ticks_of(points)
    frame = _Frame(len(chart.labels), ticks[0], ticks[-1])
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">']
    for tick in ticks:
        y = frame.y(tick)
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y + 3.5:.1f}">{short(tick)}</text>')
    every = math.ceil(len(chart.labels) / 8)
    for place, label in enumerate(chart.labels):
        if place % every == 0:
            shown = label if len(label) <= LABEL_MAX else label[: LABEL_MAX - 1] + "\u2026"
            parts.append(f'<text class="place" x="{frame.x(place):.1f}" y="{HEIGHT - 10}">{escape(shown)}</text>')
    for index, line in enumerate(chart.lines):
        parts.append(_line(frame, chart, index, line))
    parts.append("</svg>")
    return "".join(parts)


def _line(frame: _Frame, chart: Chart, index: int, line: tuple[Point, ...]) -> str:
    shift = (index - (len(chart.lines) - 1) / 2) * min(7.0, 60.0 / max(1, frame.places))
    middle = " ".join(f"{frame.x(point.place) + shift:.1f},{frame.y(point.mean):.1f}" for point in line)
    parts = [f'<g class="c{index}">']
    if len(line) > 1:
        parts.append(f'<polyline points="{middle}"/>')
    for point in line:
        x = frame.x(point.place) + shift
        what = f"{chart.names[index]}, " if chart.names[index] else ""
        told = f"{what}{chart.labels[point.place]}: {short(point.mean)}"
        if point.count > 1:
            told += f", 95 % from {short(point.low)} to {short(point.high)}"
        parts.append(
            f'<g class="mark"><title>{escape(told)}, {point.count} run{"" if point.count == 1 else "s"}</title>'
            f'<line class="bar" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.y(point.high):.1f}" y2="{frame.y(point.low):.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{frame.y(point.mean):.1f}" r="3.6"/></g>'
        )
    parts.append("</g>")
    return "".join(parts)


def ticks_of(points: Sequence[Point]) -> list[float]:
    """Three to six round numbers around all intervals; from 0 where none goes below it."""
    low = min(0.0, *(point.low for point in points))
    high = max(0.0, *(point.high for point in points))
    if min(point.mean for point in points) >= 0.0:
        low = 0.0  # an interval of counts may reach below 0, the counts never do
    return even_ticks(low, high)


def even_ticks(low: float, high: float) -> list[float]:
    """Two to six round numbers, the first no higher than one value and the last no lower than the other."""
    if high <= low:
        return [low, low + 1.0]
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [step * index for index in range(first, last + 1)]


def short(value: float) -> str:
    """A number in at most three digits or so: `0`, `0.25`, `14.2`, `1,268`, `2.4M`."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
