"""Windows of a run: what they say is what the requests felt that came in them, and objectives hold in those where they do."""

import math
from collections import defaultdict

import attrs
import pytest

from executors.simulator.load.requests import RequestQueue
from executors.simulator.questions.held import held_objectives, objective_rows
from executors.simulator.record.flat_figures import flatten
from executors.simulator.record.percentiles import quantile
from executors.simulator.record.windows import COLUMNS, Windows, felt_of
from executors.simulator.report.windows import windows_data
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.objectives import FIGURES, parse_goal
from rankcore.routing.commands import Command, Expire, Fail
from rankcore.routing.router import FailureKind

CALLS = """
name: calls
seed: {seed}
duration_s: {duration}
nodes: [{{name: n, count: 3, gpus: 2}}]
deployments:
  - name: llm
    target_replicas: 5
    max_ongoing_requests: 1
    max_queued_requests: 20
    init_s: 2
    requests: {{poisson: {{rate_per_s: 5, begin_s: 12, for_s: 90, service_s: {{exponential: {{mean: 0.9}}}}}}}}
    {more}
faults:
  - {{kind: replica_crash, at: 30, deployment: llm, rank: 1}}
  - {{kind: node_loss, at: 50, node: n-1, back_after_s: 20}}
"""
SERVED = """
name: served
seed: 3
duration_s: 60
nodes: [{name: n, count: 2, gpus: 1, gpu_type: H100}]
engines:
  - name: x
    kv_cache_tokens: 4096
    max_num_seqs: 4
    tables: [{gpu_type: H100, base_ms: [[1, 10], [4, 14]], prompt_ms: [[0, 0], [100, 20]]}]
deployments:
  - name: llm
    target_replicas: 2
    engine: x
    max_ongoing_requests: 8
    init_s: 1
    request_slo: {ttft_s: 0.3, tpot_s: 0.0145}
    requests:
      poisson:
        rate_per_s: 8
        begin_s: 3
        for_s: 55
        tokens: {prompt: {uniform: {low: 1, high: 300}}, output: {uniform: {low: 1, high: 70}}}
faults:
  - {kind: replica_crash, at: 30, deployment: llm, rank: 1}
"""


@attrs.define
class OneByOne:
    """What became of each request, by what the queue says of it one by one."""

    queue: RequestQueue
    began: dict[int, float] = attrs.Factory(dict)
    ended: dict[int, tuple[str, float]] = attrs.Factory(dict)

    def look(self, now: float, waiting: int, is_served: bool) -> None:
        pass

    def used(self, replica_id: str, in_flight: int) -> None:
        pass

    def begun(self, now: float, index: int, replica_id: str) -> None:
        self.began[index] = now

    def done(self, now: float, index: int) -> None:
        self.ended[index] = "done", now

    def over(self, now: float, index: int, command: Command) -> None:
        is_lost = isinstance(command, Fail) and command.kind is FailureKind.LOST
        self.ended[index] = "expired" if isinstance(command, Expire) else "lost" if is_lost else "failed", now


def run_of(text: str) -> Run:
    scenario = parse_scenario(text, "s.yaml")
    return Run(scenario, load_arrivals(scenario, None, scenario.seed))


def calls(seed: int = 1, duration: int = 110, more: str = "request_timeout_s: 4") -> str:
    return CALLS.format(seed=seed, duration=duration, more=more)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width_s", [1.0, 7.0, 300.0])
