"""The page of a backtest: the figures of each policy in a table, and below it how many replicas ran and what waited."""

from collections.abc import Sequence
from html import escape

from executors.simulator.questions.backtest import DEPLOYMENT, Backtest
from executors.simulator.report.assets import asset, document
from executors.simulator.report.stills import Running, Waiting, render_still
from executors.simulator.report.stills.picture import Panel
from executors.simulator.report.words import share

HEADERS = ("policy", "SLO misses", "replica-hours", "scale events", "rank moves", "wait p50", "wait p99")

_STYLES = """
.backtest{border-collapse:collapse;margin:20px 0 24px;font-variant-numeric:tabular-nums}
.backtest th,.backtest td{padding:6px 18px 6px 0;text-align:right;border-bottom:1px solid var(--line,#8884)}
.backtest th:first-child,.backtest td:first-child{text-align:left}
.backtest th{font-weight:500;opacity:.75}
.run{margin:0 0 24px}.run svg{max-width:100%;height:auto;display:block}
"""


def cells_of(found: Backtest) -> tuple[str, ...]:
    """One row of the table, in the order of `HEADERS`; the same on the screen and on the page."""
    return (
        found.policy,
        f"{found.slo_misses:,}{share(found.slo_misses, found.requests)}",
        f"{found.replica_hours:,.2f} h",
        f"{found.scale_events:,}",
        f"{found.rank_moves:,}",
        _seconds(found.wait_s.p50),
        _seconds(found.wait_s.p99),
    )


def render_backtest(title: str, slo_wait_s: float, found: Sequence[Backtest], rerun: str) -> str:
    """The whole page, with nothing outside it; `rerun` is the command that made it. The same runs give the same bytes."""
    head = "".join(f"<th>{escape(header)}</th>" for header in HEADERS)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells_of(each))}</tr>" for each in found)
    most = max((bucket.high for each in found for bucket in each.result.series[DEPLOYMENT].waiting), default=0.0)
    panels = (Running(DEPLOYMENT), Waiting(DEPLOYMENT, scale=most))
    pictures = "".join(_picture(each, panels) for each in found)
    parts = [
        "<main>",
        '<header><p class="eyebrow">rankcore autoscale-backtest</p>',
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{found[0].requests:,} requests, the same for each policy. A request misses its objective when it '
        f"waits longer than {slo_wait_s:g} s for a replica, or is not done.</p>",
        f'<div class="again"><code>{escape(rerun)}</code></div></header>',
        f'<table class="backtest"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>',
        pictures,
        "</main>",
    ]
    styles = asset("tokens.css") + asset("multiples.css") + _STYLES
    return document(f"{title} - rankcore autoscale-backtest", styles=styles, body="\n".join(parts))


def _picture(found: Backtest, panels: Sequence[Panel]) -> str:
    name = found.policy
    return f'<figure class="run" data-policy="{escape(name)}">{render_still(found.result, panels, title=name)}</figure>'


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
