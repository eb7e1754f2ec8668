"""A page of small charts says what a sweep came to, the same each time, with nothing from outside."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.report import SweepCell, render_multiples
from executors.simulator.report.chart import Point, short, ticks_of
from tests.report_runs import HOSTILE

CELLS = [
    SweepCell(
        {"target_replicas": str(target), "compaction": compaction},
        {"wait p99 [s]": (40.0 / target, 42.0 / target, 41.0 / target), "ranks moved": (1.0, 2.0, float(target))},
    )
    for target in (8, 12, 16)
    for compaction in ("when_healthy", "immediate")
]


def charts(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<figure.*?</figure>", page, re.DOTALL)]


def titles(figure: ElementTree.Element) -> list[str]:
    return [found.text or "" for found in figure.iter("title")]


def test_there_is_a_row_for_each_parameter_and_a_chart_for_each_figure():
    page = render_multiples("a sweep", CELLS, "rankcore sweep x.yaml")
    assert re.findall(r'data-parameter="([^"]*)"', page) == ["target_replicas", "compaction"]
    assert [figure.get("data-figure") for figure in charts(page)] == ["wait p99 [s]", "ranks moved"] * 2
    assert "rankcore sweep x.yaml" in page


def test_each_mark_tells_its_mean_its_interval_and_how_many_runs():
    page = render_multiples("a sweep", CELLS, "rerun")
    told = titles(charts(page)[0])
    assert len(told) == 6
    assert told[0] == "compaction = when_healthy, 8: 5.12, 95 % from 4.81 to 5.44, 3 runs"


def test_more_combinations_than_lines_are_one_line_over_all_of_them():
    cells = [SweepCell({"a": str(a), "b": str(b)}, {"x": (float(a + b),)}) for a in range(2) for b in range(9)]
    page = render_multiples("a sweep", cells, "rerun")
    first = charts(page)[0]
    assert len(titles(first)) == 2
    assert "9 runs" in titles(first)[0]


def test_runs_without_a_value_are_left_out_and_a_figure_without_any_says_so():
    cells = [SweepCell({"a": "1"}, {"x": (1.0, math.nan, 3.0), "never": (math.nan,)})]
    page = render_multiples("a sweep", cells, "rerun")
    assert "2 runs" in titles(charts(page)[0])[0]
    assert "no run had a value" in page


def test_hostile_words_are_words():
    page = render_multiples(HOSTILE, [SweepCell({HOSTILE: HOSTILE, "b": HOSTILE}, {HOSTILE: (1.0, 2.0)})], HOSTILE)
    assert "<script" not in page
    assert "<img" not in page
    assert "script-src" not in page  # nothing may run at all
    assert charts(page)


def test_the_same_cells_give_the_same_page_and_no_cells_give_one_too():
    assert render_multiples("a", CELLS, "r") == render_multiples("a", CELLS, "r")
    assert "Nothing was run" in render_multiples("a", [], "r")
    for outside in ("http://", "https://", "src=", "url(", "@import", "<link"):
        assert outside not in render_multiples("a", CELLS, "r")


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e5)), min_size=1, max_size=8))
def test_the_scale_reaches_over_all_means_in_even_steps(points):
    ticks = ticks_of([Point(0, mean, mean - half, mean + half, 2) for mean, half in points])
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= min(0.0, *(mean for mean, _ in points)) + 1e-9
    assert ticks[-1] >= max(0.0, *(mean for mean, _ in points)) - 1e-9
    steps = [after - before for before, after in pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps))


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "0"), (0.25, "0.25"), (14.23, "14.2"), (1268.4, "1,268"), (2_400_000.0, "2.4M"), (-3.0, "-3")]
)
def test_numbers_are_short(value, words):
    assert short(value) == words
