"""The page of a fork: the run as it was, and with the faults, on one time axis; up to the fork both are the same."""

from collections.abc import Iterable, Sequence
from html import escape

import attrs

from executors.simulator.report.page import unserved_card
from executors.simulator.report.together import NamedRun, Telling, render_together
from executors.simulator.report.verdict import verdict_of
from executors.simulator.report.words import duration
from executors.simulator.times import moment

ABOUT = (
    "A is the run without the faults, B is the fork: verdict, and ranks that lost their holder, are those of B. Figures are of "
    "the whole run. This page is one file and loads nothing."
)


@attrs.frozen
class Pair:
    """The figures of one deployment, or of all, in two runs: the values of both for each label."""

    name: str
    lines: Sequence[tuple[str, Sequence[str]]]


def render_fork(original: NamedRun, forked: NamedRun, pairs: Iterable[Pair], at: float, said: Sequence[str], rerun: str) -> str:
    """The whole page; `at`: when they part, in virtual seconds; `said`: what there is to know of the first one."""
    result = forked.result
    telling = Telling(
        title=result.scenario,
        verdict=verdict_of(result),
        facts=[
            ("seed", str(result.seed)),
            ("simulated", duration(result.ended_at)),
            ("events", f"{result.happened:,}"),
            ("forked", f"at {moment(at)}"),
        ],
        figures=_figures(pairs, said),
        after=unserved_card(result),
        about=ABOUT,
        rerun=rerun,
        command="fork",
    )
    return render_together([original, forked], telling)


def _figures(pairs: Iterable[Pair], said: Sequence[str]) -> str:
    blocks = "".join(_pair(pair) for pair in pairs)
    notes = "".join(f'<p class="equal">{escape(text)}</p>' for text in said)
    return f'<section id="figures" class="figures many" aria-label="figures">{blocks}{notes}</section>'


def _pair(pair: Pair) -> str:
    """Those that differ in a table, the others in a sentence."""
    lines, whose = [], ""
    for label, (was, now) in pair.lines:
        whose = whose if label.startswith(" ") else label
        name = f"{whose}: {label.strip()}" if label.startswith(" ") else label
        if was != now:
            first, *cells = map(escape, (name, was, now))
            lines.append(f'<tr><th scope="row">{first}</th><td>{cells[0]}</td><td class="differs">{cells[1]}</td></tr>')
    equal = [f"{label.strip()} ({was})" for label, (was, now) in pair.lines if was == now]
    head = '<td></td><th scope="col">A</th><th scope="col">B</th>'
    table = (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>' if lines else ""
    )
    same = f'<p class="equal">Equal in both: {escape(", ".join(equal))}</p>' if equal else ""
    return f'<div class="card"><h2>{escape(pair.name)}</h2>{table}{same}</div>'
