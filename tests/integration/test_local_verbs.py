"""The verbs of the shell, and of Python, with `rankcore run --executor local`: real processes, where Ray cannot be imported."""

import json
import signal

import pytest
from typer.testing import CliRunner

from executors.cli.app import app as rankcore
from executors.run import api
from tests.integration.test_local_command import APP, PATIENCE_S, is_alive, place, until  # noqa: F401 (a fixture)

MODEL = "default/Model"
TWO = ("--node", "a", "--node", "b")
ROLLED = APP.replace('user_config={"name": "v1"},', 'user_config={"name": "v1"}, max_unavailable=1, max_surge=1,')


@pytest.fixture
def shell(place, monkeypatch):  # noqa: F811
    """Type a verb, and have its exit status and what it printed. Python in this process asks the same controllers, and so do
    verbs, of which each process costs what a second of a run does; `shell.typed` is one, where Ray cannot be imported.
    """
    (place.folder / "models.py").write_text(ROLLED)
    monkeypatch.setenv("TMPDIR", str(place.temporary))
    monkeypatch.delenv("RANKCORE_NAMESPACE", raising=False)

    def here(line):
        done = CliRunner().invoke(rankcore, [*line.split(), "--executor", "local"])
        return (done.exit_code, done.stdout) if done.exit_code == 0 else (done.exit_code, done.stderr)

    def typed(line):
        status, stdout, stderr = place.run(*line.split(), "--executor", "local")
        return (status, stdout) if status == 0 else (status, stderr)

    here.place, here.typed = place, typed
    return here


def info():
    return api.status().deployments[MODEL]


def nodes():
    """Where the replica with each rank is that runs."""
    return {each.rank.rank: each.node_id for each in info().replicas if each.rank is not None and each.state == "RUNNING"}


def is_healthy_on(*wanted):
    return info().status == "HEALTHY" and sorted(nodes().values()) == sorted(wanted)


def ended(running, how=signal.SIGINT):
    running.send_signal(how)
    running.communicate(timeout=PATIENCE_S)


def test_a_drained_node_is_left_each_after_its_successor_has_a_place_and_the_next_controller_knows_it(shell):
    running, _ = shell.place.healthy("app", *TWO)
    assert nodes() == {0: "a", 1: "b"}
    status, said = shell.typed("drain a --deadline 120s --reason disk")
    assert status == 0
    first, replica, how = said.splitlines()
    assert (first.startswith("node a is to be left by "), first.endswith(": disk; 1 replica there")) == (True, True)
    assert replica == f"  {MODEL}#1.0, rank 0: stops", "its successor has a place already: a process is one at once"
    assert how.endswith("`rankcore uncordon a --executor local` ends it")
    until(lambda: is_healthy_on("b", "b"))
    (drained,) = api.status().cordons
    assert (drained.node_id, drained.state, drained.reason, drained.replicas) == ("a", "draining", "disk", ())
    running.kill()
    running.wait()
    second, _ = shell.place.healthy("app", *TWO)
    assert [each.state for each in api.status().cordons] == ["draining"]
    api.scale("Model", 3)
    until(lambda: is_healthy_on("b", "b", "b"))
    assert shell("uncordon a") == (0, "node a is open: new replicas may come; no replicas there\n")
    api.scale("Model", 4)
    until(lambda: is_healthy_on("a", "b", "b", "b"))
    ended(second)
    assert second.returncode == 0
    third, _ = shell.place.healthy("app", *TWO)
    assert api.status().cordons == (), "what was said has ended with the deployment"
    ended(third)


def test_where_there_is_no_other_node_a_drain_waits_and_with_a_deadline_its_replicas_come_back_once_it_is_open(shell):
    running, before = shell.place.healthy()
    status, said = shell("drain local")
    assert (status, said.splitlines()[0]) == (0, "node local is to be left: drain; 2 replicas there")
    until(lambda: "a successor without a place" in info().rollout or "no room" in info().rollout)
    assert all(is_alive(pid) for pid in before.values())
    assert nodes() == {0: "local", 1: "local"}
    drained = api.drain("local", deadline_s=0.0)
    assert (drained.state, drained.left_s) == ("draining", 0.0)
    until(lambda: nodes() == {} and not any(is_alive(pid) for pid in before.values()))
    assert api.uncordon("local").state == "open"
    until(lambda: is_healthy_on("local", "local"))
    ended(running)


