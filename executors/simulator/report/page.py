"""The report of a run: what it came to, a picture that can be looked into, and the list of what happened and why."""

from collections.abc import Sequence
from html import escape

from executors.simulator.questions.held import ObjectiveHeld, objective_rows
from executors.simulator.record.figures import DeploymentFigures
from executors.simulator.report.data import Json, milliseconds, page_data
from executors.simulator.report.parts import LIST, OVERLAYS, cards, header, panel, timeline, whole_page
from executors.simulator.report.verdict import verdict_of
from executors.simulator.report.windows import about_windows, windows_data
from executors.simulator.report.words import beside, duration
from executors.simulator.run import RunResult
from executors.simulator.times import moment
from executors.simulator.wall_clock import utc

SCRIPTS = (
    "common",
    "model",
    "view",
    "paint",
    "stage",
    "phases",
    "ranks",
    "nodes",
    "charts",
    "windows",
    "table",
    "tooltip",
    "pointer",
    "timeline",
    "zones",
    "main",
)
RANK_ROWS_MAX = 100


def render_page(result: RunResult, rerun: str, held: Sequence[ObjectiveHeld] = ()) -> str:
    """The whole page, with styles, script and data in it and nothing outside it; `rerun` is the command that made it.

    The same run gives the same bytes. However long the run was, the page has a few megabytes at most, and says what of
    the run is not in it.
    """
    windows = windows_data(result, held)
    began = result.unix_s_at_0
    data = {**page_data(result), "windows": windows, "began": None if began is None else milliseconds(began)}
    body = "\n".join(
        (
            '<main id="report">',
            _header(result, rerun),
            _objectives(held),
            _figures(result),
            _timeline(result, windows),
            LIST,
            unserved_card(result),
            _footer(data),
            "</main>",
            OVERLAYS,
        )
    )
    return whole_page(result.scenario, body, SCRIPTS, data)


def _header(result: RunResult, rerun: str) -> str:
    facts = [("seed", str(result.seed)), ("simulated", duration(result.ended_at)), ("events", f"{result.happened:,}")]
    if result.unix_s_at_0 is not None:
        facts.append(("began", utc(result.unix_s_at_0)))
    if result.busiest_minute_at is not None:
        facts.append(("busiest minute", f"from {moment(result.busiest_minute_at)}"))
    return header(result.scenario, verdict_of(result), facts, rerun)


def _objectives(held: Sequence[ObjectiveHeld]) -> str:
    """A line for each, whether it held."""
    if not held:
        return ""
    lines = [
        f'<tr class="{"held" if each.held else "missed"}"><th scope="row">{escape(text)}</th><td>{escape(verdict)}</td></tr>'
        for each, (text, verdict) in zip(held, objective_rows(held), strict=True)
    ]
    return (
        '<section id="objectives" class="card" aria-label="objectives"><h2>Objectives</h2>'
        f"<table><tbody>{''.join(lines)}</tbody></table></section>"
    )


def _figures(result: RunResult) -> str:
    """A card for each group of figures; of several deployments one table, with a column for each."""
    requested = any(figures.requests.arrived for figures in result.deployments)
    blocks = []
    for title, rows in beside(result.deployments):
        if title == "Requests" and not requested:
            continue
        lines = []
        for label, values in rows:
            cells = "".join(f"<td>{escape(value)}</td>" for value in values)
            part = ' class="part"' if label.startswith(" ") else ""
            lines.append(f'<tr><th scope="row"{part}>{escape(label.strip())}</th>{cells}</tr>')
        blocks.append((title, "\n".join(lines)))
    if len(result.deployments) == 1:
        two = "" if requested else " two"
        return cards(blocks, two)
    names = "".join(f'<th scope="col">{escape(figures.name)}</th>' for figures in result.deployments)
    bodies = "".join(
        f'<tbody>\n<tr class="title"><th scope="rowgroup">{title}</th></tr>\n{lines}\n</tbody>' for title, lines in blocks
    )
    return (
        '<section id="figures" class="figures many" aria-label="figures"><div class="card"><div class="wide">'
        f"<table><thead><tr><td></td>{names}</tr></thead>{bodies}</table></div></div></section>"
    )


