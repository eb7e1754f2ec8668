"""How two scenarios differ, in words and on a page: each figure with both means, the difference and its interval."""

from collections.abc import Sequence
from html import escape

from executors.simulator.questions.comparison import Comparison, DeploymentComparison, FigureComparison
from executors.simulator.questions.statistics import Estimate
from executors.simulator.record.flat_figures import is_percentile, label, number, quantity
from executors.simulator.report.together import NamedRun, Telling, render_together
from executors.simulator.report.words import duration

HEADERS = ("figure", "A", "B", "B - A", "95 % interval", "different?")

ABOUT = (
    "The figures are means over all pairs of runs; the picture is of the first pair. Both draw the same random numbers for the "
    "same purposes, so that requests, start-up times and faults are the same wherever the scenarios are. Where the interval "
    "holds 0, the runs cannot tell the difference from chance; alone it makes 1 of 20 look real. "
    "This page is one file and loads nothing."
)


def render_comparison(found: Comparison, runs: Sequence[NamedRun], rerun: str) -> str:
    """The whole page; `runs`: the pair of the first seed."""
    compared = [figure for deployment in found.deployments for figure in deployment.figures]
    seeds = f"{found.seeds[0]}" if len(found.seeds) == 1 else f"{found.seeds[0]} to {found.seeds[-1]}"
    facts = [
        ("runs of each", f"{len(found.seeds):,}"),
        ("seeds", seeds),
        ("in the picture", f"seed {found.seeds[0]}"),
        ("simulated", " and ".join(dict.fromkeys(duration(run.result.ended_at) for run in runs))),
        (
            "different beyond chance",
            f"{sum(figure.difference.excludes_zero or False for figure in compared):,} of {len(compared):,}",
        ),
    ]
    telling = Telling(
        title=" and ".join(dict.fromkeys(run.result.scenario for run in runs)),
        facts=facts,
        figures=_figures(found),
        about=ABOUT,
        rerun=rerun,
        command="compare",
    )
    return render_together(runs, telling)


def _figures(found: Comparison) -> str:
    blocks = "".join(_deployment(deployment) for deployment in found.deployments)
    only = "".join(
        f'<p class="equal">only in {letter}, compared with nothing: {escape(", ".join(others))}</p>'
        for letter, others in (("A", found.only_first), ("B", found.only_second))
        if others
    )
    chance = '<p class="equal">One pair says nothing of chance, so there is no interval: more --runs give one.</p>'
    return (
        f'<section id="figures" class="figures many" aria-label="figures">{blocks}'
        f"{only}{chance if len(found.seeds) == 1 else ''}</section>"
    )


def _deployment(deployment: DeploymentComparison) -> str:
    head = "".join(f'<th scope="col">{name}</th>' if index else "<td></td>" for index, name in enumerate(HEADERS))
    lines = []
    for figure in deployment.figures:
        if not is_equal(figure):
            first, *cells, said = (escape(cell) for cell in cells_of(figure))
            differs = ' class="differs"' if figure.difference.excludes_zero else ""
            numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
            lines.append(f'<tr><th scope="row">{first}</th>{numbers}<td{differs}>{said}</td></tr>')
    table = (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>' if lines else ""
    )
    same = equal_in_words(deployment)
    equal = f'<p class="equal">{escape(same)}</p>' if same else ""
    return f'<div class="card"><h2>{escape(deployment.name)}</h2>{table}{equal}</div>'


def cells_of(figure: FigureComparison) -> tuple[str, ...]:
    """One row, in the order of `HEADERS`; the same on the screen and on the page."""
    return (
        label(figure.key),
        quantity(figure.key, figure.first_mean),
        quantity(figure.key, figure.second_mean),
        "-" if figure.difference.mean is None else number(figure.difference.mean, signed=True),
        interval(figure.difference),
        verdict(figure),
    )


def equal_in_words(deployment: DeploymentComparison) -> str:
    """The figures in which there is nothing to see; empty: there is none."""
    equal = [
        f"{label(figure.key)} ({quantity(figure.key, figure.first_mean)})" for figure in deployment.figures if is_equal(figure)
    ]
    return f"Equal in every pair: {', '.join(equal)}" if equal else ""


def interval(difference: Estimate) -> str:
    """From where to where; `-` where there is none."""
    if difference.low is None or difference.high is None:
        return "-"
    return f"{number(difference.low, signed=True)} to {number(difference.high, signed=True)}"


def is_equal(figure: FigureComparison) -> bool:
    """Whether there is nothing to see: both have the same value, or none, on every seed."""
    return figure.first == figure.second


def verdict(figure: FigureComparison) -> str:
    """What the interval says, in words."""
    difference, runs = figure.difference, len(figure.first)
    if is_percentile(figure.key) and None in figure.first + figure.second:
        return "by requests not done"
    if not difference.count:
        return "no pair has both"
    of = "" if difference.count == runs else f" ({difference.count} of {runs} pairs)"
    if difference.low is None or difference.mean is None:
        return f"one pair{of}"
    if not difference.excludes_zero:
        return f"no{of}"
    return f"B {'higher' if difference.mean > 0 else 'lower'}{of}"
