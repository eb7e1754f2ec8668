"""The report of a run of models in a real browser: lanes of GPU memory that can be looked into with mouse and keys."""

from pathlib import Path

import pytest

from executors.simulator.report.memory.page import render_memory_page
from tests.integration.test_report_in_chromium import (  # noqa: F401
    DESKTOP,
    LATE_FRAMES,
    PATIENCE_MS,
    PHONE,
    ask,
    browser,
    view,
    wait_for_view,
)
from tests.model_runs import everything

GPU = "gpu-node-0 GPU 0"


@pytest.fixture(scope="module")
def result():
    return everything()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory, result) -> Path:
    path = tmp_path_factory.mktemp("memory") / "memory.html"
    path.write_text(render_memory_page(result, "rankcore simulate models.yaml --seed 4"), encoding="utf-8")
    return path


@pytest.fixture
def visit(browser, page_file):  # noqa: F811
    """Opens the page in a window of some size; nothing that it does may fail or leave this machine's disk."""
    contexts, problems = [], []

    def open_page(size=DESKTOP, **options):
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.set_offline(True)
        context.add_init_script(LATE_FRAMES)
        page = context.new_page()
        url = page_file.as_uri()
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("request", lambda request: request.url != url and problems.append(f"request: {request.url}"))
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def of_lane(result, lane):
    node, gpu = lane.split(" ", 1)
    number = -1 if gpu == "CPU" else int(gpu.removeprefix("GPU "))
    return [span for span in result.spans if (span.node_id, span.gpu) == (node, number)]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_a_lane_for_each_gpu_and_cache_within_the_window(visit, size, scheme):
    page = visit(size=size, color_scheme=scheme)
    lanes = [f"gpu-node-{node} {lane}" for node in (0, 1) for lane in ("GPU 0", "GPU 1", "CPU")]
    assert ask(page, "lanes") == lanes
    panels = page.eval_on_selector_all("canvas", "all => all.map(each => each.dataset.panel)")
    assert panels == ["overview", "axis", "memory", "used", "waiting", "answers"]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    painted = page.evaluate(
        """() => [...document.querySelectorAll("canvas")].map(canvas => {
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(pixels.buffer)).size; })"""
    )
    assert all(colours > 3 for colours in painted), painted


def test_every_stay_of_the_run_is_in_the_lanes(visit, result):
    page = visit()
    for lane in ask(page, "lanes"):
        drawn, spans = ask(page, "spans", lane), of_lane(result, lane)
        assert [(each["replica"], each["phase"]) for each in drawn] == [(span.worker_id, span.phase) for span in spans]
        assert [each["until"] for each in drawn] == pytest.approx([span.until for span in spans], abs=0.002)
        assert [each["size"] for each in drawn] == pytest.approx([span.size_bytes / 1e9 for span in spans], abs=0.001)


def test_models_are_stacked_without_overlap_and_within_the_memory(visit, result):
    page = visit()
    for lane in ask(page, "lanes"):
        pieces, capacity = ask(page, "pieces", lane), ask(page, "capacity", lane)
        for place, piece in enumerate(pieces):
            assert -1e-9 <= piece["low"] < piece["high"] <= capacity + 0.01
            for other in pieces[place + 1 :]:
                apart_in_time = other["since"] >= piece["until"] - 1e-6 or piece["since"] >= other["until"] - 1e-6
                assert apart_in_time or other["low"] >= piece["high"] - 1e-6 or piece["low"] >= other["high"] - 1e-6
        held = sum(span.size_bytes / 1e9 * (span.until - span.since) for span in of_lane(result, lane))
        drawn = sum((piece["high"] - piece["low"]) * (piece["until"] - piece["since"]) for piece in pieces)
        assert drawn == pytest.approx(held, rel=1e-3, abs=1.0)


def test_pointing_at_a_lane_tells_who_holds_how_much(visit, result):
    page = visit()
    piece = max(ask(page, "pieces", GPU), key=lambda each: each["until"] - each["since"])
    time = (piece["since"] + piece["until"]) / 2
    page.locator("canvas[data-panel=memory]").scroll_into_view_if_needed()
    at = ask(page, "place", GPU, time, (piece["low"] + piece["high"]) / 2)
    page.mouse.move(at["x"], at["y"])
    tooltip = page.locator("#tooltip")
    tooltip.wait_for(state="visible")
    there = [span for span in of_lane(result, GPU) if span.since <= time < span.until]
    assert tooltip.get_attribute("data-lane") == GPU
    assert tooltip.get_attribute("data-replica") == piece["replica"]
    assert float(tooltip.get_attribute("data-used")) == pytest.approx(sum(span.size_bytes for span in there) / 1e9, abs=0.01)
    for words in (GPU, piece["replica"], "of 80 GB"):
        assert words in tooltip.inner_text()
    page.mouse.move(2, 2)
    tooltip.wait_for(state="hidden")


def test_arrows_walk_along_and_between_lanes(visit):
    page = visit()
    page.focus("#panels")
    tooltip = page.locator("#tooltip")
    page.keyboard.press("ArrowRight")
    tooltip.wait_for(state="visible")
    assert tooltip.get_attribute("data-lane") == GPU
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => document.getElementById('tooltip').dataset.lane === 'gpu-node-0 GPU 1'")
    page.keyboard.press("ArrowUp")
    page.wait_for_function("() => document.getElementById('tooltip').dataset.lane === 'gpu-node-0 GPU 0'")
    assert page.locator("#live").inner_text().startswith(GPU)
    page.keyboard.press("Escape")
    tooltip.wait_for(state="hidden")


def test_keys_zoom_and_show_all_again(visit, result):
    page = visit()
    page.focus("#panels")
    page.keyboard.press("+")
    wait_for_view(page, f"until - since < {result.ended_at * 0.6}")
    page.keyboard.press("0")
    wait_for_view(page, f"since === 0 && Math.abs(until - {result.ended_at}) < 1")


def test_dragging_over_a_stretch_of_time_zooms_into_it(visit, result):
    page = visit()
    page.locator("canvas[data-panel=memory]").scroll_into_view_if_needed()
    begin, end = (ask(page, "place", GPU, share * result.ended_at) for share in (0.25, 0.5))
    page.mouse.move(begin["x"], begin["y"])
    page.mouse.down()
    page.mouse.move((begin["x"] + end["x"]) / 2, begin["y"])
    page.mouse.move(end["x"], begin["y"])
    page.mouse.up()
    wait_for_view(page, f"Math.abs(since - {0.25 * result.ended_at}) < 15 && Math.abs(until - {0.5 * result.ended_at}) < 15")
    assert view(page)[1] < result.ended_at


def test_a_line_of_the_list_marks_its_moment(visit, result):
    page = visit()
    page.fill("#filter", "gpu-node-1 lost")
    line = page.locator("#rows tbody tr").first
    line.wait_for()
    line.click()
    page.wait_for_function("() => rankcoreReport.marked() === 400")
    assert line.get_attribute("data-group") == "fault"
