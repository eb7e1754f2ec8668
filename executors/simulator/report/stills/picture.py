"""A picture of a run: panels on one axis of time, what happened above them, and a legend below."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Protocol

import attrs

from executors.simulator.record.happenings import Happening
from executors.simulator.report.stills.frame import LEFT, RIGHT, WIDTH, Drawn, Frame, Pin, digits, rect, text, width_of
from executors.simulator.report.stills.palette import COLOURS, pattern, styles
from executors.simulator.run import RunResult

PINNED = ("fault", "change", "controller")
PINS_MAX = 12
"""Where more happened than that, the lanes tell it."""
ROW = 17.0
"""The height of a row of words beside the signs of pins."""

LEGEND: tuple[tuple[str, str], ...] = (
    ("serving", "a replica that serves"),
    ("starting", "starting"),
    ("waiting for room", "waiting for room"),
    ("moving", "moving: told of another rank"),
    ("reconfiguring", "reconfiguring"),
    ("draining", "draining"),
    ("hung", "hung"),
    ("unready", "unready: takes no requests"),
    ("vacant", "vacant, though wanted"),
    ("controller down", "no controller"),
)


class Panel(Protocol):
    """A part of a picture that shows something along the time."""

    def draw(self, result: RunResult, frame: Frame, top: float) -> Drawn:
        """Itself, from `top` on."""


def render_still(
    result: RunResult, panels: Sequence[Panel], *, title: str, since: float = 0.0, until: float | None = None
) -> str:
    """A whole SVG file, readable on a light page and on a dark one; the same run gives the same bytes.

    Args:
        panels: From top to bottom.
        title: What stands above them, and what is read out instead of the picture.
        since: Seconds of the run, as `until`: what to show of it; all of it, if left out.
    """
    end = result.ended_at if until is None else until
    frame = Frame(since, end, _pins(result, since, end))
    marks, top = _marks(frame, 24.0 + ROW)
    body = [text(LEFT, 24, title, "title"), *marks]
    keys: set[str] = set()
    for panel in panels:
        drawn = panel.draw(result, frame, top)
        body.extend(drawn.parts)
        keys |= drawn.keys
        top = drawn.bottom
    axis = frame.axis(top - 6)
    if any(each.kind == "controller down" and frame.shows(each.since, each.until) for each in result.outages):
        keys.add("controller down")
    legend = _legend([entry for entry in LEGEND if entry[0] in keys], axis.bottom)
    return svg(title, [*body, *axis.parts, *legend.parts], legend.bottom)


def svg(title: str, parts: Sequence[str], height: float) -> str:
    """The file around the elements, with the patterns that they are filled with."""
    inside = "\n".join(parts)
    patterns = "".join(
        pattern(phase, colour)
        for phase in ("starting", "draining", "moving", "reconfiguring", "hung", "unready")
        for colour in range(COLOURS)
        if f"url(#{phase}{colour})" in inside
    )
    size = f'width="{WIDTH}" height="{digits(height)}" viewBox="0 0 {WIDTH} {digits(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(title)}</title>\n'
        f"<style>\n{styles()}</style>\n<defs>{patterns}</defs>\n"
        f"{rect(0.5, 0.5, WIDTH - 1, height - 1, 'paper', round_by=8)}\n{inside}\n</svg>\n"
    )


def _pins(result: RunResult, since: float, until: float) -> tuple[Pin, ...]:
    """What to mark, by time; what came at one moment is one pin."""
    found: dict[tuple[float, str], list[Happening]] = {}
    for each in sorted(result.happenings, key=lambda each: each.at):
        if each.kind in PINNED and since <= each.at <= until:
            found.setdefault((each.at, each.kind), []).append(each)
    if len(found) > PINS_MAX:
        return ()
    return tuple(Pin(at, kind, _words(together)) for (at, kind), together in found.items())


def _words(together: Sequence[Happening]) -> str:
    """Those of the first; without its deployment, if the same came to others."""
    alone = {each.text.removeprefix(f"{each.deployment}: ") for each in together}
    return min(alone) if len(together) > 1 and len(alone) == 1 else together[0].text


def _marks(frame: Frame, top: float) -> tuple[list[str], float]:
    """A sign for each pin with its words beside it, in as few rows as will do; and where the panels may begin."""
    if not frame.pins:
        return [], top - 8
    places = _rows(frame)
    rows = 1 + max(row for row, _ in places)
    bottom = top + ROW * rows
    parts = []
    for pin, (row, at_end) in zip(frame.pins, places, strict=True):
        x, y = frame.x(pin.at), bottom - ROW * row - 12
        if row:
            at, y1, y2 = digits(x), digits(y - 8), digits(bottom - 20)
            parts.append(f'<line class="pin {pin.kind}" x1="{at}" x2="{at}" y1="{y1}" y2="{y2}"/>')
        parts.append(_sign(pin.kind, x, bottom - 16))
        parts.append(text(x - 9 if at_end else x + 9, y, pin.words, "strong", anchor="end" if at_end else ""))
    return parts, bottom - 8


def _rows(frame: Frame) -> list[tuple[int, bool]]:
    """In which row the words of each pin have room, counted from the signs up, and whether they end at their sign."""
    rows: list[list[tuple[float, float]]] = [[(frame.x(pin.at) - 8, frame.x(pin.at) + 8) for pin in frame.pins]]
    found = []
    for pin in reversed(frame.pins):  # so that the line from words down to their sign crosses no others
        x, wide = frame.x(pin.at), width_of(pin.words)
        at_end = x + 9 + wide > RIGHT
        span = (x - 9 - wide, x - 9) if at_end else (x + 9, x + 9 + wide)
        row = next((index for index, taken in enumerate(rows) if _is_free(span, taken)), len(rows))
        rows += [[] for _ in range(row + 1 - len(rows))]
        rows[row].append(span)
        for below in rows[1:row]:
            below.append((x - 4, x + 4))
        found.append((row, at_end))
    return found[::-1]


def _is_free(span: tuple[float, float], taken: Sequence[tuple[float, float]]) -> bool:
    return all(span[1] <= since or span[0] >= until for since, until in taken)


def _sign(kind: str, x: float, y: float) -> str:
    """A shape for each kind, so that colour is not the only difference."""
    shapes = {
        "fault": ((-5, -4), (5, -4), (0, 5)),
        "change": ((0, -5), (5, 0), (0, 5), (-5, 0)),
        "controller": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
    }
    corners = " ".join(f"{digits(x + dx)},{digits(y + dy)}" for dx, dy in shapes[kind])
    return f'<polygon class="{kind}" points="{corners}"/>'


@attrs.frozen
class _Place:
    """Where an entry of the legend stands."""

    x: float
    y: float
    key: str
    words: str


def _legend(entries: Sequence[tuple[str, str]], top: float) -> Drawn:
    places = list(_places(entries, top + 6))
    parts = [part for place in places for part in (*_swatch(place), text(place.x + 30, place.y + 9, place.words))]
    return Drawn(tuple(parts), places[-1].y + 24 if places else top + 6)


def _places(entries: Sequence[tuple[str, str]], top: float) -> Iterator[_Place]:
    x, y = float(LEFT), top
    for key, words in entries:
        wide = 30 + width_of(words) + 16
        if x + wide > RIGHT + 16:
            x, y = float(LEFT), y + 18
        yield _Place(x, y, key, words)
        x += wide


def _swatch(place: _Place) -> Iterator[str]:
    x, y = place.x, place.y
    if place.key == "serving":
        yield from (rect(x + 8 * index, y, 8, 11, f"c{index}") for index in range(3))
    elif place.key == "waiting for room":
        yield rect(x + 0.5, y + 0.5, 23, 10, "wait")
    elif place.key == "vacant":
        yield rect(x, y, 24, 11, "vacant")
        yield from (rect(x, y, 24, 1.5, "frame"), rect(x, y + 9.5, 24, 1.5, "frame"), rect(x, y, 1.5, 11, "frame"))
    elif place.key == "controller down":
        yield rect(x, y, 24, 11, "ctl")
    else:
        yield rect(x, y, 24, 11, "", round_by=2.5, fill=f"url(#{place.key}0)")
