"""`rankcore simulate --from` a journal of another executor: the recorded replicas live on in a simulated world."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.from_journal.going_on import go_on
from executors.simulator.from_journal.history import read_history
from tests.journals import changed, sealed, unsealed

RECORDED = """\
name: recorded
seed: 5
nodes: [{name: node, count: 3, gpus: 2}]
deployments:
  - {name: llm, target_replicas: 4, user_config: {a: 1}, init_s: {uniform: {low: 3, high: 9}}, drain_s: 2}
faults:
  - {kind: node_loss, at: 40, node: node-0, back_after_s: 15}
  - {kind: replica_crash, at: 80, deployment: llm, rank: 1}
  - {kind: controller_crash, at: 90, restart_after_s: 3}
changes:
  - {at: 110, deployment: llm, target_replicas: 3}
  - {at: 130, deployment: llm, user_config: {a: 2}}
"""


def run(*arguments: str):
    return CliRunner().invoke(app, ["simulate", *arguments])


@pytest.fixture
def journal(tmp_path: Path, monkeypatch) -> Path:
    return journal_of(RECORDED, tmp_path, monkeypatch)


def journal_of(recorded: str, tmp_path: Path, monkeypatch) -> Path:
    """As another executor would have written it: its first line says nothing of how to make the run again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recorded.yaml").write_text(recorded)
    done = run("recorded.yaml", "--journal", "own.jsonl", "--json", "recorded.json", "-q")
    assert done.exit_code == 0, done.stderr
    (tmp_path / "run.jsonl").write_bytes(of_another_executor(tmp_path / "own.jsonl"))
    (tmp_path / "recorded.report.html").unlink()
    return tmp_path / "run.jsonl"


def of_another_executor(path: Path) -> bytes:
    header, *lines = unsealed(path)
    return sealed([header | {"about": {"executor": "another"}}, *lines])


def forked(*arguments: str) -> dict:
    done = run("--from", "run.jsonl", "--json", "fork.json", *arguments)
    assert done.exit_code == 0, done.stderr
    return json.loads(Path("fork.json").read_text())


def figures(answer: dict, which: str) -> dict:
    return answer[which]["deployments"][0]


def test_without_the_fault_it_goes_on_as_it_was_recorded(journal):
    answer = forked("--at", "30", "--fault", "node node-2 lost")
    went_on, recorded = figures(answer, "recorded"), json.loads(Path("recorded.json").read_text())["deployments"][0]
    for same in ("status", "world_size", "replica_crashes"):
        assert went_on[same] == recorded[same], same
    assert went_on["replica_starts"] == recorded["replica_starts"] - 4  # so many had come up before the moment


def test_with_the_fault_it_goes_otherwise(journal):
    answer = forked("--at", "30", "--fault", "node node-2 lost")
    assert figures(answer, "forked")["replica_crashes"] > figures(answer, "recorded")["replica_crashes"]
    assert answer["basis"] == "simulated on"
    shown = run("--from", "run.jsonl", "--at", "30", "--fault", "node node-2 lost")
    for text in ("as recorded up to 0:00:30 of 0:02:10, from there on simulated", "simulated on", "with the fault"):
        assert text in shown.stdout


@pytest.mark.parametrize("at", ["0.5", "5", "40.0005", "85", "94", "110.001", "131"])
def test_every_moment_can_be_gone_on_from_and_all_heals(journal, at):
    answer = forked("--at", at, "--fault", "a replica of llm crashes")
    assert [figures(answer, which)["status"] for which in ("recorded", "forked")] == ["HEALTHY", "HEALTHY"]


def test_durations_are_those_of_the_journal_unless_they_are_given(journal):
    history = read_history(journal, 60.0)
    assert all(3 <= took <= 9.1 for took in history.durations["llm"]["init_s"])
    slow = forked("--at", "60", "--fault", "node node-1 lost", "--set", "init_s=50")
    quick = forked("--at", "60", "--fault", "node node-1 lost")
    assert figures(slow, "forked")["unserved_rank_s"] > 40 + figures(quick, "forked")["unserved_rank_s"]


def test_what_users_and_faults_did_later_is_taken_over(journal):
    aftermath = read_history(journal, 30.0).aftermath
    assert [(fault["kind"], round(fault["at"])) for fault in aftermath.faults] == [
        ("node_loss", 40),
        ("replica_crash", 80),
        ("controller_crash", 88),  # which is as late as the journal can tell
    ]
    assert aftermath.faults[0]["back_after_s"] == pytest.approx(15)
    assert [{key: change[key] for key in change if key != "at"} for change in aftermath.changes] == [
        {"deployment": "llm", "target_replicas": 3},
        {"deployment": "llm", "user_config": {"a": 2}},
    ]