def test_a_window_has_the_requests_that_came_in_it_whenever_and_however_they_ended(seed, width_s):
    run = run_of(calls(seed, duration=60 if seed else 110))  # most of these runs are cut off
    queue = run.world.deployments["llm"].requests
    seen = queue.watcher = OneByOne(queue)
    result = run.go()
    came = defaultdict(list)
    for index, at in enumerate(queue.arrivals.at_s[: queue.counts.arrived]):
        came[int(at // width_s)].append((index, at))
    windows = Windows(felt_of(queue), width_s, result.ended_at)
    assert windows.numbers == sorted(came)
    assert windows.without_requests == math.ceil(result.ended_at / width_s) - len(came)
    kinds = {kind: sum(end[0] == kind for end in seen.ended.values()) for kind in ("done", "failed", "lost", "expired")}
    assert kinds["done"] > 100
    assert kinds["expired"] > 3
    for number, figures in zip(windows.numbers, windows.figures(["requests.wait_s", "requests.latency_s"]), strict=True):
        ends = {index: seen.ended.get(index, ("unfinished", math.inf)) for index, _ in came[number]}
        assert figures["requests.arrived"] == len(came[number])
        for kind in ("done", "failed", "lost", "expired", "unfinished"):
            assert figures[f"requests.{kind}"] == sum(end[0] == kind for end in ends.values()), (number, kind)
        took = sorted(ends[index][1] - at if ends[index][0] == "done" else math.inf for index, at in came[number])
        waited = sorted(seen.began[index] - at if ends[index][0] == "done" else math.inf for index, at in came[number])
        assert figures["requests.waited_over_1_s"] == sum(1.0 < wait_s < math.inf for wait_s in waited)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            for key, values in (("requests.latency_s", took), ("requests.wait_s", waited)):
                value = quantile(values, share)
                assert figures[f"{key}.{name}"] == (None if value == math.inf else pytest.approx(value))


@pytest.mark.parametrize("text", [calls(), calls(2, 60), SERVED])
def test_one_window_as_wide_as_the_run_says_what_the_run_says(text):
    result = run_of(text).go()
    (deployment,) = result.deployments
    whole, found = flatten(deployment), result.felt["llm"]
    for figure in FIGURES.values():
        if figure.by_request and (figure.needs is None or deployment.engine is not None):
            (alone,) = Windows(found, 1e6, result.ended_at).figures(figure.keys)
            for key, value in alone.items():
                # Of a run that was cut off the whole may not know; a window takes those without an answer for the slowest.
                is_unknown = whole[key] is None and deployment.requests.unfinished > 0
                assert is_unknown or whole[key] == (None if value is None else pytest.approx(value)), (figure.name, key)


def test_windows_of_an_engine_have_each_request_once():
    result = run_of(SERVED).go()
    found = result.felt["llm"]
    assert sum(1 for _ in found.column("tpot_s")) < len(found.which), "some have one token only"
    windows = Windows(found, 5.0, result.ended_at)
    for name in COLUMNS.values():
        assert sorted(value for times in windows.times(name) for value in times) == sorted(
            value for _, value in found.column(name)
        )
    counts, shares = [], []
    for figures in windows.figures(["engine.attainment"]):
        counts.append(figures["requests.arrived"])
        shares.append(figures["engine.attainment"])
    engine = result.deployments[0].engine
    good = sum(count * share for count, share in zip(counts, shares, strict=True))
    assert good / sum(counts) == pytest.approx(engine.attainment)
    assert 0 < engine.attainment < 1


def objectives_of(result: RunResult, *texts: str, window_s: float = 10.0):
    return held_objectives([parse_goal(text) for text in texts], window_s, result)


def test_an_objective_holds_in_the_windows_where_its_figure_is_within_its_limit():
    result = run_of(calls(more="")).go()
    (told,) = objectives_of(result, "p95 wait_s < 1 @ 60%")
    windows = Windows(result.felt["llm"], 10.0, result.ended_at)
    p95 = [figures["requests.wait_s.p95"] for figures in windows.figures(["requests.wait_s"])]
    expected = [10.0 * n for n, value in zip(windows.numbers, p95, strict=True) if value is None or value >= 1]
    assert 1 < len(expected) < len(p95)
    assert [missed.since for missed in told.windows.missed] == expected
    assert (told.windows.count, told.windows.held) == (len(p95), len(p95) - len(expected))
    assert told.held == (told.windows.share >= 0.6)
    assert told.windows.without_requests == 1, "the first ten seconds"
    assert "1 without requests counts as none" in told.verdict
    just = told.windows.share
    (enough,) = objectives_of(result, f"p95 wait_s < 1 @ {100 * just}%")
    assert enough.held, "so many are enough"
    (more,) = objectives_of(result, f"p95 wait_s < 1 @ {100 * just + 0.01}%")
    assert not more.held


def test_a_window_whose_requests_had_no_answer_is_missed_and_says_never():
    result = run_of(calls(more="")).go()
    (told, lost) = objectives_of(result, "p99 latency_s < 1000 @ 99%", "lost < 1 @ 99%", window_s=1.0)
    assert told.windows.missed
    assert all(missed.value is None for missed in told.windows.missed)
    assert sum(missed.value for missed in lost.windows.missed) == result.deployments[0].requests.lost > 0


def test_without_any_request_nobody_is_disappointed_and_that_is_said():
    text = calls().replace("rate_per_s: 5", "rate_per_s: 1.0e-9")
    result = run_of(text).go()
    (told, whole) = objectives_of(result, "p99 latency_s < 1 @ 99%", "p99 latency_s < 1")
    assert (told.held, told.verdict) == (True, "held: no window has requests")
    assert told.windows.without_requests == 11
    assert (whole.held, whole.verdict) == (True, "held: 0 s")


def test_what_is_told_names_the_deployment_where_there_are_several():
    two = calls().replace("faults:", "  - {name: other, target_replicas: 1, init_s: 1}\nfaults:", 1)
    result = run_of(two).go()
    held = objectives_of(result, "lost < 1", "failed < 1 of llm", "p50 wait_s < 0.001")
    assert [text for text, _ in objective_rows(held)] == [
        "lost < 1 (llm)",
        "lost < 1 (other)",
        "failed < 1 of llm",
        "p50 wait_s < 0.001 (llm)",
        "p50 wait_s < 0.001 (other)",
    ]
    missed = held[3]
    assert not missed.held
    assert missed.verdict.startswith("missed: 0.")
    assert missed.as_json()["value"] > 0
    assert missed.as_json()["windows"] is None


def test_the_page_draws_wider_windows_where_there_are_too_many_and_shades_each_that_missed():
    result = run_of(calls(more="")).go()
    held = objectives_of(result, "p95 wait_s < 1 @ 60%", window_s=1.0)
    (fine,) = windows_data(result, held)
    assert fine["width"] == 1000
    long = attrs.evolve(result, ended_at=1e6)  # nothing comes after the first two minutes
    (coarse,) = windows_data(long, held)
    assert coarse["width"] == 128_000
    for data in (fine, coarse):
        wait = next(panel for panel in data["panels"] if panel["name"] == "wait_s")
        (limit,) = wait["limits"]
        missed = held[0].windows.missed
        assert sum(until - since for since, until in limit["missed"]) == 1000 * len(missed) > 0
        assert len(limit["missed"]) < len(missed), "neighbours are one"
        assert (limit["value"], limit["label"], limit["held"]) == (1.0, "< 1 s", held[0].held)
    (usual,) = windows_data(result, ())
    assert [panel["name"] for panel in usual["panels"]] == ["latency_s"]
    assert usual["width"] == 1000, "as wide as it looks well"
