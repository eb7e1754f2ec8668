"""A lane for each rank, coloured by the replica that holds it: the panel of the report, standing still."""

import math
from collections.abc import Iterator, Sequence

import attrs

from executors.simulator.cluster.outages import CONTROLLER_DOWN
from executors.simulator.record.timeline import SERVING, Gap, Hold, Phase
from executors.simulator.report.stills.frame import LEFT, Drawn, Frame, digits, fitting, rect, text
from executors.simulator.report.stills.palette import COLOURS
from executors.simulator.report.words import duration
from executors.simulator.run import RunResult
from rankcore.values import ReplicaId

LANES_HEIGHT = 260
LANE_MIN, LANE_MAX = 9.0, 17.0
LETTERS_FROM = 12.0
"""Lanes of this height and more have room for letters."""


@attrs.frozen
class RankLanes:
    """The panel of one deployment.

    Attributes:
        title: What stands above it; without one, the report's own words.
    """

    deployment: str
    title: str = "who held each rank; those above the black line are wanted"

    def draw(self, result: RunResult, frame: Frame, top: float) -> Drawn:
        """The panel, from `top` on."""
        return _Lanes.of(result, self.deployment, frame, top + 20).draw(text(LEFT, top + 12, self.title, "head"))


@attrs.frozen
class _Lanes:
    """One deployment in a frame."""

    frame: Frame
    top: float
    height: float
    holds: Sequence[Hold]
    gaps: Sequence[Gap]
    sizes: Sequence[tuple[float, int]]
    ranks: int
    colours: dict[ReplicaId, int]
    beside: frozenset[Hold]
    ended_at: float
    no_controller: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, result: RunResult, deployment: str, frame: Frame, top: float) -> "_Lanes":
        """What of a run is in the frame; colours are those of the whole run."""
        holds = [hold for hold in result.holds[deployment] if frame.shows(hold.since, hold.until)]
        sizes = result.world_sizes[deployment]
        before = [size for since, size in sizes if since <= frame.since][-1:]
        shown = before + [size for since, size in sizes if frame.since < since < frame.until]
        ranks = max(shown + [hold.rank + 1 for hold in holds], default=1)
        return cls(
            frame=frame,
            top=top,
            height=max(LANE_MIN, min(LANE_MAX, LANES_HEIGHT / ranks)),
            holds=holds,
            gaps=[gap for gap in result.gaps[deployment] if frame.shows(gap.since, gap.until)],
            sizes=sizes,
            ranks=ranks,
            colours=colours_of(result.holds[deployment]),
            beside=frozenset(_beside(result.holds[deployment])),
            ended_at=result.ended_at,
            no_controller=[(each.since, each.until) for each in result.outages if each.kind == CONTROLLER_DOWN],
        )

    @property
    def bottom(self) -> float:
        return self.top + self.ranks * self.height

    def draw(self, title: str) -> Drawn:
        """Lanes in the order in which they cover each other."""
        parts = [title, *self._wanted(), *self.frame.rules(self.top, self.bottom), *self._without_controller()]
        for gap in self.gaps:
            parts.extend(self._gap(gap))
        keys = {"vacant"} if self.gaps else set()
        for hold in self.holds:
            parts.extend(self._hold(hold))
            keys.add("serving" if hold.phase is Phase.RUNNING else str(hold.phase))
        for gap in self.gaps:
            parts.extend(self._gap_frame(gap))
        parts.extend(self.frame.pin_lines(self.top, self.bottom))
        return Drawn((*parts, *self._size_line(), *self._labels()), self.bottom + 10, frozenset(keys))

    def _boundary(self, size: int) -> float:
        """Where the lanes of a world size end."""
        return self.top + min(size, self.ranks) * self.height

    def _steps(self) -> Iterator[tuple[float, float, int]]:
        """From where to where the world size was what, in the frame."""
        ends = [since for since, _ in self.sizes[1:]] + [max(self.ended_at, self.frame.until)]
        for (since, size), until in zip(self.sizes, ends, strict=True):
            if self.frame.shows(since, until):
                yield self.frame.x(since), self.frame.x(until), size

    def _wanted(self) -> Iterator[str]:
        for x, end, size in self._steps():
            yield rect(x, self.top, end - x, self._boundary(size) - self.top, "lane")

    def _size_line(self) -> Iterator[str]:
        points = [(at, self._boundary(size) + 0.5) for x, end, size in self._steps() for at in (x, end)]
        yield f'<polyline class="size" points="{" ".join(f"{digits(x)},{digits(y)}" for x, y in points)}"/>'

    def _without_controller(self) -> Iterator[str]:
        for since, until in self.no_controller:
            if self.frame.shows(since, until):
                x = self.frame.x(since)
                yield rect(x, self.top, max(2.0, self.frame.x(until) - x), self.bottom - self.top, "ctl")

    def _span(self, since: float, until: float) -> tuple[float, float]:
        x, end = self.frame.x(since), self.frame.x(until)
        return x, end - x

    def _y(self, rank: int) -> tuple[float, float]:
        inset = 1.5 if self.height >= 10 else 0.5
        return self.top + rank * self.height + inset, self.height - 2 * inset

    def _gap(self, gap: Gap) -> Iterator[str]:
        x, width = self._span(gap.since, gap.until)
        y, height = self._y(gap.rank)
        yield rect(x, y, max(1.5, width), height, "vacant")
        following = [hold.since for hold in self.holds if hold.rank == gap.rank and hold.since >= gap.since - 1e-6]
        free = min([self.frame.x(since) - x for since in following if since > gap.since + 1e-6] + [width])
        words = fitting((f"vacant for {duration(gap.length_s)}", "vacant"), free - 12)
        if words and self.height >= LETTERS_FROM and all(since > gap.since + 1e-6 for since in following):
            yield text(x + 7, y + height / 2 + 4, words, "why")

    def _gap_frame(self, gap: Gap) -> Iterator[str]:
        """Over what is there: who starts on a vacant rank does not make it served."""
        x, width = self._span(gap.since, gap.until)
        y, height = self._y(gap.rank)
        if width >= 4:
            line = 1.5 if self.height >= 10 else 1
            yield rect(x, y, width, line, "frame")
            yield rect(x, y + height - line, width, line, "frame")
            yield rect(x, y, 1.5, height, "frame")

    def _hold(self, hold: Hold) -> Iterator[str]:
        x, width = self._span(hold.since, hold.until)
        y, height = self._y(hold.rank)
        if hold in self.beside:
            y, height = y + height * 0.6, height * 0.4
        colour, corner = self.colours[hold.replica_id], 2.5 if height >= 9 and width >= 6 else 0.0
        width = max(0.7, width - (0.8 if width > 8 else 0.0))
        if hold.phase is Phase.WAITING:
            yield rect(x + 0.5, y + 1, width - 1 if width > 2 else width, height - 2, "wait")
        elif hold.phase is Phase.RUNNING:
            yield rect(x, y, width, height, f"c{colour}", round_by=corner)
        else:
            yield rect(x, y, width, height, "", round_by=corner, fill=f"url(#{hold.phase}{colour})")
        if self.height >= LETTERS_FROM and hold.phase in (Phase.RUNNING, Phase.WAITING) and hold not in self.beside:
            label = hold.replica_id.rpartition("#")[2]
            words = fitting((label,) if hold.phase is Phase.RUNNING else (f"{label} waits for room",), width - 10)
            if words:
                yield text(x + 6, y + height / 2 + 4, words, f"on{colour}" if hold.phase is Phase.RUNNING else "strong")

    def _labels(self) -> Iterator[str]:
        every = next(step for step in (1, 2, 5, 10, 20, 50, 100) if step * self.height >= 12)
        for rank in range(0, self.ranks, every):
            yield text(LEFT - 8, self.top + (rank + 0.5) * self.height + 4, str(rank), anchor="end")