@pytest.mark.parametrize(("at", "noticed_at", "notice_s"), [("30", 50.0, 20.0), ("60", 60.0, 10.0)])
def test_a_notice_of_a_loss_and_the_loss_are_the_preemption_that_they_were(tmp_path, monkeypatch, at, noticed_at, notice_s):
    preempted = "  - {kind: node_preemption, at: 50, node: node-0, notice_s: 20, back_after_s: 15}"
    recorded = RECORDED.replace("  - {kind: node_loss, at: 40, node: node-0, back_after_s: 15}", preempted)
    journal_of(recorded, tmp_path, monkeypatch)
    fault, *others = read_history(Path("run.jsonl"), float(at)).aftermath.faults
    assert (fault["kind"], fault["node"]) == ("node_preemption", "node-0")
    assert [fault[key] for key in ("at", "notice_s", "back_after_s")] == pytest.approx([noticed_at, notice_s, 15.0], abs=0.1)
    assert {each["kind"] for each in others} == {"replica_crash", "controller_crash"}, "no drain, and no loss, besides"
    answer = forked("--at", at, "--fault", "a replica of llm crashes")
    assert [figures(answer, which)["status"] for which in ("recorded", "forked")] == ["HEALTHY", "HEALTHY"]


def test_who_took_no_requests_for_a_while_does_so_again(tmp_path, monkeypatch):
    unready = "faults:\n  - {kind: replica_unready, at: 60, deployment: llm, rank: 2, for_s: 30}\n"
    journal_of(RECORDED.replace("faults:\n", unready), tmp_path, monkeypatch)
    (fault,) = [each for each in read_history(Path("run.jsonl"), 20.0).aftermath.faults if each["kind"] == "replica_unready"]
    assert (fault["deployment"], fault["rank"]) == ("llm", 2)
    assert fault["for_s"] == pytest.approx(30.0, abs=0.1)
    answer = forked("--at", "20", "--fault", "a replica of llm crashes")
    assert figures(answer, "forked")["replicas_unready"] == 1
    assert figures(answer, "forked")["status"] == "HEALTHY"


def test_one_that_takes_no_requests_at_the_moment_takes_none_from_there_on(tmp_path, monkeypatch):
    unready = "faults:\n  - {kind: replica_unready, at: 20, deployment: llm, rank: 2}\n"
    journal_of(RECORDED.replace("faults:\n", unready), tmp_path, monkeypatch)
    answer = forked("--at", "38", "--fault", "a replica of llm crashes")
    assert [figures(answer, which)["status"] for which in ("recorded", "forked")] == ["UPDATING", "UPDATING"]


def test_one_that_takes_no_requests_at_the_moment_takes_them_again_when_it_did(tmp_path, monkeypatch):
    unready = "faults:\n  - {kind: replica_unready, at: 20, deployment: llm, rank: 2, for_s: 40}\n"
    journal_of(RECORDED.replace("faults:\n", unready), tmp_path, monkeypatch)
    (fault,) = [each for each in read_history(Path("run.jsonl"), 38.0).aftermath.faults if each["kind"] == "replica_unready"]
    assert 22.0 <= fault["for_s"] <= 32.1  # the health check after its end finds out
    answer = forked("--at", "38", "--fault", "a replica of llm crashes")
    assert [figures(answer, which)["status"] for which in ("recorded", "forked")] == ["HEALTHY", "HEALTHY"]


def test_what_the_journal_does_not_say_is_said(journal):
    first = [line for line in unsealed(journal) if '"NodeChanged"' not in json.dumps(line)][:9]
    journal.write_bytes(sealed(first))
    answer = forked("--at", "30", "--fault", "a replica of llm crashes")
    assert "not in the journal: nodes have room for any number of replicas" in answer["said"]
    assert "not in the journal: llm: drain_s is 0 s (--set 'deployments[0].drain_s=...' says better)" in answer["said"]


def test_the_journal_of_the_fork_replays_and_names_where_it_comes_from(journal):
    assert run("--from", "run.jsonl", "--at", "60", "--fault", "node node-1 lost", "--journal", "f.jsonl", "-q").exit_code == 0
    about = json.loads(Path("f.jsonl").read_text().splitlines()[0])["about"]
    assert (about["journal"], about["at"]) == ("run.jsonl", 60.0)
    assert CliRunner().invoke(app, ["replay", "f.jsonl"]).exit_code == 0


def test_the_beginning_of_a_nodes_name_is_enough(journal):
    done = run("--from", "run.jsonl", "--at", "60", "--fault", "node node lost")
    assert "expected a node: node-0, node-1, node-2, found node" in done.stderr  # which one is not said
    changed(journal, "node-1", "f3a9c0ffee")
    assert run("--from", "run.jsonl", "--at", "60", "--fault", "node f3a9 lost", "-q").exit_code == 0


