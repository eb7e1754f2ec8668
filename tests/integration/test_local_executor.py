"""Local replicas in trouble: one that is unwell, stuck, misconfigured or forgotten, and what becomes of it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from executors.driver import Driver
from executors.local import LocalExecutor
from executors.local.process import spawn
from rankcore import DeploymentSpec, DeploymentStatus, invariants
from rankcore.codec import to_json
from rankcore.commands import StartReplica
from rankcore.events import DeleteRequested, NodeChanged, ReplicaPlaced, ReplicaStartFailed, SpecChanged

PATIENCE_S = 300.0
SHORT = {"health_check_period_s": 0.2, "health_check_timeout_s": 4.0, "repeat_period_s": 0.5, "start_backoff_s": 0.05}

APP = """
import os
import time
from pathlib import Path
from executors.ray_gpu import deployment, get_replica_context

HERE = Path(__file__).parent

@deployment
class Model:
    def reconfigure(self, user_config, rank):
        (HERE / f"size-{rank.rank}").write_text(str(len(user_config["text"])))
        if user_config["text"] == "bad" and not (HERE / "mended").exists():
            raise ValueError("no such text")

    def check_health(self):
        unwell = HERE / f"unwell-{get_replica_context().rank.rank}"
        if unwell.exists():
            unwell.unlink()
            raise RuntimeError("the GPU fell off the bus")

app = Model.bind()
"""


class Local:
    """A deployment of local replicas, and the loop that a controller is."""

    def __init__(self, home):
        self.home = home
        (home / "models.py").write_text(APP)
        self.folder = Path(tempfile.mkdtemp(prefix="rcl-", dir="/tmp"))

    def deploy(self, target, **fields):
        self.spec = DeploymentSpec(name="m", target_replicas=target, **{**SHORT, **fields})
        self.executor = LocalExecutor(self.folder, f"{self.home / 'models.py'}:app", lambda: self.spec, 1)
        self.driver = Driver.deploy(self.executor, self.spec, at=time.monotonic())

    @property
    def state(self):
        return self.driver.state

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.state
            self.driver.deliver_all()
            assert invariants.check(self.state) == []
            self.executor.wait(0.05)

    def until_healthy(self):
        self.until(lambda: self.state.status is DeploymentStatus.HEALTHY)

    def pid_of(self, rank):
        return self.executor.processes[self.state.holder_of(rank)].address.pid

    def until_replaced(self, rank, pid):
        self.until(
            lambda: (
                self.state.status is DeploymentStatus.HEALTHY
                and self.state.holder_of(rank) in self.executor.processes
                and self.pid_of(rank) != pid
            )
        )

    def close(self):
        for process in self.executor.processes.values():
            process.kill()
        while self.executor.processes:
            self.executor.poll()
            self.executor.wait(0.05)
        shutil.rmtree(self.folder)


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path)
    yield local
    local.close()


def test_a_replica_that_is_unwell_or_stuck_is_replaced_under_its_rank(local):
    local.deploy(2, user_config={"text": ""})
    local.until_healthy()
    unwell = local.pid_of(1)
    (local.home / "unwell-1").touch()
    local.until_replaced(1, unwell)
    stuck = local.pid_of(0)
    os.kill(stuck, signal.SIGSTOP)
    local.until_replaced(0, stuck)


def test_a_config_that_fails_has_its_replicas_killed_and_replaced(local):
    local.deploy(1, user_config={"text": ""})
    local.until_healthy()
    before = local.pid_of(0)
    local.spec = DeploymentSpec(name="m", target_replicas=1, user_config={"text": "bad"}, **SHORT)
    local.driver.deliver(SpecChanged(spec=local.spec, at=time.monotonic()))
    local.until(lambda: local.state.status is not DeploymentStatus.HEALTHY)
    (local.home / "mended").touch()
    local.until_replaced(0, before)


def test_a_config_of_a_megabyte_arrives(local):
    local.deploy(1, user_config={"text": "x" * 2**20})
    local.until_healthy()
    assert (local.home / "size-0").read_text() == str(2**20)


def test_nothing_is_left_of_a_deployment_that_is_deleted(local):
    files = set(os.listdir("/proc/self/fd"))
    local.deploy(3, user_config={"text": ""})
    local.until_healthy()
    local.driver.deliver(DeleteRequested(at=time.monotonic()))
    local.until(lambda: local.state.status is DeploymentStatus.DELETED)
    assert local.executor.processes == {}
    assert [path.name for path in local.folder.glob("*@*")] == []
    assert len(os.listdir("/proc/self/fd")) == len(files)


def test_consecutive_ranks_are_packed_on_the_nodes_that_this_machine_is_divided_into(local):
    local.spec = DeploymentSpec(name="m", target_replicas=4, placement="pack_ranks", user_config={"text": ""}, **SHORT)
    local.executor = LocalExecutor(local.folder, f"{local.home / 'models.py'}:app", lambda: local.spec, 1, ["a", "b"])
    local.driver = Driver.deploy(local.executor, local.spec, at=time.monotonic())
    local.driver.deliver(NodeChanged(node_id="a", capacity=2, at=time.monotonic()))
    local.until_healthy()
    ranks = sorted((rank.rank, local.state.replicas[replica_id].node_id) for replica_id, rank in local.state.ranks.items())
    assert len(ranks) == 4
    assert [node for _, node in ranks] == sorted(node for _, node in ranks)


def test_a_process_that_cannot_be_started_is_a_failed_start(local, monkeypatch):
    local.deploy(0)

    def refuse(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    local.executor.execute(StartReplica("m#1.0", 0, "1", None, (), 1))
    news = []
    while (event := local.executor.poll()) is not None:
        news.append(event)
    assert [type(event) for event in news if not isinstance(event, NodeChanged)] == [ReplicaStartFailed]
    assert "no more processes" in news[-1].reason
    assert not any(isinstance(event, ReplicaPlaced) for event in news)


def test_a_replica_that_no_controller_wants_ends_by_itself(local):
    local.deploy(0)
    ours, theirs = socket.socketpair()
    soon = "import executors.local.replica as replica; replica.ORPHAN_S = 0.3; replica.main()"
    start = to_json(StartReplica("m#1.7", 0, "1", None, (), 1))
    line = [sys.executable, "-c", soon, str(local.folder), "models:app", "local", str(theirs.fileno()), start]
    replica = subprocess.Popen(line, pass_fds=[theirs.fileno()])
    theirs.close()
    ours.close()
    assert replica.wait(timeout=PATIENCE_S) == 0
    assert list(local.folder.glob("*@*")) == []


def test_a_replica_of_an_older_epoch_does_not_come_up(local):
    local.deploy(0)
    LocalExecutor(local.folder, "models:app", lambda: local.spec, 2)
    process = spawn(local.folder, "models:app", StartReplica("m#1.0", 0, "1", None, (), 1), "local")
    deadline = time.monotonic() + PATIENCE_S
    while not process.has_ended():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert process.hear() == []
    assert process.close() == "exit status 0"
