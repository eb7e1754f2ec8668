"""The page of a search: what each objective costs, with the front, the answer and the command of each combination."""

import re
from xml.etree import ElementTree

import attrs
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.load.sources import Source
from executors.simulator.questions.goal_search import GoalVerdict
from executors.simulator.questions.goals import parse_aim
from executors.simulator.questions.optimizing import GoalQuestion, Measured, Optimum, Tried
from executors.simulator.questions.optimum_words import in_a_sentence
from executors.simulator.questions.settings import Setting
from executors.simulator.report.front import Mark, front_of, render_front
from executors.simulator.scenario.objectives import parse_goal
from tests.report_runs import HOSTILE

TEXT = "nodes: [{name: n, count: 2, gpus: 8}]\ndeployments: [{name: llm, target_replicas: 3, gpus_per_replica: 2}]\n"


def optimum(key: str = "target_replicas", name: str = "s.yaml") -> Optimum:
    variations = (tuple(Setting(key, str(target)) for target in range(1, 6)),)
    question = GoalQuestion(
        source=Source(name, TEXT, "."),
        variations=variations,
        axis=0,
        goals=(parse_goal("p99 latency_s < 2"), parse_goal("share lost < 1%")),
        aim=parse_aim("gpus", None, None),
        seed=7,
        runs_max=20,
        budget=500,
    )

    def tried(cell: int, verdict: GoalVerdict, slow: float, lost: float, runs: int = 20) -> Tried:
        never = slow == float("inf")
        return Tried(
            cell=cell,
            settings=question.settings(cell),
            runs=runs,
            verdict=verdict,
            cost=2.0 * (cell + 1),
            gpu_hours=cell + 0.5,
            measured=(
                Measured(value=slow, low=None if never else slow - 0.5, high=None if never else slow + 0.25, kept=runs),
                Measured(value=lost, low=lost, high=lost, kept=runs),
            ),
        )

    cells = (
        tried(0, GoalVerdict.MISSED, float("inf"), 0.5, runs=3),
        tried(1, GoalVerdict.OPEN, 1.9, 0.002),
        tried(2, GoalVerdict.MET, 1.5, 0.001),
        tried(3, GoalVerdict.MET, 1.6, 0.0),
    )
    return Optimum(
        question=question,
        tried=cells,
        best=cells[2],
        below=cells[1],
        above=cells[3],
        not_monotone=False,
        out_of_budget=False,
        runs=63,
    )


def charts(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<figure.*?</figure>", page, re.DOTALL)]


def kinds(figure: ElementTree.Element) -> list[str]:
    return [circle.get("class") or "" for circle in figure.iter("circle")]


def test_each_objective_has_a_chart_in_which_the_answer_and_those_that_meet_all_stand_out():
    page = render_front("a search", optimum(), "It takes 3.", "rankcore optimize s.yaml")
    slow, lost = charts(page)
    assert [figure.get("data-figure") for figure in (slow, lost)] == ["p99 latency_s", "share lost"]
    assert kinds(slow) == ["other", "met answer", "met"]  # one never had an answer
    assert kinds(lost) == ["other", "other", "met answer", "met"]
    assert "1 more never had one." in "".join(slow.itertext())
    assert [title.text for title in slow.iter("title")][1] == (
        "target_replicas=3: p99 latency_s 1.50 s (1 to 1.75), gpus 6 GPUs, met in 20 runs"
    )
    assert "It takes 3." in page
    assert "rankcore optimize s.yaml" in page


def test_the_line_goes_through_the_front_alone():
    slow, _ = charts(render_front("a search", optimum(), "", ""))
    (line,) = (each.get("points") for each in slow.iter("polyline"))
    marks = [(circle.get("cx"), circle.get("cy")) for circle in slow.iter("circle")]
    assert line == " ".join(f"{x},{y}" for x, y in marks[:2])  # the third costs more and is slower


def test_each_row_has_the_command_that_makes_its_first_run():
    page = render_front("a search", optimum(), "", "")
    assert re.findall(r"<td><code>(.*?)</code>", page)[2] == "rankcore simulate s.yaml --set target_replicas=3 --seed 7"
    assert page.count("<tr>") == 4  # the head and three
    assert page.count('<tr class="answer">') == 1
    assert "<td>~</td>" in page
    assert "<td>never</td>" in page


def test_hostile_words_are_words_and_nothing_is_loaded():
    page = render_front(HOSTILE, optimum(name=HOSTILE), HOSTILE, HOSTILE)
    assert "<script" not in page
    assert "<img" not in page
    assert "script-src" not in page
    assert charts(page)
    for outside in ("http://", "https://", "src=", "url(", "@import", "<link"):
        assert outside not in render_front("a", optimum(), "b", "c")
    nothing = attrs.evolve(optimum(), tried=(), best=None, below=None, above=None)
    assert "Nothing was run" in render_front("a", nothing, in_a_sentence(nothing, None), "c")


def test_the_sentence_says_what_to_buy_how_sure_it_is_and_what_less_would_be():
    assert in_a_sentence(optimum(), 2.5) == (
        "target_replicas=3 is the setting with the least gpus (6 GPUs) that meets p99 latency_s < 2 and share lost < 1%: "
        "p99 latency_s 1.50 s (at most 1.75 s with 95 % confidence) and share lost 0.1 %, over all requests of 20 runs. "
        "It takes 3 replicas on 6 GPUs, 2.50 GPU-hours a run; at 2.50 USD a GPU-hour 15 USD per hour. One step less, "
        "target_replicas=2, is not shown to meet them: p99 latency_s 1.90 s and share lost 0.2 %."
    )
    beware = in_a_sentence(attrs.evolve(optimum(), below=None, not_monotone=True, out_of_budget=True), None)
    assert "USD" not in beware
    assert "One step less" not in beware
    assert "Beware: it is not monotone, a setting beyond it misses an objective again. The budget of 500 runs is gone" in beware
    none = in_a_sentence(attrs.evolve(optimum(), best=None), None)
    assert none == (
        "No setting is shown to meet p99 latency_s < 2 and share lost < 1%: 4 of 5 combinations were run. Nearest is "
        "target_replicas=2: p99 latency_s < 2: 1.90 s (1.40 to 2.15) and share lost < 1%: 0.2 %."
    )


MARKS = st.lists(
    st.builds(Mark, st.integers(0, 9).map(float), st.integers(0, 9).map(float), st.booleans(), st.just(False), st.just(""))
)


@given(MARKS, st.booleans())
def test_the_front_is_what_nothing_is_cheaper_and_better_than(marks, less_is_better):
    sign = 1 if less_is_better else -1
    front = front_of(marks, less_is_better=less_is_better)

    def beats(one: Mark, other: Mark) -> bool:
        better, cheaper = sign * one.figure <= sign * other.figure, one.cost <= other.cost
        return better and cheaper and (one.cost, one.figure) != (other.cost, other.figure)

    expected = {(mark.cost, mark.figure) for mark in marks if not any(beats(other, mark) for other in marks)}
    assert {(mark.cost, mark.figure) for mark in front} == expected
    assert len(front) == len(expected)
    assert [mark.cost for mark in front] == sorted(mark.cost for mark in front)
