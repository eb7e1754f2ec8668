"""The report in a real browser: it opens from disk, loads nothing, and can be looked into with mouse, keys and fingers."""

import re
import shutil
from itertools import pairwise
from pathlib import Path

import attrs
import pytest

from executors.simulator.questions.backtest import Conditions, backtest, read_policy
from executors.simulator.questions.held import held_objectives
from executors.simulator.record.windows import Windows
from executors.simulator.report import render_page
from executors.simulator.report.backtest import render_backtest
from executors.simulator.scenario.objectives import parse_goal
from tests.report_runs import HOSTILE, everything, hostile

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the page is not tried in a browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no chromium on the PATH: the page is not tried in a browser", allow_module_level=True)

DESKTOP, PHONE = (1280, 800), (390, 844)
# Frames come late, as on a busy machine: a test that does not wait for what the next one draws fails each time.
LATE_FRAMES = (
    "const soon = requestAnimationFrame.bind(window); window.requestAnimationFrame = f => setTimeout(() => soon(f), 100)"
)
PATIENCE_MS = 240_000
sync_api.expect.set_options(timeout=PATIENCE_MS)
RERUN = "rankcore simulate everything.yaml --seed 3"


@pytest.fixture(scope="module")
def result():
    return everything()


@pytest.fixture(scope="module")
def files(tmp_path_factory, result) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "report.html").write_text(render_page(result, RERUN), encoding="utf-8")
    (folder / "windows.html").write_text(render_page(result, RERUN, held_in(result)), encoding="utf-8")
    began = attrs.evolve(result, unix_s_at_0=1_700_158_623.5)  # 2023-11-16T18:17:03.5Z
    (folder / "began.html").write_text(render_page(began, RERUN), encoding="utf-8")
    (folder / "hostile.html").write_text(render_page(hostile(), f"rankcore simulate '{HOSTILE}'"), encoding="utf-8")
    (folder / "long.html").write_text(render_page(everything(deployment=200 * "n"), RERUN), encoding="utf-8")
    return folder


OBJECTIVES = ("p95 wait_s < 2 @ 90%", "p99 latency_s < 5", "share lost < 1% @ 99%", "p50 latency_s < 500")


def held_in(result):
    return held_objectives([parse_goal(text) for text in OBJECTIVES], 20.0, result)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield started
        started.close()


@pytest.fixture
def visit(browser, files):
    """Opens a page in a window of some size; nothing that it does may fail or leave this machine's disk."""
    contexts, problems = [], []

    def open_page(name="report.html", size=DESKTOP, **options):
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.set_offline(True)
        context.add_init_script(LATE_FRAMES)
        page = context.new_page()
        url = (files / name).as_uri()
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (problems.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: request.url != url and problems.append(f"request: {request.url}"))
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def ask(page, expression, *arguments):
    return page.evaluate(f"(given) => rankcoreReport.{expression}(...given)", list(arguments))


def point_at(page, rank, time, deployment=0):
    """Move the mouse to a time on the lane of a rank."""
    page.locator("canvas[data-panel=ranks]").nth(deployment).scroll_into_view_if_needed()
    at = ask(page, "place", rank, time, deployment)
    page.mouse.move(at["x"], at["y"])
    return at


def view(page):
    shown = ask(page, "view")
    return shown["since"], shown["until"]


def wait_for_view(page, condition):
    page.wait_for_function(f"() => {{ const {{since, until}} = rankcoreReport.view(); return {condition}; }}")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_all_lanes_and_panels_within_the_window(visit, size, scheme, tmp_path):
    page = visit(size=size, color_scheme=scheme)
    assert ask(page, "lanes", 0) == list(range(8))
    assert ask(page, "lanes", 1) == list(range(4))
    panels = page.eval_on_selector_all("canvas", "all => all.map(each => each.dataset.panel)")
    # The second deployment has no requests.
    lanes = ["ranks", "running", "waiting", "latency", "window-latency_s", "ranks", "running"]
    assert panels == ["overview", "axis", *lanes, "nodes"]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    painted = page.evaluate(
        """() => [...document.querySelectorAll("canvas")].map(canvas => {
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(pixels.buffer)).size; })"""
    )
    assert all(colours > 3 for colours in painted), painted
    shot = page.screenshot(path=tmp_path / f"report-{scheme}-{size[0]}.png", full_page=True)
    assert len(shot) > 20_000


