"""What GPUs cost: by the hours of replicas or of nodes, for each token, and which prices are refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.record.figures import DeploymentFigures
from executors.simulator.record.flat_figures import flatten, quantity
from executors.simulator.report.words import rows
from executors.simulator.run import Run
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.loading import load_arrivals, parse_scenario

SCENARIO = """
duration_s: 3600
nodes: [{name: n, count: 2, gpus: 4, gpu_type: H100}, {name: old, gpus: 8, gpu_type: A100}]
gpu_prices_per_hour: {H100: 3, A100: 1}
engines:
  - name: x
    kv_cache_tokens: 1600
    tables:
      - {gpu_type: H100, tp: 2, base_ms: [[0, 10]], prompt_ms: [[0, 0], [10, 5]]}
      - {gpu_type: A100, tp: 2, base_ms: [[0, 10]], prompt_ms: [[0, 0], [10, 15]]}
deployments:
  - name: llm
    engine: x
    target_replicas: 1
    start_s: 0
    init_s: 0
    gpus_per_replica: 2
    request_slo: {ttft_s: 0.06}
    requests: {poisson: {rate_per_s: 1, for_s: 1000, tokens: {prompt: 30, output: 10}}}
"""


def llm(text: str) -> DeploymentFigures:
    scenario = parse_scenario(text, "s.yaml")
    return Run(scenario, load_arrivals(scenario, Path(), 0)).go().deployments[0]


def test_replicas_are_billed_by_the_type_of_their_node() -> None:
    found = llm(SCENARIO)
    (cost, done) = (found.cost, found.requests.done)
    assert cost is not None
    assert found.engine is not None
    assert cost.cost_usd == pytest.approx(2 * 1.0, rel=1e-3)  # on the node with most GPUs free, for an hour
    assert cost.cost_per_mtok_output == pytest.approx(cost.cost_usd / (done * 10) * 1e6)
    assert cost.cost_per_mtok_total == pytest.approx(cost.cost_usd / (done * 40) * 1e6)
    good = (found.engine.attainment or 0.0) * found.requests.arrived
    assert cost.cost_per_mtok_good == pytest.approx(cost.cost_usd / (good * 10) * 1e6)
    assert quantity("cost.cost_usd", flatten(found)["cost.cost_usd"]).endswith(" USD")
    assert dict(rows(found))["cost"].endswith(" USD")


def test_nodes_are_billed_as_long_as_they_are_up() -> None:
    loss = "\nfaults: [{kind: node_loss, at: 600, node: n-1, back_after_s: 1800}]"
    whole, with_loss = (llm(f"{SCENARIO}billing: nodes{more}").cost for more in ("", loss))
    assert whole is not None
    assert with_loss is not None
    assert whole.cost_usd == pytest.approx(2 * 4 * 3 + 8)
    assert with_loss.cost_usd == pytest.approx(2 * 4 * 3 + 8 - 4 * 3 / 2)


def test_deployments_share_the_bill_of_nodes_by_their_gpu_hours() -> None:
    idle = "  - {name: idle, target_replicas: 2, gpus_per_replica: 2}\n"
    scenario = parse_scenario(f"{SCENARIO}{idle}billing: nodes", "s.yaml")
    costs = [each.cost for each in Run(scenario, load_arrivals(scenario, Path(), 0)).go().deployments]
    assert costs[0] is not None
    assert costs[1] is not None
    assert costs[0].cost_usd + costs[1].cost_usd == pytest.approx(32)
    assert costs[1].cost_usd == pytest.approx(2 * costs[0].cost_usd, rel=0.02)
    assert costs[1].cost_per_mtok_output is None


def test_without_prices_there_are_no_costs() -> None:
    found = llm(SCENARIO.replace("gpu_prices_per_hour: {H100: 3, A100: 1}\n", ""))
    assert found.cost is None
    assert "cost.cost_usd" not in flatten(found)
    assert "cost" not in dict(rows(found))


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        ("{H100: 3}", 'nodes[1].gpu_type: expected one of H100, as these have prices, found "A100"'),
        ("{H100: 3, A100: -1}", "gpu_prices_per_hour.A100: expected a number"),
        ("{'': 3}", 'gpu_prices_per_hour[""]: expected a name'),
        ("[3]", "gpu_prices_per_hour: expected a mapping of types of GPUs to USD"),
    ],
)
def test_wrong_prices_are_refused(prices: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(SCENARIO.replace("{H100: 3, A100: 1}", prices), "s.yaml")
    assert problem in str(caught.value)


def test_gpus_of_weights_have_no_prices() -> None:
    text = "duration_s: 1\nnodes: [{name: n, gpus: 1, gpu_gb: 80, gpu_type: H100}]\ngpu_prices_per_hour: {H100: 1}\n"
    with pytest.raises(ScenarioError, match="gpu_prices_per_hour: expected nothing, as deployments have residency"):
        parse_scenario(f"{text}deployments: [{{name: llm, target_replicas: 1, residency: {{weight_gb: 1}}}}]", "s.yaml")


GOALS = SCENARIO.replace("duration_s: 3600", "slo: ['p95 ttft_s < 0.5', 'attainment > 0.3']").replace(
    "for_s: 1000", "for_s: 20"
)


def test_the_cheapest_is_looked_for_by_the_prices_and_objectives_of_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.yaml").write_text(GOALS)
    monkeypatch.chdir(tmp_path)
    asked = ["optimize", "s.yaml", "--vary", "target_replicas=1,2", "--runs-max", "5", "--quiet", "--json", "found.json"]
    assert CliRunner().invoke(app, asked).exit_code == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["slo"] == ["p95 ttft_s < 0.5", "attainment > 0.3"]
    assert (found["aim"]["name"], found["aim"]["unit"]) == ("cost", "USD")
    assert found["answer"]["settings"] == {"target_replicas": "1"}


@pytest.mark.parametrize(
    ("slo", "problem"),
    [
        ("[3]", "slo[0]: expected [p50|p95|p99|share] FIGURE < VALUE"),
        ("['p95 ttft < 3']", "slo[0]: expected a figure: latency_s,"),
        ("[]", "expected --slo GOAL such as --slo 'p99 latency_s < 2', or slo in the scenario, found no objective"),
    ],
)
def test_wrong_objectives_of_a_scenario_are_refused(
    slo: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.yaml").write_text(GOALS.replace("['p95 ttft_s < 0.5', 'attainment > 0.3']", slo))
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["optimize", "s.yaml", "--vary", "target_replicas=1,2"])
    assert told.exit_code == 2
    assert problem in told.stderr


def test_a_way_to_bill_without_prices_is_refused() -> None:
    with pytest.raises(ScenarioError, match="billing: expected gpu_prices_per_hour beside it, as nothing is billed without"):
        parse_scenario(
            "nodes: [{name: n, gpus: 1}]\nbilling: nodes\ndeployments: [{name: llm, target_replicas: 1}]\n", "s.yaml"
        )


@pytest.mark.parametrize(
    ("slo", "problem"),
    [
        ("p99 ttft_s < 2", 'slo[1]: expected ttft_s for a deployment with an engine, found "p99 ttft_s" (s.yaml:2)'),
        ("cost_usd < 2", 'slo[1]: expected cost_usd for a deployment with GPUs with prices (gpu_prices_per_hour), found "cost'),
        ("lost < 1 of x", 'slo[1]: expected a deployment: llm, found "x" (s.yaml:2)'),
        ("p99 latency_s < 2 @ 0%", "slo[1]: expected a share of the windows above 0% and up to 100%, found"),
    ],
)
def test_an_objective_for_what_is_not_there_is_refused_when_the_scenario_is_read(
    slo: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"nodes: [{{name: n, gpus: 1}}]\nslo: ['lost < 1', '{slo}']\ndeployments: [{{name: llm, target_replicas: 1}}]\n"
    (tmp_path / "s.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["simulate", "s.yaml"])
    assert (told.exit_code, told.stdout, told.stderr.count("\n")) == (2, "", 1)
    assert problem in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]
