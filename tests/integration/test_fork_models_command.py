"""`rankcore simulate --from` with the journal of a run of models: made again, and led elsewhere."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.journal import JournalWriter
from rankcore import DeploymentSpec
from rankcore.cluster import ApplicationSpec, EntrySpec, cluster_step
from rankcore.cluster.events import ApplyRequested
from rankcore.cluster.residency import ResidencySpec
from tests.model_runs import EVERYTHING

SMALL = {
    **EVERYTHING,
    "duration_s": 700,
    "faults": EVERYTHING["faults"][:2],
    "changes": EVERYTHING["changes"][:1],
    "displacement": {"turn_factor": 0.5},
}
"""Models that take turns often: all of them were on GPUs by 300 s."""


def run(*arguments: str):
    return CliRunner().invoke(app, ["simulate", *arguments])


@pytest.fixture
def journal(tmp_path: Path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.yaml").write_text(json.dumps(SMALL, indent=1))
    settings = ("--set", "loading.disk_gb_per_s=4", "--seed", "9")
    done = run("models.yaml", *settings, "--journal", "run.jsonl", "--json", "run.json", "-q")
    assert done.exit_code == 0, done.stderr
    return "run.jsonl"


def test_the_answer_of_the_fork_stands_beside_that_of_the_run_as_it_was_recorded(journal, tmp_path):
    done = run("--from", journal, "--at", "300s", "--fault", "node gpu-node-0 lost for 60s", "--json", "fork.json")
    assert done.exit_code == 0, done.stderr
    found = json.loads((tmp_path / "fork.json").read_text())
    recorded, forked = found["recorded"], found["forked"]
    original = json.loads((tmp_path / "run.json").read_text())
    assert recorded == {key: value for key, value in original.items() if key != "rerun"}
    assert forked["all_deployments"] != recorded["all_deployments"]
    before, after = ([each for each in found[key]["happenings"] if each["at"] < 300] for key in ("recorded", "forked"))
    assert before == after != []
    for words in ("as recorded", "with the fault", "all deployments", "deployments that differ", "GPU memory"):
        assert words in done.stdout
    assert "the same up to 0:05:00, checked line by line; then: node gpu-node-0 lost for 60s" in done.stdout
    assert (tmp_path / "run.fork.report.html").read_text().startswith("<!doctype html>")


def test_the_journal_of_a_fork_begins_with_its_state_and_can_be_replayed_and_forked_again(journal, tmp_path):
    words = ["a replica of chat crashes", "code scaled to 2 at 310s"]
    faults = [word for text in words for word in ("--fault", text)]
    assert run("--from", journal, "--at", "300", *faults, "--journal", "f.jsonl", "-q").exit_code == 0
    about = json.loads((tmp_path / "f.jsonl").read_text().splitlines()[0])["about"]
    assert about["forks"] == [{"at": 300.0, "faults": words}]
    replayed = CliRunner().invoke(app, ["replay", "f.jsonl"])
    assert replayed.exit_code == 0, replayed.output
    again = run("--from", "f.jsonl", "--at", "350", "--fault", "vision evicted to warm", "--journal", "g.jsonl", "-q")
    assert again.exit_code == 0, again.stderr
    assert CliRunner().invoke(app, ["replay", "g.jsonl"]).exit_code == 0
    early = run("--from", "f.jsonl", "--at", "200", "--fault", "chat scaled to 2")
    assert "--at: expected a time from 0:05:00 on, when the recorded fork began, found 0:03:20" in early.stderr


def test_the_same_fork_gives_the_same_bytes(journal, tmp_path):
    for name in ("1", "2"):
        faults = ["--fault", "GPUs of gpu-node-1 shrink to 60 GB", "--fault", "next 2 loads of large fail", "-q"]
        files = ["--journal", f"j{name}", "--json", f"f{name}", "--report", f"r{name}"]
        assert run("--from", journal, "--at", "300", *faults, *files).exit_code == 0
    for kind in "jfr":
        assert (tmp_path / f"{kind}1").read_bytes() == (tmp_path / f"{kind}2").read_bytes()


def test_the_first_line_that_does_not_repeat_is_named(journal, tmp_path):
    lines = (tmp_path / journal).read_text().splitlines()
    place = next(place for place, line in enumerate(lines) if '"rule":"T3"' in line and '"MoveFinished"' in line)
    lines[place] = lines[place].replace('"rule":"T3"', '"rule":"T9"')
    (tmp_path / journal).write_text("\n".join(lines) + "\n")
    done = run("--from", journal, "--at", "300", "--fault", "chat scaled to 1")
    assert done.exit_code == 2
    assert f"run.jsonl:{place + 1}: the run does not repeat itself: expected " in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run.fork.report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--at", "300", "--fault", "rank 3 of chat crashes"],
            "expected one of: node N lost [for TIME]; a replica of NAME crashes",
        ),
        (["--at", "300", "--fault", "node m lost"], "expected a node: gpu-node-0, gpu-node-1, found m"),
        (["--at", "300", "--fault", "chatt scaled to 2"], "found chatt (did you mean chat?)"),
        (["--at", "300", "--fault", "a replica of never crashes"], "of which a replica is on GPUs at 0:05:00, found never"),
        (["--at", "9000", "--fault", "chat scaled to 2"], "--at: expected at most 0:11:40, when the recorded run ends"),
        (["--at", "300", "--fault", "chat scaled to 2", "--seed", "3"], "--from: expected no --seed or --set with it"),
        (["--at", "300", "--fault", "GPUs of gpu-node-0 shrink to 0 GB"], "expected a number above 0 to 100000, found 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(journal, tmp_path, arguments, expected):
    done = run("--from", journal, *arguments)
    assert done.exit_code == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run.fork.report.html").exists()


def test_a_journal_of_a_cluster_with_residency_that_was_not_simulated_says_of_no_world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with JournalWriter.create("cluster.jsonl", kind=CLUSTER) as journal:
        ranks = DeploymentSpec(name="default/chat", target_replicas=0)
        spec = EntrySpec(ranks=ranks, residency=ResidencySpec(weight_bytes=1))
        how = ClusterRecovered()
        first = how.step()
        journal.begin(how, first)
        event = ApplyRequested(applications=(ApplicationSpec(name="default", deployments=(spec,)),), at=1.0)
        journal.append(event, cluster_step(first.state, event))
    done = run("--from", "cluster.jsonl", "--at", "1", "--fault", "chat scaled to 2")
    assert done.exit_code == 2
    assert "residency" in done.stderr
    assert done.stderr.count("\n") == 1
