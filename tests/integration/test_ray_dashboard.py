"""The live page of a real cluster, in a real browser: lanes under load, a killed replica, notes, what-ifs, token, keyboard.

The tests of this module go on where the one before ended: one cluster of two nodes, one server, one application under load.
"""

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors import ray_gpu as serve
from executors.cli.app import app
from executors.ray_gpu.rest.starting import rest_there
from rankcore.errors import RankcoreError
from tests.free_ports import free_ports
from tests.ray_local import PATIENCE_S, add_node, clean_up, eventually, several_nodes

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the page is not tried in a browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no chromium on the PATH: the page is not tried in a browser", allow_module_level=True)

pytestmark = pytest.mark.ray

DESKTOP, PHONE = (1440, 900), (390, 844)
PATIENCE_MS = PATIENCE_S * 1000
TOKEN = "a-token-of-22-letters!"
CALLERS = 6
NAME = "shop/Model"
SHOTS = os.environ.get("RANKCORE_SCREENSHOTS")
"""A folder that pictures of the page are put into; unset: none are made."""


@pytest.fixture(scope="module")
def served():
    (port,) = free_ports(1)
    with several_nodes() as cluster:
        for _ in range(2):
            add_node(cluster)
        try:
            serve.start_rest({"port": port, "bearer_token": TOKEN})
            yield f"http://127.0.0.1:{port}"
        finally:
            serve.stop_rest()
            clean_up(serve)


@pytest.fixture(scope="module")
def load(served):
    """An application of three replicas on two nodes, and callers that call it all the time."""

    @serve.deployment(name="Model", num_replicas=3, max_ongoing_requests=4, ray_actor_options={"num_cpus": 1})
    class Model:
        def __init__(self):
            import time

            time.sleep(1.5)

        async def __call__(self):
            import asyncio

            await asyncio.sleep(0.05)

    handle = serve.run(Model.bind(), name="shop", route_prefix=None)
    done, ends = [], threading.Event()

    def call():
        while not ends.is_set():
            try:
                done.append(handle.remote().result(timeout_s=PATIENCE_S))
            except RankcoreError:
                done.append(None)  # it was lost with its replica

    callers = [threading.Thread(target=call, daemon=True) for _ in range(CALLERS)]
    for each in callers:
        each.start()
    yield done
    ends.set()
    for each in callers:
        each.join(PATIENCE_S)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield started
        started.close()


is_away = []
"""Has something while the server is ended on purpose, of which the browser itself complains."""


@pytest.fixture(scope="module")
def visit(browser, served):
    """Opens the page in a window of some size; it may ask nobody but its server, and complain of a missing token alone."""
    contexts, problems = [], []
    is_away.clear()

    def told(message):
        is_ours = "status of 401" in message.text or (is_away and "net::ERR_" in message.text)
        if message.type in ("error", "warning") and not is_ours:
            problems.append(f"console: {message.text}")

    def open_page(size, token=TOKEN, **options):
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", told)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("request", lambda request: request.url.startswith(served) or problems.append(f"request: {request.url}"))
        page.goto(f"{served}/dashboard")
        if token is not None:
            page.get_by_label("This server asks for its token").fill(token)
            page.keyboard.press("Enter")
            page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="module")
def page(visit, load):
    return visit(DESKTOP)


