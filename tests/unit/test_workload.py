"""Where requests come from: what a scenario may say, and that nothing else than it decides which requests come."""

import re
import statistics
import textwrap
from array import array
from itertools import pairwise
from pathlib import Path

import pytest

from executors.simulator.load import arrivals as arrivals_module
from executors.simulator.load.arrivals import Arrivals, RateWindow, busiest_minute, draw_arrivals
from executors.simulator.scenario import ScenarioError, parse_scenario
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.streams import Streams

SCENARIO = """
nodes: [{name: n, count: 8, gpus: 8}]
deployments:
  - name: llm
    target_replicas: 4
    requests: %s
"""
SERVICE = "service_s: {exponential: {mean: 2}}"
TOKENS = "tokens: {prompt: {uniform: {low: 10, high: 20}}, output: 5, %s}"
POISSON = "{poisson: {rate_per_s: 5, for_s: 100, %s}}"
GAMMA = "{gamma: {rate_per_s: 9, for_s: 100, cv: 3, %s}}"
TIMES = "base_s: 1, prompt_s_per_token: 0.1, output_s_per_token: 0.01"


def load(requests: str, seed: int = 1, text: str = SCENARIO, folder=None) -> Arrivals:
    source = folder / "s.yaml" if folder is not None else "s.yaml"
    scenario = parse_scenario(text % requests, str(source))
    return load_arrivals(scenario, folder, seed)["llm"]


def refused(requests: str, folder=None) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(requests, folder=folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def process(cv: float, rate: float = 5.0, count: int = 40_000) -> list[float]:
    at_s = draw_arrivals([RateWindow(10.0, 10.0 + count / rate, rate, cv)], Streams(3).of("arrivals"))
    return list(at_s)


# -- processes


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
def test_times_between_requests_have_the_mean_and_the_spread_that_were_asked_for(cv):
    gaps = [after - before for before, after in pairwise(process(cv))]
    assert statistics.fmean(gaps) == pytest.approx(1 / 5.0, rel=0.04)
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, rel=0.05)


def test_arrivals_ascend_and_stay_in_their_window():
    at_s = process(3.0)
    assert at_s == sorted(at_s)
    assert at_s[0] >= 10.0
    assert at_s[-1] < 10.0 + 40_000 / 5.0


def test_a_window_has_its_share_of_the_requests_and_one_of_rate_0_has_none():
    windows = [RateWindow(0, 1000, 10, 1.0), RateWindow(1000, 2000, 0, 1.0), RateWindow(2000, 3000, 40, 0.5)]
    at_s = draw_arrivals(windows, Streams(3).of("arrivals"))
    counts = [sum(1 for each in at_s if window.begin_s <= each < window.end_s) for window in windows]
    assert counts[0] == pytest.approx(10_000, rel=0.05)
    assert counts[1] == 0
    assert counts[2] == pytest.approx(40_000, rel=0.02)


def test_cutting_a_window_in_two_changes_nothing():
    whole = draw_arrivals([RateWindow(0, 100, 10, 2.0)], Streams(3).of("arrivals"))
    halves = draw_arrivals([RateWindow(0, 33, 10, 2.0), RateWindow(33, 100, 10, 2.0)], Streams(3).of("arrivals"))
    assert list(halves) == pytest.approx(list(whole))


def test_twice_the_rate_is_the_same_requests_in_half_the_time():
    slow = draw_arrivals([RateWindow(0, 100, 10, 2.0)], Streams(3).of("arrivals"))
    fast = draw_arrivals([RateWindow(0, 50, 20, 2.0)], Streams(3).of("arrivals"))
    assert [2 * each for each in fast] == pytest.approx(list(slow))


def test_a_process_that_draws_more_than_memory_is_for_is_refused(monkeypatch):
    monkeypatch.setattr(arrivals_module, "REQUESTS_MAX", 100)
    message = refused("{gamma: {rate_per_s: 90, for_s: 10, cv: 2, service_s: 1}}")
    assert message == "deployments[0].requests.gamma: expected at most 100 requests, drew more"


# -- streams of their own: common random numbers


def test_another_service_time_changes_no_arrival():
    one = load(POISSON % SERVICE)
    other = load(POISSON % "service_s: {gamma: {mean: 1, shape: 3}}")
    tokens = load(POISSON % TOKENS % TIMES)
    assert one.at_s == other.at_s == tokens.at_s
    assert len(one) > 400


