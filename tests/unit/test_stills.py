"""A picture that stands still shows what the page shows, the same each time, with nothing from outside."""

import re
from xml.etree import ElementTree

import attrs
import pytest

from executors.simulator.record.timeline import Phase
from executors.simulator.report.chart import Chart, Point
from executors.simulator.report.stills import NodesDown, RankLanes, Running, Waiting, render_charts, render_still
from executors.simulator.report.stills.lanes import colours_of
from executors.simulator.report.stills.palette import COLOURS
from executors.simulator.run import RunResult
from tests.report_runs import HOSTILE, everything, hostile

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def result() -> RunResult:
    return everything()


def drawn(result: RunResult, **options: float) -> str:
    name = result.deployments[0].name
    panels = [RankLanes(name), Running(name), Waiting(name), NodesDown("nodes down", spare=1)]
    return render_still(result, panels, title="a run", **options)


def test_every_phase_that_occurs_is_drawn_and_explained(result):
    picture = drawn(result)
    name = result.deployments[0].name
    phases = {hold.phase for hold in result.holds[name]} - {Phase.RUNNING, Phase.WAITING}
    assert {Phase.STARTING, Phase.MOVING, Phase.DRAINING} <= phases
    words = [text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    for phase in sorted(phases):
        assert f"url(#{phase}" in picture
        assert any(word.startswith(phase) for word in words)
    for entry in ("a replica that serves", "vacant, though wanted", "no controller", "a run"):
        assert entry in words


def test_every_fill_that_is_named_is_there(result):
    picture = drawn(result)
    named = set(re.findall(r"url\(#(\w+)\)", picture))
    assert named == {pattern.get("id") for pattern in ElementTree.fromstring(picture).iter(f"{SVG}pattern")}


def test_faults_and_changes_stand_above_with_their_words(result):
    words = [text.text or "" for text in ElementTree.fromstring(drawn(result)).iter(f"{SVG}text")]
    assert any(word.startswith("node gpu-node-1 lost") for word in words)
    assert "the controller crashed" in words
    assert "llm: target_replicas = 5" in words


def test_words_above_never_overlap(result):
    for since in (0.0, 90.0, 190.0, 290.0):
        taken: list[tuple[float, float, float]] = []
        for text in ElementTree.fromstring(drawn(result, since=since)).iter(f"{SVG}text"):
            if text.get("class") == "strong" and text.text is not None and "waits for room" not in text.text:
                x, y, wide = float(text.get("x", 0)), float(text.get("y", 0)), len(text.text) * 6.0
                span = (x - wide, x) if text.get("text-anchor") == "end" else (x, x + wide)
                assert all(y != other or span[1] <= low or span[0] >= high for other, low, high in taken)
                taken.append((y, *span))
        assert taken


def test_a_part_of_a_run_is_drawn_within_the_picture(result):
    root = ElementTree.fromstring(drawn(result, since=190.0, until=290.0))
    width = float(root.get("width", 0))
    for rect in root.findall(f"{SVG}rect"):
        assert 0 <= float(rect.get("x", 0)) <= float(rect.get("x", 0)) + float(rect.get("width", 0)) <= width


def test_names_are_text_and_nothing_else():
    broken = hostile()
    root = ElementTree.fromstring(drawn(broken))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "style", "defs", "pattern", "rect", "text", "line", "polyline", "polygon",
    }  # fmt: skip
    assert any(HOSTILE in (text.text or "") for text in root.iter(f"{SVG}text"))


def test_nothing_is_loaded_and_both_themes_are_there(result):
    picture = drawn(result)
    assert "prefers-color-scheme:dark" in picture
    assert not re.search(r"href|@import|https?://(?!www\.w3\.org/2000/svg)|<script", picture)


def test_the_same_run_gives_the_same_bytes(result):
    assert drawn(result) == drawn(everything())


def test_more_marks_than_can_be_read_are_left_to_the_lanes(result):
    many = attrs.evolve(result, happenings=result.happenings + tuple(
        attrs.evolve(each, at=each.at + shift) for shift in range(1, 9) for each in result.happenings
    ))  # fmt: skip
    assert "the controller crashed" not in drawn(many)


def test_a_replica_keeps_its_colour_and_its_follower_has_another(result):
    holds = result.holds[result.deployments[0].name]
    colours = colours_of(holds)
    assert set(colours.values()) <= set(range(COLOURS))
    assert colours["llm#1.3"] != colours["llm#1.8"]  # the replacement of the crashed rank 3


def test_charts_stand_side_by_side():

    lines = (tuple(Point(place, 2.0 * place, 2.0 * place - 1, 2.0 * place + 1, 3) for place in range(3)),) * 2
    charts = [Chart(name, ("8", "12", "16"), ("spare", "none"), lines) for name in ("waits <s>", "gaps")]
    root = ElementTree.fromstring(render_charts("a sweep", charts, "three runs"))
    inner = root.findall(f"{SVG}svg")
    assert [each.get("aria-label") for each in inner] == ["waits <s>", "gaps"]
    assert float(inner[0].get("x", 0)) + float(inner[0].get("width", 0)) < float(inner[1].get("x", 0))
