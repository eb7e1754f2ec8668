"""The report of a run with residency: what it came to, lanes of the memory of all GPUs, and what happened and why."""

from collections.abc import Sequence
from html import escape

from executors.simulator.report.data import Json
from executors.simulator.report.memory.data import memory_data
from executors.simulator.report.memory.verdict import verdict_of_residency
from executors.simulator.report.memory.words import COLUMNS, deployment_row, groups
from executors.simulator.report.parts import LIST, OVERLAYS, cards, header, panel, timeline, whole_page
from executors.simulator.report.words import duration
from executors.simulator.residency.run import ResidencyResult
from executors.simulator.times import moment

SCRIPTS = (
    "common",
    "memory_model",
    "view",
    "paint",
    "stage",
    "memory",
    "charts",
    "table",
    "tooltip",
    "pointer",
    "timeline",
    "memory_main",
)
ROWS_MAX = 200

_LEGEND = """<ul class="legend" aria-label="legend"><li><i class="k running"></i>HOT, as high as what it holds of the GPU;
another colour for another deployment</li><li><i class="k starting"></i>loading</li><li><i class="k draining"></i>leaving</li>
<li><i class="k warm"></i>WARM: a copy in CPU memory</li><li><i class="k vacant"></i>node down</li>
<li><i class="k ctl"></i>no controller</li>
<li><i class="k fault"></i>fault</li><li><i class="k change"></i>change</li></ul>"""


def render_memory_page(result: ResidencyResult, rerun: str) -> str:
    """The whole page, with styles, script and data in it and nothing outside it; `rerun` is the command that made it.

    The same run gives the same bytes, of which there are a few millions at most; the page says what of the run is not in it.
    """
    data = memory_data(result)
    facts = [
        ("seed", str(result.seed)),
        ("deployments", f"{len(result.deployments):,}"),
        ("nodes", f"{len(result.nodes):,}"),
        ("simulated", duration(result.ended_at)),
        ("events", f"{result.happened:,}"),
    ]
    if result.busiest_minute_at is not None:
        facts.append(("busiest minute", f"from {moment(result.busiest_minute_at)}"))
    body = "\n".join(
        (
            '<main id="report" class="memory">',
            header(result.scenario, verdict_of_residency(result), facts, rerun),
            cards([(title, _lines(rows)) for title, rows in groups(result)]),
            timeline(_LEGEND, _panels()),
            _deployments(result),
            LIST.replace('<th scope="col">rank</th>', '<th scope="col" class="rank"></th>'),
            _footer(data),
            "</main>",
            OVERLAYS,
        )
    )
    return whole_page(result.scenario, body, SCRIPTS, data)


def _lines(rows: Sequence[tuple[str, str]]) -> str:
    lines = []
    for label, value in rows:
        part = ' class="part"' if label.startswith(" ") else ""
        lines.append(f'<tr><th scope="row"{part}>{escape(label.strip())}</th><td>{escape(value)}</td></tr>')
    return "\n".join(lines)


def _panels() -> list[str]:
    return [
        panel("overview", "", ""),
        panel("axis", "", ""),
        panel("memory", "memory of each GPU", "who held how much of it; below the GPUs of a node, its CPU cache"),
        panel("used", "GPU memory of all nodes", "GB held; dashed: free, but of no use; dotted: in CPU caches"),
        panel("waiting", "requests waiting", "mean, and the range within each stretch of time"),
        panel("answers", "from a miss to the first answer", "seconds, of first answers that came then"),
    ]


def _deployments(result: ResidencyResult) -> str:
    """A row for each deployment, in the order of the scenario."""
    head = "".join(f'<th scope="col" title="{escape(about)}">{escape(name)}</th>' for name, about in COLUMNS)
    lines = []
    for figures in result.deployments[:ROWS_MAX]:
        first, *cells = (escape(cell) for cell in deployment_row(figures, result.ended_at))
        lines.append(f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    left = len(result.deployments) - ROWS_MAX
    more = f"<p>{left:,} more deployments: see --json.</p>" if left > 0 else ""
    body = "\n".join(lines)
    return (
        f'<section id="models" class="card"><h2>Deployments</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>{more}</section>"
    )


_ABOUT = (
    "This page is one file and loads nothing. Fragmented memory is free, but on a node on which a replica of a deployment "
    "that may be wanted next has no room, though it would have if the node were empty; deployments count by their requests. "
    "The same seed gives the same run and the same page, to the byte."
)


def _footer(data: Json) -> str:
    """What the page is, and what of the run is not in it."""
    left_out = data["left_out"]
    cuts = (("spans", "stays"), ("outages", "outages"))
    parts = [f"{left_out[what]:,} of the shortest {word}" for what, word in cuts if left_out[what]]
    cut = f"<p>Not in the picture, to keep the file small: {', '.join(parts)}. The figures count them.</p>" if parts else ""
    return f"<footer>{cut}<p>{_ABOUT}</p></footer>"
