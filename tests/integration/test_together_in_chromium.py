"""The page of several runs in a real browser: one time axis, a line of each, and what differs below it."""

from pathlib import Path

import attrs
import pytest

from executors.simulator.questions.held import held_objectives
from executors.simulator.report.data import series_columns
from executors.simulator.report.together import NamedRun, Telling, render_together
from executors.simulator.report.windows import windows_data
from executors.simulator.scenario.objectives import parse_goal
from tests.integration.test_report_in_chromium import PHONE, ask, browser, view, visit, wait_for_view  # noqa: F401
from tests.report_runs import HOSTILE, everything, hostile, run_of, without_the_node_loss

WIDE = (1440, 900)
TELLING = Telling(
    title="two", facts=[("seed", "3")], figures="", about="about", rerun=f"rankcore compare {30 * 'word '}", command="x"
)

GOALS = (parse_goal("p99 latency_s < 1.9 @ 90%"),)
LONGER = """
nodes: [{{name: n, count: 2, gpus: 1}}]
deployments: [{{name: llm, target_replicas: 2}}]
faults: [{{kind: node_loss, at: 100, node: n-1, back_after_s: {back}}}]
"""


@pytest.fixture(scope="module")
def runs():
    return everything(), without_the_node_loss()


@pytest.fixture(scope="module")
def files(tmp_path_factory, runs) -> Path:
    folder = tmp_path_factory.mktemp("together")
    long = NamedRun("a-long-name-" * 20, runs[1])
    pages = {
        "two": [NamedRun("a.yaml", runs[0]), NamedRun("b.yaml", runs[1])],
        "four": [NamedRun("a.yaml", runs[0]), long, NamedRun("c.yaml", everything()), NamedRun("d.yaml", runs[1])],
        "same": [NamedRun("a.yaml", runs[0]), NamedRun("b.yaml", everything())],
        "hostile": [NamedRun(HOSTILE, hostile()), NamedRun(HOSTILE, hostile())],
    }
    pages["objectives"] = [
        NamedRun(name, each, held_objectives(GOALS, 20.0, each)) for name, each in zip("ab", runs, strict=True)
    ]
    pages["began"] = [
        NamedRun(name, attrs.evolve(each, unix_s_at_0=1_700_000_000.0)) for name, each in zip("ab", runs, strict=True)
    ]
    short, long = (run_of(LONGER.format(back=back)) for back in (60, 600))
    pages["longer"] = [NamedRun("a.yaml", short), NamedRun("b.yaml", long)]
    more = run_of("nodes: [{name: n, count: 2, gpus: 1}]\ndeployments: [{name: llm, target_replicas: 2}]\n")
    few = run_of("nodes: [{name: n, count: 2, gpus: 1}]\ndeployments: [{name: llm, target_replicas: 1}]\n")
    pages["fewer"] = [NamedRun("a.yaml", more), NamedRun("b.yaml", few)]
    for name, named in pages.items():
        (folder / f"{name}.html").write_text(render_together(named, TELLING), encoding="utf-8")
    return folder