def test_another_arrival_process_changes_no_service_time():
    one = load(POISSON % SERVICE)
    other = load(GAMMA % SERVICE)
    few = min(len(one), len(other))
    assert few > 400
    assert one.service_s[:few] == other.service_s[:few]


def test_other_prompts_change_no_outputs():
    times = "output: {gamma: {mean: 50, shape: 2}}, prompt_s_per_token: 0, output_s_per_token: 0.01"
    one = load(POISSON % f"tokens: {{prompt: 1, {times}}}")
    other = load(POISSON % f"tokens: {{prompt: {{lognormal: {{median: 9, p99: 99}}}}, {times}}}")
    assert one.service_s == other.service_s


def test_faults_replicas_and_other_deployments_change_no_request():
    plain = load(POISSON % SERVICE)
    more = SCENARIO.replace("target_replicas: 4", "target_replicas: 9\n    init_s: {exponential: {mean: 3}}")
    more += "  - {name: b, target_replicas: 1, requests: {poisson: {rate_per_s: 1, for_s: 9, service_s: 1}}}\n"
    more += "faults: [{kind: replica_crash, at: 3, deployment: llm}]\n"
    other = load(POISSON % SERVICE, text=more)
    assert (plain.at_s, plain.service_s) == (other.at_s, other.service_s)


def test_another_seed_changes_everything():
    one, other = (load(POISSON % SERVICE, seed=seed) for seed in (1, 2))
    assert one.at_s[0] != other.at_s[0]
    assert one.service_s[0] != other.service_s[0]


# -- tokens, traces, rates


def test_service_time_is_linear_in_whole_drawn_tokens():
    arrivals = load(POISSON % TOKENS % TIMES)
    prompts = [(each - 1 - 0.05) / 0.1 for each in arrivals.service_s]
    assert prompts == pytest.approx([round(each) for each in prompts])
    assert {round(each) for each in prompts} == set(range(10, 21))


def test_a_trace_needs_no_token_columns_where_service_times_are_drawn(tmp_path):
    (tmp_path / "t.csv").write_text("when\n5\n6\n9\n")
    requests = "{trace: {file: t.csv, time_column: when, begin_s: 3, speedup: 2, limit: 2, service_s: 4}}"
    arrivals = load(requests, folder=tmp_path)
    assert list(arrivals.at_s) == [3.0, 3.5]
    assert list(arrivals.service_s) == [4.0, 4.0]


def test_rates_of_a_file_are_scaled_sped_up_and_cut(tmp_path):
    (tmp_path / "r.csv").write_text("m,window_start_s,rate\nx,7,100\nx,607,0\nx,1207,300\nx,1807,100\n")
    requests = "{rates: {file: r.csv, scale: 0.1, speedup: 2, begin_s: 50, for_s: 900, where: {m: x}, service_s: 1}}"
    at_s = load(requests, folder=tmp_path).at_s
    counts = [sum(1 for each in at_s if low <= each < high) for low, high in ((50, 350), (350, 650), (650, 950))]
    assert counts[0] == pytest.approx(6000, rel=0.05)
    assert counts[1] == 0
    assert counts[2] == pytest.approx(18_000, rel=0.03)
    assert len(at_s) == sum(counts)


def test_a_distribution_can_be_a_column_of_a_file_beside_the_scenario(tmp_path):
    (tmp_path / "loads.csv").write_text("node,ms\na,1500\nb,2500\n")
    requests = POISSON % "service_s: {empirical: {file: loads.csv, column: ms, scale: 0.001}}"
    assert set(load(requests, folder=tmp_path).service_s) == {1.5, 2.5}