def test_nothing_new_comes_to_a_cordoned_node_and_one_replica_is_replaced_by_name(shell):
    running, before = shell.place.healthy("app", *TWO)
    assert shell("cordon b")[1].splitlines()[:2] == [
        "node b is cordoned: no new replica comes there; 1 replica there",
        f"  {MODEL}#1.1, rank 1: stays",
    ]
    status, said = shell(f"replace {MODEL}#1.1 --deadline 2m")
    assert (status, said.splitlines()[1]) == (0, f"`rankcore status {MODEL} --executor local` shows how that comes on")
    until(lambda: is_healthy_on("a", "a"))
    now = shell.place.replicas()
    assert (now[0], now[1] != before[1]) == (before[0], True)
    assert (api.drain("b").state, api.cordon("b").state) == ("draining", "draining"), "a cordon takes nothing of a drain back"
    api.stop_replicas([f"{MODEL}#1.0"])
    until(lambda: shell.place.replicas().get(0) not in (None, before[0]) and is_healthy_on("a", "a"))
    ended(running)


def test_a_downscale_stops_whom_it_was_told_to_stop_first(shell):
    running, before = shell.place.healthy()
    status, said = shell("scale Model 1 --stop-first Model#1.0")
    assert status == 0, said
    until(lambda: info().status == "HEALTHY" and list(shell.place.replicas()) == [0])
    assert shell.place.replicas() == {0: before[1]}, "the other one has its rank now"
    assert not is_alive(before[0])
    ended(running)


def test_a_roll_out_is_restarted_paused_promoted_resumed_and_taken_back(shell):
    running, before = shell.place.healthy()
    assert shell("restart Model")[0] == 0
    until(lambda: set(shell.place.replicas().values()).isdisjoint(before.values()) and is_healthy_on("local", "local"))
    assert shell("pause Model")[0] == 0
    api.update("Model", user_config={"name": "v2"})
    until(lambda: "paused: 0 of 2 updated" in info().rollout)
    assert "configured v2 0" not in shell.place.log()
    assert shell("promote Model 50%")[0] == 0
    until(lambda: "partitioned: 1 of 2 updated, 2 of 2 available" in info().rollout)
    assert [line for line in shell.place.log() if "v2" in line] == ["configured v2 1"]
    assert shell("rollback Model")[0] == 0
    until(lambda: info().rollout == "" and info().status == "HEALTHY")
    assert [line for line in shell.place.log() if "configured" in line][-1] == "configured v1 1"
    api.update("Model", user_config={"name": "v3"})
    assert shell("resume Model")[0] == 0
    until(lambda: info().rollout == "" and info().status == "HEALTHY")
    assert {"configured v3 0", "configured v3 1"} <= set(shell.place.log())
    assert shell("scale Model 3")[0] == 0
    until(lambda: is_healthy_on("local", "local", "local"))
    watch = shell.place.command("status", "Model", "--watch", "--executor", "local")
    assert f"{MODEL}  HEALTHY  3 of 3 available" in watch.stdout.readline()
    watch.kill()
    shown = json.loads(shell("status Model --json")[1])
    assert list(shown["deployments"]) == [MODEL]
    ended(running)


def test_a_user_config_that_fails_is_given_up_and_tried_again_and_the_command_goes_on(shell):
    (shell.place.folder / "models.py").write_text(
        ROLLED.replace(
            "reconfigure(self, user_config, rank):",
            """reconfigure(self, user_config, rank):
        if user_config["name"] == "bad" and not (HERE / "mended").exists():
            raise ValueError("no such name")""",
        )
    )
    running, before = shell.place.healthy()
    api.update("Model", user_config={"name": "bad"})
    until(lambda: info().status == "DEPLOY_FAILED" and "failed: 0 of 2 updated, 2 of 2 available" in info().rollout)
    assert running.poll() is None
    assert is_alive(before[1])
    (shell.place.folder / "mended").touch()
    assert shell("retry Model")[0] == 0
    until(lambda: info().status == "HEALTHY" and {"configured bad 0", "configured bad 1"} <= set(shell.place.log()))
    ended(running)
    assert running.returncode == 0


