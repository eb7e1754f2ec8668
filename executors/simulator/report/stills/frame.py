"""Where a time is in a picture, and the elements that pictures are made of."""

import math
from html import escape

import attrs

from executors.simulator.times import DAY_S, moment

WIDTH = 860
LEFT, RIGHT = 44, 846
TICK_PIXELS = 92
LETTER_PIXELS = 6.1
"""The width of a letter of 11 pixels on average: where the reader's font is wider, words stay within what is free."""

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)
_STEPS_D = (1, 2, 5, 10, 20, 50, 100)


@attrs.frozen
class Drawn:
    """A part of a picture.

    Attributes:
        parts: Elements, in the order in which they cover each other.
        bottom: Where the next part may begin.
        keys: What the legend has to explain.
    """

    parts: tuple[str, ...]
    bottom: float
    keys: frozenset[str] = frozenset()


@attrs.frozen
class Pin:
    """A fault, a change or a crash of the controller, to be marked.

    Attributes:
        kind: That of a happening: "fault", "change" or "controller".
    """

    at: float
    kind: str
    words: str


@attrs.frozen
class Frame:
    """The stretch of time that a picture shows, and what is marked in all of its panels."""

    since: float
    until: float
    pins: tuple[Pin, ...] = ()

    def x(self, time: float) -> float:
        """Where a time is, cut to the picture."""
        share = (time - self.since) / (self.until - self.since)
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, share))

    def shows(self, since: float, until: float) -> bool:
        """Whether any of a span is in the picture."""
        return since < self.until and until > self.since

    @property
    def ticks(self) -> tuple[float, list[float]]:
        """A round number of seconds, and all its multiples in the picture."""
        span, most = self.until - self.since, (RIGHT - LEFT) // TICK_PIXELS
        steps = (*_STEPS_S, *(DAY_S * days for days in _STEPS_D))
        step = next((step for step in steps if span / step <= most), steps[-1])
        first, last = math.ceil(self.since / step - 1e-9), math.floor(self.until / step + 1e-9)
        return step, [step * index for index in range(first, last + 1)]

    def axis(self, top: float) -> Drawn:
        """The times, to stand under all panels."""
        step, times = self.ticks
        parts = []
        for time in times:
            x = self.x(time)
            anchor = "end" if x > RIGHT - 20 else "middle"
            parts.append(text(x, top + 14, f"{time / DAY_S:g} d" if step >= DAY_S else moment(time), anchor=anchor))
        return Drawn(tuple(parts), top + 22)

    def rules(self, top: float, bottom: float) -> list[str]:
        """A fine line at each time of the axis."""
        return [rect(self.x(time), top, 1, bottom - top, "rule") for time in self.ticks[1]]

    def pin_lines(self, top: float, bottom: float) -> list[str]:
        """A dashed line at each pin."""
        xs = [(digits(self.x(pin.at)), pin.kind) for pin in self.pins]
        y1, y2 = digits(top), digits(bottom)
        return [f'<line class="pin {kind}" x1="{x}" x2="{x}" y1="{y1}" y2="{y2}"/>' for x, kind in xs]


def rect(x: float, y: float, width: float, height: float, kind: str, *, round_by: float = 0.0, fill: str = "") -> str:
    """A rectangle of a class, or with a fill of its own."""
    corners = f' rx="{digits(round_by)}"' if round_by else ""
    filled = f' fill="{fill}"' if fill else ""
    named = f' class="{kind}"' if kind else ""
    return f'<rect{named} x="{digits(x)}" y="{digits(y)}" width="{digits(width)}" height="{digits(height)}"{corners}{filled}/>'


def text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "") -> str:
    """A line of words that begins, ends or has its middle at x."""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{digits(x)}" y="{digits(y)}"{anchored}>{escape(words, quote=False)}</text>'


def width_of(words: str) -> float:
    """How much room words take, about."""
    return len(words) * LETTER_PIXELS


def fitting(candidates: tuple[str, ...], width: float) -> str:
    """The first that fits, or nothing."""
    return next((words for words in candidates if width_of(words) <= width), "")


def digits(number: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{number:.1f}".removesuffix(".0")
