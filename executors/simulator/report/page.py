"""The page around the pictures: figures, and the short list of what happened."""

from html import escape

from executors.simulator.figures import DeploymentFigures
from executors.simulator.happenings import Happening
from executors.simulator.report.lanes import Mark, render_lanes
from executors.simulator.report.style import STYLE
from executors.simulator.report.words import failure, moment, rows, summary
from executors.simulator.run import RunResult

PINNED = ("fault", "change", "controller")
"""Kinds of happenings that are marked in the picture; the others are in the list only."""

LIST_MAX = 200


def render_page(result: RunResult, rerun: str) -> str:
    """The whole page, with styles and pictures in it and nothing outside it; `rerun` is the command that made it."""
    marks = _number(result)
    broken = failure(result)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(result.scenario)} - rankcore</title>",
        f"<style>\n{STYLE}</style></head><body><main>",
        f"<h1>{escape(result.scenario)}</h1>",
        f'<p class="summary">{escape(summary(result))}</p>',
        f'<p class="rerun">Run it again: <code>{escape(rerun)}</code></p>',
    ]
    if broken is not None:
        parts.append(f'<p class="broken">The run was stopped: {escape(broken)}</p>')
    for figures in result.deployments:
        parts.extend(_deployment(result, figures, marks))
    parts.extend(_list(result, marks))
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def _number(result: RunResult) -> dict[int, int]:
    """Number of each happening that is pinned, by its place in the list."""
    places = [place for place, happening in enumerate(result.happenings) if happening.kind in PINNED]
    return {place: number for number, place in enumerate(places, start=1)}


def _deployment(result: RunResult, figures: DeploymentFigures, marks: dict[int, int]) -> list[str]:
    name = figures.name
    pinned = [
        Mark(number, result.happenings[place])
        for place, number in marks.items()
        if result.happenings[place].deployment in (None, name)
    ]
    picture = render_lanes(result.holds[name], result.gaps[name], result.world_sizes[name], pinned, result.ended_at)
    cells = "\n".join(f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>" for label, value in rows(figures))
    return [
        f"<section><h2>{escape(name)}</h2>",
        f"<figure>{picture}{_LEGEND}</figure>",
        f'<table class="figures"><tbody>\n{cells}\n</tbody></table></section>',
    ]


_LEGEND = """<figcaption>One lane per rank; a change of colour is a change of the replica that holds it. Pale: starting
or draining. <span class="swatch"></span> no running replica holds the rank. The numbers are those of the list below.
Point at anything for more.</figcaption>"""


def _list(result: RunResult, marks: dict[int, int]) -> list[str]:
    items = [_item(happening, marks.get(place)) for place, happening in enumerate(result.happenings[:LIST_MAX])]
    left_out = len(result.happenings) - len(items)
    if left_out:
        items.append(f'<tr><td></td><td></td><td class="quiet">and {left_out:,} more: see the journal</td></tr>')
    body = "\n".join(items)
    return [f'<section><h2>What happened</h2><table class="happened"><tbody>\n{body}\n</tbody></table></section>']


def _item(happening: Happening, number: int | None) -> str:
    pin = f'<span class="pin {escape(happening.kind)}">{number}</span>' if number is not None else ""
    until = f", until {moment(happening.until)}" if happening.until is not None else ""
    quiet = "" if number is not None else ' class="quiet"'
    return f"<tr><td>{pin}</td><td>{moment(happening.at)}</td><td{quiet}>{escape(happening.text)}{until}</td></tr>"