def test_what_a_file_no_longer_holds_is_not_started_from_it(shell):
    running, before = shell.place.healthy()
    (shell.place.folder / "models.py").write_text(ROLLED.replace('"v1"', '"v2"'))
    status, said = shell("restart Model")
    assert (status, said.count("\n"), "put it back as it was, or end this run, and run the file of now" in said) == (2, 1, True)
    assert shell.place.replicas() == before
    (shell.place.folder / "models.py").write_text(ROLLED)
    assert shell("restart Model")[0] == 0
    ended(running)


def test_what_cannot_mean_anything_is_one_line_that_says_what_to_do(shell):
    assert shell.typed("drain local") == (
        2,
        "rankcore: error: nothing runs on this machine in namespace 'rankcore': see `rankcore run --help`\n",
    )
    running, before = shell.place.healthy()
    for line, problem in (
        ("drain nowhere", "there is no node 'nowhere'; there is: local"),
        ("drain local --deadline soon", "soon"),
        ("restart Other", f"there is no deployment 'Other'; there is: {MODEL}"),
        ("retry Model", f"{MODEL} waits for no back-off, and was not given up"),
        ("scale Model 1 --stop-first Model#9.9", f"{MODEL} has no replica 'Model#9.9'"),
        ("retry Model --rank 7", f"{MODEL} has no rank 7: it has 2 replicas"),
        ("rollback Model", f"{MODEL} was healthy with what is wanted now"),
        ("replace Model#9.9", "there is no replica 'Model#9.9'"),
        ("evict Model", f"{MODEL} has no residency"),
        ("delete Other", f"there is no deployment 'Other'; there is: {MODEL}"),
        ("defragment Model", f"{MODEL} has no residency"),
        ("requests", f"local replicas of {MODEL} take no requests"),
        ("requests default", "`rankcore logs NAME --executor local` prints what they do"),
        ("requests Other", f"there is no deployment 'Other'; there is: {MODEL}"),
        ("cancel abc", f"local replicas of {MODEL} take no requests"),
        ("logs Model#1", "local replicas of a deployment print to one file: ask for 'Model'"),
        ("update Model nothing=1", "update cannot change 'nothing' of local replicas"),
        ("update Model nothing", "expected OPTION=VALUE, found 'nothing'"),
        ("cordon local --address somewhere:1", "--address is for --executor ray"),
        ("status Other", f"there is no application or deployment 'Other'; there is: {MODEL}"),
    ):
        status, said = shell(line)
        assert (line, status, said.count("\n"), problem in said) == (line, 2, 1, True), said
    assert shell.place.replicas() == before
    ended(running)


def test_what_is_in_force_is_told_changed_and_ended_from_the_shell(shell):
    running, before = shell.place.healthy()
    status, said = shell("update Model num_replicas=1 max_surge=2 --json")
    assert status == 0, said
    assert json.loads(said)["deployments"][MODEL]["world_size"] == 1
    (application,) = json.loads(shell("config --json")[1])["applications"]
    (deployment,) = application["deployments"]
    assert (application["name"], application["import_path"].endswith(":app")) == ("default", True)
    assert (deployment["name"], deployment["num_replicas"], deployment["max_surge"]) == ("Model", 1, 2)
    until(lambda: list(nodes()) == [0] and info().status == "HEALTHY")
    status, said = shell(f"stop {MODEL}#1.0 --json")
    assert (status, list(json.loads(said)["deployments"])) == (0, [MODEL])
    until(lambda: shell.place.replicas().get(0) not in (None, before[0]) and info().status == "HEALTHY")
    notes = [json.loads(line) for line in shell("notes Model --json")[1].splitlines()]
    assert {"ReplicaReady", "StopRequested", "ChangeRequested"} <= {each["cause"] for each in notes}
    assert f"{MODEL}#1.0  stop chosen" in shell("notes")[1]
    assert shell("logs Model")[0] == 0
    assert shell("delete default --json") == (0, json.dumps({"deleted": "default"}, indent=2) + "\n")
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert shell("status")[0] == 2
