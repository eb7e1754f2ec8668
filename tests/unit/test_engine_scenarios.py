"""Engines in scenario files: what is refused, and in which words; what the KV cache comes to; what only warns."""

from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from executors.cli.app import app
from executors.cli.never_came import warn_of_what_was_not_measured
from executors.simulator.fields import FieldProblem
from executors.simulator.report.words import rows
from executors.simulator.run import Run
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.loading import load_arrivals, parse_scenario
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.offered import warnings_of
from executors.simulator.scenario.requests import PoissonRequests
from executors.simulator.scenario.schema import scenario_schema

ROOT = Path(__file__).parents[2]
TABLE = "{gpu_type: H100, tp: 2, base_ms: [[1, 10], [3, 12]], prompt_ms: [[0, 0], [10, 5]], kv_ns: 7, pair_ns: 0.001}"
ENGINE = f"name: x, kv_cache_tokens: 64, tables: [{TABLE}]"
TOKENS = "requests: {poisson: {rate_per_s: 1, for_s: 1, tokens: {prompt: 3, output: 2}}}"
NODES = "name: n, gpus: 4, gpu_type: H100"


def scenario_of(engine: str = ENGINE, deployment: str = TOKENS, nodes: str = NODES, gpus: int = 2, more: str = "") -> Scenario:
    text = f"nodes: [{{{nodes}}}]\nengines: [{{{engine}}}]\n{more}\ndeployments:\n  - name: llm\n    engine: x\n"
    return parse_scenario(f"{text}    target_replicas: 1\n    gpus_per_replica: {gpus}\n    {deployment}\n", "s.yaml")


