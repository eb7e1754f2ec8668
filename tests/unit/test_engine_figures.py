"""Figures of engines: each is what its definition says, computed by hand for a small run."""

from array import array

import pytest

from executors.simulator.engines.gaps import TokenGaps, class_of, middle_ps
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.record.engine_figures import EngineFigures, TimesOfTokens
from executors.simulator.record.flat_figures import flatten, label, unit
from executors.simulator.report import render_page
from executors.simulator.report.words import rows
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario.engines import RequestSlo
from executors.simulator.scenario.structuring import structure_scenario

MS = 10**9
TABLE = {"gpu_type": "T", "base_ms": [[1, 10]], "prompt_ms": [[0, 0], [10, 0]]}
SCENARIO = {
    "nodes": [{"name": "n", "gpus": 2, "gpu_type": "T"}],
    "engines": [{"name": "x", "kv_cache_tokens": 64, "tables": [TABLE]}],
    "deployments": [
        {"name": "llm", "target_replicas": 1, "engine": "x", "request_slo": {"ttft_s": 1, "tpot_s": 0.02}},
        {"name": "other", "target_replicas": 1},
    ],
}


def run_of(asked: list[tuple[float, int, int]]) -> Run:
    """Requests (arrival, prompt, output) of one replica, of which each iteration takes 10 ms."""
    columns = [array(code, each) for code, each in zip("dqq", zip(*asked, strict=True), strict=True)] if asked else []
    arrivals = Arrivals(columns[0], array("d"), *columns[1:]) if columns else Arrivals()
    return Run(structure_scenario(SCENARIO), {"llm": arrivals, "other": Arrivals()})


def engine_of(result: RunResult) -> EngineFigures:
    found = result.deployments[0].engine
    assert found is not None
    return found


def test_figures_are_what_their_definitions_say() -> None:
    """Two requests share an iteration; one ends with it, and the other decodes four more."""
    result = run_of([(30.0, 1, 5), (30.0, 1, 1)]).go()
    found = engine_of(result)
    ended_after_s = result.ended_at - 30.0
    assert (found.ttft_s.p50, found.ttft_s.p99) == pytest.approx((0.01, 0.01))
    assert found.tpot_s.mean == pytest.approx(0.01)
    assert (found.e2e_s.mean, found.e2e_s.p50) == pytest.approx((0.03, 0.03))
    assert (found.itl_s.p50, found.itl_s.mean) == pytest.approx((0.01, 0.01), rel=1e-3)
    assert found.attainment == 0.5  # a request of one token has no TPOT
    assert found.goodput_rps == pytest.approx(1 / ended_after_s)
    assert found.output_tokens_per_s == pytest.approx(6 / ended_after_s)
    assert (found.too_long, found.preemptions) == (0, 0)
    assert (found.batch_mean, found.kv_peak) == (4 / 5, 0.5)
    assert 0.05 / (result.ended_at - 10.0) < found.utilisation < 0.05 / (result.ended_at - 12.0)


def test_without_requests_there_is_nothing_to_say() -> None:
    found = engine_of(run_of([]).go())
    assert found.ttft_s == TimesOfTokens(mean=None, p50=None, p95=None, p99=None)
    assert (found.attainment, found.batch_mean, found.goodput_rps) == (None, None, 0.0)
    assert found.itl_s == found.ttft_s


def test_a_fork_of_a_run_with_an_engine_ends_as_the_run() -> None:
    run = run_of([(30.0, 1, 50), (30.1, 7, 20), (30.2, 1, 9)])
    run.until(30.205)
    fork = run.fork()
    result = run.go()
    assert result == fork.go()
    assert result.deployments[0].requests.done == 3


def test_the_table_the_page_and_the_columns_have_them() -> None:
    result = run_of([(30.0, 1, 5), (30.0, 60, 5)]).go()
    llm, other = result.deployments
    table = dict(rows(llm))
    assert table["TTFT p50 / p95 / p99"] == "10.0 / 10.0 / 10.0 ms"
    assert (table["met request_slo"], table["  too long for any replica"]) == ("50.0%", "1")
    assert not any(name.startswith(("TTFT", "ITL", "met")) for name, _ in rows(other))
    assert "too long for any replica" in render_page(result, "again")
    flat = flatten(llm)
    assert (flat["engine.too_long"], flat["engine.attainment"]) == (1.0, 0.5)
    assert not any(key.startswith("engine") for key in flatten(other))
    assert (label("engine.ttft_s.p95"), unit("engine.ttft_s.p95")) == ("ttft p95 of done", "s")
    assert (label("engine.output_tokens_per_s"), unit("engine.output_tokens_per_s")) == ("output tokens/s", "")


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (RequestSlo(), True),
        (RequestSlo(ttft_s=1.0, tpot_s=0.1, e2e_s=3.0), True),
        (RequestSlo(ttft_s=0.9), False),
        (RequestSlo(tpot_s=0.09), False),
        (RequestSlo(e2e_s=2.9), False),
    ],
)
def test_a_good_request_meets_all_that_it_is_to_meet(slo: RequestSlo, good: bool) -> None:
    assert slo.is_met(1.0, 0.1, 3.0) is good
    assert not RequestSlo(tpot_s=1.0).is_met(1.0, None, 3.0)


def test_gaps_of_a_leap_are_counted_as_one_by_one() -> None:
    """Also those of a sequence that stalled before it, and of a hang in its last iteration."""
    for growth, steps, late in ((0, 5, 0), (3 * MS, 40, 0), (MS, 1, 7 * MS), (MS, 9, 7 * MS)):
        leap, single = TokenGaps(), TokenGaps()
        last = [5 * MS, 5 * MS, 2 * MS]
        leap.after_leap([(5 * MS, 2), (2 * MS, 1)], 5 * MS, 10 * MS, growth, steps, late)
        for each in last:
            for at in range(steps):
                stall = 5 * MS - each if at == 0 else 0
                single.add(10 * MS + growth * at + stall + (late if at == steps - 1 else 0))
        assert leap.counts == single.counts


def test_classes_of_gaps_are_a_thousandth_wide() -> None:
    for gap_ps in (1, 10, 12_345, 7 * MS, 10**14):
        assert middle_ps(class_of(gap_ps)) == pytest.approx(gap_ps, rel=1e-3)
    assert class_of(0) == -1
    assert middle_ps(-1) == 0.0
