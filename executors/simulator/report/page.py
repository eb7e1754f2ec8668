"""The report of a run: what it came to, a picture that can be looked into, and the list of what happened and why."""

from html import escape

from executors.simulator.record.figures import DeploymentFigures
from executors.simulator.report.assets import asset, document
from executors.simulator.report.data import Json, page_data
from executors.simulator.report.verdict import Verdict, verdict_of
from executors.simulator.report.words import duration, groups, moment
from executors.simulator.run import RunResult

SCRIPTS = ("model", "view", "paint", "stage", "ranks", "nodes", "charts", "table", "tooltip", "pointer", "main")
RANK_ROWS_MAX = 100


def render_page(result: RunResult, rerun: str) -> str:
    """The whole page, with styles, script and data in it and nothing outside it; `rerun` is the command that made it.

    The same run gives the same bytes. However long the run was, the page has a few megabytes at most, and says what of
    the run is not in it.
    """
    data = page_data(result)
    body = "\n".join(
        (
            '<main id="report">',
            _header(result, rerun),
            _figures(result),
            _timeline(result),
            _LIST,
            _ranks(result),
            _footer(data),
            "</main>",
            '<button type="button" id="jump" hidden></button>'
            '<div id="tooltip" role="status" hidden></div><div id="live" class="visually-hidden" aria-live="polite"></div>',
        )
    )
    script = '"use strict";\n(() => {\n' + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "})();\n"
    styles = asset("tokens.css") + asset("page.css")
    return document(f"{result.scenario} - rankcore", styles=styles, body=body, script=script, data=data)


def _header(result: RunResult, rerun: str) -> str:
    verdict = verdict_of(result)
    facts = [("seed", str(result.seed)), ("simulated", duration(result.ended_at)), ("events", f"{result.happened:,}")]
    if result.busiest_minute_at is not None:
        facts.append(("busiest minute", f"from {moment(result.busiest_minute_at)}"))
    listed = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return (
        '<header><div class="bar"><p class="eyebrow">rankcore simulate</p>'
        '<button type="button" id="theme" title="light or dark">light / dark</button></div>'
        f"<h1>{escape(result.scenario)}</h1>{_verdict(verdict)}"
        f'<dl class="facts">{listed}</dl>'
        f'<div class="again"><code>{escape(rerun)}</code><button type="button" class="copy">copy</button></div></header>'
    )


def _verdict(verdict: Verdict) -> str:
    sign = {"good": "\u2713", "hurt": "!", "broken": "\u2715"}[verdict.grade]
    return f'<p class="verdict {verdict.grade}"><span aria-hidden="true">{sign}</span><b>{escape(verdict.text)}</b></p>'


def _figures(result: RunResult) -> str:
    """A card for each group of figures; of several deployments one table, with a column for each."""
    found = [groups(figures) for figures in result.deployments]
    requested = any(figures.requests.arrived for figures in result.deployments)
    blocks = []
    for place, (title, rows) in enumerate(found[0]):
        if title == "Requests" and not requested:
            continue
        lines = []
        for index, (label, _) in enumerate(rows):
            cells = "".join(f"<td>{escape(each[place][1][index][1])}</td>" for each in found)
            part = ' class="part"' if label.startswith(" ") else ""
            lines.append(f'<tr><th scope="row"{part}>{escape(label.strip())}</th>{cells}</tr>')
        blocks.append((title, "\n".join(lines)))
    if len(found) == 1:
        two = "" if requested else " two"
        cards = "".join(
            f'<div class="card"><h2>{title}</h2><table><tbody>\n{lines}\n</tbody></table></div>' for title, lines in blocks
        )
        return f'<section id="figures" class="figures{two}" aria-label="figures">{cards}</section>'
    names = "".join(f'<th scope="col">{escape(figures.name)}</th>' for figures in result.deployments)
    bodies = "".join(
        f'<tbody>\n<tr class="title"><th scope="rowgroup">{title}</th></tr>\n{lines}\n</tbody>' for title, lines in blocks
    )
    return (
        '<section id="figures" class="figures many" aria-label="figures"><div class="card"><div class="wide">'
        f"<table><thead><tr><td></td>{names}</tr></thead>{bodies}</table></div></div></section>"
    )


