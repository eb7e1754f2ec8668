"""`rankcore run --executor local`, where Ray cannot be imported: real processes, Ctrl-C, a killed controller."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from executors.engine.clusters import CLUSTER
from executors.engine.deployment_lines import replay_cluster
from executors.engine.replay import replay
from executors.explain.stories import Question, explain

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0

APP = """
import os
import time
from contextlib import suppress
from pathlib import Path
from executors import ray_gpu as serve

HERE = Path(__file__).parent

@serve.deployment(num_replicas=2, user_config={"name": "v1"}, start_backoff_s=0.05, start_backoff_max_s=0.1)
class Model:
    def __init__(self, how=""):
        if how == "fail":
            raise ValueError("no weights")
        self.how, context = how, serve.get_replica_context()
        said = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE")]
        ranks = [context.rank.rank, context.rank.local_rank, context.rank.node_rank, context.world_size]
        assert said == [str(number) for number in ranks]
        print("built", *ranks, flush=True)

    def reconfigure(self, user_config, rank):
        print("configured", user_config["name"], rank.rank, flush=True)

    def __del__(self):
        while self.how == "hang":
            time.sleep(0.1)
        (HERE / f"cleaned-{os.getpid()}").touch()

app = Model.bind()
broken = Model.bind(how="fail")
stubborn = Model.options(name="Stubborn").bind(how="hang")
composed = Model.bind(Model.options(name="Other").bind())
"""


@pytest.fixture
def place(tmp_path):
    """A folder with an application, and a Python that has no Ray."""
    for module in ("ray", "torch"):
        (tmp_path / "none" / module).mkdir(parents=True)
        (tmp_path / "none" / module / "__init__.py").write_text(f"raise ModuleNotFoundError(name='{module}')")
    (tmp_path / "models.py").write_text(APP)
    temporary = Path("/tmp") / f"rcl-{os.getpid()}"  # sockets have short paths
    temporary.mkdir()
    begun = []
    yield Place(tmp_path, temporary, begun)
    for process in begun:
        process.kill()
        process.wait()
    for pid in pids_in(temporary):
        os.kill(pid, signal.SIGKILL)
    subprocess.run(["rm", "-rf", str(temporary)], check=True)


class Place:
    def __init__(self, folder, temporary, begun):
        self.folder, self.temporary, self.begun = folder, temporary, begun
        self.env = {**os.environ, "PYTHONPATH": f"{folder / 'none'}:{ROOT}", "TMPDIR": str(temporary)}
        self.env.pop("RANKCORE_NAMESPACE", None)

    def command(self, *arguments):
        return self.process("-m", "executors.cli", *arguments)

    def script(self, *arguments):
        """The command as it is installed: the folder in which it is called is not the first to look for modules in."""
        return self.process("-P", "-c", "from executors.cli import main; main()", *arguments)

    def process(self, *arguments):
        line = [sys.executable, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(line, cwd=self.folder, env=self.env, start_new_session=True, **pipes)
        self.begun.append(process)
        return process

    def run(self, *arguments):
        process = self.command(*arguments)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        return process.returncode, stdout, stderr

    def healthy(self, name="app", *options):
        """A run, once it says that all is well; and the replicas that it shows."""
        running = self.command("run", f"models:{name}", "--executor", "local", *options)
        for line in running.stdout:
            if "HEALTHY" in line:
                break
        return running, self.replicas()

    def replicas(self):
        (file,) = self.temporary.glob("rankcore-*/*/*/status.json")
        (info,) = json.loads(file.read_text())["deployments"].values()
        return {each["rank"]["rank"]: each["pid"] for each in info["replicas"] if each["rank"] is not None}

    def log(self, name="default%2FModel"):
        return (self.temporary / f"rankcore-{os.getuid()}" / "rankcore" / name / "log").read_text().splitlines()


def pids_in(temporary):
    """Replicas' processes, whether or not they have come up: the folder stands in their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"executors.local.replica" in (line := path.read_bytes()) and str(temporary).encode() in line:
                found.append(int(path.parent.name))
    return [pid for pid in found if is_alive(pid)]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_run_shows_ranks_and_ctrl_c_lets_replicas_finish_and_leaves_none(place):
    running, replicas = place.healthy()
    assert sorted(replicas) == [0, 1]
    status, stdout, _ = place.run("status", "--executor", "local", "--json")
    assert (status, json.loads(stdout)["deployments"]["default/Model"]["status"]) == (0, "HEALTHY")
    assert all(is_alive(pid) for pid in replicas.values())
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, stderr
    assert stderr.splitlines()[-1] == "stopped"
    assert not any(is_alive(pid) for pid in replicas.values())
    assert {path.name for path in place.folder.glob("cleaned-*")} == {f"cleaned-{pid}" for pid in replicas.values()}
    assert sorted(place.log()) == ["built 0 0 0 2", "built 1 1 0 2", "configured v1 0", "configured v1 1"]
    status, _, stderr = place.run("status", "--executor", "local")
    assert (status, stderr.count("\n"), "nothing runs on this machine" in stderr) == (2, 1, True)


