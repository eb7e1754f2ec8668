"""`rankcore simulate --from`: a recorded run, made again and led elsewhere."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app

SMALL = """\
name: small
seed: 5
nodes: [{name: n, count: 3, gpus: 2}]
network: {latency_s: {exponential: {mean: 0.02}}}
deployments:
  - name: llm
    target_replicas: 4
    init_s: {uniform: {low: 3, high: 9}}
    requests: {trace: {file: t.csv, begin_s: 20, base_s: 1, prompt_s_per_token: 0.01, output_s_per_token: 0.01}}
faults:
  - {kind: replica_crash, at: 60, deployment: llm}
  - {kind: controller_crash, at: 90, restart_after_s: 3}
changes: [{at: 110, deployment: llm, target_replicas: 3}]
"""
ROWS = "".join(f"{second},{second % 7 * 10},{second % 5 * 10}\n" for second in range(120))


def run(*arguments: str):
    return CliRunner().invoke(app, ["simulate", *arguments])


@pytest.fixture
def journal(tmp_path: Path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + ROWS)
    done = run(
        "small.yaml", "--set", "max_ongoing_requests=1", "--seed", "9", "--journal", "run.jsonl", "--json", "run.json", "-q"
    )
    assert done.exit_code == 0, done.stderr
    return "run.jsonl"


def test_the_answer_of_the_fork_stands_beside_that_of_the_run_as_it_was_recorded(journal, tmp_path):
    done = run("--from", journal, "--at", "75s", "--fault", "node n-0 lost for 20s", "--json", "fork.json")
    assert done.exit_code == 0, done.stderr
    recorded, forked = (json.loads((tmp_path / "fork.json").read_text())[key] for key in ("recorded", "forked"))
    original = json.loads((tmp_path / "run.json").read_text())
    assert recorded == {key: value for key, value in original.items() if key != "rerun"}
    assert forked["deployments"][0]["replica_crashes"] > recorded["deployments"][0]["replica_crashes"]
    for column in ("as recorded", "with the fault", "replica crashes"):
        assert column in done.stdout
    assert "the same up to 0:01:15, checked line by line; then: node n-0 lost for 20s" in done.stdout
    assert (tmp_path / "run.fork.report.html").exists()


def test_the_page_shows_both_runs_with_the_verdict_and_the_lost_ranks_of_the_fork(journal, tmp_path):
    faults = ("--fault", "node n-0 lost for 20s", "--fault", "llm scaled to 2 at 100s")
    done = run("--from", journal, "--at", "75s", *faults, "--json", "fork.json")
    assert done.exit_code == 0, done.stderr
    page, found = (tmp_path / "run.fork.report.html").read_text(), json.loads((tmp_path / "fork.json").read_text())
    data = json.loads(re.search(r'<script type="application/json" id="run-data">(.*?)</script>', page, re.DOTALL)[1])
    ends = [round(found[key]["ended_at"] * 1000) for key in ("recorded", "forked")]
    assert [each["end"] for each in data["runs"]] == ends
    assert re.findall(r"<b>([AB])</b> <span>(.*?)</span>", page) == [
        ("A", "as recorded"),
        ("B", "with the faults: node n-0 lost for 20s; llm scaled to 2 at 100s"),
    ]
    assert 'class="verdict hurt"' in page
    assert page.count('<tr data-deployment="llm"') == len(found["forked"]["deployments"][0]["unserved"])
    assert all(row[0] == "AB" for row in data["rows"] if row[1] < 75_000)
    assert {"A", "B"} <= {row[0] for row in data["rows"] if row[1] >= 75_000}
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td><td class="differs">(.*?)</td></tr>', page)
    crashes = [found[key]["deployments"][0]["replica_crashes"] for key in ("recorded", "forked")]
    assert ("replica crashes", *map(str, crashes)) in rows
    assert all(was != now for _, was, now in rows)


@pytest.mark.parametrize(
    ("option", "label"), [("idempotent=true", "done again"), ("request_timeout_s=5", "expired (deadline)")]
)
def test_a_figure_that_only_the_fork_has_stands_in_its_line_with_that_of_the_record(journal, option, label):
    settings = ("--set", "max_ongoing_requests=4", "--set", "faults=[]", "--set", option)
    assert run("small.yaml", *settings, "--journal", "other.jsonl", "-q").exit_code == 0
    faults = (word for node in ("n-0", "n-1", "n-2") for word in ("--fault", f"node {node} lost for 30s"))
    forked = run("--from", "other.jsonl", "--at", "70", *faults)
    assert forked.exit_code == 0, forked.stderr
    (line,) = (line for line in forked.stdout.splitlines() if label in line)
    was, now = line.replace(label, "").split()
    assert was == "0"
    assert int(now) > 0


def test_up_to_the_fork_both_are_the_same(journal, tmp_path):
    run("--from", journal, "--at", "75s", "--fault", "node n-0 lost", "--json", "fork.json")
    found = json.loads((tmp_path / "fork.json").read_text())
    before, after = ([each for each in found[key]["happenings"] if each["at"] < 75] for key in ("recorded", "forked"))
    assert before == after != []


def test_the_journal_of_a_fork_begins_with_its_state_and_can_be_replayed_and_forked_again(journal, tmp_path):
    assert run("--from", journal, "--at", "75", "--fault", "node n-0 lost for 20s", "--journal", "f.jsonl", "-q").exit_code == 0
    about = json.loads((tmp_path / "f.jsonl").read_text().splitlines()[0])["about"]
    assert about["forks"] == [{"at": 75.0, "faults": ["node n-0 lost for 20s"]}]
    assert CliRunner().invoke(app, ["replay", "f.jsonl"]).exit_code == 0
    again = run("--from", "f.jsonl", "--at", "80", "--fault", "llm scaled to 2", "--journal", "g.jsonl", "--json", "g.json")
    assert again.exit_code == 0, again.stderr
    assert json.loads((tmp_path / "g.json").read_text())["forked"]["deployments"][0]["world_size"] == 3  # as said at 110 s
    early = run("--from", "f.jsonl", "--at", "70", "--fault", "llm scaled to 2")
    assert "--at: expected a time from 0:01:15 on, when the recorded fork began, found 0:01:10" in early.stderr


def test_the_same_fork_gives_the_same_bytes_by_either_name_of_the_command(journal, tmp_path):
    for name in ("1", "2"):
        arguments = ["--fault", "a replica of llm crashes", "--fault", "controller crashes for 2s at 80", "-q"]
        files = ["--journal", f"j{name}", "--json", f"f{name}", "--report", f"r{name}"]
        command = ["simulate", "--from", journal] if name == "1" else ["fork", journal]
        assert CliRunner().invoke(app, [*command, "--at", "75", *arguments, *files]).exit_code == 0
    for kind in "jfr":
        assert (tmp_path / f"{kind}1").read_bytes() == (tmp_path / f"{kind}2").read_bytes()


def test_the_first_line_that_does_not_repeat_is_named(journal, tmp_path):
    lines = (tmp_path / journal).read_text().splitlines()
    place = next(place for place, line in enumerate(lines) if '"ReplicaDied"' in line)
    lines[place] = lines[place].replace("crashed", "burnt")
    (tmp_path / journal).write_text("\n".join(lines) + "\n")
    done = run("--from", journal, "--at", "75", "--fault", "node n-0 lost")
    assert done.exit_code == 2
    assert f"run.jsonl:{place + 1}: the run does not repeat itself: expected " in done.stderr
    assert "burnt" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run.fork.report.html").exists()


def test_a_line_that_differs_after_the_fork_is_found_too(journal, tmp_path):
    lines = (tmp_path / journal).read_text().splitlines()
    (tmp_path / journal).write_text("\n".join(lines[:-1]) + "\n")
    assert run("--from", journal, "--at", "75", "--fault", "node n-0 lost").exit_code == 0  # cut off: nothing to compare with
    (tmp_path / journal).write_text("\n".join([*lines[:-1], lines[-2], lines[-1]]) + "\n")
    done = run("--from", journal, "--at", "75", "--fault", "node n-0 lost")
    assert done.exit_code == 2
    assert "found ...'the end of the run'" in done.stderr


def test_a_journal_that_was_cut_off_is_compared_as_far_as_it_goes(journal, tmp_path):
    whole = (tmp_path / journal).read_bytes()
    (tmp_path / journal).write_bytes(whole[:-40])
    done = run("--from", journal, "--at", "75", "--fault", "node n-0 lost")
    assert done.exit_code == 0
    assert "the same up to 0:01:15, checked line by line; then: " in done.stdout


@pytest.mark.parametrize("kept", [1, 4])
def test_a_journal_that_was_cut_off_before_the_fork_is_not_said_to_have_been_checked_to_there(journal, tmp_path, kept):
    lines = (tmp_path / journal).read_text().splitlines(keepends=True)
    (tmp_path / journal).write_text("".join(lines[:kept]))
    done = run("--from", journal, "--at", "75", "--fault", "node n-0 lost")
    assert done.exit_code == 0
    said = "made again up to 0:01:15, and the same as far as the journal goes, which was cut off before; then: node n-0 lost"
    assert said in done.stdout


def test_traces_may_have_moved_but_not_changed(journal, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "t.csv").rename(tmp_path / "elsewhere" / "t.csv")
    gone = run("--from", journal, "--at", "75", "--fault", "node n-0 lost")
    assert (gone.exit_code, gone.stderr.count("\n")) == (2, 1)
    assert "t.csv" in gone.stderr
    arguments = ("--from", journal, "--at", "75", "--fault", "node n-0 lost", "--traces", "elsewhere")
    assert run(*arguments).exit_code == 0
    moved.write_text(moved.read_text().replace("\n3,", "\n3.5,"))
    assert "elsewhere/t.csv is not the file that the run was made with" in run(*arguments).stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--from", "run.jsonl"), "--from: expected --at TIME and --fault WORDS with it"),
        (("--from", "run.jsonl", "--at", "75"), "--from: expected --at TIME and --fault WORDS with it"),
        (("--from", "run.jsonl", "small.yaml", "--at", "75", "--fault", "x"), "expected no scenario with it: the journal says"),
        (
            ("--from", "run.jsonl", "--at", "75", "--fault", "node n-0 lost", "--seed", "4"),
            "expected no --seed or --set with it",
        ),
        (("--from", "run.jsonl", "--at", "noon", "--fault", "node n-0 lost"), "--at: expected a time such as"),
        (("--from", "run.jsonl", "--at", "75", "--fault", "node n-7 lost"), "expected a node: n-0, n-1, n-2, found n-7"),
        (("--from", "run.jsonl", "--at", "75", "--fault", "boom"), "--fault 'boom': expected one of: "),
        (("--from", "run.jsonl", "--at", "1h", "--fault", "node n-0 lost"), "when the recorded run ends, found 1:00:00"),
        (("--from", "small.yaml", "--at", "75", "--fault", "node n-0 lost"), "small.yaml:1: not a line of a journal"),
        (("--from", "empty.jsonl", "--at", "75", "--fault", "node n-0 lost"), "no deployment ever begins in it"),
        (("--from", "thin.jsonl", "--at", "75", "--fault", "node n-0 lost"), "record the run again with this version"),
        (("--from", "gone.jsonl", "--at", "75", "--fault", "node n-0 lost"), "gone.jsonl cannot be used: No such file"),
        (("--from", "run.jsonl", "--at", "75", "--fault", "node n-0 lost", "--journal", "run.jsonl"), "which is an input"),
        (("small.yaml", "--at", "75"), "expected --from JOURNAL with --at, --fault and --traces"),
        ((), "expected a scenario file, or --from JOURNAL"),
    ],
)
def test_what_cannot_be_forked_is_one_line_status_2_and_no_file(journal, tmp_path, arguments, problem):
    (tmp_path / "empty.jsonl").write_text('{"journal":1,"about":{}}\n')
    (tmp_path / "thin.jsonl").write_text('{"journal":1,"about":{"executor":"simulator","seed":"x"}}\n')
    before = sorted(path.name for path in tmp_path.iterdir())
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert problem in done.stderr
    assert done.stderr.startswith("rankcore: error: ")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before
