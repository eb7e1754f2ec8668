"""The page of a backtest: the figures of each policy in a table, and below it how many replicas ran and what waited.

Two to four policies have a line each in common charts; one, or more than that, have charts of their own, to one scale.
"""

from collections.abc import Sequence
from html import escape

import attrs

from executors.simulator.questions.backtest import DEPLOYMENT, Backtest
from executors.simulator.record.percentiles import Percentiles, shown
from executors.simulator.report.data import BUCKETS_MAX, Json, milliseconds, row_cells, series_columns
from executors.simulator.report.happened import rows_of
from executors.simulator.report.parts import LIST, OVERLAYS, header, panel, timeline, whole_page
from executors.simulator.report.together import RUNS_MAX, NamedRun, Telling, render_together
from executors.simulator.report.words import duration, share

HEADERS = ("policy", "SLO misses", "replica-hours", "scale events", "rank moves", "wait p50 of all", "wait p99 of all")

SCRIPTS = (
    "common",
    "model",
    "view",
    "paint",
    "stage",
    "charts",
    "table",
    "tooltip",
    "pointer",
    "timeline",
    "backtest_main",
)
_STYLES = "#timeline .tools .group:nth-child(2) { display: none; }\n"  # there are no lanes to be chosen or made taller
_LEGEND = """<ul class="legend" aria-label="legend"><li><i class="k size"></i>world size</li></ul>"""


def cells_of(found: Backtest) -> tuple[str, ...]:
    """One row of the table, in the order of `HEADERS`; the same on the screen and on the page."""
    return (
        found.policy,
        f"{found.slo_misses:,}{share(found.slo_misses, found.requests)}",
        f"{found.replica_hours:,.2f} h",
        f"{found.scale_events:,}",
        f"{found.rank_moves:,}",
        _seconds(found.wait_s, "p50"),
        _seconds(found.wait_s, "p99"),
    )


def render_backtest(title: str, slo_wait_s: float, found: Sequence[Backtest], rerun: str) -> str:
    """The whole page, with nothing outside it; `rerun` is the command that made it. The same runs give the same bytes."""
    end = max(each.result.ended_at for each in found)
    facts = [("requests", f"{found[0].requests:,}"), ("policies", f"{len(found):,}"), ("simulated", duration(end))]
    about = (
        "The requests are the same for each policy. A request misses its objective when it waits longer than "
        f"{slo_wait_s:g} s for a replica, or is not done. "
        "Percentiles are of all requests: one that was turned away, lost or not done in time waits for ever."
    )
    if 2 <= len(found) <= RUNS_MAX:
        telling = Telling(
            title=title,
            facts=facts,
            figures=_figures(found),
            about=f"{about} In the chart of waits a red line is the objective.",
            limits={"wait": slo_wait_s},
            rerun=rerun,
            command="autoscale-backtest",
        )
        return render_together([NamedRun(each.policy, each.result) for each in found], telling)
    body = "\n".join(
        (
            '<main id="report" class="backtest">',
            header(title, None, facts, rerun, "autoscale-backtest"),
            _figures(found),
            timeline(_LEGEND, _panels(found)),
            LIST,
            f"<footer><p>{about} All pictures have one scale.</p></footer>",
            "</main>",
            OVERLAYS,
        )
    )
    return whole_page(f"{title} - autoscale-backtest", body, SCRIPTS, _data(found, end), _STYLES)


def _figures(found: Sequence[Backtest]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEADERS)
    lines = []
    for each in found:
        first, *cells = map(escape, cells_of(each))
        lines.append(f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return (
        '<section id="models" class="card" aria-label="figures"><div class="wide">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div></section>"
    )


def _panels(found: Sequence[Backtest]) -> list[str]:
    panels = [panel("overview", "", ""), panel("axis", "", "")]
    for index, each in enumerate(found):
        panels.append(panel("running", each.policy, "replicas running; dashed: the world size", index))
        panels.append(panel("waiting", each.policy, "requests waiting: mean, and the range within each stretch of time", index))
    return panels


def _data(found: Sequence[Backtest], end: float) -> Json:
    """What the script draws from, in the layout of `assets/model.js`: each policy stands for a deployment without lanes."""
    names = [each.policy for each in found]
    told = [rows_of(each.result) for each in found]
    rows = [attrs.evolve(row, deployment=name) for name, (rows, _) in zip(names, told, strict=True) for row in rows]
    return {
        "version": 1,
        "end": milliseconds(end),
        "busiest": None,
        "phases": [],
        "nodes": [],
        "outages": [],
        "deployments": [_policy(each, max(16, BUCKETS_MAX // (2 * len(found)))) for each in found],
        "rows": [row_cells(row, names) for row in sorted(rows, key=lambda row: row.at)],
        "left_out": {"rows": sum(left_out for _, left_out in told), "outages": 0},
    }


def _policy(found: Backtest, most: int) -> Json:
    series = found.result.series[DEPLOYMENT]
    return {
        "name": found.policy,
        "lanes": 0,
        "sizes": [[milliseconds(since), size] for since, size in found.result.world_sizes[DEPLOYMENT]],
        "replicas": [],
        "places": [],
        "holds": [],
        "gaps": [],
        "series": {"running": series_columns(series.running, most), "waiting": series_columns(series.waiting, most)},
        "left_out": {"holds": 0, "gaps": 0},
    }


def _seconds(values: Percentiles, name: str) -> str:
    told = shown(values, name)
    return f"{told} s" if told[-1].isdigit() else told
