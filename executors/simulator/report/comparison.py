"""How two scenarios differ, in words and on a page: each figure with both means, the difference and its interval."""

from collections.abc import Sequence
from html import escape

from executors.simulator.questions.comparison import Comparison, DeploymentComparison, FigureComparison
from executors.simulator.questions.statistics import Estimate
from executors.simulator.record.flat_figures import is_percentile, label, number, quantity
from executors.simulator.report.together import LETTERS, NamedRun, Telling, render_together
from executors.simulator.report.words import duration

ABOUT = (
    "The figures are means over all runs; the picture is of the first seed. All scenarios draw the same random numbers for the "
    "same purposes, so that requests, start-up times and faults are the same wherever the scenarios are. Where the interval "
    "holds 0, the runs cannot tell the difference from chance; alone it makes 1 of 20 look real. "
    "This page is one file and loads nothing."
)


def render_comparison(found: Sequence[Comparison], runs: Sequence[NamedRun], rerun: str) -> str:
    """The whole page; `found`: the first scenario against each other one; `runs`: those of the first seed."""
    seeds = found[0].seeds
    facts = [
        ("runs of each", f"{len(seeds):,}"),
        ("seeds", f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"),
        ("in the picture", f"seed {seeds[0]}"),
        ("simulated", " and ".join(dict.fromkeys(duration(run.result.ended_at) for run in runs))),
        ("different beyond chance", ", ".join(_different(each, letter) for letter, each in _lettered(found))),
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


def _lettered(found: Sequence[Comparison]) -> Sequence[tuple[str, Comparison]]:
    """Each with the letter of the scenario that the first one is compared with."""
    return tuple(zip(LETTERS[1:], found, strict=False))


def _different(found: Comparison, letter: str) -> str:
    figures = [figure for deployment in found.deployments for figure in deployment.figures]
    return f"{sum(figure.difference.excludes_zero or False for figure in figures):,} of {len(figures):,} figures of {letter}"


def _figures(found: Sequence[Comparison]) -> str:
    blocks = "".join(_deployment(each, letter) for letter, pair in _lettered(found) for each in pair.deployments)
    only = "".join(
        f'<p class="equal">only in {which}, compared with nothing in {other}: {escape(", ".join(others))}</p>'
        for letter, pair in _lettered(found)
        for which, other, others in (("A", letter, pair.only_first), (letter, "A", pair.only_second))
        if others
    )
    chance = '<p class="equal">One pair says nothing of chance, so there is no interval: more --runs give one.</p>'
    return (
        f'<section id="figures" class="figures many" aria-label="figures">{blocks}'
        f"{only}{chance if len(found[0].seeds) == 1 else ''}</section>"
    )


def _deployment(deployment: DeploymentComparison, letter: str) -> str:
    head = "".join(f'<th scope="col">{name}</th>' if index else "<td></td>" for index, name in enumerate(headers_of(letter)))
    lines = []
    for figure in deployment.figures:
        if not is_equal(figure):
            first, *cells, said = (escape(cell) for cell in cells_of(figure, letter))
            differs = ' class="differs"' if figure.difference.excludes_zero else ""
            numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
            lines.append(f'<tr><th scope="row">{first}</th>{numbers}<td{differs}>{said}</td></tr>')
    table = (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>' if lines else ""
    )
    same = equal_in_words(deployment)
    equal = f'<p class="equal">{escape(same)}</p>' if same else ""
    return f'<div class="card"><h2>{escape(deployment.name)}: {letter} and A</h2>{table}{equal}</div>'


def headers_of(letter: str) -> tuple[str, ...]:
    """Of the columns, where the first scenario is compared with the one of that letter."""
    return ("figure", "A", letter, f"{letter} - A", "95 % interval", "different?")


def cells_of(figure: FigureComparison, letter: str) -> tuple[str, ...]:
    """One row, in the order of `headers_of`; the same on the screen and on the page."""
    return (
        label(figure.key),
        quantity(figure.key, figure.first_mean),
        quantity(figure.key, figure.second_mean),
        "-" if figure.difference.mean is None else number(figure.difference.mean, signed=True),
        interval(figure.difference),
        verdict(figure, letter),
    )


def equal_in_words(deployment: DeploymentComparison) -> str:
    """The figures in which there is nothing to see; empty: there is none."""
    same = [figure for figure in deployment.figures if is_equal(figure)]
    equal = [f"{label(each.key)} ({quantity(each.key, each.first_mean)})" for each in same if each.first_mean is not None]
    # Two percentiles without a value may be as far apart as never and nobody.
    lacking = [label(each.key) for each in same if each.first_mean is None]
    parts = (("Equal in every pair", equal), ("Not compared, as runs of both have no value", lacking))
    return ". ".join(f"{what}: {', '.join(figures)}" for what, figures in parts if figures)


def interval(difference: Estimate) -> str:
    """From where to where; `-` where there is none."""
    if difference.low is None or difference.high is None:
        return "-"
    return f"{number(difference.low, signed=True)} to {number(difference.high, signed=True)}"


def is_equal(figure: FigureComparison) -> bool:
    """Whether there is nothing to see: both have the same value, or none, on every seed."""
    return figure.first == figure.second


def verdict(figure: FigureComparison, letter: str = "B") -> str:
    """What the interval says, in words."""
    difference, runs = figure.difference, len(figure.first)
    if is_percentile(figure.key) and None in figure.first + figure.second:
        return "not in every run"
    if not difference.count:
        return "no pair has both"
    of = "" if difference.count == runs else f" ({difference.count} of {runs} pairs)"
    if difference.low is None or difference.mean is None:
        return f"one pair{of}"
    if not difference.excludes_zero:
        return f"no{of}"
    return f"{letter} {'higher' if difference.mean > 0 else 'lower'}{of}"
