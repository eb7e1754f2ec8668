"""`rankcore optimize`, as a user runs it: the answer, what is kept, what it says of bad input, and where it runs."""

import csv
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.questions import cells
from executors.simulator.questions.cells import run_cell

ROOT = Path(__file__).resolve().parents[2]
SMALL = """\
name: small
seed: 5
nodes: [{name: n, count: 2, gpus: 8}]
deployments:
  - name: llm
    target_replicas: 3
    max_ongoing_requests: 1
    init_s: 1
    requests: {poisson: {rate_per_s: 3, begin_s: 10, for_s: 60, service_s: {exponential: {mean: 1}}}}
"""
ASKED = ("s.yaml", "--vary", "target_replicas=1..12", "--slo", "p95 wait_s < 2", "--gpu-price", "2.5", "--runs-max", "8")


def run(*arguments: str):
    return CliRunner().invoke(app, ["optimize", *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def counted(monkeypatch) -> list[tuple[str, int]]:
    """The settings and seeds of the cells that are really run."""
    ran: list[tuple[str, int]] = []

    def counting(cell):
        ran.append((" ".join(map(str, cell.source.settings)), cell.seed))
        return run_cell(cell)

    monkeypatch.setattr(cells, "run_cell", counting)
    return ran


def test_the_answer_is_a_sentence_and_the_cheapest_that_meets_the_objective(folder, counted):
    done = run(*ASKED, "--json", "found.json")
    assert done.exit_code == 0, done.stderr
    found = json.loads((folder / "found.json").read_text())
    assert found["found"]
    assert len(counted) == len(set(counted)) == found["runs"] < 0.6 * 12 * 8
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines[1] == found["sentence"]
    answer = int(found["answer"]["settings"]["target_replicas"])
    assert found["sentence"].startswith(f"target_replicas={answer} is the setting with the least cost (")
    assert f"It takes {answer} replicas on {answer} GPUs, " in found["sentence"]
    assert f"at 2.50 USD a GPU-hour {2.5 * answer:g}" in found["sentence"].replace(".50 USD per", ".5 USD per")
    assert f"One step less, target_replicas={answer - 1}, " in found["sentence"]
    assert found["answer"]["bought"] == {"replicas": answer, "gpus": answer, "node_gpus": 16}
    by_target = {int(each["settings"]["target_replicas"]): each for each in found["tried"]}
    for target in (answer - 1, answer, answer + 1):
        assert by_target[target]["runs"] == 8
        seeds = [
            cells.Cell(cells.Source("s.yaml", SMALL.replace("replicas: 3", f"replicas: {target}"), "."), 5 + k)
            for k in range(8)
        ]
        waits = [run_cell(cell).figures["llm"]["requests.wait_s.p95"] for cell in seeds]
        assert by_target[target]["slo"][0]["value"] == pytest.approx(math.fsum(waits) / 8)
        assert by_target[target]["slo"][0]["held_in_runs"] == sum(wait < 2 for wait in waits)
    assert by_target[answer]["slo"][0]["high"] < 2
    assert by_target[answer - 1]["verdict"] in ("missed", "undecided")
    assert by_target[answer]["aim"] == pytest.approx(2.5 * by_target[answer]["gpu_hours"])
    assert f"--set target_replicas={answer} --seed 5" in found["answer"]["simulate"]
    for name in ("optimize.csv", "optimize.html", "cells.jsonl"):
        assert f"s.optimize/{name}" in done.stdout
    rows = list(csv.DictReader((folder / "s.optimize" / "optimize.csv").open()))
    assert [(row["target_replicas"], row["verdict"]) for row in rows] == [
        (each["settings"]["target_replicas"], each["verdict"]) for each in found["tried"]
    ]
    assert found["sentence"].split(":")[0].replace("<", "&lt;") in (folder / "s.optimize" / "optimize.html").read_text()


def test_the_answer_is_the_same_at_any_number_of_jobs(folder):
    assert run(*ASKED, "--out", "one", "-q").exit_code == 0
    assert run(*ASKED, "--out", "two", "-q", "--jobs", "2").exit_code == 0
    for name in ("optimize.csv", "optimize.html"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()


def test_after_ctrl_c_the_same_command_goes_on_and_gives_the_same_files(folder, monkeypatch, counted):
    assert run(*ASKED, "--out", "whole", "-q").exit_code == 0
    made = len(counted)
    counting = cells.run_cell
    counted.clear()

    def interrupted(cell):
        if len(counted) == 17:
            raise KeyboardInterrupt
        return counting(cell)

    monkeypatch.setattr(cells, "run_cell", interrupted)
    done = run(*ASKED, "--out", "cut")
    assert done.exit_code == 130
    assert done.stderr == "rankcore: interrupted; the same command goes on with what is kept in cut\n"
    assert [path.name for path in (folder / "cut").iterdir()] == ["cells.jsonl"]
    monkeypatch.setattr(cells, "run_cell", counting)
    counted.clear()
    assert run(*ASKED, "--out", "cut", "-q").exit_code == 0
    assert len(counted) == made - 17
    for name in ("optimize.csv", "optimize.html"):
        assert (folder / "cut" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def test_killed_at_any_byte_the_same_command_goes_on_and_gives_the_same_files(folder, monkeypatch):  # W11
    known = {}

    def once(cell):
        key = " ".join(map(str, cell.source.settings)), cell.seed
        if key not in known:
            known[key] = run_cell(cell)
        return known[key]

    monkeypatch.setattr(cells, "run_cell", once)
    assert run(*ASKED, "--out", "whole", "-q").exit_code == 0
    kept = (folder / "whole" / "cells.jsonl").read_bytes()
    stream = random.Random(11)
    for cut in (0, 1, kept.index(b"\n"), kept.index(b"\n") + 1, *(stream.randrange(len(kept)) for _ in range(12)), len(kept)):
        out = folder / f"cut-{cut}"
        out.mkdir(exist_ok=True)
        (out / "cells.jsonl").write_bytes(kept[:cut])
        assert run(*ASKED, "--out", out.name, "-q").exit_code == 0
        assert (out / "cells.jsonl").read_bytes() == kept, f"cut behind {cut} bytes"
        for name in ("optimize.csv", "optimize.html"):
            assert (out / name).read_bytes() == (folder / "whole" / name).read_bytes(), f"cut behind {cut} bytes"


def test_the_highest_rate_is_found(folder):
    rate = "deployments[0].requests.poisson.rate_per_s"
    arguments = (
        "--vary",
        f"{rate}=0.5..4:0.5",
        "--slo",
        "p95 wait_s < 2",
        "--maximize",
        "rate",
        "--runs-max",
        "5",
        "--json",
        "-",
    )
    found = json.loads(run("s.yaml", *arguments).stdout)
    assert found["aim"] == {"name": "rate", "unit": "", "direction": "max"}
    best = float(found["answer"]["settings"][rate])
    assert found["answer"]["aim"] == best
    assert "is the setting with the highest rate" in found["sentence"]
    assert f"One step more, {rate}={best + 0.5:g}" in found["sentence"]
    assert all(float(each["settings"][rate]) > best for each in found["tried"] if each["verdict"] != "met")


def test_what_is_not_known_to_grow_is_tried_and_the_cheapest_first(folder):
    arguments = ("--vary", "max_ongoing_requests=1,2,4", "--minimize", "p95 wait_s", "--slo", "not_done < 1", "--runs-max", "5")
    found = json.loads(run("s.yaml", *arguments, "--json", "-").stdout)
    assert found["bisected"] is None
    assert found["answer"]["settings"] == {"max_ongoing_requests": "4"}
    assert {each["settings"]["max_ongoing_requests"] for each in found["tried"]} == {"1", "2", "4"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--slo", "p95 wait_s < 0.00001"), "No setting is shown to meet p95 wait_s < 0.00001: 1 of 2 combinations were run."),
        (("--slo", "lost < 1", "--budget-runs", "4"), "the budget of 4 runs is gone; 1 of 2 combinations were run."),
    ],
)
def test_none_found_is_said_with_what_came_nearest_and_status_1(folder, arguments, told):
    done = run("s.yaml", "--vary", "target_replicas=3,4", "--runs-max", "5", *arguments)
    assert done.exit_code == 1
    assert told in done.stdout
    assert "Nearest is target_replicas=" in done.stdout
    assert (folder / "s.optimize" / "optimize.html").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "expected --slo GOAL such as --slo 'p99 latency_s < 2', or slo in the scenario, found no objective"),
        (
            ("--slo", "lost < 1"),
            "expected --vary KEY=VALUE,VALUE,... such as --vary target_replicas=1..64, found nothing to vary",
        ),
        (("--slo", "lost < 1 of x", "--vary", "target_replicas=1,2"), '--slo: expected a deployment: llm, found "x"'),
        (
            ("--slo", "lost < 1", "--vary", "target_replicas=1,x"),
            "--vary: expected numbers for target_replicas, along which is",
        ),
        (
            ("--slo", "lost < 1", "--vary", "target_replicas=-1,2"),
            "expected an integer >= 0, found -1 (set by target_replicas=-1)",
        ),
        (("--slo", "lost < 1", "--vary", "replicas=1,2"), 'replicas: expected a known key such as "target_replicas"'),
        (
            ("--slo", "lost < 1", "--vary", "target_replicas=1,2", "--vary", "target_replicas=3"),
            "--vary: expected each key once",
        ),
        (
            ("--slo", "lost < 1", "--vary", "target_replicas=1,2", "--maximize", "rate"),
            "--maximize: expected rate beside a --vary",
        ),
        (("--slo", "lost < 1", "--vary", "target_replicas=1,2", "--minimize", "cost"), "--minimize: expected --gpu-price USD"),
        (
            ("--slo", "lost < 1", "--vary", "target_replicas=1,2", "--monotone", "x"),
            "--monotone: expected a key that is varied",
        ),
        (
            ("--slo", "lost < 1 @ 99% of runs", "--vary", "target_replicas=1,2"),
            "--slo: expected --runs-max 528 or more, as fewer",
        ),
        (
            ("--slo", "lost < 1", "--vary", "target_replicas=1..400", "--vary", "init_s=1..300"),
            "--vary: expected at most 100,000 com",
        ),
        (
            ("--slo", "lost < 1", "--vary", "target_replicas=1,2", "--json", "s.yaml"),
            "--json: expected a file to write, found s.yaml",
        ),
    ],
)
def test_bad_input_is_told_in_one_line_and_nothing_runs(folder, counted, arguments, told):
    done = run("s.yaml", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("rankcore: error: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert counted == []


def test_an_objective_for_windows_is_met_by_the_mean_share_of_them(folder, counted):
    asked = (
        "s.yaml",
        "--vary",
        "target_replicas=2..8",
        "--slo",
        "p95 wait_s < 3 @ 90%",
        "--runs-max",
        "6",
        "--json",
        "found.json",
    )
    done = run(*asked, "--slo-window", "10s")
    assert done.exit_code == 0, done.stderr
    found = json.loads((folder / "found.json").read_text())
    assert (found["slo_window_s"], found["slo"]) == (10.0, ["p95 wait_s < 3 @ 90%"])
    answer, made = found["answer"], len(counted)
    assert answer["slo"][0]["low"] >= 0.9
    assert answer["slo"][0]["high"] <= 1.0
    for each in found["tried"]:
        if each["verdict"] == "missed":
            assert each["slo"][0]["value"] < 0.9
    assert "p95 wait_s < 3 s in " in found["sentence"]
    assert " of the windows" in found["sentence"]
    again = run(*asked, "--slo-window", "10s")
    assert again.exit_code == 0
    assert len(counted) == made, "all of it was kept"
    wider = run(*asked, "--slo-window", "60s")
    assert wider.exit_code == 0
    assert len(counted) > made, "what was kept says nothing of other windows"


def test_the_help_teaches_goals_and_aims():
    told = CliRunner().invoke(app, ["optimize", "--help"]).stdout
    for words in (
        "GOAL  [p50|p95|p99|share] FIGURE < VALUE [@ P%]",
        "--slo-window",
        "AIM    known before any run",
        "Exit status: 0 found",
    ):
        assert words in told


@pytest.mark.night
@pytest.mark.slow
def test_on_ray_the_answer_is_the_same(folder):
    pytest.importorskip("ray")
    assert run(*ASKED, "--out", "here", "-q").exit_code == 0
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "executors.cli", "optimize", *ASKED, "-q", "--out", "there", "--on", "ray", "--jobs", "2"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for name in ("optimize.csv", "optimize.html"):
        assert (folder / "here" / name).read_bytes() == (folder / "there" / name).read_bytes()