LEGEND = """<ul class="legend" aria-label="legend"><li><i class="k running"></i>a replica that serves,
another colour for another replica</li><li><i class="k starting"></i>starting</li>
<li><i class="k waiting"></i>waiting for room</li>
<li><i class="k moving"></i>moving: told of another rank</li><li><i class="k reconfiguring"></i>reconfiguring</li>
<li><i class="k draining"></i>draining</li><li><i class="k hung"></i>hung</li>
<li><i class="k unready"></i>unready: takes no requests</li>
<li><i class="k vacant"></i>vacant, though wanted</li><li><i class="k size"></i>world size</li>
<li><i class="k ctl"></i>no controller</li><li><i class="k fault"></i>fault</li><li><i class="k change"></i>change</li></ul>"""


def _timeline(result: RunResult, windows: Sequence[Json]) -> str:
    panels = [panel("overview", "", ""), panel("axis", "", "")]
    for index, figures in enumerate(result.deployments):
        panels.extend(_deployment(index, figures, len(result.deployments) > 1))
        panels.extend(_windows(index, windows[index]))
    panels.append(panel("nodes", "nodes", "what stood on each node; hatched while it was down or cut off"))
    return timeline(LEGEND, panels)


def _deployment(index: int, figures: DeploymentFigures, named: bool) -> list[str]:
    title = f"ranks of {figures.name}" if named else "ranks"
    parts = [
        panel("ranks", title, "who held each rank; those below the line are wanted", index),
        panel("running", "replicas running", "dashed: the world size", index),
    ]
    if figures.requests.arrived:
        parts.append(panel("waiting", "requests waiting", "mean, and the range within each stretch of time", index))
        parts.append(panel("latency", "latency and wait", "seconds, of requests that ended then; dashed: wait", index))
    return parts


def _windows(index: int, windows: Json) -> list[str]:
    found = []
    for each in windows["panels"]:
        told = "p50, p95, p99" if len(each["lines"]) > 1 else "the figure"
        found.append(panel(f"window-{each['name']}", each["title"], f"{told} {about_windows(each, windows['width'])}", index))
    for each in windows["engine"]:
        found.append(panel(f"window-{each['name']}", each["title"], about_windows(each, windows["width"]), index))
    return found


def unserved_card(result: RunResult) -> str:
    """Each rank that was ever unserved, the worst first."""
    found = [(figures.name, rank) for figures in result.deployments for rank in figures.unserved]
    found.sort(key=lambda pair: (-pair[1].longest.length_s, pair[0], pair[1].rank))
    if not found:
        return ""
    lines = [
        f'<tr data-deployment="{escape(name)}" data-rank="{rank.rank}"><td>{escape(name)}</td><td>{rank.rank}</td>'
        f"<td>{duration(rank.longest.length_s)}</td><td>{moment(rank.longest.since)}</td><td>{rank.gaps:,}</td>"
        f"<td>{duration(rank.total_s)}</td></tr>"
        for name, rank in found[:RANK_ROWS_MAX]
    ]
    more = f"<p>{len(found) - RANK_ROWS_MAX:,} more ranks: see --json.</p>" if len(found) > RANK_ROWS_MAX else ""
    names = ("deployment", "rank", "longest gap", "from", "gaps", "unserved in all")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    table = "\n".join((f"<table><thead><tr>{head}</tr></thead><tbody>", *lines, "</tbody></table>"))
    return (
        '<section id="unserved" class="card"><details><summary>'
        f'<h2>Ranks that lost their holder ({len(found):,})</h2></summary><div class="wide">{table}</div>{more}'
        "</details></section>"
    )


_ABOUT = (
    "This page is one file and loads nothing. A rank is unserved while it is below the world size, had a running replica "
    "before and has none now. The same seed gives the same run and the same page, to the byte."
)


def _footer(data: Json) -> str:
    """What the page is, and what of the run is not in it."""
    return f"<footer>{not_drawn((data,))}<p>{_ABOUT}</p></footer>"


def not_drawn(runs: Sequence[Json]) -> str:
    """What of some runs is not in the picture; empty where all of it is."""
    holds = sum(each["left_out"]["holds"] for data in runs for each in data["deployments"])
    gaps = sum(each["left_out"]["gaps"] for data in runs for each in data["deployments"])
    outages = sum(data["left_out"]["outages"] for data in runs)
    parts = [
        f"{count:,} of the shortest {what}" for count, what in ((holds, "holds"), (gaps, "gaps"), (outages, "outages")) if count
    ]
    return f"<p>Not in the picture, to keep the file small: {', '.join(parts)}. The figures count them.</p>" if parts else ""
