"""`rankcore sweep`, as a user runs it: the grid, what is kept, and where it runs."""

import csv
import json
import os
import signal
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
nodes: [{name: n, count: 2, gpus: 4}]
network: {latency_s: {exponential: {mean: 0.01}}}
deployments:
  - name: llm
    target_replicas: 3
    requests: {poisson: {rate_per_s: 1, begin_s: 20, for_s: 30, service_s: {exponential: {mean: 3}}}}
faults: [{kind: node_loss, at: 30, node: n-0, back_after_s: 10}]
"""
GRID = ("s.yaml", "--vary", "deployments[0].target_replicas=2,3", "--vary", "compaction=when_healthy,immediate", "--runs", "3")


def run(*arguments: str):
    return CliRunner().invoke(app, ["sweep", *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def counted(monkeypatch) -> list[int]:
    """The seeds of the cells that are really run."""
    ran: list[int] = []

    def counting(cell):
        ran.append(cell.seed)
        return run_cell(cell)

    monkeypatch.setattr(cells, "run_cell", counting)
    return ran


def test_every_combination_is_run_with_every_seed(folder, counted):
    done = run(*GRID)
    assert done.exit_code == 0, done.stderr
    assert counted == [5, 6, 7] * 4
    rows = list(csv.DictReader((folder / "s.sweep" / "sweep.csv").open()))
    assert [(row["deployments[0].target_replicas"], row["compaction"], row["seed"]) for row in rows] == [
        (target, when, seed) for target in "23" for when in ("when_healthy", "immediate") for seed in "567"
    ]
    alone = run_cell(cells.Cell(cells.Source("s.yaml", SMALL, "."), 6)).figures["llm"]
    found = next(row for row in rows if row["deployments[0].target_replicas"] == "3" and row["seed"] == "6")
    assert {key: float(found[key]) for key in alone if alone[key] is not None} == {
        k: v for k, v in alone.items() if v is not None
    }


def test_the_table_shows_means_and_where_everything_is(folder):
    done = run(*GRID)
    assert "4 combinations, each on seeds 5 to 7" in done.stdout
    assert " ± " in done.stdout
    for name in ("sweep.csv", "sweep.html", "cells.jsonl"):
        assert f"s.sweep/{name}" in done.stdout
        assert (folder / "s.sweep" / name).exists()
    assert "again:   rankcore sweep s.yaml --vary 'deployments[0].target_replicas=2,3' --vary" in done.stdout
    page = (folder / "s.sweep" / "sweep.html").read_text()
    assert "against compaction" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_what_is_kept_is_not_run_again_and_gives_the_same_files(folder, counted):
    run(*GRID)
    first = {path.name: path.read_bytes() for path in (folder / "s.sweep").iterdir()}
    counted.clear()
    assert run(*GRID).exit_code == 0
    assert counted == []
    assert {path.name: path.read_bytes() for path in (folder / "s.sweep").iterdir()} == first
    run("s.yaml", "--vary", "deployments[0].target_replicas=2,3", "--vary", "compaction=when_healthy,immediate", "--runs", "4")
    assert counted == [8] * 4  # one more seed
    counted.clear()
    run(*GRID, "--fresh")
    assert len(counted) == 12


@pytest.mark.parametrize("change", ["scenario", "seed", "setting", "code", "trace"])
def test_what_an_outcome_depends_on_makes_it_another(folder, counted, change, monkeypatch):
    trace = "{trace: {file: t.csv, base_s: 1, prompt_s_per_token: 0, output_s_per_token: 0}}"
    start = SMALL.index("{poisson")
    text = SMALL[:start] + trace + SMALL[SMALL.index("\n", start) :]
    (folder / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,1\n9,1,1\n")
    (folder / "s.yaml").write_text(text)
    arguments = ["s.yaml", "--vary", "target_replicas=2", "--runs", "1"]
    run(*arguments)
    counted.clear()
    if change == "scenario":
        (folder / "s.yaml").write_text(text + "# the same, and yet another\n")
    elif change == "seed":
        arguments += ["--seed", "99"]
    elif change == "setting":
        arguments += ["--set", "max_surge=1"]
    elif change == "code":
        monkeypatch.setattr("executors.simulator.questions.cellfile.code_version", lambda: "another")
    else:
        (folder / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,1\n8,1,1\n")
    run(*arguments)
    assert len(counted) == 1


def test_after_ctrl_c_the_same_command_goes_on(folder, monkeypatch, counted):
    counting = cells.run_cell

    def interrupted(cell):
        if len(counted) == 5:
            raise KeyboardInterrupt
        return counting(cell)

    monkeypatch.setattr(cells, "run_cell", interrupted)
    done = run(*GRID)
    assert done.exit_code == 130
    assert done.stderr == "rankcore: interrupted; the same command goes on with what is kept in s.sweep\n"
    assert sorted(path.name for path in (folder / "s.sweep").iterdir()) == ["cells.jsonl"]
    monkeypatch.setattr(cells, "run_cell", counting)
    counted.clear()
    assert run(*GRID).exit_code == 0
    assert len(counted) == 7


def test_ctrl_c_ends_the_processes_too_and_keeps_what_they_did(folder):
    # The other runs would take a quarter of an hour each. The signal comes from within, once the three quick ones are kept.
    (folder / "s.yaml").write_text(SMALL + "fault_rates: [{kind: replica_crash, deployment: llm, mtbf_s: 5}]\n")
    arguments = ("s.yaml", "--vary", "duration_s=60,1500000", "--runs", "3")
    code = (
        "import os, signal, sys\n"
        "from executors.simulator.questions.cellfile import CellFile\n"
        "from executors.cli import main\n"
        "add = CellFile.add\n"
        "def interrupted(self, *cell):\n"
        "    add(self, *cell)\n"
        "    if len(self.kept) == 3: os.kill(os.getpid(), signal.SIGINT)\n"
        "CellFile.add = interrupted\n"
        f"sys.argv = ['rankcore', 'sweep', *{arguments!r}, '--jobs', '2']\n"
        "main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert done.stderr == "rankcore: interrupted; the same command goes on with what is kept in s.sweep\n"
    assert len((folder / "s.sweep" / "cells.jsonl").read_text().splitlines()) == 3


def test_a_last_line_that_was_cut_off_is_run_again(folder, counted):
    run(*GRID)
    path = folder / "s.sweep" / "cells.jsonl"
    whole = path.read_bytes()
    for left in (whole[:-50], whole[: whole.rindex(b"\n", 0, -1) + 1] + b"x" * 10_000):
        path.write_bytes(left)
        counted.clear()
        assert run(*GRID).exit_code == 0
        assert counted == [7]
        assert path.read_bytes() == whole


def test_the_result_is_the_same_whatever_the_number_of_jobs(folder):
    assert run(*GRID, "--out", "one", "-q").exit_code == 0
    assert run(*GRID, "--out", "two", "--jobs", "2", "-q").exit_code == 0
    for name in ("sweep.csv", "sweep.html"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()


@pytest.mark.night
@pytest.mark.slow
def test_on_ray_the_result_is_the_same(folder):
    pytest.importorskip("ray")
    arguments = ("s.yaml", "--vary", "target_replicas=2,3", "--runs", "2", "-q")
    assert run(*arguments, "--out", "here").exit_code == 0
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "executors.cli", "sweep", *arguments, "--out", "there", "--on", "ray", "--jobs", "2"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for name in ("sweep.csv", "sweep.html"):
        assert (folder / "here" / name).read_bytes() == (folder / "there" / name).read_bytes()


def test_without_ray_the_command_says_what_to_install(folder):
    code = (
        "import sys; sys.modules['ray'] = None; from executors.cli import main; "
        "sys.argv = ['rankcore', 'sweep', 's.yaml', '--vary', 'target_replicas=2,3', '--on', 'ray']; main()"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert done.stderr == "rankcore: error: this command needs ray: pip install 'rankcore[ray]'\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("s.yaml",), "expected --vary KEY=VALUE,VALUE,..."),
        (("s.yaml", "--vary", "target_replicas"), "--vary: expected KEY=VALUE,VALUE,..."),
        (("s.yaml", "--vary", "victims=any,all"), 'found "all" (set by victims=all)'),
        (("s.yaml", "--vary", "victim=any"), 'victim: expected a known key such as "victims", found "victim"'),
        (("s.yaml", "--vary", "victims=any", "--vary", "victims=newest"), "--vary: expected each key once"),
        (("s.yaml", "--vary", "gone=1", "--on", "moon"), "'--on'"),
        (("gone.yaml", "--vary", "victims=any"), "gone.yaml: cannot be read"),
        (
            (
                "s.yaml",
                "--vary",
                "victims=any,newest",
                "--runs",
                "100000",
                "--vary",
                "max_surge=" + ",".join(map(str, range(9))),
            ),
            "at most",
        ),
        (("s.yaml", "--vary", "victims=any", "--out", "s.yaml"), "s.yaml cannot be used: File exists"),
    ],
)
def test_what_cannot_be_swept_is_one_line_and_status_2_and_nothing_runs(folder, arguments, problem, counted):
    done = run(*arguments)
    assert (done.exit_code, done.stdout, counted) == (2, "", [])
    assert problem in done.stderr
    assert done.stderr.startswith("rankcore: error: ")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["s.yaml"]


def test_another_file_in_the_place_of_kept_cells_is_left_alone(folder, counted):
    (folder / "s.sweep").mkdir()
    (folder / "s.sweep" / "cells.jsonl").write_text("my notes\n")
    done = run(*GRID)
    assert (done.exit_code, counted) == (2, [])
    assert "cells.jsonl:1: expected a line of a sweep, found something else" in done.stderr
    assert (folder / "s.sweep" / "cells.jsonl").read_text() == "my notes\n"


def test_two_sweeps_do_not_write_to_one_place(folder):
    from executors.simulator.questions.cellfile import CellFile

    (folder / "s.sweep").mkdir()
    with CellFile(folder / "s.sweep" / "cells.jsonl"):
        done = run(*GRID)
    assert done.exit_code == 2
    assert "found one that another sweep writes to" in done.stderr


def test_a_broken_promise_names_the_run_and_keeps_the_others(folder, monkeypatch):
    def broken(cell):
        found = run_cell(cell)
        return type(found)(found.figures, "promise R3 broken at t=1 s: x" if cell.seed == 7 else None)

    monkeypatch.setattr(cells, "run_cell", broken)
    done = run(*GRID)
    assert done.exit_code == 1
    assert done.stderr == (
        "rankcore: error: s.yaml deployments[0].target_replicas=2 compaction=when_healthy with seed 7: "
        "promise R3 broken at t=1 s: x\n"
    )
    assert len((folder / "s.sweep" / "cells.jsonl").read_text().splitlines()) == 2


def test_kept_lines_say_what_they_are(folder):
    run("s.yaml", "--set", "max_surge=1", "--vary", "target_replicas=2", "--runs", "1")
    line = json.loads((folder / "s.sweep" / "cells.jsonl").read_text())
    assert (line["settings"], line["seed"]) == ({"max_surge": "1", "target_replicas": "2"}, 5)
    assert "requests.done" in line["figures"]["llm"]


@pytest.mark.parametrize("columns", ["60", "80", "100", "120", None])
def test_a_row_of_the_table_is_one_line_and_no_number_or_name_is_cut_on_a_screen_of_any_width(folder, columns, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    done = run(*GRID)
    table = done.stdout.partition("figures:")[0]
    assert "…" not in table
    rows = [line for line in table.splitlines() if line.split()[1:2] in (["immediate"], ["when_healthy"])]
    assert [row.split()[:2] for row in rows] == [[n, when] for n in "23" for when in ("when_healthy", "immediate")]
    assert all(len(row.rstrip()) <= int(columns or "120") for row in rows)
    lines = table.splitlines()
    assert lines[lines.index(rows[0]) :][: len(rows)] == rows, "no cell goes on in a second line"


def test_the_table_has_the_figures_that_depend_on_what_was_varied(folder):
    done = run("s.yaml", "--vary", "faults[0].back_after_s=10,200", "--runs", "2")
    table = done.stdout.partition("figures:")[0]
    assert "back_after_s" in table, "the last part of the key is enough"
    assert "GPU-hours" in table, "a node that is away for longer lets the run go on for longer"
    assert "unserved" not in table, "the other node has room for all"


def test_at_80_columns_the_figures_that_an_operator_asks_for_come_before_those_of_ranks(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    crash = "  - {kind: replica_crash, at: 45, deployment: llm, rank: 0}"
    faults = f"faults:\n  - {{kind: node_loss, at: 30, node: n-0, back_after_s: 10}}\n{crash}"
    (folder / "s.yaml").write_text(SMALL.replace(SMALL[SMALL.index("faults:") :], faults))
    done = run("s.yaml", "--vary", "target_replicas=1,3", "--runs", "2")
    table, _, left_out = done.stdout.partition("figures:")[0].partition("No room for:")
    assert "Never in any run, or not known: latency p99 of all" in left_out, "more than one of a hundred requests are lost"
    headers = next(line for line in table.splitlines() if "target_replicas" in line)
    assert 0 < headers.index("lost") < headers.index("GPU-hours") < headers.index("ranks")
    assert "rank" in left_out


def test_a_figure_that_differs_by_seed_alone_is_no_answer_to_what_was_varied(folder):
    (folder / "s.yaml").write_text(SMALL.replace("name: llm", "name: llm\n    start_s: {uniform: {low: 1, high: 5}}"))
    done = run("s.yaml", "--vary", "target_replicas=2", "--vary", "compaction=when_healthy,immediate", "--runs", "2")
    assert "latency" not in done.stdout
