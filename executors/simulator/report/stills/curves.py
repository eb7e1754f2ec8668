"""What was measured along a run, as curves under the lanes: requests waiting, replicas running, nodes down."""

import math
from collections.abc import Iterator, Sequence

import attrs

from executors.simulator.cluster.outages import CONTROLLER_DOWN, DOWN
from executors.simulator.record.series import Bucket
from executors.simulator.report.chart import short
from executors.simulator.report.stills.frame import LEFT, RIGHT, Drawn, Frame, digits, rect, text
from executors.simulator.run import RunResult

HEIGHT, TALL = 76.0, 170.0
COLUMN_PIXELS = 4
"""Neighbours are joined until they are this wide: still exact, and calmer to look at."""

Steps = Sequence[tuple[float, float]]
"""(since, value), ascending."""


@attrs.frozen
class Waiting:
    """How many requests of a deployment waited.

    Attributes:
        scale: Up to where the scale goes at least, so that several panels can be compared by eye.
    """

    deployment: str
    title: str = "requests waiting: mean, and the range within each stretch of time"
    scale: float = 0.0

    def draw(self, result: RunResult, frame: Frame, top: float) -> Drawn:
        """The panel, from `top` on."""
        buckets = result.series[self.deployment].waiting
        return _measured(result, frame, top, self.title, "waiting", buckets, (), self.scale)


@attrs.frozen
class Running:
    """How many replicas of a deployment were running, beside how many were wanted."""

    deployment: str
    title: str = "replicas running; dashed: the world size"

    def draw(self, result: RunResult, frame: Frame, top: float) -> Drawn:
        """The panel, from `top` on."""
        wanted = [(since, float(size)) for since, size in result.world_sizes[self.deployment]]
        return _measured(result, frame, top, self.title, "running", result.series[self.deployment].running, wanted)


@attrs.frozen
class NodesDown:
    """How many nodes were down.

    Attributes:
        spare: How many of all nodes are not needed: a dashed line, and a darker fill where more are down.
    """

    title: str
    spare: int

    def draw(self, result: RunResult, frame: Frame, top: float) -> Drawn:
        """The panel, from `top` on."""
        edges = sorted(edge for each in result.outages if each.kind == DOWN for edge in ((each.since, 1), (each.until, -1)))
        steps, count = [(0.0, 0.0)], 0
        for at, change in edges:
            count += change
            steps.append((at, float(count)))
        steps = _last_of_each(steps)
        high = max([value for _, value in steps] + [float(self.spare)])
        panel = _Panel.around(frame, top, high, TALL)
        missing = [(at, max(value, float(self.spare))) for at, value in steps]
        parts = [*panel.paper(result, self.title), *panel.area(missing, "down", self.spare), *panel.area(steps, "down")]
        return Drawn((*parts, *panel.stairs([(0.0, self.spare)], "want")), panel.bottom + 10)


def _measured(
    result: RunResult,
    frame: Frame,
    top: float,
    title: str,
    kind: str,
    buckets: Sequence[Bucket],
    wanted: Steps,
    scale: float = 0.0,
) -> Drawn:
    shown = _joined([bucket for bucket in buckets if frame.shows(bucket.since, bucket.until)], frame)
    highest = max([bucket.high for bucket in shown] + [value for _, value in wanted], default=0.0)
    panel = _Panel.around(frame, top, max(highest, scale))
    parts = [*panel.paper(result, title), *panel.band(shown, kind)]
    if wanted:
        parts += panel.stairs(wanted, "want")
    return Drawn((*parts, *frame.pin_lines(panel.top, panel.bottom)), panel.bottom + 10)