def test_two_applications_of_one_class_run_side_by_side(place):
    first, replicas = place.healthy()
    second = place.command("run", "models:app", "--executor", "local", "--name", "other")
    until(lambda: "HEALTHY" in second.stdout.readline())
    shown = [json.loads(line)["deployments"] for line in place.run("status", "--executor", "local", "--json")[1].splitlines()]
    assert sorted(name for each in shown for name in each) == ["default/Model", "other/Model"]
    assert {each["app_name"] for deployments in shown for each in deployments.values()} == {"default", "other"}
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=PATIENCE_S)
    assert place.replicas() == replicas
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=PATIENCE_S)
    status, _, stderr = place.run("run", "models:app", "--executor", "local", "--name", "a/b")
    assert (status, "the application's name must be a non-empty string" in stderr) == (2, True)


def test_replicas_outlive_a_killed_controller_and_the_next_takes_them_over_with_their_ranks(place):
    first, before = place.healthy()
    refused = place.run("run", "models:app", "--executor", "local")
    assert (refused[0], "another `rankcore run` runs this deployment" in refused[2]) == (2, True)
    first.kill()
    first.wait()
    assert "its controller is gone" in place.run("status", "--executor", "local")[1]
    assert all(is_alive(pid) for pid in before.values())
    second, after = place.healthy()
    assert after == before
    os.kill(before[0], signal.SIGKILL)
    until(lambda: (now := place.replicas()).get(0) not in (None, before[0]) and now[1] == before[1])
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 128 + signal.SIGTERM
    assert pids_in(place.temporary) == []


def test_an_edited_file_that_fails_leaves_in_service_who_was_taken_over(place):
    first, before = place.healthy()
    first.kill()
    first.wait()
    (place.folder / "models.py").write_text(APP.replace('if how == "fail":', "if True:"))
    second = place.command("run", "models:app", "--executor", "local")
    assert any("DEPLOY_FAILED" in line and "1 of 2 running" in line for line in second.stdout)
    assert second.poll() is None
    assert is_alive(before[1])
    (place.folder / "models.py").write_text(APP)
    assert place.run("rollback", "Model", "--executor", "local")[0] == 0
    assert any("HEALTHY" in line for line in second.stdout)
    assert place.replicas()[1] == before[1]
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=PATIENCE_S)
    assert (second.returncode, pids_in(place.temporary)) == (0, [])


def test_an_edited_file_is_a_new_version_for_replicas_that_were_taken_over(place):
    first, before = place.healthy()
    first.kill()
    first.wait()
    (place.folder / "models.py").write_text(APP.replace('"v1"', '"v2"'))
    second, _ = place.healthy()
    until(lambda: set(before.values()).isdisjoint(now := place.replicas().values()) and None not in now and len(now) == 2)
    until(lambda: {"configured v2 0", "configured v2 1"} <= set(place.log()))
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0