def test_starts_that_wait_are_not_lost_where_the_network_loses_messages(tmp_path, monkeypatch):
    """Nobody asks for them again: the executor of the journal had accepted them."""
    waits = "nodes: [{name: node, gpus: 2}]\ndeployments: [{name: llm, target_replicas: 9, init_s: 3}]\nduration_s: 100\n"
    journal_of(waits, tmp_path, monkeypatch)
    room = ("--set", "nodes[0].gpus=9", "--set", "network.loss=0.5")
    answer = forked("--at", "50", *room, "--fault", "controller crashes for 1s")
    assert (figures(answer, "recorded")["status"], figures(answer, "recorded")["replica_starts"]) == ("HEALTHY", 7)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--at", "30", "--set", "init_s=soon"), "set by init_s=soon"),
        (
            ("--at", "30", "--set", "requests={poisson: {rate_per_s: 1, for_s: 9, service_s: 1}}"),
            "a journal says nothing of those",
        ),
        (
            ("--at", "30", "--set", "nodes=[{name: node-0, gpus: 4}]"),
            "--set: expected nodes with node-1, node-2, where recorded replicas are, found node-0",
        ),
        (
            ("--at", "135", "--set", "deployments[0].name=other"),
            "--set: expected the deployments of the journal, llm, found other",
        ),
    ],
)
def test_what_cannot_be_gone_on_from_is_one_line_status_2_and_no_file(journal, tmp_path, arguments, problem):
    before = sorted(path.name for path in tmp_path.iterdir())
    done = run("--from", "run.jsonl", "--fault", "a replica of llm crashes", *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert problem in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_moment_without_a_report_names_the_first_one_with_all(journal):
    lines = journal.read_text().splitlines()
    cut = next(number for number, line in enumerate(lines) if '"ReplicaReported"' in line)
    at = json.loads(lines[cut])["event"]["at"] - 0.0001
    done = run("--from", "run.jsonl", "--at", str(at), "--fault", "a replica of llm crashes")
    assert "at " in done.stderr
    assert "choose a time from 0:01:33.1" in done.stderr


def test_a_static_placement_cannot_be_gone_on_with_and_the_error_says_what_to_do(journal, tmp_path):
    placed = """\
nodes: [{name: n, count: 2, gpus: 2}]
placement_groups: [{name: pg, bundles: [{nodes: n, count: 2, gpus: 1}]}]
deployments: [{name: llm, placement: {group: pg, bundles: {0: [0, 1], 1: [2, 3]}}}]
"""
    (tmp_path / "placed.yaml").write_text(placed)
    done = run("placed.yaml", "--journal", "own.jsonl", "-q")
    assert done.exit_code == 0, done.stderr
    journal.write_bytes(of_another_executor(tmp_path / "own.jsonl"))
    done = run("--from", "run.jsonl", "--at", "5", "--fault", "a replica of llm crashes")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "llm stands on a placement group" in done.stderr
    assert "write a scenario with placement_groups instead" in done.stderr


PLANNED = """\
name: planned
nodes: [{name: node, count: 3, gpus: 4}]
deployments: [{name: llm, target_replicas: 4, init_s: 3}]
duration_s: 200
faults:
  - {kind: node_cordon, at: 40, node: node-0}
  - {kind: node_drain, at: 60, node: node-1, deadline_s: 30, for_s: 60}
  - {kind: controller_crash, at: 65, restart_after_s: 1}
  - {kind: replica_crash, at: 110, deployment: llm, rank: 1}
"""


@pytest.mark.parametrize(
    ("at", "drained_at", "deadline_s", "for_s"), [(30.0, 60, 30, 60), (70.0, 70, 20, 50)], ids=["before", "meanwhile"]
)
def test_cordons_and_drains_go_on_or_come_again_and_end(tmp_path, monkeypatch, at, drained_at, deadline_s, for_s):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planned.yaml").write_text(PLANNED)
    done = run("planned.yaml", "--journal", "own.jsonl", "-q")
    assert done.exit_code == 0, done.stderr
    (tmp_path / "run.jsonl").write_bytes(of_another_executor(tmp_path / "own.jsonl"))
    history = read_history(tmp_path / "run.jsonl", at)
    planned = {each["kind"]: each for each in history.aftermath.faults if each["kind"] in ("node_cordon", "node_drain")}
    cordon, drain = planned["node_cordon"], planned["node_drain"]
    assert sum(each["kind"] in planned for each in history.aftermath.faults) == 2, "each once, whoever is told how often"
    assert (cordon["node"], round(cordon["at"]), cordon.get("for_s")) == ("node-0", max(40, round(at)), None)
    assert (drain["node"], round(drain["at"])) == ("node-1", drained_at)
    assert (drain["deadline_s"], drain["for_s"]) == (pytest.approx(deadline_s, abs=0.1), pytest.approx(for_s, abs=0.1))
    result = go_on(tmp_path / "run.jsonl", history, at).run.go()
    assert result.failure is None
    came = {hold.node_id for hold in result.holds["llm"] if 100.0 < hold.since < 120.0}
    assert came == {"node-2"}, "the others are cordoned and drained by then"