@pytest.mark.parametrize("size", [(1440, 900), PHONE], ids=["desktop", "phone"])
def test_percentiles_limits_and_missed_windows_are_drawn(visit, result, size, tmp_path):
    page = visit("windows.html", size=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    latency, wait, lost = page.evaluate("rankcoreReport.windows()")
    windows = Windows(result.felt["llm"], 20.0, result.ended_at)
    figures = windows.figures(["requests.wait_s"])
    for line in wait["lines"]:
        found = dict(line["values"])
        expected = {20.0 * n: each[f"requests.wait_s.{line['name']}"] for n, each in zip(windows.numbers, figures, strict=True)}
        never = [since for since, value in expected.items() if value is None]
        assert found == pytest.approx({since: value for since, value in expected.items() if value is not None}, rel=1e-4)
        assert line["never"] == len(never)
    held = {each.goal.text: each for each in held_in(result) if each.deployment == "llm"}
    for panel in (latency, wait, lost):
        for limit in panel["limits"]:
            told = held[limit["text"]]
            assert limit["held"] == told.held
            missed = told.windows.missed if told.windows else ()
            inside = [any(span["since"] <= each.since < span["until"] for span in limit["missed"]) for each in missed]
            assert all(inside)
            assert sum(span["until"] - span["since"] for span in limit["missed"]) == pytest.approx(20.0 * len(missed))
    assert held["p95 wait_s < 2 @ 90%"].windows.missed, "or nothing is shaded here"
    assert wait["limits"][0]["value"] == 2.0
    assert lost["limits"][0]["value"] == 1.0, "percent"
    missed = held["p95 wait_s < 2 @ 90%"].windows.missed[0]
    canvas = page.locator('canvas[data-panel="window-wait_s"]')
    canvas.scroll_into_view_if_needed()
    x = page.evaluate(f"rankcoreReport.place(0, {missed.since + 10}).x")
    box = canvas.bounding_box()
    page.mouse.move(x, box["y"] + box["height"] / 2)
    tooltip = page.locator("#tooltip")
    sync_api.expect(tooltip).to_contain_text("missed")
    sync_api.expect(tooltip).to_contain_text("p95 wait_s < 2 @ 90%")
    assert len(page.screenshot(path=tmp_path / f"windows-{size[0]}.png", full_page=True)) > 20_000


@pytest.mark.parametrize("size", [(1440, 900), PHONE], ids=["desktop", "phone"])
def test_the_axis_may_be_in_run_time_in_utc_and_in_a_zone(visit, size):
    page = visit("began.html", size=size, timezone_id="Asia/Kolkata")
    told, zone = page.locator("#range"), page.locator("#zone")
    sync_api.expect(told).to_have_text(re.compile("^0:00:00 to "))
    zone.select_option("UTC")
    sync_api.expect(told).to_have_text(re.compile("^2023-11-16 18:17:04 to "))
    at = [label for _, label in ask(page, "axis")]
    assert at
    assert all(re.fullmatch(r"18:[0-5]\d(:[0-5]0)?", label) for label in at), "round times of day"
    ticks = [(time + 1_700_158_623.5) % 10 for time, _ in ask(page, "axis")]
    assert all(min(rest, 10 - rest) < 1e-3 for rest in ticks)
    sync_api.expect(page.locator("#rows tbody tr").first).to_contain_text("2023-11-16 18:17:0")
    here = zone.locator("option").nth(2)
    assert "(here)" in here.inner_text()
    zone.select_option(index=2)
    sync_api.expect(told).to_have_text(re.compile("^2023-11-16 23:47:04 to "))
    zone.select_option("America/New_York")
    sync_api.expect(told).to_have_text(re.compile("^2023-11-16 13:17:04 to "))
    zone.select_option("")
    sync_api.expect(told).to_have_text(re.compile("^0:00:00 to "))
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_without_times_of_day_no_zone_is_offered(visit):
    assert visit().locator("#zone").count() == 0


def test_every_hold_and_gap_of_the_run_is_in_the_lanes(visit, result):
    page = visit()
    for index, figures in enumerate(result.deployments):
        for rank in range(max(size for _, size in result.world_sizes[figures.name])):
            holds = [hold for hold in result.holds[figures.name] if hold.rank == rank]
            drawn = ask(page, "segments", rank, index)
            assert [(each["replica"], each["phase"]) for each in drawn] == [(hold.replica_id, hold.phase) for hold in holds]
            assert [each["until"] for each in drawn] == pytest.approx([hold.until for hold in holds], abs=0.001)
            gaps = [(gap.since, gap.until) for gap in result.gaps[figures.name] if gap.rank == rank]
            drawn_gaps = [(gap["since"], gap["until"]) for gap in ask(page, "gaps", rank, index)]
            assert drawn_gaps == [pytest.approx(gap, abs=0.001) for gap in gaps]


def test_whoever_follows_on_a_lane_has_another_colour(visit):
    page = visit()
    for rank in range(8):
        drawn = ask(page, "segments", rank)
        for before, after in pairwise(drawn):
            assert before["replica"] == after["replica"] or before["colour"] != after["colour"]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_pointing_at_a_lane_tells_the_replica_its_rank_node_state_and_times(visit, result, size):
    page = visit(size=size)
    hold = next(hold for hold in result.holds["llm"] if hold.rank == 5 and hold.running)
    point_at(page, 5, (hold.since + hold.until) / 2)
    tooltip = page.locator("#tooltip")
    for name, value in (("rank", "5"), ("replica", hold.replica_id), ("node", hold.node_id), ("phase", "running")):
        assert tooltip.get_attribute(f"data-{name}") == value
    for words in ("rank 5", hold.replica_id, hold.node_id, "since", "until"):
        assert words in tooltip.inner_text()
    box = tooltip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size[0]
    page.mouse.move(2, 2)
    assert not tooltip.is_visible()


def test_pointing_at_a_gap_tells_since_when_nobody_serves_the_rank(visit, result):
    page = visit()
    gap = next(gap for gap in result.gaps["llm"] if gap.rank == 3)
    point_at(page, 3, (gap.since + gap.until) / 2)
    assert "vacant" in page.locator("#tooltip").inner_text()


def test_a_node_that_was_down_says_so_and_what_stood_there_before(visit):
    page = visit()
    page.locator("canvas[data-panel=nodes]").scroll_into_view_if_needed()
    for time, down in ((230.0, "true"), (150.0, "false")):
        at = ask(page, "nodePlace", "gpu-node-1", time)
        page.mouse.move(at["x"], at["y"])
        assert page.locator("#tooltip").get_attribute("data-down") == down
    assert "llm#1." in page.locator("#tooltip").inner_text()


def test_the_wheel_zooms_around_the_pointer_and_the_axis_follows(visit):
    page = visit()
    _, whole = view(page)
    at = point_at(page, 2, 250.0)
    before, range_before = page.locator("canvas[data-panel=axis]").screenshot(), page.locator("#range").inner_text()
    page.mouse.wheel(0, -300)
    sync_api.expect(page.locator("#range")).not_to_have_text(range_before)  # written when the panels are drawn
    wait_for_view(page, "until - since < 400")
    since, until = view(page)
    assert since < 250.0 < until
    assert ask(page, "place", 2, 250.0)["x"] == pytest.approx(at["x"], abs=1.0)  # what was under the pointer still is
    assert page.locator("canvas[data-panel=axis]").screenshot() != before
    assert page.locator("#range").inner_text().startswith("0:0")
    page.locator("#zoom-reset").click()
    wait_for_view(page, f"since === 0 && until === {whole}")
    sync_api.expect(page.locator("#zoom-reset")).to_be_disabled()


def test_dragging_over_a_stretch_zooms_into_it_and_a_double_click_shows_all(visit):
    page = visit()
    start = point_at(page, 4, 200.0)
    end = ask(page, "place", 4, 300.0)
    page.mouse.down()
    page.mouse.move(end["x"], end["y"], steps=4)
    page.mouse.up()
    assert view(page) == (pytest.approx(200.0, abs=1.0), pytest.approx(300.0, abs=1.0))
    page.mouse.move(start["x"], start["y"])
    page.mouse.dblclick(start["x"], start["y"])
    assert view(page)[0] == 0


def test_all_panels_show_the_same_stretch_of_time(visit):
    page = visit()
    ask(page, "show", 195.0, 275.0)
    page.wait_for_function("() => document.getElementById('range').textContent === '0:03:15.0 to 0:04:35.0' || "
                           "document.getElementById('range').textContent === '0:03:15 to 0:04:35'")  # fmt: skip
    crash = ask(page, "place", 0, 200.0)
    node = ask(page, "nodePlace", "gpu-node-1", 200.0)
    other = ask(page, "place", 0, 200.0, 1)
    assert crash["x"] == pytest.approx(node["x"]) == pytest.approx(other["x"])


def test_everything_works_by_keyboard(visit):
    page = visit()
    page.locator("#panels").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tooltip").get_attribute("data-rank") == "0"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator("#tooltip").get_attribute("data-rank") == "2"
    assert "rank 2" in page.locator("#live").inner_text()
    page.keyboard.press("+")
    assert view(page)[1] - view(page)[0] < 300
    page.keyboard.press("PageDown")
    page.keyboard.press("0")
    assert view(page)[0] == 0
    page.keyboard.press("Escape")
    assert not page.locator("#tooltip").is_visible()


def test_fingers_pan_and_tap(visit):
    page = visit(size=PHONE, has_touch=True, is_mobile=True)
    page.locator("canvas[data-panel=ranks]").first.scroll_into_view_if_needed()
    at = ask(page, "place", 1, 250.0)
    page.touchscreen.tap(at["x"], at["y"])
    assert page.locator("#tooltip").get_attribute("data-rank") == "1"
    assert page.locator("#tooltip").is_visible()


def test_the_list_is_filtered_by_words_by_kind_and_by_what_is_in_view(visit):
    page = visit()
    rows = page.locator("#rows tbody tr")
    everything_shown = rows.count()
    page.locator("#filter").fill("rank 3")
    assert 0 < rows.count() < everything_shown
    assert all(re.search(r"rank 3\b|\u2192 3\b", text) for text in rows.all_inner_texts())
    page.locator("#filter").fill("")
    page.locator("[data-group=decision].chip").click()
    assert rows.count() < everything_shown
    assert page.locator("#rows tr[data-group=decision]").count() == 0
    page.locator("[data-group=decision].chip").click()
    assert rows.count() == everything_shown
    page.locator("#in-view").check()
    ask(page, "show", 190.0, 210.0)
    page.wait_for_function(f"() => document.querySelectorAll('#rows tbody tr').length < {everything_shown}")
    times = page.eval_on_selector_all("#rows tbody tr", "all => all.map(each => Number(each.dataset.at))")
    assert times
    assert all(190.0 <= time <= 210.0 for time in times)
    page.locator("#filter").fill("no such word")
    assert rows.count() == 0


def test_the_list_says_why_in_the_words_of_the_journal(visit, result):
    page = visit()
    kept = next(each for each in result.decisions.kept if each.note.kind == "rank kept")
    page.locator("#filter").fill(f"rank kept {kept.note.replica_id}")
    text = page.locator("#rows tbody tr").first.inner_text()
    assert kept.note.because in text
    assert kept.note.rule in text


def test_a_click_on_a_line_marks_its_time_even_if_it_was_out_of_view(visit):
    page = visit()
    ask(page, "show", 0.0, 50.0)
    row = page.locator("#rows tbody tr[data-group=fault]").first
    row.click()
    assert ask(page, "marked") == pytest.approx(100.0)
    since, until = view(page)
    assert since <= 100.0 <= until
    assert row.get_attribute("aria-selected") == "true"
    page.locator("#mark").wait_for(state="visible")  # drawn before the next frame


def test_from_the_end_of_the_list_it_is_one_click_back_to_the_marked_moment(visit):
    page = visit(size=PHONE)
    last = page.locator("#rows tbody tr").last
    last.click()
    page.locator("#jump").click()
    page.wait_for_function("() => Math.abs(document.querySelector('#panels').getBoundingClientRect().top) < 100")
    assert ask(page, "marked") == pytest.approx(float(last.get_attribute("data-at")))
    sync_api.expect(page.locator("#jump")).to_be_hidden()  # an observer hides it, after the frame


def test_only_lanes_where_something_happened_can_be_shown(visit):
    page = visit()
    page.locator("#eventful").check()
    page.wait_for_function("() => rankcoreReport.lanes(0).length < 8")
    assert 3 in ask(page, "lanes", 0)
    page.locator("#eventful").uncheck()
    page.wait_for_function("() => rankcoreReport.lanes(0).length === 8")


def test_the_theme_can_be_chosen(visit):
    page = visit(color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.locator("#theme").click()
    assert page.evaluate(paper) != light
    page.locator("#theme").click()
    assert page.evaluate(paper) == light


def test_the_command_can_be_copied(visit):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    assert page.locator(".again code").inner_text() == RERUN
    # The button says so for a second and a half only, which may be over before anybody looks.
    page.evaluate("""() => {
        const button = document.querySelector("button.copy");
        window.said = [];
        new MutationObserver(() => window.said.push(button.textContent)).observe(button, {childList: true});
    }""")
    page.locator("button.copy").click()
    page.wait_for_function("() => window.said.includes('copied')")
    assert page.evaluate("navigator.clipboard.readText()") == RERUN


def test_hostile_names_are_words_and_nothing_else(visit):
    page = visit("hostile.html")
    assert page.locator("h1").inner_text() == HOSTILE
    assert HOSTILE in page.locator(".again code").inner_text()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2  # the data, and the page's own
    point_at(page, 0, 150.0)
    tooltip = page.locator("#tooltip")
    assert HOSTILE in tooltip.inner_text()
    assert tooltip.get_attribute("data-replica").startswith(HOSTILE)
    page.locator("#rows tbody tr[data-group=fault]").last.click()
    assert HOSTILE in page.locator("#rows").inner_text()
    assert page.locator("#rows img, #tooltip img").count() == 0


def test_a_long_name_of_a_deployment_does_not_push_the_others_out_of_sight(visit):
    page = visit("long.html")
    columns = page.eval_on_selector_all(".figures.many thead th", "all => all.map(each => each.getBoundingClientRect().right)")
    assert len(columns) == 2
    assert all(right <= DESKTOP[0] for right in columns), columns
    card = page.locator(".figures.many .wide")
    assert card.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_a_script_that_the_page_did_not_bring_is_not_run(browser, files):
    """The security policy stands in the page: even markup that got in would do nothing."""
    page = browser.new_page()
    text = (files / "report.html").read_text().replace("<main", "<script>window.broken = 1</script><main", 1)
    (files / "broken.html").write_text(text)
    page.goto((files / "broken.html").as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate("window.broken") is None
    page.close()


@pytest.fixture(scope="module")
def backtested(files) -> Path:
    rows = "".join(f"{second},1,1\n" for second in range(0, 300, 2))
    (files / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    for name, most in (("few", 2), ("many-replicas-and-a-long-name", 5)):
        (files / f"{name}.yaml").write_text(f"min_replicas: 1\nmax_replicas: {most}\nupscale_delay_s: 5\n")
    policies = [read_policy(files / name) for name in ("few.yaml", "many-replicas-and-a-long-name.yaml")]
    conditions = Conditions(
        trace=files / "t.csv", service={"service_s": 9.0}, init_s=5.0, max_ongoing_requests=1, slo_wait_s=1.0, seed=1
    )
    found = backtest(conditions, policies)
    again = "rankcore autoscale-backtest t.csv " + 30 * "word "
    pages = {"together": found, "backtest": (*found, *found, found[0])}
    for name, shown in pages.items():
        (files / f"{name}.html").write_text(render_backtest("t.csv", 1.0, shown, again), encoding="utf-8")
    return files


@pytest.mark.parametrize("size", [(1440, 900), PHONE], ids=["desktop", "phone"])
def test_the_page_of_a_backtest_fits_the_window_and_can_be_zoomed(backtested, visit, size):
    page = visit("backtest.html", size=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate("[...document.querySelectorAll('#panels canvas')].every(each => each.clientWidth > 300)")
    both = ["few", "many-replicas-and-a-long-name"]
    assert page.evaluate("rankcoreReport.policies") == [*both, *both, "few"]
    scales = dict(page.evaluate("rankcoreReport.scales()"))
    assert scales["few: requests waiting"] == scales["many-replicas-and-a-long-name: requests waiting"]
    assert page.evaluate("rankcoreReport.view().since") == 0
    page.locator("#zoom-in").click()
    page.wait_for_function("() => rankcoreReport.view().until - rankcoreReport.view().since < rankcoreReport.end * 0.6")
    assert "few" in page.locator("#rows").inner_text()


@pytest.mark.parametrize("size", [(1440, 900), PHONE], ids=["desktop", "phone"])
def test_policies_of_a_backtest_are_lines_of_one_chart_with_the_objective(backtested, visit, size):
    page = visit("together.html", size=size)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    charts = {chart["title"]: chart for chart in ask(page, "charts")}
    assert all(chart["lines"] == ["A", "B"] for chart in charts.values())
    assert charts["wait"]["objective"] == 1.0
    assert charts["wait"]["top"] >= 1.0
    assert charts["latency"]["objective"] is None
    box = page.locator("canvas[data-panel=wait]")
    box.scroll_into_view_if_needed()
    box.hover()
    page.wait_for_function("() => document.getElementById('tooltip').innerText.includes('objective')")
