"""Parts that the pages about runs have in common: the header, figures on cards, the frame of the picture, the list."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from executors.simulator.report.assets import asset, document
from executors.simulator.report.verdict import Verdict

OVERLAYS = (
    '<button type="button" id="jump" hidden></button>'
    '<div id="tooltip" role="status" hidden></div><div id="live" class="visually-hidden" aria-live="polite"></div>'
)
"""What lies over the page while somebody points at something."""


def whole_page(title: str, body: str, scripts: Iterable[str], data: Any, styles: str = "") -> str:
    """A page with the styles of all, and these scripts of `assets/` in this order; `styles`: its own besides."""
    script = '"use strict";\n(() => {\n' + "\n".join(asset(f"{name}.js") for name in scripts) + "})();\n"
    styles = asset("tokens.css") + asset("page.css") + styles
    return document(f"{title} - rankcore", styles=styles, body=body, script=script, data=data)


def header(
    title: str,
    verdict: Verdict | None,
    facts: Sequence[tuple[str, str]],
    rerun: str,
    command: str = "simulate",
    runs: str = "",
) -> str:
    """What the run was and came to, and the command that makes it again; of several there may be no verdict, but `runs`."""
    listed = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return (
        '<header><div class="bar"><p class="eyebrow">rankcore ' + command + "</p>"
        '<button type="button" id="theme" title="light or dark">light / dark</button></div>'
        f"<h1>{escape(title)}</h1>{'' if verdict is None else _verdict(verdict)}"
        f'{runs}<dl class="facts">{listed}</dl>'
        f'<div class="again"><code>{escape(rerun)}</code><button type="button" class="copy">copy</button></div></header>'
    )


def cards(blocks: Iterable[tuple[str, str]], more: str = "") -> str:
    """A card for each group of figures: its title, and its lines in HTML; `more`: further classes of all."""
    listed = "".join(
        f'<div class="card"><h2>{title}</h2><table><tbody>\n{lines}\n</tbody></table></div>' for title, lines in blocks
    )
    return f'<section id="figures" class="figures{more}" aria-label="figures">{listed}</section>'


def _verdict(verdict: Verdict) -> str:
    sign = {"good": "\u2713", "hurt": "!", "broken": "\u2715"}[verdict.grade]
    return f'<p class="verdict {verdict.grade}"><span aria-hidden="true">{sign}</span><b>{escape(verdict.text)}</b></p>'


EVENTFUL = '<input type="checkbox" id="eventful"> only lanes where something happened'
_TOOLS = """<div class="tools"><div class="group"><button type="button" id="zoom-in" title="zoom in (+)">zoom in</button>
<button type="button" id="zoom-out" title="zoom out (-)">out</button>
<button type="button" id="zoom-reset" title="the whole run (0)">whole run</button><output id="range"></output></div>
<div class="group"><label>$lanes</label>
<button type="button" id="taller" title="taller lanes">taller</button>
<button type="button" id="shorter" title="flatter lanes">flatter</button></div></div>
<details class="how"><summary>how to look around</summary><p>Drag over a stretch of time to zoom into it, double-click for the
whole run, roll the wheel to zoom, hold shift to move along; with fingers, drag and pinch. By keyboard: focus the picture,
arrows walk from change to change and from lane to lane, <kbd>+</kbd> <kbd>-</kbd> zoom, <kbd>0</kbd> shows all,
<kbd>PgUp</kbd> <kbd>PgDn</kbd> move along, <kbd>Esc</kbd> lets go.</p></details>"""


def timeline(legend: str, panels: Iterable[str], lanes: str = EVENTFUL) -> str:
    """The picture: tools, what the colours mean, and panels one below the other; `lanes`: which can be shown alone."""
    return (
        f'<section id="timeline" class="card" aria-label="timeline">{_TOOLS.replace("$lanes", lanes)}{legend}'
        '<div id="panels" tabindex="0" role="application" aria-label="timeline: arrows walk along and between lanes, plus and '
        f'minus zoom, 0 shows the whole run">{"".join(panels)}'
        '<div id="brush" hidden></div><div id="mark" hidden></div><div id="crosshair" hidden><span></span></div></div>'
        "<noscript><p>The picture needs JavaScript, all of which is in this file.</p></noscript></section>"
    )


def panel(name: str, title: str, about: str, deployment: int | None = None, run: int | None = None) -> str:
    """A heading, and a canvas that the script draws on."""
    places = (("deployment", deployment), ("run", run))
    which = "".join(f' data-{key}="{place}"' for key, place in places if place is not None)
    head = f"<h3>{escape(title)} <small>{escape(about)}</small></h3>" if title else ""
    label = escape(title or {"overview": "the whole run in small", "axis": "time"}[name])
    return f'<div class="panel {name}">{head}<canvas data-panel="{name}"{which} role="img" aria-label="{label}"></canvas></div>'


LIST = """<section id="happened" class="card" aria-label="what happened"><div class="tools"><h2>What happened, and why</h2>
<span id="rows-told" role="status"></span></div>
<div class="tools"><label class="search"><span class="visually-hidden">filter</span>
<input id="filter" type="search" placeholder="filter: a rank, a replica, a node, a word" autocomplete="off" spellcheck="false">
</label><div id="kinds" class="group"></div><label><input type="checkbox" id="in-view"> only what is in view</label></div>
<table id="rows"><thead><tr><th scope="col">time</th><th scope="col">what</th><th scope="col">who</th><th scope="col">rank</th>
<th scope="col">because</th></tr></thead><tbody></tbody></table><button type="button" id="more" hidden></button></section>"""
