"""A local controller that is killed at any command of a rollback, or of a build that fails, loses neither decision."""

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import attrs
import pytest

from executors.local.executor import LocalExecutor
from executors.local.process import found
from executors.run.checkpoint import read_record
from rankcore import DeploymentSpec, DeploymentStatus
from rankcore.cluster import ApplicationSpec, EntrySpec
from rankcore.cluster.events import ApplyRequested
from tests.local_controller import local_controller as Controller

PATIENCE_S = 120.0
COMMANDS_MAX = 40
APP = """
from pathlib import Path
from executors.ray_gpu import deployment

HERE = Path(__file__).parent

@deployment
class Model:
    def reconfigure(self, user_config, rank):
        if user_config["build"] == "bad":
            with (HERE / "tries").open("a") as tries:
                tries.write("x")
            raise ValueError("no weights")

app = Model.bind()
"""
FAST = {"start_backoff_s": 0.01, "start_backoff_max_s": 0.01, "max_start_failures": 1, "graceful_shutdown_timeout_s": 1.0}
GOOD = DeploymentSpec(name="a/m", target_replicas=1, version="1", user_config={"build": "good"}, **FAST)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "models.py").write_text(APP)
    folders = []

    def begin():
        (tmp_path / "tries").write_text("")
        folders.append(Path(tempfile.mkdtemp(prefix="rcc-", dir="/tmp")))
        return tmp_path, folders[-1]

    yield begin
    for folder in folders:
        for process in found(folder, "a/m"):  # of a test that has failed
            process.kill()
            process.close()
        shutil.rmtree(folder)


def run_until(controller, reached):
    deadline = time.monotonic() + PATIENCE_S
    while not reached(controller.entry.ranks):
        assert time.monotonic() < deadline, controller.entry
        controller.run_for(0.02)


def crash_in_an_update(home, folder, bad, at_command, given_out):
    """Be a controller that updates to a build that fails, and is killed before the so-manyth command of that is carried out."""
    controller = Controller(folder, f"{home / 'models.py'}:app", GOOD)
    run_until(controller, lambda state: state.status is DeploymentStatus.HEALTHY)
    execute, count = LocalExecutor.execute, 0

    def counted(executor, command):
        nonlocal count
        state, record = controller.entry.ranks, read_record(folder, "a/m")
        failed = state.status is DeploymentStatus.DEPLOY_FAILED
        with given_out.open("a") as lines:
            lines.write(f"{state.spec.version} {failed} {record.spec.version} {record.failed}\n")
        if count == at_command:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        execute(executor, command)

    LocalExecutor.execute = counted
    wanted = ApplicationSpec(name="a", deployments=[EntrySpec(ranks=bad)])
    controller._loop.deliver(ApplyRequested(applications=[wanted], at=time.monotonic()))
    run_until(controller, lambda state: is_over(state, bad))


def is_over(state, bad):
    """Whether the build was given up, and what follows from that is there."""
    return state.status is (DeploymentStatus.HEALTHY if bad.rollback else DeploymentStatus.DEPLOY_FAILED)


@pytest.mark.slow
@pytest.mark.parametrize("rollback", [True, False], ids=["a rollback", "a failed build"])
def test_a_crash_at_any_command_loses_no_decision(place, rollback):
    bad = attrs.evolve(GOOD, version="2", user_config={"build": "bad"}, rollback=rollback)
    decided = 0
    for at_command in range(COMMANDS_MAX):
        home, folder = place()
        given_out = home / f"given-out-{at_command}"
        child = os.fork()
        if child == 0:
            try:
                crash_in_an_update(home, folder, bad, at_command, given_out)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        said = [line.split() for line in given_out.read_text().splitlines()]
        tries = (home / "tries").read_text()
        assert said
        for version, failed, stored_version, stored_failed in said:  # what a command follows from is stored before it
            assert (version, failed) == (stored_version, stored_failed)
        given_up = said[-1][:2] in (["1", "False"], ["2", "True"])
        decided += given_up
        wanted = read_record(folder, "a/m").spec
        successor = Controller(folder, f"{home / 'models.py'}:app", wanted)
        run_until(successor, lambda state: is_over(state, bad) and (state.spec.version == "1") is bad.rollback)
        if given_up:
            assert (home / "tries").read_text() == tries  # the build that failed is not started again
        successor.kill()
        if not os.WIFSIGNALED(status):
            break
    else:
        pytest.fail(f"more than {COMMANDS_MAX} commands")
    assert decided > 1, "no crash came after the decision"