def test_values_are_rounded_once_to_picoseconds() -> None:
    scenario = scenario_of()
    (engine,) = scenario.engines_of(scenario.deployments[0]).values()
    time = engine.step_time
    assert (time.base.knots, time.prompt.knots) == (((1, 10**10), (3, 12 * 10**9)), ((0, 0), (10, 5 * 10**9)))
    assert (time.kv_ps, time.pair_ps, engine.blocks, engine.max_num_seqs) == (7_000, 1, 4, 128)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gpus": 4}, "deployments[0].engine: engine 'x' has no table for H100 TP 4; it has H100 TP 2"),
        ({"nodes": "name: n, gpus: 4"}, "engine 'x' has no table for nodes n, without gpu_type; it has H100 TP 2"),
        ({"engine": ENGINE + ", speculative: {k: 2}"}, "engines[0].speculative: expected no speculative"),
        ({"engine": ENGINE + ", disaggregation: true"}, "engines[0].disaggregation: expected no disaggregation"),
        ({"engine": ENGINE + ", pipeline_parallel: 2"}, "engines[0].pipeline_parallel: expected no pipeline_parallel"),
        ({"engine": ENGINE.replace("name: x", "name: y")}, "deployments[0].engine: expected one of the engines y, found"),
        ({"engine": f"{ENGINE}}}, {{{ENGINE}"}, "engines[1].name: expected a name that no other engine has"),
        ({"engine": f"name: x, kv_cache_tokens: 64, tables: [{TABLE}, {TABLE}]"}, "engines[0].tables[1]: expected a type"),
        ({"engine": "name: x, kv_cache_tokens: 64, tables: []"}, "engines[0].tables: expected at least one table"),
        (
            {"engine": f"name: x, tables: [{TABLE}]"},
            "kv_cache_tokens: expected tokens of the KV cache, as there is no weight_gb",
        ),
        ({"engine": f"name: x, kv_cache_tokens: 15, tables: [{TABLE}]"}, "engines[0].kv_cache_tokens: expected at least 16"),
        ({"engine": ENGINE.replace("[3, 12]", "[1, 12]")}, "engines[0].tables[0].base_ms[1]: expected 1 to 1000 points"),
        ({"engine": ENGINE.replace("[3, 12]", "[3]")}, "engines[0].tables[0].base_ms[1]: expected 1 to 1000 points"),
        ({"engine": ENGINE.replace("[[1, 10], [3, 12]]", "[]")}, "engines[0].tables[0].base_ms: expected 1 to 1000 points"),
        (
            {"deployment": "requests: {poisson: {rate_per_s: 1, for_s: 1, service_s: 1}}"},
            "deployments[0].requests.poisson.service_s: expected nothing, as engine 'x' says how long requests take",
        ),
        (
            {"deployment": TOKENS.replace("output: 2", "output: 2, output_s_per_token: 1")},
            "deployments[0].requests.poisson.tokens.output_s_per_token: expected nothing, as engine 'x'",
        ),
        (
            {"deployment": "requests: {trace: {file: t.csv, base_s: 1}}"},
            "deployments[0].requests.trace.base_s: expected nothing, as engine 'x' says how long tokens take",
        ),
        (
            {"deployment": "", "more": "traffic: {zipf: {rate_per_s: 1, for_s: 1, service_s: 1}}"},
            "deployments[0].engine: expected requests beside it, as those of traffic are for no engine",
        ),
        (
            {"deployment": TOKENS + "\n  - {name: b, target_replicas: 1, request_slo: {ttft_s: 1}}"},
            "deployments[1].request_slo: expected nothing, as the deployment has no engine",
        ),
        (
            {"deployment": TOKENS + "\n  - {name: b, target_replicas: 1, " + TOKENS + "}"},
            "deployments[1].requests.poisson.tokens.prompt_s_per_token: expected a value, as there is no engine",
        ),
        (
            {"more": "traffic: {zipf: {rate_per_s: 1, for_s: 1, tokens: {prompt: 1, output: 1}}}"},
            "traffic.zipf.tokens.prompt_s_per_token: expected a value, as there is no engine",
        ),
        (
            {"deployment": "residency: {weight_gb: 1}", "nodes": NODES + ", gpu_gb: 80", "more": "duration_s: 1"},
            "deployments[0].engine: expected nothing, as the deployment has residency",
        ),
    ],
)
def test_what_an_engine_can_not_do_is_refused_by_name(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_of(**changes)  # type: ignore[arg-type]
    assert problem in str(caught.value)


KV = "name: x, weight_gb: 70, working_gb: 4, kv_cache_bytes_per_token: 100000, block_size: 1000"


def test_the_kv_cache_is_what_the_gpus_have_left() -> None:
    scenario = scenario_of(f"{KV}, tables: [{TABLE}]", nodes=NODES + ", gpu_gb: 80")
    (engine,) = scenario.engines_of(scenario.deployments[0]).values()
    assert engine.kv_cache_tokens == 700_000  # (80 x 0.9 x 2 - 70 - 4) GB at 100 kB


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (NODES, "engine 'x' has no kv_cache_tokens, and nodes n no gpu_gb to compute them from"),
        (NODES + ", gpu_gb: 41.1", "engine 'x' has no room for a KV cache on H100 TP 2: -0.02 GB are left"),
    ],
)
def test_without_room_for_a_kv_cache_there_is_no_engine(nodes: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_of(f"{KV}, tables: [{TABLE}]", nodes=nodes)
    assert problem in str(caught.value)


def test_a_router_that_keeps_batches_small_is_warned_of() -> None:
    assert scenario_of(deployment=f"max_ongoing_requests: 128\n    {TOKENS}").warnings == ()
    (warning,) = scenario_of().warnings
    assert warning.startswith("router_limits_batch: llm has 8 requests at most on a replica")
    assert "engine 'x' batches 128" in warning


def test_a_request_of_a_trace_has_the_tokens_of_its_columns(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,7,5\n1,0,3\n")
    scenario = scenario_of(deployment="requests: {trace: {file: t.csv}}")
    arrivals = load_arrivals(scenario, tmp_path, 0)["llm"]
    assert (list(arrivals.service_s), list(arrivals.prompt), list(arrivals.output)) == ([], [7, 1], [5, 3])


def test_what_no_replica_can_hold_is_turned_away_when_it_comes(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """64 tokens of KV cache: 60 + 5 never fit, 60 + 4 do. It keeps nobody from being served, nor the run from its end."""
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,60,5\n0,60,4\n0,1,1\n")
    scenario = scenario_of(deployment="max_ongoing_requests: 1\n    requests: {trace: {file: t.csv, begin_s: 30}}")
    run = Run(scenario, load_arrivals(scenario, tmp_path, 0))
    requests = run.go().deployments[0].requests
    assert (requests.arrived, requests.done, requests.failed, requests.unfinished) == (3, 2, 1, 0)
    assert run.world.deployments["llm"].requests.told.too_long == 1  # type: ignore[attr-defined]


def test_the_example_of_the_docs_is_one_and_the_schema_takes_it() -> None:
    page = (ROOT / "docs" / "simulating.md").read_text()
    text = page.partition("## Engines under load")[2].partition("```yaml\n")[2].partition("```")[0]
    scenario = parse_scenario(text, "docs.yaml")
    assert scenario.deployments[0].engine == scenario.engines[0].name
    assert scenario.warnings == ()
    jsonschema.validate(yaml.safe_load(text), scenario_schema())


def test_requests_check_themselves_also_from_python() -> None:
    with pytest.raises(FieldProblem) as caught:
        PoissonRequests(rate_per_s=1, for_s=1)
    assert path_text(caught.value.keys) == "service_s"


def test_what_can_not_be_done_is_warned_of() -> None:
    """A request takes 80 times 0.5 ms of a prompt and 5 times 10 ms of output at least: 10 in a second are 0.9 of a replica."""
    tokens = "{prompt: 80, output: 5}"
    few = f"requests: {{poisson: {{rate_per_s: RATE, for_s: 60, tokens: {tokens}}}}}"
    engine = ENGINE.replace("64", "1000").replace("[3, 12]", "[2, 20]")
    for rate, told in (("10", []), ("30", ["overload: llm is offered at least 2."])):
        scenario = scenario_of(engine, few.replace("RATE", rate))
        found = warnings_of(scenario, load_arrivals(scenario, ROOT, 0))
        assert [line[: len(told[at])] for at, line in enumerate(found)] == told
    scenario = scenario_of(f"{ENGINE}", few.replace("RATE", "1"))
    (line,) = warnings_of(scenario, load_arrivals(scenario, ROOT, 0))
    assert line == "too_long: 100.0% of the requests of llm have more than the 64 tokens that a replica can hold"
    none = scenario_of(deployment="max_ongoing_requests: 128")
    assert warnings_of(none, load_arrivals(none, ROOT, 0)) == ()


@pytest.mark.parametrize(
    ("faults", "took_s"),
    [
        ("[]", 1.0),
        ("[{kind: replica_slow, at: 60.505, deployment: llm, rank: 0, factor: 3, for_s: 0.1}]", 1.08),
        ("[{kind: replica_slow, at: 60.505, deployment: llm, rank: 0, factor: 3}]", 0.51 + 0.49 * 3),
        (
            "[{kind: replica_slow, at: 60.505, deployment: llm, rank: 0, factor: 2},"
            " {kind: replica_slow, at: 60.505, deployment: llm, factor: 1.5}]",
            0.51 + 0.49 * 3,
        ),
        (
            "[{kind: replica_slow, at: 60.505, deployment: llm, rank: 0, factor: 3},"
            " {kind: replica_hang, at: 60.502, deployment: llm, rank: 0, for_s: 0.01}]",
            0.52 + 0.49 * 3,
        ),
    ],
    ids=["never", "for a while", "for ever", "twice", "while it hangs"],
)
def test_a_slow_replica_takes_longer_from_its_next_iteration_on(faults: str, took_s: float, tmp_path: Path) -> None:
    """100 iterations of 10 ms."""
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,100\n")
    table = "{gpu_type: H100, tp: 2, base_ms: [[0, 10]], prompt_ms: [[0, 0]]}"
    trace = "requests: {trace: {file: t.csv, begin_s: 60}}"
    scenario = scenario_of(f"name: x, kv_cache_tokens: 1600, tables: [{table}]", trace, more=f"faults: {faults}")
    figures = Run(scenario, load_arrivals(scenario, tmp_path, 0)).go().deployments[0].engine
    assert figures is not None
    assert figures.e2e_s.mean == pytest.approx(took_s, abs=1e-9)
    if faults == "[]":  # from 1 to 100 tokens in blocks of 16, of which there are 100
        assert figures.kv_mean == pytest.approx(sum(-(-tokens // 16) for tokens in range(1, 101)) / 100 / 100, rel=0.1)


def test_a_run_may_end_while_engines_work() -> None:
    """Requests of 100 s each, all of them in the engine when the run ends, or in its line, or on their way out."""
    busy = "requests: {poisson: {rate_per_s: 4, begin_s: 60, for_s: 5, tokens: {prompt: 3, output: 10000}}}"
    engine = ENGINE.replace("64", "100000, max_num_seqs: 4")
    scenario = scenario_of(engine, busy, more="duration_s: 70")
    requests = Run(scenario, load_arrivals(scenario, ROOT, 0)).go().deployments[0].requests
    assert (requests.done, requests.unfinished) == (0, requests.arrived)
    assert requests.wait_s.censored == requests.arrived > 10


def test_only_engines_are_slow() -> None:
    nodes = "nodes: [{name: n, gpus: 1}]\nfaults: [{kind: replica_slow, at: 1, deployment: llm, factor: 2}]\n"
    with pytest.raises(ScenarioError, match=r"faults.0..deployment: expected a deployment with an engine, found .llm"):
        parse_scenario(f"{nodes}deployments: [{{name: llm, target_replicas: 1}}]", "s.yaml")
    other = TOKENS + "\n  - {name: b, target_replicas: 1}"
    faults = "faults: [{kind: replica_slow, at: 1, deployment: b, factor: 2}]"
    with pytest.raises(ScenarioError, match=r"expected one with an engine: llm, found .b"):
        scenario_of(deployment=other, more=faults)


@pytest.mark.parametrize("factor", [0.5, 1])
def test_nothing_makes_a_replica_faster(factor: float) -> None:
    with pytest.raises(ScenarioError, match=r"faults\[0\]\.factor: expected a number above 1 to 1000, found"):
        scenario_of(more=f"faults: [{{kind: replica_slow, at: 1, deployment: llm, factor: {factor}}}]")


def test_a_fault_of_a_rank_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = f"nodes: [{{{NODES}}}]\nengines: [{{{ENGINE}}}]\n"
    faults = "faults: [{kind: replica_slow, at: 90, deployment: llm, rank: 7, factor: 2}]\nduration_s: 100\n"
    deployment = f"deployments:\n  - {{name: llm, engine: x, target_replicas: 1, gpus_per_replica: 2, {TOKENS}}}\n"
    (tmp_path / "s.yaml").write_text(head + faults + deployment)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["simulate", "s.yaml"])
    assert done.exit_code == 0, done.stderr
    assert "rankcore: warning: at 0:01:30 in llm, rank 7 was to be slow, but there is none\n" in done.stderr


def test_time_beyond_measured_points_is_told_and_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    burst = "requests: {poisson: {rate_per_s: 1000, begin_s: 60, for_s: 0.1, tokens: {prompt: 3, output: 20}}}"
    for knots, extrapolated in (("[3, 12]", True), ("[300, 12]", False)):
        engine = ENGINE.replace("64", "100000").replace("[3, 12]", knots).replace("[10, 5]", "[1000, 5]")
        scenario = scenario_of(engine, f"max_ongoing_requests: 100\n    {burst}")
        result = Run(scenario, load_arrivals(scenario, ROOT, 0)).go()
        figures = result.deployments[0].engine
        assert figures is not None
        assert (figures.extrapolated > 0.5) is extrapolated
        assert ("  beyond measured points" in dict(rows(result.deployments[0]))) is extrapolated
        warn_of_what_was_not_measured(result)
        assert ("extrapolated: llm was busy for" in capsys.readouterr().err) is extrapolated


def test_cached_tokens_of_a_trace_take_no_time_and_have_their_place(tmp_path: Path) -> None:
    """All of a prompt but its last token at most: always 13 of 100 blocks, and an iteration of 200, 100 or 1 prompt tokens."""
    ttfts, peaks = [], []
    for count in (0, 100, 1000):
        (tmp_path / "t.csv").write_text(f"t,prompt,output,cached\n0,200,2,{count}\n")
        columns = "{time: t, prompt: prompt, output: output, cached: cached}"
        trace = f"requests: {{trace: {{file: t.csv, begin_s: 60, columns: {columns}}}}}"
        scenario = scenario_of(ENGINE.replace("64", "1600"), trace)
        figures = Run(scenario, load_arrivals(scenario, tmp_path, 0)).go().deployments[0].engine
        assert figures is not None
        ttfts.append(figures.ttft_s.mean)
        peaks.append(figures.kv_peak)
    base_ms = 9  # of no sequence that decodes
    assert ttfts == pytest.approx([(base_ms + prompt / 2) / 1000 for prompt in (200, 100, 1)], rel=1e-3)
    assert peaks == [0.13, 0.13, 0.13]