def test_a_second_ctrl_c_ends_replicas_that_do_not_end(place):
    running, replicas = place.healthy("stubborn")
    running.send_signal(signal.SIGINT)
    for line in running.stderr:
        if "Ctrl-C again" in line:
            break
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert not any(is_alive(pid) for pid in replicas.values())


@pytest.mark.parametrize("moment", ["*/*/*/epoch", "*/*/*/log", "*/*/*/*@*"])
def test_ctrl_c_at_any_moment_of_the_start_leaves_no_process(place, moment):
    running = place.command("run", "models:app", "--executor", "local")
    until(lambda: list(place.temporary.glob(moment)))
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=PATIENCE_S)
    assert running.returncode in (0, 130), stderr
    assert "Traceback" not in stderr
    assert pids_in(place.temporary) == []


def test_a_class_that_fails_ends_the_command_with_its_traceback_and_leaves_nothing(place):
    status, _, stderr = place.run("run", "models:broken", "--executor", "local")
    assert status == 1
    assert "rankcore: error: default/Model did not come up" in stderr
    assert "ValueError: no weights" in stderr
    assert pids_in(place.temporary) == []


def stop_between_its_deeds(pid, folder):
    """SIGSTOP, at a moment when it does not hold the fence: who stops with that in its hands lets no other one begin."""
    file = os.open(folder, os.O_RDONLY)
    try:
        while True:
            os.kill(pid, signal.SIGSTOP)
            until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.kill(pid, signal.SIGCONT)
            else:
                return
    finally:
        os.close(file)


def test_a_controller_that_was_stopped_while_another_took_over_ends_and_leaves_everything_to_it(place):
    """The lock may be lost, as a lease is lost in time: it is removed here, as if that had happened."""
    older, before = place.healthy("app", "--journal", "older.jsonl")
    (lock,) = place.temporary.glob("rankcore-*/*/*/lock")
    stop_between_its_deeds(older.pid, lock.parent)
    for verb in (("shutdown", "--yes"), ("scale", "Model", "3")):
        status, _, stderr = place.run(*verb, "--executor", "local")
        assert (status, stderr.count("\n")) == (2, 1)
        assert (
            f"process {older.pid}, is stopped (SIGSTOP) and does not answer: `kill -CONT {older.pid}` lets it go on" in stderr
        )
    status, stdout, _ = place.run("status", "--executor", "local")
    assert (status, f"process {older.pid}, is stopped" in " ".join(stdout.split())) == (0, True)
    lock.unlink()
    journal = (place.folder / "older.jsonl").read_bytes()
    newer, after = place.healthy("app", "--journal", "newer.jsonl")
    assert (newer.poll(), after) == (None, before)
    older.send_signal(signal.SIGINT)  # it is to end its replicas as soon as it goes on
    older.send_signal(signal.SIGCONT)
    _, stderr = older.communicate(timeout=PATIENCE_S)
    assert older.returncode == 1, stderr
    assert "epoch 1 is over" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert all(is_alive(pid) for pid in before.values())
    assert (place.folder / "older.jsonl").read_bytes() == journal
    status = json.loads((lock.parent / "status.json").read_text())
    assert (status["epoch"], status["controller_pid"]) == (2, newer.pid)
    assert json.loads((lock.parent / "record.json").read_text())["deleting"] is False
    os.kill(before[1], signal.SIGKILL)
    until(lambda: (now := place.replicas()).get(1) not in (None, before[1]) and now[0] == before[0])
    newer.send_signal(signal.SIGINT)
    assert newer.communicate(timeout=PATIENCE_S)
    assert newer.returncode == 0
    assert pids_in(place.temporary) == []