@pytest.mark.parametrize(
    ("requests", "problem"),
    [
        (POISSON % "begin_s: 1", "requests.poisson.service_s: expected a distribution, or tokens beside it, found nothing"),
        (POISSON % f"{SERVICE}, {TOKENS % TIMES}", "requests.poisson.tokens: expected either service_s or tokens"),
        (POISSON % "service_s: soon", "requests.poisson.service_s: expected a number of seconds, or one of uniform: {...}"),
        (POISSON % TOKENS.replace("5", "soon") % TIMES, "requests.poisson.tokens.output: expected a number of tokens, or"),
        (POISSON % TOKENS.replace("5", "-1") % TIMES, "requests.poisson.tokens.output: expected a number of tokens, or"),
        (POISSON % TOKENS.replace("high: 20", "high: 2") % TIMES, "requests.poisson.tokens.prompt.uniform.high: expected"),
        (POISSON % TOKENS % "base_s: 1", "requests.poisson.tokens.prompt_s_per_token: expected a value"),
        ("{gamma: {rate_per_s: 5, for_s: 9, service_s: 1}}", "requests.gamma.cv: expected a value, which has no default"),
        ("{gamma: {rate_per_s: 5, cv: 0, for_s: 9, service_s: 1}}", "requests.gamma.cv: expected a number from 0.01 to 100"),
        ("{gamma: {rate_per_s: 5, cv: 1, for_s: 1e9, service_s: 1}}", "requests.gamma.for_s: expected at most 2e+06"),
        ("{trace: {file: t.csv}}", "requests.trace.base_s: expected a number, as there is no service_s"),
        ("{trace: {file: t.csv, service_s: 1, base_s: 1}}", "requests.trace.base_s: expected no base_s where service_s"),
        ("{trace: {file: t.csv, service_s: 1, speedup: 0}}", "requests.trace.speedup: expected a number above 0"),
        ("{trace: {file: t.csv, service_s: 1, limit: 0}}", "requests.trace.limit: expected an integer >= 1"),
        ("{rates: {file: t.csv, service_s: 1, where: [a]}}", "requests.rates.where: expected a mapping of columns to texts"),
        ("{rates: {file: t.csv, service_s: 1, where: {a: true}}}", "requests.rates.where.a: expected the text of a cell"),
        (
            POISSON % "service_s: {empirical: {file: t.csv, column: t}}",
            "requests.poisson.service_s.empirical.file: t.csv: cannot be read: No such file",
        ),
        (POISSON % "service_s: {empirical: {file: t.csv}}", "requests.poisson.service_s.empirical.column: expected a value"),
        (POISSON % "service_s: {empirical: t.csv}", "requests.poisson.service_s.empirical: expected a list of numbers, or a"),
    ],
)
def test_requests_that_make_no_sense_are_refused_at_their_key_path(requests, problem):
    message = refused(requests)
    assert message.startswith("deployments[0]." + problem), message
    assert message.endswith("(s.yaml:6)")


def test_a_column_that_cannot_be_used_is_told_with_both_places(tmp_path):
    (tmp_path / "x.csv").write_text("s\n1\nsoon\n")
    message = refused(POISSON % "service_s: {empirical: {file: x.csv, column: s}}", folder=tmp_path)
    assert message == (
        f"deployments[0].requests.poisson.service_s.empirical.file: {tmp_path}/x.csv:3: s: expected a number from 0 to 1e+09, "
        f'found "soon" ({tmp_path}/s.yaml:6)'
    )


def test_rates_beyond_what_can_be_drawn_are_refused_with_their_file(tmp_path):
    (tmp_path / "r.csv").write_text("window_start_s,rate\n0,100\n60,5\n")
    message = refused("{rates: {file: r.csv, scale: 100000, service_s: 1}}", folder=tmp_path)
    assert message.startswith(f"deployments[0].requests.rates.file: {tmp_path}/r.csv: expected at most 1e+06 requests/s")


def test_the_requests_in_the_guide_are_requests():
    guide = Path(__file__).parents[2].joinpath("docs", "simulating.md").read_text()
    blocks = re.findall(r"```yaml\nrequests:\n(.*?)```", guide, re.DOTALL)
    found = [parse_scenario(SCENARIO % "\n" + textwrap.indent(block, " " * 6), "guide") for block in blocks]
    kinds = [type(each.deployments[0].requests).__name__ for each in found]
    assert kinds == ["TraceRequests", "PoissonRequests", "GammaRequests", "RateRequests", "ClosedRequests", "TraceRequests"]


def test_the_busiest_minute_is_one_of_the_run_however_much_comes_after_its_end():
    arrivals = [
        Arrivals(array("d", [10.0, 20.0, 70.0]), array("d", [1.0] * 3)),
        Arrivals(array("d", [601.0] * 9), array("d", [1.0] * 9)),
    ]
    assert busiest_minute(arrivals) == 600.0
    assert busiest_minute(arrivals, 600.0) == 0.0
    assert busiest_minute(arrivals, 601.0) == 600.0  # what arrives as it ends is still served
    assert busiest_minute(arrivals, 9.0) is None