@attrs.frozen
class _Panel:
    """Where values are."""

    frame: Frame
    top: float
    high: float
    step: float
    height: float

    @classmethod
    def around(cls, frame: Frame, top: float, high: float, height: float = HEIGHT) -> "_Panel":
        """A panel in which the highest value has room, with lines at round numbers."""
        if high <= 0:
            return cls(frame, top + 20, 1.0, 1.0, height)
        rough = high / 3
        unit = 10.0 ** math.floor(math.log10(rough))
        step = max(1.0, next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999))
        return cls(frame, top + 20, math.ceil(high / step - 1e-9) * step, step, height)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def y(self, value: float) -> float:
        """The height of a value."""
        return self.top + self.height * (1.0 - value / self.high)

    def paper(self, result: RunResult, title: str) -> Iterator[str]:
        """Title, scale, and what lies behind the curves."""
        yield text(LEFT, self.top - 8, title, "head")
        for index in range(round(self.high / self.step) + 1):
            y = self.y(index * self.step)
            yield rect(LEFT, y, RIGHT - LEFT, 1, "rule")
            yield text(LEFT - 8, y + 4, short(index * self.step), anchor="end")
        yield from self.frame.rules(self.top, self.bottom)
        for each in result.outages:
            if each.kind == CONTROLLER_DOWN and self.frame.shows(each.since, each.until):
                x = self.frame.x(each.since)
                yield rect(x, self.top, max(2.0, self.frame.x(each.until) - x), self.height, "ctl")

    def band(self, buckets: Sequence[Bucket], kind: str) -> Iterator[str]:
        """A line at the means, in a band from the smallest to the largest."""
        if not buckets:
            return
        middles = [self.frame.x((bucket.since + bucket.until) / 2) for bucket in buckets]
        upper = [(x, self.y(bucket.high)) for x, bucket in zip(middles, buckets, strict=True)]
        lower = [(x, self.y(bucket.low)) for x, bucket in zip(middles, buckets, strict=True)]
        means = [(x, self.y(bucket.mean)) for x, bucket in zip(middles, buckets, strict=True)]
        if upper != lower:
            yield f'<polygon class="band {kind}" points="{_points([*upper, *reversed(lower)])}"/>'
        yield f'<polyline class="mean {kind}" points="{_points(_bends(means))}"/>'

    def area(self, steps: Steps, kind: str, down_to: float = 0.0) -> Iterator[str]:
        """Stairs, filled down to a value."""
        corners = list(self._corners(steps))
        floor = self.y(down_to)
        outline = [(corners[0][0], floor), *corners, (corners[-1][0], floor)]
        yield f'<polygon class="band {kind}" points="{_points(outline)}"/>'
        if not down_to:
            yield f'<polyline class="mean {kind}" points="{_points(corners)}"/>'

    def stairs(self, steps: Steps, kind: str) -> Iterator[str]:
        """A line that keeps each value until the next."""
        yield f'<polyline class="{kind}" points="{_points(list(self._corners(steps)))}"/>'

    def _corners(self, steps: Steps) -> Iterator[tuple[float, float]]:
        ends = [since for since, _ in steps[1:]] + [math.inf]
        for (since, value), until in zip(steps, ends, strict=True):
            if self.frame.shows(since, until):
                yield self.frame.x(since), self.y(value)
                yield self.frame.x(until), self.y(value)


def _joined(buckets: Sequence[Bucket], frame: Frame) -> list[Bucket]:
    """Neighbours together where they are too narrow to be told apart."""
    if not buckets:
        return []
    width = buckets[0].until - buckets[0].since
    wanted = (frame.until - frame.since) / (RIGHT - LEFT) * COLUMN_PIXELS
    by: float = 2.0 ** max(0, math.ceil(math.log2(wanted / width)))
    groups: dict[int, list[Bucket]] = {}
    for bucket in buckets:
        groups.setdefault(math.floor(bucket.since / (width * by) + 1e-6), []).append(bucket)
    return [
        Bucket(
            since=parts[0].since,
            until=parts[-1].until,
            low=min(part.low for part in parts),
            mean=math.fsum(part.mean * part.count for part in parts) / sum(part.count for part in parts),
            high=max(part.high for part in parts),
            count=sum(part.count for part in parts),
        )
        for parts in groups.values()
    ]


def _last_of_each(steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What several changes at one moment come to."""
    return list(dict(steps).items())


def _bends(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without those that lie on a level line between their neighbours."""
    inner = [
        here
        for before, here, after in zip(points, points[1:], points[2:], strict=False)
        if not digits(before[1]) == digits(here[1]) == digits(after[1])
    ]
    return [*points[:1], *inner, *points[len(points[:-1]) :]]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{digits(x)},{digits(y)}" for x, y in points)
