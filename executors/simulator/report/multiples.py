"""Small multiples: one page with a chart for each figure of a sweep, a row for each thing that was varied."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TypeAlias

import attrs

from executors.simulator.questions.statistics import estimate
from executors.simulator.report.assets import asset, document
from executors.simulator.report.chart import Chart, Point, render_chart

LINES_MAX = 6
"""So many combinations of the other settings get a line of their own; where there are more, all of them are one."""

Settings: TypeAlias = Mapping[str, str]


@attrs.frozen
class SweepCell:
    """One combination of settings, run with some seeds.

    Attributes:
        settings: What was varied and to what; all cells of a sweep have the same keys, in the same order.
        figures: By name with its unit ("wait p99 of all [s]"): one value a seed; NaN where a run had none.
    """

    settings: Settings
    figures: Mapping[str, tuple[float, ...]]


def render_multiples(title: str, cells: Sequence[SweepCell], rerun: str) -> str:
    """The whole page, with nothing outside it; `rerun` is the command that made it. The same cells give the same bytes."""
    varied = list(cells[0].settings) if cells else []
    figures = list(dict.fromkeys(name for cell in cells for name in cell.figures))
    seeds = max((len(values) for cell in cells for values in cell.figures.values()), default=0)
    plural = "" if len(cells) == 1 else "s"
    body = [
        "<main>",
        '<header><p class="eyebrow">rankcore sweep</p>',
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{len(cells)} combination{plural} of settings, {seeds} run{"" if seeds == 1 else "s"} of each, '
        "with the same seeds. A mark is the mean; the bar through it is where the true mean lies with 95 % confidence.</p>",
        f'<div class="again"><code>{escape(rerun)}</code></div></header>',
    ]
    for parameter in varied:
        body.append(_row(parameter, varied, figures, cells))
    if not cells:
        body.append('<p class="soft">Nothing was run.</p>')
    body.append("</main>")
    return document(f"{title} - rankcore sweep", styles=asset("tokens.css") + asset("multiples.css"), body="\n".join(body))


def _row(parameter: str, varied: Sequence[str], figures: Sequence[str], cells: Sequence[SweepCell]) -> str:
    """All figures against the values of one parameter."""
    values = list(dict.fromkeys(cell.settings[parameter] for cell in cells))
    lines = _lines(parameter, varied, cells)
    legend = ""
    if len(lines) > 1:
        items = "".join(
            f'<li class="c{index}"><svg viewBox="0 0 28 12" aria-hidden="true"><line x1="0" x2="28" y1="6" y2="6"/>'
            f'<circle cx="14" cy="6" r="4"/></svg>{escape(name)}</li>'
            for index, name in enumerate(lines)
        )
        legend = f'<ul class="legend">{items}</ul>'
    charts = "".join(_figure(figure, parameter, values, lines) for figure in figures)
    return (
        f'<section data-parameter="{escape(parameter)}"><h2>against {escape(parameter)}</h2>{legend}'
        f'<div class="grid">{charts}</div></section>'
    )


def _lines(parameter: str, varied: Sequence[str], cells: Sequence[SweepCell]) -> dict[str, list[SweepCell]]:
    """The cells by what else was set, in words; all in one where there would be too many."""
    others = [name for name in varied if name != parameter]
    lines: dict[str, list[SweepCell]] = {}
    for cell in cells:
        lines.setdefault(", ".join(f"{name} = {cell.settings[name]}" for name in others), []).append(cell)
    if len(lines) > LINES_MAX:
        return {"over all other settings": list(cells)}
    return lines


def _figure(figure: str, parameter: str, values: Sequence[str], lines: Mapping[str, Sequence[SweepCell]]) -> str:
    points = tuple(_points(figure, parameter, values, cells) for cells in lines.values())
    chart = Chart(title=figure, labels=tuple(values), names=tuple(lines), lines=points)
    name = escape(figure)
    return f'<figure class="card" data-figure="{name}"><figcaption>{name}</figcaption>{render_chart(chart)}</figure>'


def _points(figure: str, parameter: str, values: Sequence[str], cells: Sequence[SweepCell]) -> tuple[Point, ...]:
    found = []
    for place, value in enumerate(values):
        sample = [number for cell in cells if cell.settings[parameter] == value for number in cell.figures.get(figure, ())]
        point = Point.of(place, estimate([number for number in sample if math.isfinite(number)]))
        if point is not None:
            found.append(point)
    return tuple(found)