_TOOLS = """<div class="tools"><div class="group"><button type="button" id="zoom-in" title="zoom in (+)">zoom in</button>
<button type="button" id="zoom-out" title="zoom out (-)">out</button>
<button type="button" id="zoom-reset" title="the whole run (0)">whole run</button><output id="range"></output></div>
<div class="group"><label><input type="checkbox" id="eventful"> only lanes where something happened</label>
<button type="button" id="taller" title="taller lanes">taller</button>
<button type="button" id="shorter" title="flatter lanes">flatter</button></div></div>
<details class="how"><summary>how to look around</summary><p>Drag over a stretch of time to zoom into it, double-click for the
whole run, roll the wheel to zoom, hold shift to move along; with fingers, drag and pinch. By keyboard: focus the picture,
arrows walk from change to change and from lane to lane, <kbd>+</kbd> <kbd>-</kbd> zoom, <kbd>0</kbd> shows all,
<kbd>PgUp</kbd> <kbd>PgDn</kbd> move along, <kbd>Esc</kbd> lets go.</p></details>"""

_LEGEND = """<ul class="legend" aria-label="legend"><li><i class="k running"></i>a replica that serves,
another colour for another replica</li><li><i class="k starting"></i>starting</li>
<li><i class="k waiting"></i>waiting for room</li>
<li><i class="k moving"></i>moving: told of another rank</li><li><i class="k reconfiguring"></i>reconfiguring</li>
<li><i class="k draining"></i>draining</li><li><i class="k hung"></i>hung</li>
<li><i class="k vacant"></i>vacant, though wanted</li><li><i class="k size"></i>world size</li>
<li><i class="k ctl"></i>no controller</li><li><i class="k fault"></i>fault</li><li><i class="k change"></i>change</li></ul>"""


def _timeline(result: RunResult) -> str:
    panels = [_panel("overview", "", ""), _panel("axis", "", "")]
    for index, figures in enumerate(result.deployments):
        panels.extend(_deployment(index, figures, len(result.deployments) > 1))
    panels.append(_panel("nodes", "nodes", "what stood on each node; hatched while it was down or cut off"))
    return (
        f'<section id="timeline" class="card" aria-label="timeline">{_TOOLS}{_LEGEND}'
        '<div id="panels" tabindex="0" role="application" aria-label="timeline: arrows walk along and between lanes, plus and '
        f'minus zoom, 0 shows the whole run">{"".join(panels)}'
        '<div id="brush" hidden></div><div id="mark" hidden></div><div id="crosshair" hidden><span></span></div></div>'
        "<noscript><p>The picture needs JavaScript, all of which is in this file.</p></noscript></section>"
    )


def _deployment(index: int, figures: DeploymentFigures, named: bool) -> list[str]:
    title = f"ranks of {figures.name}" if named else "ranks"
    parts = [
        _panel("ranks", title, "who held each rank; those below the line are wanted", index),
        _panel("running", "replicas running", "dashed: the world size", index),
    ]
    if figures.requests.arrived:
        parts.append(_panel("waiting", "requests waiting", "mean, and the range within each stretch of time", index))
        parts.append(_panel("latency", "latency and wait", "seconds, of requests that ended then; dashed: wait", index))
    return parts


def _panel(name: str, title: str, about: str, deployment: int | None = None) -> str:
    which = "" if deployment is None else f' data-deployment="{deployment}"'
    head = f"<h3>{escape(title)} <small>{escape(about)}</small></h3>" if title else ""
    label = escape(title or {"overview": "the whole run in small", "axis": "time"}[name])
    return f'<div class="panel {name}">{head}<canvas data-panel="{name}"{which} role="img" aria-label="{label}"></canvas></div>'


_LIST = """<section id="happened" class="card" aria-label="what happened"><div class="tools"><h2>What happened, and why</h2>
<span id="rows-told" role="status"></span></div>
<div class="tools"><label class="search"><span class="visually-hidden">filter</span>
<input id="filter" type="search" placeholder="filter: a rank, a replica, a node, a word" autocomplete="off" spellcheck="false">
</label><div id="kinds" class="group"></div><label><input type="checkbox" id="in-view"> only what is in view</label></div>
<table id="rows"><thead><tr><th scope="col">time</th><th scope="col">what</th><th scope="col">who</th><th scope="col">rank</th>
<th scope="col">because</th></tr></thead><tbody></tbody></table><button type="button" id="more" hidden></button></section>"""


def _ranks(result: RunResult) -> str:
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
    holds = sum(each["left_out"]["holds"] for each in data["deployments"])
    gaps = sum(each["left_out"]["gaps"] for each in data["deployments"])
    outages = data["left_out"]["outages"]
    parts = [
        f"{count:,} of the shortest {what}" for count, what in ((holds, "holds"), (gaps, "gaps"), (outages, "outages")) if count
    ]
    cut = f"<p>Not in the picture, to keep the file small: {', '.join(parts)}. The figures count them.</p>" if parts else ""
    return f"<footer>{cut}<p>{_ABOUT}</p></footer>"
