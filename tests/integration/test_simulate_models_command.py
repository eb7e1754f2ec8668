"""`rankcore simulate`, `compare` and `sweep` of scenarios of models, as a user runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.residency.memory import NodeMemory
from tests.model_runs import EVERYTHING

ROOT = Path(__file__).resolve().parents[2]
SMALL = {**EVERYTHING, "duration_s": 700, "faults": EVERYTHING["faults"][:2], "changes": EVERYTHING["changes"][:1]}


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "models.yaml"
    path.write_text(json.dumps(SMALL, indent=1))
    return path


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_simulate_prints_tables_and_writes_page_and_figures(scenario, tmp_path):
    done = run("simulate", "models.yaml", "--json", "figures.json")
    assert done.exit_code == 0, done.output
    for words in (
        "all kinds of things",
        "6 models on 2 nodes",
        "GPU memory",
        "fragmented",
        "to the first answer",
        "displaced",
    ):
        assert words in done.output
    assert "again:   rankcore simulate models.yaml --seed 4" in done.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["rerun"] == "rankcore simulate models.yaml --seed 4"
    assert [model["name"] for model in figures["models"]] == ["chat", "code", "large", "vision", "house", "never"]
    for model in figures["models"]:
        assert model["hot_s"] + model["warm_s"] + model["cold_s"] == pytest.approx(700)
    assert 0 <= figures["busiest_minute_at"] < 700  # of the run, not of traffic that comes after its end
    whole = figures["all_models"]
    assert set(whole) == {"memory", "misses", "moves", "requests"}
    assert whole["moves"]["moved_gb"] == pytest.approx(sum(model["moves"]["moved_gb"] for model in figures["models"]))
    assert 0 < whole["memory"]["gpu_used"] <= whole["memory"]["gpu_used_most"] <= 1
    page = (tmp_path / "models.report.html").read_text()
    assert page.startswith("<!doctype html>")
    for outside in ("http://", "https://", "src=", "<link", "<img", "@import", "url(", "fetch(", "import("):
        assert outside not in page


def test_what_the_run_ends_too_early_for_is_told(scenario):
    done = run("simulate", "models.yaml", "--set", "duration_s=5")
    assert done.exit_code == 0, done.output
    assert "rankcore: warning: faults[0] is for " in done.stderr
    assert "changes[0] is for " in done.stderr


def test_a_run_and_its_page_are_the_same_whatever_the_hash_seed(scenario, tmp_path):
    found = set()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "executors.cli", "simulate", "models.yaml", "--json", "-", "--report", f"{seed}.html"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        found.add((done.stdout, (tmp_path / f"{seed}.html").read_text()))
    assert len(found) == 1


def test_another_seed_is_another_run(scenario):
    first, second = (run("simulate", "models.yaml", "--json", "-", "--seed", seed).output for seed in ("4", "5"))
    assert json.loads(first)["all_models"] != json.loads(second)["all_models"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--must-heal"], "--must-heal: expected a scenario of deployments, found one of models"),
        (["--set", "nodes=[]"], "nodes: expected at least one group of nodes, or node_list, found [] (set by nodes=[])"),
        (["--set", "models[chat].weight_gb=0"], "models[0].weight_gb: expected a number above 0 to 9e+06, found 0"),
        (["--set", "models[chatt].weight_gb=1"], "expected [0] to [5], or a name: chat, code"),
        (["--set", "target_replicas=3"], 'target_replicas: expected a known key such as "replicas"'),
    ],
)
def test_what_cannot_be_had_is_told_in_one_line(scenario, tmp_path, arguments, expected):
    done = run("simulate", "models.yaml", *arguments)
    assert done.exit_code == 2
    assert done.output.startswith("rankcore: error: ")
    assert expected in done.output
    assert done.output.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["models.yaml"]


def test_its_journal_is_replayed_and_names_the_first_line_that_differs(scenario, tmp_path):
    plain = json.loads(run("simulate", "models.yaml", "--json", "-").output)
    done = run("simulate", "models.yaml", "--json", "figures.json", "--journal", "run.jsonl")
    assert done.exit_code == 0, done.output
    assert "journal: run.jsonl" in done.output
    assert json.loads((tmp_path / "figures.json").read_text()) == plain
    agreed = run("replay", "run.jsonl")
    assert agreed.exit_code == 0, agreed.output
    assert " steps of a fleet with 6 model(s) agree" in agreed.output
    path = tmp_path / "run.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    other = next(index for index, line in enumerate(lines) if '"rule":"T3"' in line)
    path.write_text("".join([*lines[:other], lines[other].replace('"rule":"T3"', '"rule":"T4"', 1), *lines[other + 1 :]]))
    differs = run("replay", "run.jsonl")
    assert differs.exit_code == 1
    assert f"run.jsonl:{other + 1}: notes[" in differs.output


def test_a_journal_of_a_fleet_is_told_from_one_of_deployments(scenario, tmp_path):
    assert run("simulate", "models.yaml", "-q", "--journal", "run.jsonl", "--set", "duration_s=10").exit_code == 0
    done = run("plan", "run.jsonl", "--target", "3")
    assert done.exit_code == 2
    asked = run("explain", "run.jsonl", "--rank", "0")
    assert asked.exit_code == 2
    assert "this is a journal of a fleet of models" in asked.output


def test_other_commands_say_that_they_take_no_models(scenario):
    done = run("plan", "models.yaml", "--target", "3")
    assert done.exit_code == 2
    assert "expected a scenario of deployments, found one of models, which simulate, compare and sweep take" in done.output


def test_a_broken_promise_ends_the_run_and_the_command(scenario, monkeypatch):
    monkeypatch.setattr(NodeMemory, "take", lambda self, *_: 0)  # a world in which nothing ever fits
    done = run("simulate", "models.yaml", "-q")
    assert done.exit_code == 1
    assert "rankcore: error: promise T1 broken at 0:" in done.output


def test_sweep_says_what_a_setting_changes(scenario, tmp_path):
    done = run("sweep", "models.yaml", "--vary", "nodes[0].cpu_cache_gb=0,300", "--runs", "2")
    assert done.exit_code == 0, done.output
    assert "all models" in done.output
    assert "chat" not in done.output  # of each model the CSV tells
    rows = (tmp_path / "models.sweep" / "sweep.csv").read_text().splitlines()
    assert rows[0].startswith("nodes[0].cpu_cache_gb,seed,deployment,")
    assert len(rows) == 1 + 2 * 2 * 7
    assert "moves.loads_from_cpu" in rows[0]


def test_compare_tells_two_scenarios_apart(scenario, tmp_path):
    (tmp_path / "other.yaml").write_text(json.dumps({**SMALL, "loading": {**SMALL["loading"], "disk_gb_per_s": 4}}))
    done = run("compare", "models.yaml", "other.yaml", "--runs", "2", "--json", "found.json")
    assert done.exit_code == 0, done.output
    for words in ("all models", "first answer p50", "Of each of the 6 models: see --json."):
        assert words in done.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["name"] for each in found["deployments"]][:2] == ["all models", "chat"]
    assert found["deployments"][0]["figures"]["misses.first_answer_s.p50"]["difference"]["mean"] < 0


def test_models_and_deployments_have_nothing_in_common(scenario, tmp_path):
    (tmp_path / "ranks.yaml").write_text("nodes: [{name: n, gpus: 1}]\ndeployments: [{name: app, target_replicas: 1}]\n")
    done = run("compare", "models.yaml", "ranks.yaml", "--runs", "1")
    assert done.exit_code == 2
    assert "expected two scenarios of one kind, found one of models in models.yaml and one of deployments in ranks.yaml" in (
        done.output
    )
