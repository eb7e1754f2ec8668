"""`rankcore simulate`, `compare` and `sweep` of scenarios with residency, and of what older releases wrote."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.residency.memory import NodeMemory
from executors.simulator.scenario.models import upgraded
from tests.journals import sealed, unsealed
from tests.model_runs import EVERYTHING

ROOT = Path(__file__).resolve().parents[2]
OLD = {**EVERYTHING, "duration_s": 700, "faults": EVERYTHING["faults"][:2], "changes": EVERYTHING["changes"][:1]}
SMALL = upgraded(OLD)


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
        "6 deployments on 2 nodes",
        "GPU memory",
        "fragmented",
        "to the first answer",
        "displaced",
    ):
        assert words in done.output
    assert "again:   rankcore simulate models.yaml --seed 4" in done.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["rerun"] == "rankcore simulate models.yaml --seed 4"
    assert [model["name"] for model in figures["deployments"]] == ["chat", "code", "large", "vision", "house", "never"]
    for model in figures["deployments"]:
        assert model["hot_s"] + model["warm_s"] + model["cold_s"] == pytest.approx(700)
    assert 0 <= figures["busiest_minute_at"] < 700  # of the run, not of traffic that comes after its end
    whole = figures["all_deployments"]
    assert set(whole) == {"memory", "misses", "moves", "requests"}
    assert whole["moves"]["moved_gb"] == pytest.approx(sum(model["moves"]["moved_gb"] for model in figures["deployments"]))
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
    assert json.loads(first)["all_deployments"] != json.loads(second)["all_deployments"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--must-heal"], "--must-heal: expected deployments without residency"),
        (["--set", "nodes=[]"], "nodes: expected at least one group of nodes, or node_list, found [] (set by nodes=[])"),
        (
            ["--set", "deployments[chat].residency.weight_gb=0"],
            "deployments[0].residency.weight_gb: expected a number above 0 to 9e+06, found 0",
        ),
        (["--set", "deployments[chatt].residency.weight_gb=1"], "expected [0] to [5], or a name: chat, code"),
        (["--set", "replicas=3"], 'replicas: expected a known key such as "target_replicas"'),
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
    assert " steps of a cluster with 6 deployment(s) agree" in agreed.output
    path = tmp_path / "run.jsonl"
    lines = unsealed(path)
    other = next(index for index, line in enumerate(lines) if '"rule": "T3"' in json.dumps(line))
    told = json.loads(json.dumps(lines[other]).replace('"rule": "T3"', '"rule": "T4"', 1))
    path.write_bytes(sealed([*lines[:other], told, *lines[other + 1 :]]))
    differs = run("replay", "run.jsonl")
    assert differs.exit_code == 1
    assert f"run.jsonl:{other + 1}: notes[" in differs.output


def test_a_journal_with_several_deployments_is_asked_about_one(scenario, tmp_path):
    assert run("simulate", "models.yaml", "-q", "--journal", "run.jsonl", "--set", "duration_s=10").exit_code == 0
    done = run("plan", "run.jsonl", "--target", "3")
    assert done.exit_code == 2
    asked = run("explain", "run.jsonl", "--rank", "0")
    assert asked.exit_code == 2
    assert "expected --deployment, since the journal has several: default/chat" in asked.output


def test_other_commands_say_that_they_take_no_residency(scenario):
    done = run("plan", "models.yaml", "--target", "3")
    assert done.exit_code == 2
    assert (
        "models.yaml: expected deployments without residency: those with it are for simulate, compare and sweep" in done.output
    )


def test_a_broken_promise_ends_the_run_and_the_command(scenario, monkeypatch):
    monkeypatch.setattr(NodeMemory, "take", lambda self, *_: 0)  # a world in which nothing ever fits
    done = run("simulate", "models.yaml", "-q")
    assert done.exit_code == 1
    assert "rankcore: error: promise T1 broken at 0:" in done.output


def test_sweep_says_what_a_setting_changes(scenario, tmp_path):
    done = run("sweep", "models.yaml", "--vary", "nodes[0].cpu_cache_gb=0,300", "--runs", "2")
    assert done.exit_code == 0, done.output
    assert "all deployments" in done.output
    assert "chat" not in done.output  # of each model the CSV tells
    rows = (tmp_path / "models.sweep" / "sweep.csv").read_text().splitlines()
    assert rows[0].startswith("nodes[0].cpu_cache_gb,seed,deployment,")
    assert len(rows) == 1 + 2 * 2 * 7
    assert "moves.loads_from_cpu" in rows[0]


def test_compare_tells_two_scenarios_apart(scenario, tmp_path):
    (tmp_path / "other.yaml").write_text(json.dumps({**SMALL, "loading": {**SMALL["loading"], "disk_gb_per_s": 4}}))
    done = run("compare", "models.yaml", "other.yaml", "--runs", "2", "--json", "found.json")
    assert done.exit_code == 0, done.output
    for words in ("all deployments", "first answer p50", "Of each of the 6 deployments: see --json."):
        assert words in done.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["name"] for each in found["deployments"]][:2] == ["all deployments", "chat"]
    assert found["deployments"][0]["figures"]["misses.first_answer_s.p50"]["difference"]["mean"] < 0


def test_deployments_with_residency_and_without_have_nothing_in_common(scenario, tmp_path):
    (tmp_path / "ranks.yaml").write_text("nodes: [{name: n, gpus: 1}]\ndeployments: [{name: app, target_replicas: 1}]\n")
    done = run("compare", "models.yaml", "ranks.yaml", "--runs", "1")
    assert done.exit_code == 2
    assert "expected residency in both scenarios or in none, found it in models.yaml only" in done.output


def test_a_scenario_of_models_gives_the_same_run_with_a_warning_and_can_be_rewritten(scenario, tmp_path):
    (tmp_path / "old.yaml").write_text("# mine\n" + json.dumps(OLD))
    new, old = (json.loads(run("simulate", name, "-q", "--json", "-").output) for name in ("models.yaml", "old.yaml"))
    assert {**old, "rerun": ""} == {**new, "rerun": ""}
    assert "rankcore: warning: old.yaml is a scenario of models" in run("simulate", "old.yaml").stderr
    done = run("upgrade", "old.yaml", "models.yaml")
    assert done.exit_code == 0, done.output
    assert "old.yaml: is a scenario of deployments now" in done.output
    assert "models.yaml: is a scenario of deployments already" in done.output
    assert (tmp_path / "old.yaml").read_text().startswith("# mine\nname: all kinds of things\n")
    rewritten = run("simulate", "old.yaml", "--json", "-")
    assert rewritten.stderr == ""
    assert {**json.loads(rewritten.stdout), "rerun": ""} == {**new, "rerun": ""}
