"""The page of a search: the answer, what each objective costs (the Pareto front), and the command for each combination."""

import math
from collections.abc import Sequence
from html import escape

import attrs

from executors.simulator.questions.goal_search import GoalVerdict
from executors.simulator.questions.goals import condition
from executors.simulator.questions.optimizing import Optimum, Tried
from executors.simulator.questions.optimum_words import VERDICTS, interval, listed, simulate_command, words_of
from executors.simulator.report.assets import asset, document
from executors.simulator.report.chart import even_ticks, short
from executors.simulator.scenario.objectives import SHARE, Goal

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 46
ROWS_MAX = 400


@attrs.frozen
class Mark:
    """One combination in a chart.

    Attributes:
        cost: What is to be small; where it is to be large, its negative.
        figure: What an objective is about; infinite: never.
        is_met: Whether it meets all objectives.
        is_answer: Whether it is the answer.
        told: What it says when it is pointed at.
    """

    cost: float
    figure: float
    is_met: bool
    is_answer: bool
    told: str


def front_of(marks: Sequence[Mark], *, less_is_better: bool) -> list[Mark]:
    """Those than which none is both cheaper and better, from the cheapest on; of equals the first."""
    sign = 1 if less_is_better else -1
    found: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.cost, sign * mark.figure)):
        if math.isfinite(mark.figure) and (not found or sign * mark.figure < sign * found[-1].figure):
            found.append(mark)
    return found


def render_front(title: str, found: Optimum, sentence: str, rerun: str) -> str:
    """The whole page, with nothing outside it; `rerun` is the command that made it. The same search gives the same bytes."""
    question = found.question
    charts = "".join(_figure(found, place, goal) for place, goal in enumerate(question.goals))
    body = [
        "<main>",
        '<header><p class="eyebrow">rankcore optimize</p>',
        f"<h1>{escape(title)}</h1>",
        f'<p class="answer">{escape(sentence)}</p>',
        f'<div class="again"><code>{escape(rerun)}</code></div></header>',
        f"<section><h2>What {escape(listed([str(goal.reading) for goal in question.goals]))} costs</h2>",
        '<p class="soft">A mark is a combination that was run: filled where it is shown to meet all objectives, hollow where '
        "it is not, ringed where it is the answer. The line is the Pareto front: nothing that was run is both cheaper and "
        "better. Dashed is the limit.</p>",
        f'<div class="grid">{charts}</div></section>' if found.tried else '<p class="soft">Nothing was run.</p></section>',
        _table(found),
        "</main>",
    ]
    styles = asset("tokens.css") + asset("multiples.css") + asset("front.css")
    return document(f"{title} - rankcore optimize", styles=styles, body="\n".join(body))


def _figure(found: Optimum, place: int, goal: Goal) -> str:
    is_share = goal.in_windows or goal.reading.before == SHARE
    aim, scale = found.question.aim, 100.0 if is_share else 1.0
    marks = [
        Mark(
            aim.sign * each.cost,
            scale * each.measured[place].value,
            each.verdict is GoalVerdict.MET,
            found.best is not None and each.cell == found.best.cell,
            f"{words_of(each.settings)}: {goal.reading} {interval(goal, each.measured[place])}, {aim.name} "
            f"{aim.shown(each.cost)}, {VERDICTS[each.verdict]} in {each.runs} runs",
        )
        for each in found.tried
    ]
    unit = "%" if is_share else goal.reading.figure.unit
    what = f"windows with {condition(goal)}" if goal.in_windows else str(goal.reading)
    name = escape(f"{what} [{unit}]" if unit else what)
    across = f"{aim.name} [{aim.unit}]" if aim.unit else aim.name
    chart = _chart(marks, scale * goal.bar, goal.compared[0] > 0, aim.sign, across, goal.text)
    never = sum(not math.isfinite(mark.figure) for mark in marks)
    below = f'<p class="soft">{never} more never had one.</p>' if never else ""
    return (
        f'<figure class="card" data-figure="{escape(str(goal.reading))}"><figcaption>{name}</figcaption>{chart}{below}</figure>'
    )


def _chart(marks: Sequence[Mark], limit: float, less_is_better: bool, sign: int, across: str, title: str) -> str:
    shown = [mark for mark in marks if math.isfinite(mark.figure)]
    if not shown:
        return '<p class="none">no run had a value</p>'
    costs, figures = [sign * mark.cost for mark in shown], [*(mark.figure for mark in shown), limit]
    xs, ys = even_ticks(min(costs), max(costs)), even_ticks(min(0.0, *figures), max(figures))

    def x(mark_cost: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (sign * mark_cost - xs[0]) / (xs[-1] - xs[0])

    def y(figure: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (figure - ys[0]) / (ys[-1] - ys[0]))

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for tick in ys:
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y(tick) + 3.5:.1f}">{short(tick)}</text>')
    for tick in xs:
        parts.append(f'<text class="place" x="{x(sign * tick):.1f}" y="{HEIGHT - 26}">{short(tick)}</text>')
    parts.append(f'<text class="place" x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{HEIGHT - 8}">{escape(across)}</text>')
    parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(limit):.1f}" y2="{y(limit):.1f}"/>')
    front = front_of(shown, less_is_better=less_is_better)
    parts.append(f'<polyline class="front" points="{" ".join(f"{x(each.cost):.1f},{y(each.figure):.1f}" for each in front)}"/>')
    for mark in shown:
        kind = ("met" if mark.is_met else "other") + (" answer" if mark.is_answer else "")
        at = f'cx="{x(mark.cost):.1f}" cy="{y(mark.figure):.1f}"'
        parts.append(f'<g class="mark"><title>{escape(mark.told)}</title><circle class="{kind}" {at} r="4.5"/></g>')
    return "".join((*parts, "</svg>"))


def _table(found: Optimum) -> str:
    question = found.question
    aim = f"{question.aim.name} [{question.aim.unit}]" if question.aim.unit else question.aim.name
    heads = (*(variation[0].key for variation in question.variations), "runs", aim, *(goal.text for goal in question.goals))
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in (*heads, "verdict", "one run of it"))
    rows = "".join(_row(found, each) for each in found.tried[:ROWS_MAX])
    left_out = len(found.tried) - ROWS_MAX
    more = f'<p class="soft">{left_out:,} more are in optimize.csv.</p>' if left_out > 0 else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<section><h2>What was run</h2><div class="card wide">{table}</div>{more}'
        '<p class="soft">In brackets: where the true mean is, with the confidence that the decisions have; ~ is not decided, '
        "and counts as missed.</p></section>"
    )


def _row(found: Optimum, each: Tried) -> str:
    question = found.question
    is_best = found.best is not None and each.cell == found.best.cell
    cells = [*(setting.text for setting in each.settings), str(each.runs), question.aim.shown(each.cost)]
    cells += [interval(goal, m) for goal, m in zip(question.goals, each.measured, strict=True)]
    cells.append("the answer" if is_best else VERDICTS[each.verdict])
    told = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    kind = ' class="answer"' if is_best else ""
    return f"<tr{kind}>{told}<td><code>{escape(simulate_command(question, each))}</code></td></tr>"