def colours_of(holds: Sequence[Hold]) -> dict[ReplicaId, int]:
    """A replica keeps its colour wherever it goes; whoever follows on a lane, or runs beside it, has another if possible."""
    first: dict[ReplicaId, Hold] = {}
    for hold in holds:
        known = first.get(hold.replica_id)
        if known is None or hold.since < known.since:
            first[hold.replica_id] = hold
    last: dict[int, int] = {}
    found = {}
    for hold in sorted(first.values(), key=lambda hold: (hold.since, hold.rank, hold.replica_id)):
        taken = [last.get(rank) for rank in (hold.rank, hold.rank - 1, hold.rank + 1)]
        colour = hold.rank % COLOURS
        for _ in range(COLOURS):
            if colour not in taken:
                break
            colour = (colour + 1) % COLOURS
        found[hold.replica_id] = last[hold.rank] = colour
    return found


def _beside(holds: Sequence[Hold]) -> Iterator[Hold]:
    """Who starts or drains while another serves the same rank is drawn in the lower part of the lane."""
    by_rank: dict[int, list[Hold]] = {}
    for hold in holds:
        by_rank.setdefault(hold.rank, []).append(hold)
    for lane in by_rank.values():
        lane.sort(key=lambda hold: (hold.since, hold.until))
        served_until = -math.inf
        for hold in lane:
            if hold.phase in SERVING:
                served_until = max(served_until, hold.until)
            elif hold.since < served_until - 1e-6:
                yield hold
        served_from = math.inf
        for hold in reversed(lane):
            if hold.phase in SERVING:
                served_from = hold.since
            elif hold.until > served_from + 1e-6:
                yield hold