def means(result, name: str) -> dict[float, float]:
    columns = series_columns(getattr(result.series["llm"], name), 10_000)
    return {at * columns["width"] / 1000: mean for at, mean in zip(columns["at"], columns["mean"], strict=True)}


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(("name", "letters"), [("two", "AB"), ("four", "ABCD")])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_chart_has_a_line_of_each_run_within_the_window(visit, size, name, letters, scheme):  # noqa: F811
    page = visit(f"{name}.html", size=size, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    charts = ask(page, "charts")
    titles = ["replicas running", "requests waiting", "latency", "wait", "replicas running"]
    assert [chart["title"] for chart in charts] == titles  # the second deployment has no requests
    assert all(chart["lines"] == list(letters) for chart in charts)
    assert all(len(found["parts"]) == len(letters) - 1 for found in ask(page, "differences"))
    painted = page.evaluate(
        """() => [...document.querySelectorAll("canvas")].map(canvas => {
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(pixels.buffer)).size; })"""
    )
    assert all(colours > 3 for colours in painted), painted


def test_the_strip_is_the_difference_of_the_means_where_both_have_one(visit, runs):  # noqa: F811
    page = visit("two.html", size=WIDE)
    ask(page, "show", 190, 260)
    wait_for_view(page, "since > 0")
    found = dict(zip(("running", "waiting", "latency_s", "wait_s"), ask(page, "differences"), strict=False))
    for name, strip in found.items():
        before, after = means(runs[0], name), means(runs[1], name)
        (parts,) = strip["parts"]
        inside = [part["since"] for part in parts if 190 <= part["since"] < 260]
        assert inside == sorted(at for at in before.keys() & after.keys() if 190 <= at < 260)
        for part in parts:
            assert part["value"] == pytest.approx(after[part["since"]] - before[part["since"]], abs=1e-9)
        assert not any(part["value"] for part in parts if part["until"] < 200)  # both are the same up to the loss
    assert any(part["value"] for part in found["running"]["parts"][0])


def test_an_objective_is_one_line_that_says_what_it_came_to_in_each_run(visit, runs):  # noqa: F811
    page = visit("objectives.html", size=WIDE)
    (panel,) = ask(page, "windows")
    assert [line["name"] for line in panel["lines"]] == ["A", "B"]
    for line, result in zip(panel["lines"], runs, strict=True):
        windows = windows_data(result, held_objectives(GOALS, 20.0, result), max(each.ended_at for each in runs))[0]
        p99 = windows["panels"][0]["lines"][-1]["values"]
        expected = {
            at * windows["width"] / 1000: value for at, value in zip(windows["at"], p99, strict=True) if value is not None
        }
        assert dict(line["values"]) == pytest.approx(expected)
    (limit,) = panel["limits"]
    held = [next(each for each in held_objectives(GOALS, 20.0, result) if each.deployment == "llm") for result in runs]
    assert limit["verdict"] == ", ".join(
        f"{letter} {'held' if each.held else 'missed'}" for letter, each in zip("AB", held, strict=True)
    )
    assert {span["letter"] for span in limit["missed"]} == {
        letter for letter, each in zip("AB", held, strict=True) if each.windows.missed
    }


def test_runs_that_are_the_same_differ_nowhere_and_have_one_picture_of_lanes(visit):  # noqa: F811
    page = visit("same.html", size=WIDE)
    assert all(part["value"] == 0 for strip in ask(page, "differences") for parts in strip["parts"] for part in parts)
    assert ask(page, "lanes", 0) == list(range(8))
    assert ask(page, "lanes", 1) is None
    assert page.locator("canvas[data-panel=ranks]").count() == 2  # one for each deployment
    assert page.locator("#rows .only").count() == 0


def test_a_run_without_a_lane_that_differs_is_not_said_to_be_one_in_which_nothing_happened(visit):  # noqa: F811
    page = visit("fewer.html", size=WIDE)
    assert page.evaluate("[0, 1].map(run => rankcoreReport.lanes(run, 0))") == [[1], []]
    page.evaluate(
        """() => { const paint = CanvasRenderingContext2D.prototype.fillText; window.painted = [];
            CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
                window.painted.push(text); paint.call(this, text, ...at); }; }"""
    )
    page.get_by_role("button", name="taller").click()
    page.wait_for_function("() => window.painted.includes('no rank that differs')")
    assert not [text for text in page.evaluate("window.painted") if "nothing happened" in text]


def test_lanes_that_differ_are_shown_until_all_are_asked_for(visit, runs):  # noqa: F811
    page = visit("two.html", size=WIDE)
    shown = ask(page, "lanes", 0)

    def holds(result, rank):
        return [
            (hold.replica_id, hold.phase, round(hold.since, 3), round(hold.until, 3))
            for hold in result.holds["llm"]
            if hold.rank == rank
        ]

    assert shown == [rank for rank in range(8) if holds(runs[0], rank) != holds(runs[1], rank)]
    assert 0 < len(shown) < 8
    assert ask(page, "lanes", 1) == shown
    page.locator("#eventful").uncheck()
    page.wait_for_function("() => rankcoreReport.lanes(0).length === 8 && rankcoreReport.lanes(1).length === 8")


def test_that_a_run_ended_earlier_makes_no_lane_differ(visit):  # noqa: F811
    page = visit("longer.html", size=WIDE)
    assert ask(page, "lanes", 0) == ask(page, "lanes", 1) == [1]
    assert ask(page, "segments", 0, 0)[-1]["until"] < ask(page, "segments", 0, 1)[-1]["until"]


def test_pointing_at_a_lane_says_of_which_run_it_is(visit, runs):  # noqa: F811
    page = visit("two.html", size=WIDE)
    (rank, *_) = ask(page, "lanes", 0)
    for run, result in enumerate(runs):
        page.locator("canvas[data-panel=ranks]").nth(run).scroll_into_view_if_needed()
        at = ask(page, "place", rank, 150.0, run)
        page.mouse.move(at["x"], at["y"])
        tooltip = page.locator("#tooltip")
        tooltip.wait_for(state="visible")
        assert f"run {'AB'[run]}, llm" in tooltip.inner_text()
        (hold,) = [each for each in result.holds["llm"] if each.rank == rank and each.since <= 150 < each.until]
        assert tooltip.get_attribute("data-replica") == hold.replica_id


@pytest.mark.parametrize(("chart", "title", "unit"), [("running", "replicas running", ""), ("latency", "latency", " s")])
def test_pointing_at_a_strip_tells_the_difference_with_its_sign_and_unit(visit, chart, title, unit):  # noqa: F811
    page = visit("two.html", size=WIDE)
    strip = page.locator(f"canvas[data-panel={chart}-difference]").first
    strip.scroll_into_view_if_needed()
    parts = next(each for each in ask(page, "differences") if each["title"] == f"{title}: difference")["parts"][0]
    part = max(parts, key=lambda each: abs(each["value"]))
    x = ask(page, "place", ask(page, "lanes", 0)[0], (part["since"] + part["until"]) / 2, 0)["x"]
    page.mouse.move(x, strip.bounding_box()["y"] + 20)
    page.locator("#tooltip").wait_for(state="visible")
    sign = "+" if part["value"] > 0 else "\u2212" if part["value"] < 0 else ""
    told = page.locator("#tooltip dd").first.inner_text()
    assert told.startswith(f"{sign}{abs(part['value']):.3g}")
    assert told.endswith(unit)
    assert page.locator("#tooltip dt").first.inner_text() == "B - A"


def test_all_runs_are_on_one_axis_and_zoom_together(visit):  # noqa: F811
    page = visit("two.html", size=WIDE)
    page.locator("#zoom-in").click()
    wait_for_view(page, "since > 0")
    since, until = view(page)
    (rank, *_) = ask(page, "lanes", 0)
    places = [ask(page, "place", rank, (since + until) / 2, run)["x"] for run in (0, 1)]
    assert places[0] == places[1]


def test_the_axis_may_be_in_times_of_day(visit):  # noqa: F811
    page = visit("began.html", size=WIDE)
    page.locator("#zone").select_option("UTC")
    page.wait_for_function("() => document.getElementById('range').textContent.startsWith('2023-11-14 22:13:20')")


def test_the_keyboard_walks_from_the_lanes_of_one_run_to_those_of_the_next(visit):  # noqa: F811
    page = visit("two.html", size=WIDE)
    page.locator("#panels").focus()
    told = set()
    for _ in range(2 * len(ask(page, "lanes", 0)) + 1):
        page.keyboard.press("ArrowDown")
        page.locator("#tooltip").wait_for(state="visible")
        told.add(page.locator("#tooltip .head span").inner_text())
    assert {"run A, llm", "run B, llm"} <= told
    page.keyboard.press("+")
    wait_for_view(page, "since > 0")
    page.keyboard.press("0")
    wait_for_view(page, "since === 0")


def test_the_list_says_which_lines_stand_in_one_run_only_and_finds_them(visit):  # noqa: F811
    page = visit("two.html", size=WIDE)
    page.locator("#filter").fill("only a")
    page.wait_for_function(
        "() => document.querySelectorAll('#rows tbody tr').length === document.querySelectorAll('#rows .only').length"
    )
    marks = set(page.locator("#rows .only").all_inner_texts())
    assert marks == {"only A"}
    assert "lost" in page.locator("#rows").inner_text()


def test_hostile_names_are_words_and_nothing_else(visit):  # noqa: F811
    page = visit("hostile.html", size=WIDE)
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator(".runs").inner_text()
