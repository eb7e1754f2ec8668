"""Pages of engines: stretch by stretch what they did, which adds up to what they did in the whole run."""

import pytest

from executors.simulator.engines.gaps import TokenGaps
from executors.simulator.engines.pages import PAGES, EnginePage, EnginePages
from executors.simulator.report.windows import OF_ENGINES, windows_data
from executors.simulator.run import Run
from executors.simulator.scenario.loading import load_arrivals, parse_scenario
from tests.unit.test_windows import SERVED


def page_of(gap_ps: int, iterations: int = 1) -> EnginePage:
    gaps = TokenGaps()
    gaps.add(gap_ps)
    return EnginePage(iterations=iterations, gaps=gaps)


def test_pages_get_coarser_and_lose_nothing():
    pages = EnginePages()
    for second in range(PAGES * 5):
        pages.add(second + 0.5, page_of(10**9 * (second + 1), iterations=second))
    assert pages.width_s == 8.0
    assert sorted(pages.pages) == list(range(PAGES * 5 // 8))
    for number, page in pages.pages.items():
        assert page.iterations == sum(range(8 * number, 8 * number + 8))
        assert sum(page.gaps.counts.values()) == 8
    assert pages.end_of(9.0) == 16.0


@pytest.mark.parametrize("text", [SERVED, SERVED.partition("faults:")[0]], ids=["a crash", "calm"])
def test_pages_of_a_run_add_up_to_its_figures(text):
    scenario = parse_scenario(text, "s.yaml")
    run = Run(scenario, load_arrivals(scenario, None, scenario.seed))
    result = run.go()
    told, pages = run.world.deployments["llm"].requests.told, result.series["llm"].engine
    whole = EnginePage()
    for page in pages.pages.values():
        whole.merge(page)
    assert (whole.iterations, whole.decoded, whole.busy_ps) == (told.iterations, told.decoded, told.busy_ps)
    assert whole.kv_share_ps == pytest.approx(told.kv_share_ps)
    assert whole.gaps.counts == told.gaps.counts
    assert len(pages.pages) > 40, "most of the seconds have work"
    assert whole.longest_line > 0
    assert sum(whole.gaps.counts.values()) >= sum(run.world.deployments["llm"].requests.arrivals.output) / 2


def test_the_page_has_a_panel_for_each_with_a_value_for_each_stretch():
    scenario = parse_scenario(SERVED, "s.yaml")
    result = Run(scenario, load_arrivals(scenario, None, scenario.seed)).go()
    (data,) = windows_data(result, ())
    assert [panel["name"] for panel in data["panels"]] == ["ttft_s", "latency_s"]
    assert [panel["name"] for panel in data["engine"]] == list(OF_ENGINES)
    for panel in data["engine"]:
        assert panel["width"] == 1000
        assert all(len(line["values"]) == len(panel["at"]) for line in panel["lines"])
    itl, batch, kv, _ = data["engine"]
    p50, p99 = (line["values"] for line in (itl["lines"][0], itl["lines"][2]))
    assert all(low <= high for low, high in zip(p50, p99, strict=True) if low is not None)
    assert all(0 <= value <= 4 for value in batch["lines"][0]["values"]), "max_num_seqs"
    assert all(0 <= value <= 100 for value in kv["lines"][0]["values"] if value is not None)