def test_a_journal_tells_of_both_lives_of_a_controller_and_is_nobody_elses(place):
    running, replicas = place.healthy("app", "--journal", "run.jsonl")
    until(lambda: (place.folder / "run.jsonl").stat().st_size > 1000)
    before = (place.folder / "run.jsonl").read_bytes()
    status, _, stderr = place.run("run", "models:app", "--executor", "local", "--journal", "run.jsonl")
    assert (status, "another `rankcore run` runs this deployment" in stderr) == (2, True)
    status, _, stderr = place.run("run", "models:stubborn", "--executor", "local", "--journal", "run.jsonl")
    assert (status, stderr.count("\n")) == (2, 1)
    assert "run.jsonl:1: another process writes this journal" in stderr
    assert (place.folder / "run.jsonl").read_bytes()[: len(before)] == before
    os.kill(replicas[1], signal.SIGKILL)
    until(lambda: place.replicas().get(1) not in (None, replicas[1]))
    running.kill()
    running.wait()
    second, _ = place.healthy("app", "--journal", "run.jsonl")
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=PATIENCE_S)
    third, _ = place.healthy("app", "--journal", "run.jsonl")
    third.send_signal(signal.SIGINT)
    third.communicate(timeout=PATIENCE_S)
    assert replay(place.folder / "run.jsonl", CLUSTER).difference is None
    began = [json.loads(line)["began"]["type"] for line in (place.folder / "run.jsonl").open() if '"began"' in line]
    assert began == ["ClusterRecovered"] * 3
    seen = []
    replay_cluster(place.folder / "run.jsonl", lambda _line, _before, _step, parts: seen.extend(parts))
    causes = [type(part.entry.cause).__name__ for part in seen]
    assert [each for each in causes if each in ("Deployed", "Recovered")] == ["Deployed", "Recovered", "Deployed"]
    story = explain(place.folder / "run.jsonl", Question(rank=1))
    told = " ".join(fact.text for fact in story.facts)
    assert "killed by SIGKILL" in told
    assert "Model#2" not in told  # the second controller started nobody
    assert "Model#3.1" in told


def test_a_folder_of_the_users_that_is_called_as_our_package_does_not_keep_replicas_from_starting(place):
    (place.folder / "executors").mkdir()
    (place.folder / "executors" / "__init__.py").write_text("pools = 'of threads'")
    running = place.script("run", "models:app", "--executor", "local")
    for line in running.stdout:
        if "HEALTHY" in line:
            break
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    warning = [line for line in stderr.splitlines() if "executors" in line and "warning" in line]
    assert len(warning) == 1
    assert str(place.folder / "executors") in warning[0]
    (place.folder / "models.py").write_text("from executors.mine import pool\n" + APP)
    refused = place.script("run", "models:app", "--executor", "local")
    _, stderr = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 2
    assert f"{place.folder / 'executors'} is hidden by rankcore's package of the same name" in stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["models:app", "--journal", "/dev/full"], "/dev/full cannot be written: No space left on device"),
        (["models:app", "--journal", "nowhere/run.jsonl"], "nowhere/run.jsonl cannot be written: No such file or directory"),
        (["models:app", "--journal", "models.py"], "models.py:1: not a line of a journal"),
        (["models:composed"], "needs --executor ray"),
        (["models:app", "--detach"], "--non-blocking and --replace are for --executor ray"),
        (["models:nothing"], "models has no 'nothing'"),
        (["models:app", "--executor", "cloud"], "no executor 'cloud': installed are local, ray, slurm"),
    ],
)
def test_what_cannot_be_run_is_one_line(place, arguments, problem):
    status, stdout, stderr = place.run("run", "--executor", "local", *arguments)
    assert (status, stdout, len(stderr.splitlines())) == (2, "", 1), stderr
    assert problem in stderr


def test_without_ray_the_default_says_what_is_missing(place):
    status, _, stderr = place.run("run", "models:app")
    assert (status, stderr) == (2, "rankcore: error: this command needs ray: pip install 'rankcore[ray]'\n")
