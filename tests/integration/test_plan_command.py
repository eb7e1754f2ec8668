"""`rankcore plan`, as a user runs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from tests.journals import changed

TEXT = """\
nodes: [{name: n, count: 2, gpus: 4}]
deployments:
  - {name: llm, target_replicas: 4, victims: newest, user_config: {a: 1}}
  - {name: code, target_replicas: 1}
faults: [{kind: node_loss, at: 0.5, node: n-0}]
changes: [{at: 100, deployment: llm, target_replicas: 3, stop_first: ['llm#1.1']}]
"""


def run(*arguments: str):
    return CliRunner().invoke(app, ["plan", *arguments])


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TEXT)
    return "s.yaml"


def test_a_downscale_says_who_stops_and_who_moves_where(scenario):
    done = run(scenario, "--deployment", "llm", "--target", "2", "--stop-first", "llm#1.0")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "llm, HEALTHY at 0:00:11.0: world size 4 -> 2",
        "  2 would stop:",
        "    llm#1.0 (rank 0)",
        "    llm#1.3 (rank 3)",
        "  1 would move:",
        "    llm#1.2: rank 2 -> 0",
        "  it would end up HEALTHY",
    ]


def test_an_update_says_in_which_order_and_how_many_at_once(scenario):
    done = run(scenario, "--deployment", "llm", "--set", "version=2", "--set", "max_surge=1")
    assert (
        "  slot by slot: at most 1 at a time out of service (max_unavailable), and 1 started early (max_surge)" in done.stdout
    )
    assert "  4 would start, in this order:\n    1. rank 3, version 2\n    2. rank 2, version 2\n" in done.stdout


def test_a_new_user_config_is_sent_in_place(scenario):
    done = run(scenario, "--deployment", "llm", "--set", "user_config={a: 2}")
    assert "  4 would get the new user_config in place:\n    llm#1.0\n" in done.stdout
    assert "stop" not in done.stdout


def test_what_changes_nothing_says_so(scenario):
    assert "nothing would start, stop, move or be reconfigured" in run(scenario, "--deployment", "code", "--target", "1").stdout


def test_the_plan_as_json(scenario):
    found = json.loads(run(scenario, "--deployment", "code", "--target", "3", "--json").stdout)
    assert (found["deployment"], found["world_size_before"], found["world_size_after"], found["status"]) == (
        "code",
        1,
        3,
        "HEALTHY",
    )
    assert [each["rank"] for each in found["starts"]] == [1, 2]


def test_a_plan_from_a_journal_is_of_the_recorded_state_at_that_time(scenario):
    CliRunner().invoke(app, ["simulate", scenario, "--journal", "run.jsonl", "-q"])
    before = run("--from", "run.jsonl", "--at", "99s", "--deployment", "llm", "--target", "3")
    after = run("--from", "run.jsonl", "--at", "0:03:20", "--deployment", "llm", "--target", "3")
    assert "world size 4 -> 3" in before.stdout
    assert "world size 3" in after.stdout
    assert "nothing would start" in after.stdout
    assert "world size 3 -> 5" in run("--from", "run.jsonl", "--deployment", "llm", "--target", "5").stdout


def test_a_plan_for_a_calm_moment_says_that_moment_and_when_it_last_heard_anything(scenario):
    CliRunner().invoke(app, ["simulate", scenario, "--journal", "run.jsonl", "-q"])
    done = run("--from", "run.jsonl", "--at", "99s", "--deployment", "llm", "--target", "2")
    assert done.stdout.startswith("llm, HEALTHY at 0:01:39.0 (its last news is of "), done.stdout
    found = run("--from", "run.jsonl", "--at", "99s", "--deployment", "llm", "--target", "2", "--json")
    assert json.loads(found.stdout)["at"] == 99.0


def test_a_plan_does_not_promise_health_where_there_is_no_room(scenario):
    done = run(scenario, "--deployment", "llm", "--target", "9")
    assert "  2 would wait for room: the nodes can hold 7\n  it would end up HEALTHY once there is room\n" in done.stdout
    found = json.loads(run(scenario, "--deployment", "llm", "--target", "9", "--json").stdout)
    assert found["waiting_for_room"] == 2
    assert "room" not in run(scenario, "--deployment", "llm", "--target", "7").stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("s.yaml",), "expected --target N or --set KEY=VALUE, found nothing to plan"),
        (("--target", "3"), "expected a scenario file or --from JOURNAL, and not both"),
        (("s.yaml", "--from", "x", "--target", "3"), "expected a scenario file or --from JOURNAL, and not both"),
        (("s.yaml", "--at", "3", "--target", "3"), "--at: expected --from JOURNAL with it"),
        (("s.yaml", "--target", "3"), "expected --deployment, since there are several: llm, code"),
        (
            ("s.yaml", "--target", "3", "--deployment", "lm"),
            'a known deployment such as "llm", found "lm"',
        ),
        (("s.yaml", "--target", "-3"), "'--target'"),
        (("s.yaml", "--set", "victimz=any", "--deployment", "llm"), 'expected a known field of a deployment such as "victims"'),
        (("s.yaml", "--set", "victims=all", "--deployment", "llm"), "--set: DeploymentSpec.victims must be one of"),
        (("s.yaml", "--set", "target_replicas=3", "--target", "3"), "--set: expected target_replicas once"),
        (
            ("s.yaml", "--target", "3", "--deployment", "llm", "--stop-first", "llm#1.9"),
            "expected a known replica",
        ),
        (("s.yaml", "--target", "99", "--deployment", "big"), "--deployment: expected a deployment: llm, code"),
        (("--from", "gone.jsonl", "--target", "3"), "gone.jsonl cannot be used: No such file"),
        (("--from", "s.yaml", "--target", "3"), "s.yaml:1: not a line of a journal"),
        (("big.yaml", "--target", "3", "--deployment", "llm"), "without any fault: 8 of 99 replicas run"),
    ],
)
def test_what_cannot_be_planned_is_one_line_and_status_2(scenario, tmp_path, arguments, problem):
    (tmp_path / "big.yaml").write_text(TEXT.replace("target_replicas: 4", "target_replicas: 99"))
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert problem in done.stderr
    assert done.stderr.startswith("rankcore: error: ")
    assert done.stderr.count("\n") == 1


def test_a_journal_that_the_core_answers_differently_now_is_not_planned_from(scenario, tmp_path):
    CliRunner().invoke(app, ["simulate", scenario, "--journal", "run.jsonl", "-q"])
    changed(tmp_path / "run.jsonl", '"rank":3', '"rank":2')
    done = run("--from", "run.jsonl", "--deployment", "llm", "--target", "5")
    assert done.exit_code == 2
    assert "this core decides otherwise, so it cannot plan from there" in done.stderr


def test_a_deployments_bare_name_is_enough_where_one_application_has_it(tmp_path):
    path = tmp_path / "apps.yaml"
    m, only = ({"name": name, "target_replicas": 1} for name in ("m", "only"))
    applications = [{"name": "a", "deployments": [m]}, {"name": "b", "deployments": [m, only]}]
    path.write_text(json.dumps({"nodes": [{"name": "n", "count": 1, "gpus": 4}], "applications": applications}))
    found = json.loads(run(str(path), "--deployment", "only", "--target", "1", "--json").stdout)
    assert found["deployment"] == "b/only"
    done = run(str(path), "--deployment", "m", "--target", "1")
    assert (done.exit_code, "--deployment: expected one of a/m, b/m, found" in done.stderr) == (2, True)
