"""`rankcore simulate`, end to end, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.deployment import DeploymentWorld
from rankcore.commands import InitializeReplica
from rankcore.values import ReplicaRank

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "node-failure-at-peak.yaml"
SMALL = """\
name: small
seed: 5
nodes: [{name: n, count: 2, gpus: 2}]
network: {latency_s: {exponential: {mean: 0.01}}}
deployments:
  - name: llm
    target_replicas: 3
    requests: {poisson: {rate_per_s: 1, begin_s: 60, for_s: 60, service_s: 1}}
faults: [{kind: node_loss, at: busiest_minute + 5, node: n-0, back_after_s: 30}]
"""


def rankcore(*arguments: str, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    command = [sys.executable, "-m", "executors.cli", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, **options)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_shipped_example_answers_its_question(tmp_path):
    done = rankcore("simulate", str(EXAMPLE), "--json", "figures.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    (llama,) = figures["deployments"]
    assert figures["failure"] is None
    assert llama["status"] == "HEALTHY"
    assert (llama["ranks_moved"], llama["replica_starts"], llama["replica_crashes"]) == (0, 17, 2)
    assert [rank["rank"] for rank in llama["unserved"]] == [11, 14]
    assert llama["longest_gap"]["until"] - llama["longest_gap"]["since"] > 600  # one replacement waits for the node
    requests = llama["requests"]
    assert requests["arrived"] == 8819 == requests["done"] + requests["lost"]
    assert requests["waited_over_1_s"] > 1195  # as many as wait without the loss
    for label in (
        "ranks moved",
        "reconfigures",
        "time with a gap in the ranks",
        "time with a rank missing",
        "longest gap",
        "GPU-hours",
        "p99",
    ):
        assert label in done.stdout
    assert f"rankcore simulate {EXAMPLE} --seed 1" in done.stdout
    assert (tmp_path / "node-failure-at-peak.report.html").exists()


def test_the_report_is_one_page_that_needs_nothing_else(scenario, tmp_path):
    done = rankcore("simulate", str(scenario), "--report", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "report:  page.html" in done.stdout
    assert page.startswith("<!doctype html>")
    assert "node n-0 lost, with llm#1.0 (rank 1), llm#1.2 (rank 2)" in page
    assert "prefers-color-scheme: dark" in page
    for outside in ("http://", "https://", "src=", "<link", "<img", "@import", "url(", "fetch(", "import("):
        assert outside not in page


def test_a_scenario_s_words_cannot_break_out_of_the_page(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(SMALL.replace("name: small", 'name: "<script>alert(1)</script>"'))
    assert rankcore("simulate", str(path), cwd=tmp_path).returncode == 0
    page = (tmp_path / "x.report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_json_goes_to_standard_output_alone(scenario, tmp_path):
    done = rankcore("simulate", str(scenario), "--json", "-", cwd=tmp_path)
    figures = json.loads(done.stdout)
    assert figures["scenario"] == "small"
    assert figures["seed"] == 5
    assert figures["busiest_minute_at"] == 60.0
    assert done.stderr == ""


def test_a_fault_for_which_the_run_ends_too_early_is_told(scenario, tmp_path):
    done = rankcore("simulate", str(scenario), "--set", "duration_s=62", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == "rankcore: warning: faults[0] is for 65 s, and the run ends at 62 s: it never came\n"
    assert rankcore("simulate", str(scenario), "--set", "duration_s=62", "-q", cwd=tmp_path).stderr == ""


def test_quiet_prints_nothing(scenario, tmp_path):
    done = rankcore("simulate", str(scenario), "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert listing(tmp_path) == ["small.report.html", "small.yaml"]


def test_another_seed_gives_another_run_and_is_told(scenario, tmp_path):
    runs = [
        json.loads(rankcore("simulate", str(scenario), "--json", "-", *seed, cwd=tmp_path).stdout)
        for seed in ((), ("--seed", "6"), ("--seed", "6"))
    ]
    assert [run["seed"] for run in runs] == [5, 6, 6]
    assert runs[1] == runs[2]
    assert runs[0]["deployments"] != runs[1]["deployments"]
    assert runs[1]["rerun"].endswith("--seed 6")


def test_the_journal_can_be_replayed(scenario, tmp_path):
    done = rankcore("simulate", str(scenario), "--journal", "run.jsonl", cwd=tmp_path)
    assert "journal: run.jsonl" in done.stdout
    again = rankcore("replay", "run.jsonl", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    about = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])["about"]
    assert (about["executor"], about["scenario"], about["seed"], about["source"]["text"]) == ("simulator", "small", 5, SMALL)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (SMALL.replace("target_replicas: 3", "target_replicas: four"), "deployments[0].target_replicas: expected an"),
        (SMALL.replace("poisson", "poison"), "deployments[0].requests.poison: expected a known key"),
        (SMALL + "user_config: !!python/object:os.system {}\n", "found the tag"),
        ("", "found an empty file"),
        ("\x00\x01", "bad.yaml"),
    ],
)
def test_a_bad_scenario_is_one_line_status_2_and_no_file(tmp_path, content, problem):
    (tmp_path / "bad.yaml").write_text(content)
    done = rankcore("simulate", "bad.yaml", "--journal", "j.jsonl", "--json", "f.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("rankcore: error: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert listing(tmp_path) == ["bad.yaml"]


@pytest.mark.parametrize("path", ["missing.yaml", ".", "a\nb.yaml"])
def test_a_scenario_that_is_not_there_is_one_line_and_status_2(tmp_path, path):
    done = rankcore("simulate", path, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("rankcore: error: ")
    assert done.stderr.count("\n") == 1
    assert listing(tmp_path) == []


@pytest.mark.parametrize("option", ["--report", "--json", "--journal"])
def test_a_trace_that_the_scenario_reads_is_no_place_for_an_output(scenario, tmp_path, option):
    trace = "TIMESTAMP\n0\n"
    (tmp_path / "trace.csv").write_text(trace)
    text = scenario.read_text().partition("deployments:")[0]
    text += "deployments: [{name: llm, target_replicas: 1, requests: {trace: {file: trace.csv, service_s: 1}}}]\n"
    (tmp_path / "trace.yaml").write_text(text)
    done = rankcore("simulate", "trace.yaml", option, "trace.csv", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "trace.csv").read_text()) == (2, trace)
    assert done.stderr == f"rankcore: error: {option}: expected a file to write, found trace.csv, which is an input\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--journal", "no/such/folder/j.jsonl"), "--journal: no/such/folder/j.jsonl cannot be written"),
        (("--json", "no/f.json"), "--json: no/f.json cannot be written"),
        (("--report", "."), "--report: expected a file to write, found ., which is a directory"),
        (("--report", "small.yaml"), "--report: expected a file to write, found small.yaml, which is an input"),
        (("--json", "a", "--report", "a"), "--json: expected a file of its own, found a, which is another output too"),
        (("--journal", "/dev/null"), "found /dev/null, which is something that is no regular file"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_run(scenario, tmp_path, options, problem):
    done = rankcore("simulate", str(scenario), *options, cwd=tmp_path)
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert listing(tmp_path) == ["small.yaml"]


@pytest.mark.parametrize("arguments", [("simulate",), ("simulate", "x", "--seed", "-1"), ("simulat",), ("simulate", "x", "-z")])
def test_a_wrong_command_line_is_status_2_without_a_traceback(tmp_path, arguments):
    done = rankcore(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("rankcore: error: ")
    assert "Traceback" not in done.stderr


def test_help_teaches_with_examples(tmp_path):
    assert "rankcore simulate examples/node-failure-at-peak.yaml --journal run.jsonl" in rankcore("--help", cwd=tmp_path).stdout
    assert "--json - | jq" in rankcore("simulate", "--help", cwd=tmp_path).stdout
    assert rankcore("--version", cwd=tmp_path).stdout.startswith("rankcore ")


def test_a_broken_promise_is_status_1_and_says_when_what_and_which(scenario, tmp_path, monkeypatch):
    execute = DeploymentWorld.execute

    def plant(self, command):
        if isinstance(command, InitializeReplica):
            rank = ReplicaRank(0, command.rank.node_rank, command.rank.local_rank)
            command = InitializeReplica(
                command.replica_id, rank, command.world_size, None, command.config_id, command.revision, command.epoch
            )
        execute(self, command)

    monkeypatch.setattr(DeploymentWorld, "execute", plant)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["simulate", str(scenario), "--journal", "j.jsonl"])
    assert done.exit_code == 1
    assert "rankcore: error: promise R3 broken at 0:" in done.output
    assert "after InitializeReplica reached llm#" in done.output
    assert "The run was stopped: promise R3 broken" in (tmp_path / "small.report.html").read_text()
    assert (tmp_path / "j.jsonl").exists()


def test_a_page_that_cannot_be_made_loses_neither_figures_nor_journal(scenario, tmp_path, monkeypatch):
    def broken(*_):
        raise IndexError("tuple index out of range")

    monkeypatch.setattr("executors.simulator.report.render_page", broken)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.report.html").write_text("of the last run")
    done = CliRunner().invoke(app, ["simulate", str(scenario), "--journal", "j.jsonl", "--json", "f.json"])
    assert done.exit_code == 1
    assert "the page small.report.html could not be made (IndexError: tuple index out of range" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "requests done" in done.stdout
    assert "report:" not in done.stdout
    assert json.loads((tmp_path / "f.json").read_text())["deployments"]
    assert CliRunner().invoke(app, ["replay", "j.jsonl"]).exit_code == 0
    assert (tmp_path / "small.report.html").read_text() == "of the last run"
    assert listing(tmp_path) == ["f.json", "j.jsonl", "small.report.html", "small.yaml"]


def test_ctrl_c_leaves_nothing_behind_and_is_status_130(tmp_path):
    (tmp_path / "long.yaml").write_text(SMALL.replace("for_s: 60", "for_s: 1000000"))
    # The signal comes from within, at a moment of the run that is the same every time.
    code = (
        "import os, signal, sys\n"
        "from executors.simulator.clock import EventLoop\n"
        "from executors.cli import main\n"
        "run = EventLoop.run\n"
        "def interrupted(loop, until, most):\n"
        "    if loop.done == 1000: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return run(loop, until, 1)\n"
        "EventLoop.run = interrupted\n"
        "sys.argv = ['rankcore', 'simulate', 'long.yaml', '--journal', 'j.jsonl']\n"
        "main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == "rankcore: interrupted, nothing was written\n"
    assert listing(tmp_path) == ["long.yaml"]


def test_a_disk_that_is_full_during_the_run_is_one_line_status_2_and_no_file(scenario, tmp_path):
    # A limit on the size of files stands in for the end of the disk.
    code = (
        "import resource, sys\n"
        "from executors.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        f"sys.argv = ['rankcore', 'simulate', {str(scenario)!r}, '--journal', 'j.jsonl']\n"
        "main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert done.stderr.startswith("rankcore: error: ")
    assert "cannot be written" in done.stderr
    assert done.stderr.count("\n") == 1
    assert listing(tmp_path) == ["small.yaml"]


def test_without_the_sim_extra_the_command_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['yaml'] = None; sys.argv = ['rankcore', 'simulate', 'x']\n"
    code += "from executors.cli import main; main()"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert done.stderr == "rankcore: error: this command needs yaml: pip install 'rankcore[sim]'\n"


def test_objectives_are_told_in_the_table_the_json_and_the_page(scenario, tmp_path):
    options = ("--slo", "p50 latency_s < 1 @ 95%", "--slo", "lost < 1", "--slo-window", "20s", "--json", "figures.json")
    done = rankcore("simulate", str(scenario), *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    windows, lost = json.loads((tmp_path / "figures.json").read_text())["slo"]
    assert (windows["text"], windows["deployment"], windows["held"]) == ("p50 latency_s < 1 @ 95%", "llm", False)
    told = windows["windows"]
    assert told["count"] == told["held"] + len(told["missed"])
    assert told["width_s"] == 20.0
    assert told["without_requests"] >= 3, "nobody comes in the first minute"
    assert all(missed["value"] is None or missed["value"] >= 1 for missed in told["missed"])
    assert lost["windows"] is None
    page = (tmp_path / "small.report.html").read_text()
    assert "p50 latency_s &lt; 1 @ 95%" in page
    verdict = f"missed: it held in {told['held']} of {told['count']} windows of 20 s"
    assert verdict in page
    assert verdict[:30] in done.stdout, "the table breaks it where it is too long"
    assert "--slo 'p50 latency_s < 1 @ 95%' --slo 'lost < 1' --slo-window 20s" in done.stdout


def test_objectives_of_a_scenario_are_told_and_how_wide_its_windows_are(scenario, tmp_path):
    scenario.write_text(SMALL.replace("seed: 5", "seed: 5\nslo: [p95 wait_s < 0.5 @ 95%]\nslo_window_s: 30"))
    done = rankcore("simulate", str(scenario), "--json", "-", cwd=tmp_path)
    (told,) = json.loads(done.stdout)["slo"]
    assert told["windows"]["width_s"] == 30.0