def holders(page):
    """Who has which rank, as the table says it."""
    rows = page.locator("#ranks-rows tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )
    return {int(rank): (replica, state) for name, rank, replica, state, *_ in rows if name == NAME}


def is_served(page, count):
    found = holders(page)
    return sorted(found) == list(range(count)) and all(state == "running" for _, state in found.values())


def ink_of(page, panel, left=0.0, right=1.0):
    """How many colours a canvas has in a part of it."""
    return page.locator(f"canvas[data-panel={panel}]").first.evaluate(
        """(canvas, [left, right]) => {
            const copy = new OffscreenCanvas(canvas.width, canvas.height), from = Math.floor(canvas.width * left);
            const context = copy.getContext("2d", {willReadFrequently: true});
            context.drawImage(canvas, 0, 0);
            const {data} = context.getImageData(from, 0, Math.max(1, Math.floor(canvas.width * (right - left))), canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }""",
        [left, right],
    )


def overflows(page):
    return page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


def nameless(page):
    """Controls and pictures that a screen reader has no name for."""
    return page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, canvas[role=img], meter, [role=region]")]
            .filter((each) => each.getClientRects().length && !each.labels?.length && !each.getAttribute("aria-label")
                && !each.getAttribute("aria-labelledby") && !each.textContent.trim())
            .map((each) => each.outerHTML.slice(0, 120))"""
    )


def shoot(page, name):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def test_a_wrong_token_is_refused_and_the_right_one_is_in_no_address(visit):
    page = visit(PHONE, token=None)
    field = page.get_by_label("This server asks for its token")
    field.fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("does not take that token").wait_for()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    field.fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-ready]")
    assert asked
    assert not any(TOKEN in url for url in asked)
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    page.close()


def test_the_command_finds_the_server_that_is_there_and_leaves_it_as_it_is(served):
    before = rest_there()
    done = CliRunner().invoke(app, ["dashboard", "--no-open"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert f"{served}/dashboard is the live page; it asks for the server's token" in done.output
    assert TOKEN not in done.output
    assert rest_there() == before


def test_lanes_and_load_are_drawn(page, load):
    eventually(lambda: is_served(page, 3), "three ranks are served")
    eventually(lambda: page.locator(".numbers").inner_text().count("ms") >= 2, "p50 and p99 are measured")
    assert "of 3 are served" in page.locator("canvas[data-panel=ranks]").get_attribute("aria-label")
    for panel in ("ranks", "rate", "latency"):
        eventually(lambda panel=panel: ink_of(page, panel) > 8, f"{panel} is drawn")
    assert page.locator("#nodes-rows tr").count() == 3


def test_a_killed_replica_has_its_lane_go_on_with_another_holder(page):
    before = holders(page)
    info = serve.status().deployments[NAME]
    (victim,) = [each for each in info.replicas if each.rank.rank == 1]
    notes = page.locator("#notes-list li").count()
    os.kill(victim.pid, signal.SIGKILL)
    eventually(lambda: holders(page).get(1, before[1])[0] != before[1][0], "another one has the rank")
    eventually(lambda: is_served(page, 3), "it serves")
    after = holders(page)
    assert (after[0], after[2]) == (before[0], before[2])
    eventually(lambda: page.locator("#notes-list li").count() > notes, "notes have come")
    assert page.locator("#notes-list").get_attribute("aria-live") == "off"
    colours = page.evaluate("() => document.querySelector('#notes-list').textContent")
    assert victim.replica_id in colours


def test_a_lost_node_is_asked_about_by_keyboard_alone_and_the_predicted_lanes_stand_beside_the_real_ones(page):
    for _ in range(40):
        if page.evaluate("document.activeElement.name === 'deployment'"):
            break
        page.keyboard.press("Tab")
    else:
        pytest.fail("the form is not reached")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "node"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "node"
    node = serve.status().deployments[NAME].replicas[0].node_id
    page.locator("select[name=node]").select_option(node)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#whatif-more").wait_for()
    said = page.locator("#whatif-answer").inner_text()
    assert said.startswith(f"If node {node[:12]} is lost now"), said
    assert "of 3 ha" in said, said
    assert page.evaluate("document.activeElement.tagName") in ("BUTTON", "BODY")
    assert ink_of(page, "ranks", 0.7, 1.0) > 20, "lanes are predicted, with hatches"
    page.get_by_text("computed with", exact=True).click()
    rates = page.locator("#whatif-rates").inner_text()
    for text in ("calls per second", "time at the replica", "user start-up code", "the journal"):
        assert text in rates
    shoot(page, "live-1440")


def test_another_target_brings_lanes_for_ranks_that_are_not_there_yet(page):
    page.locator("input[value=target]").check()
    page.locator("input[name=target]").fill("4")
    page.get_by_role("button", name="predict", exact=True).click()
    page.get_by_text("If the target of shop/Model is set to 4").wait_for()
    assert "all 4 ranks are served after" in page.locator("#whatif-answer").inner_text()
    page.locator("input[name=target]").fill("99999")
    page.get_by_role("button", name="predict", exact=True).click()
    assert page.locator("input[name=target]").evaluate("field => !field.validity.valid"), "the browser says so itself"
    assert len(serve.status().deployments[NAME].replicas) == 3, "nothing changes"
    page.get_by_role("button", name="clear the prediction").click()
    assert page.locator("#whatif-more").is_hidden()


def test_on_a_phone_nothing_is_cut_off_and_everything_is_there(visit, load):
    page = visit(PHONE, has_touch=True, color_scheme="dark", reduced_motion="reduce")
    eventually(lambda: is_served(page, 3), "three ranks are served")
    assert not overflows(page)
    assert nameless(page) == []
    page.locator("input[value=rank]").check()
    page.locator("input[name=rank]").fill("2")
    page.get_by_role("button", name="predict", exact=True).click()
    page.get_by_text("If the replica with rank 2 of shop/Model dies now").wait_for()
    assert not overflows(page)
    shoot(page, "live-390")
    page.close()


def test_a_stream_that_breaks_is_told_and_comes_back(page, served):
    is_away.append(served)
    serve.stop_rest()
    page.locator("#connection[data-state=lost]").wait_for()
    assert "connection lost" in page.locator("#connection").inner_text()
    serve.start_rest({"port": int(served.rpartition(":")[2]), "bearer_token": TOKEN})
    page.locator("#connection[data-state=live]").wait_for()
    eventually(lambda: is_served(page, 3), "the page goes on")
    assert not overflows(page)
