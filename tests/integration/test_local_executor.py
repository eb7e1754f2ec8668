"""Local replicas in trouble: one that is unwell, stuck, misconfigured or forgotten, and what becomes of it."""

import json
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

from executors.engine.loop import Driver
from executors.local import LocalExecutor
from executors.local.process import spawn
from rankcore import DeploymentSpec, DeploymentStatus, ReplicaState, invariants
from rankcore.codec import to_json
from rankcore.commands import KillReplica, PublishRoutes, QueryReplica, StartReplica, StopReplica
from rankcore.events import DeleteRequested, NodeChanged, ReplicaReported, ReplicaStartFailed, ReplicaUnhealthy, SpecChanged
from tests.local_controller import local_controller as Controller

PATIENCE_S = 300.0
SHORT = {"health_check_period_s": 0.2, "health_check_timeout_s": 4.0, "repeat_period_s": 0.5, "start_backoff_s": 0.05}

APP = """
import asyncio
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

    async def check_ready(self):
        closed = HERE / f"closed-{get_replica_context().rank.rank}"
        if not closed.exists():
            return None
        if closed.read_text() == "hang":
            await asyncio.sleep(3600)
        if closed.read_text() == "raise":
            raise RuntimeError("no licence")
        return False

app = Model.bind()
"""

HANDED_OVER = """
import os
from pathlib import Path
from executors.ray_gpu import deployment, get_replica_context

HERE = Path(__file__).parent

@deployment
class Model:
    def __init__(self):
        self.rank = get_replica_context().{asked}
        self.variables = [os.environ.get(name, "none") for name in ("RANK", "GROUP_RANK", "LOCAL_RANK", "WORLD_SIZE")]
        (HERE / f"variables-{{os.getpid()}}").write_text(" ".join(self.variables))

    def reconfigure(self, user_config, rank):
        self.rank = rank

    def check_health(self):
        if self.rank is None and (HERE / "unwell").exists():
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
        return self.executor.replicas[self.state.holder_of(rank)].address.pid

    def until_replaced(self, rank, pid):
        self.until(
            lambda: (
                self.state.status is DeploymentStatus.HEALTHY
                and self.state.holder_of(rank) in self.executor.replicas
                and self.pid_of(rank) != pid
            )
        )

    def close(self):
        for process in self.executor.replicas.values():
            process.kill()  # whatever the fence says
        while self.executor.replicas:
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


@pytest.mark.parametrize(
    ("how", "why"),
    [("", "check_ready returned False"), ("raise", "no licence"), ("hang", "check_ready has not answered for 1 s")],
)
def test_a_replica_that_is_not_ready_is_off_the_routes_until_it_is_and_lives_on(local, how, why):
    """V16: 0 kills, 0 moves."""
    local.deploy(2, user_config={"text": ""}, health_check_timeout_s=1.0, health_check_period_s=0.1)
    local.until_healthy()
    pids, ranks = [local.pid_of(0), local.pid_of(1)], dict(local.state.ranks)
    closed = local.home / "closed-1"
    closed.write_text(how)
    local.until(lambda: local.state.available == 1)
    assert local.state.status is DeploymentStatus.UNHEALTHY
    assert why in local.state.replicas[local.state.holder_of(1)].unready.reason
    closed.unlink()
    local.until(lambda: local.state.available == 2)
    local.until_healthy()
    assert ([local.pid_of(0), local.pid_of(1)], dict(local.state.ranks)) == (pids, ranks)


def test_a_replica_that_comes_up_and_is_not_ready_is_not_routed_before_it_is(local):
    (local.home / "closed-0").write_text("raise")
    local.deploy(1, user_config={"text": ""})
    routed = []
    execute, local.executor.execute = local.executor.execute, lambda command: (routed.append(command), execute(command))
    local.until(lambda: any(each.state == "RUNNING" for each in local.state.replicas.values()))
    assert local.state.available == 0
    assert [command for command in routed if isinstance(command, PublishRoutes)] == []
    (local.home / "closed-0").unlink()
    local.until_healthy()
    assert local.state.available == 1


def test_a_config_that_fails_has_its_replicas_killed_and_replaced(local):
    local.deploy(1, user_config={"text": ""})
    local.until_healthy()
    before = local.pid_of(0)
    local.spec = DeploymentSpec(name="m", target_replicas=1, user_config={"text": "bad"}, **SHORT)
    local.driver.deliver(SpecChanged(spec=local.spec, at=time.monotonic()))
    local.until(lambda: local.state.tables.slots[0].failures)
    (local.home / "mended").touch()
    local.until_replaced(0, before)


def test_a_config_of_a_megabyte_arrives(local):
    local.deploy(1, user_config={"text": "x" * 2**20})
    local.until_healthy()
    assert (local.home / "size-0").read_text() == str(2**20)


PREPARED = {"max_surge": 1, "max_unavailable": 1, "hand_over": "prepared", "min_ready_s": 0.2, "max_start_failures": 1}
OVERLAPPING = {**PREPARED, "max_unavailable": 0, "hand_over": "overlap"}


def hands_over(local, asked, **fields):
    """Two replicas run, and are to be updated by successors that are up before; returns who was there before, by rank."""
    (local.home / "models.py").write_text(HANDED_OVER.format(asked=asked))
    local.deploy(2, user_config={})
    local.until_healthy()
    before = [local.pid_of(0), local.pid_of(1)]
    fields = {**SHORT, **PREPARED, **fields}
    local.spec = DeploymentSpec(name="m", target_replicas=2, version="2", user_config={}, **fields)
    local.driver.deliver(SpecChanged(spec=local.spec, at=time.monotonic()))
    return before


def listened_to(local, monkeypatch):
    """What the executor tells from now on."""
    heard, poll = [], local.executor.poll
    monkeypatch.setattr(local.executor, "poll", lambda: heard.append(poll()) or heard[-1])
    return heard


def test_a_successor_is_prepared_by_a_process_of_its_own_while_its_predecessor_serves(local):
    before = hands_over(local, "rank_or_none")
    local.until(lambda: any(each.state is ReplicaState.PREPARED for each in local.state.replicas.values()))
    (successor,) = (each.replica_id for each in local.state.replicas.values() if each.state is ReplicaState.PREPARED)
    assert before[0] in [process.address.pid for process in local.executor.replicas.values()], "its predecessor lives"
    pid = local.executor.replicas[successor].address.pid
    local.until_replaced(0, before[0])
    local.until_replaced(1, before[1])
    assert local.pid_of(0) == pid


@pytest.mark.parametrize("fields", [PREPARED, OVERLAPPING], ids=["prepared", "overlap"])
def test_a_class_that_reads_its_rank_in_init_cannot_be_prepared_and_is_told_what_to_do(local, monkeypatch, fields):
    before = hands_over(local, "rank", **fields)
    heard = listened_to(local, monkeypatch)
    local.until(lambda: local.state.status is DeploymentStatus.DEPLOY_FAILED)
    (text,) = (event.reason for event in heard if isinstance(event, ReplicaStartFailed))
    assert "has no rank yet: with hand_over" in text
    assert "Ask in reconfigure(self, user_config, rank) or in a call, use rank_or_none, or leave hand_over" in text
    assert [local.pid_of(0), local.pid_of(1)] == before


@pytest.mark.parametrize("fields", [PREPARED, OVERLAPPING], ids=["prepared", "overlap"])
def test_one_that_is_not_well_before_it_has_a_rank_is_given_up_while_all_old_ones_serve(local, monkeypatch, fields):
    before = hands_over(local, "rank_or_none", **{**fields, "min_ready_s": 3600.0})
    local.until(lambda: any(each.state is ReplicaState.PREPARED for each in local.state.replicas.values()))
    heard = listened_to(local, monkeypatch)
    (local.home / "unwell").touch()
    local.until(lambda: local.state.status is DeploymentStatus.DEPLOY_FAILED)
    (reason,) = (event.reason for event in heard if isinstance(event, ReplicaUnhealthy))
    assert "the GPU fell off the bus" in reason
    assert [local.pid_of(0), local.pid_of(1)] == before


def test_as_many_as_are_wanted_take_requests_at_every_moment_of_an_update_that_overlaps(local, monkeypatch):
    monkeypatch.setenv("RANK", "7")  # of whoever started the controller
    routes, counts = set(), []

    def execute(command, execute=LocalExecutor.execute):
        if isinstance(command, PublishRoutes):
            routes.difference_update(command.removed)
            routes.update(command.added)
            counts.append(len(routes))
        execute(local.executor, command)

    monkeypatch.setattr(LocalExecutor, "execute", lambda _, command: execute(command))
    before = hands_over(local, "rank_or_none", **OVERLAPPING)
    local.until_replaced(0, before[0])
    local.until_replaced(1, before[1])
    first = counts.index(2)
    assert set(counts[first:]) == {2, 3}
    for pid in (local.pid_of(0), local.pid_of(1)):
        assert (local.home / f"variables-{pid}").read_text() == "none none none 2", "none of another process, nor one too early"


def test_nothing_is_left_of_a_deployment_that_is_deleted(local):
    files = set(os.listdir("/proc/self/fd"))
    local.deploy(3, user_config={"text": ""})
    local.until_healthy()
    local.driver.deliver(DeleteRequested(at=time.monotonic()))
    local.until(lambda: local.state.status is DeploymentStatus.DELETED)
    assert local.executor.replicas == {}
    assert [path.name for path in local.folder.glob("*@*")] == []
    assert len(os.listdir("/proc/self/fd")) == len(files)


def test_consecutive_ranks_are_packed_on_the_nodes_that_this_machine_is_divided_into(local):
    local.spec = DeploymentSpec(name="m", target_replicas=4, placement="pack_ranks", user_config={"text": ""}, **SHORT)
    local.executor = LocalExecutor(local.folder, f"{local.home / 'models.py'}:app", lambda: local.spec, 1, ["a", "b"])
    local.driver = Driver.deploy(local.executor, local.spec, at=time.monotonic())
    for node, capacity in (("a", 2), ("b", 1000)):
        local.driver.deliver(NodeChanged(node_id=node, capacity=capacity, at=time.monotonic()))
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
    assert [type(event) for event in news] == [ReplicaStartFailed]
    assert "no more processes" in news[-1].reason


def begin_replica(local, orphan_s):
    """A replica that nobody has commanded yet, with the controller's end of its connection."""
    ours, theirs = socket.socketpair()
    soon = f"import executors.local.replica as replica; replica.ORPHAN_S = {orphan_s}; replica.main()"
    start = to_json(StartReplica("m#1.7", 0, "1", None, (), 1))
    line = [sys.executable, "-c", soon, str(local.folder), "models:app", "local", str(theirs.fileno()), start]
    replica = subprocess.Popen(line, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
    theirs.close()
    return replica, ours


@pytest.mark.parametrize("last_words", [b"", b'{"type":"QueryRep', b"nonsense\n", b"\xff\n", b'{"type":"WakeAt"}\n'])
def test_a_replica_that_no_controller_wants_ends_by_itself(local, last_words):
    """Whatever the last one was saying when it was killed."""
    local.deploy(0)
    replica, controller = begin_replica(local, orphan_s=0.3)
    controller.sendall(last_words)
    controller.close()
    _, stderr = replica.communicate(timeout=PATIENCE_S)
    assert replica.returncode == 0
    assert b"Traceback" not in stderr
    assert list(local.folder.glob("*@*")) == []


def test_a_controller_that_speaks_nonsense_costs_its_own_connection_and_nothing_else(local):
    local.deploy(0)
    replica, controller = begin_replica(local, orphan_s=600.0)
    for words in (b'half a line, "', b"nonsense\n", b"\xff\n"):
        controller.sendall(words)
        controller.shutdown(socket.SHUT_WR)
        assert controller.recv(1) == b""  # closed by the replica
        controller.close()
        controller = socket.socket(socket.AF_UNIX)
        controller.connect(str(next(local.folder.glob("*@*"))))
    controller.sendall(b"observe\n")
    assert json.loads(controller.makefile().readline())["replica_id"] == "m#1.7"
    replica.kill()
    replica.communicate()
    controller.close()


def test_a_replica_that_speaks_nonsense_is_replaced_and_its_controller_goes_on(local):
    local.deploy(1, user_config={"text": ""})
    local.until_healthy()
    before, process = local.pid_of(0), local.executor.replicas[local.state.holder_of(0)]
    process._inbox += b"no event\n"
    local.until_replaced(0, before)


def test_a_controller_that_was_replaced_ends_no_replica_of_the_newer_one(local, monkeypatch):
    local.deploy(1, user_config={"text": ""})
    local.until_healthy()
    (replica_id,) = local.executor.replicas
    newer = LocalExecutor(local.folder, f"{local.home / 'models.py'}:app", lambda: local.spec, 2)
    newer.execute(QueryReplica(replica_id, 2))
    survivor = newer.replicas[replica_id]
    deadline = time.monotonic() + PATIENCE_S
    while not isinstance(newer.poll(), ReplicaReported):  # from here on it hears no older one
        assert time.monotonic() < deadline
        newer.wait(0.05)
    older, theirs = local.executor, local.executor.replicas[replica_id]
    monkeypatch.setattr("executors.line_executor.STOP_MARGIN_S", 0.0)
    older.execute(KillReplica(replica_id, 1))
    older.execute(StopReplica(replica_id, 0.0, 1))
    older._hear(theirs, to_json(ReplicaStartFailed(replica_id=replica_id, reason="said it before", at=1.0)))
    while older.poll() is not None:
        pass
    older.execute(StartReplica("m#1.9", 0, "1", None, (), 1))
    late = older.replicas["m#1.9"]
    while not late.has_ended():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not survivor.has_ended()
    newer.kill(survivor)
    while not survivor.has_ended():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    older.close()
    local.executor = newer


# ---------------------------------------------------------------------------------------------------------------------
# what a controller that comes back remembers

FAILING = """
import time
from pathlib import Path
from executors.ray_gpu import deployment

HERE = Path(__file__).parent

@deployment
class Model:
    def __init__(self):
        with (HERE / "starts").open("a") as starts:
            starts.write("x")
        if not (HERE / "mended").exists():
            raise ValueError("no weights")

    def __del__(self):
        while (HERE / "busy").exists():
            time.sleep(0.05)

app = Model.bind()
"""


@pytest.fixture
def failing(tmp_path):
    """A way to begin controllers of an application that fails until it is mended; they crash, and do not end."""
    (tmp_path / "failing.py").write_text(FAILING)
    folder = Path(tempfile.mkdtemp(prefix="rcl-", dir="/tmp"))
    begun = []

    def begin(**fields):
        spec = DeploymentSpec(name="a/m", target_replicas=1, max_start_failures=1, **{**SHORT, **fields})
        begun.append(Controller(folder, f"{tmp_path / 'failing.py'}:app", spec))
        return begun[-1]

    yield begin
    begun[-1].kill()
    shutil.rmtree(folder)


def run_until(controller, status):
    deadline = time.monotonic() + PATIENCE_S
    while controller.entry.ranks.status is not status:
        assert time.monotonic() < deadline, controller.entry
        controller.run_for(0.05)


def test_a_build_that_was_given_up_is_not_started_again_by_the_next_controller(failing, tmp_path):
    first = failing()
    run_until(first, DeploymentStatus.DEPLOY_FAILED)
    starts = (tmp_path / "starts").read_text()
    first.leave()
    (tmp_path / "mended").touch()  # another start would succeed, and show itself
    second = failing()
    assert (second.epoch, second.entry.ranks.status) == (2, DeploymentStatus.DEPLOY_FAILED)
    second.run_for(0.3)
    assert second.entry.ranks.status is DeploymentStatus.DEPLOY_FAILED
    assert second.executor.replicas == {}
    assert (tmp_path / "starts").read_text() == starts
    assert "no weights" in second.status().deployments["a/m"].message  # why it was given up outlives who gave it up
    second.leave()
    third = failing(version="2")
    run_until(third, DeploymentStatus.HEALTHY)


def test_a_deletion_that_a_crash_interrupts_is_finished_before_anything_begins_anew(failing, tmp_path):
    for name in ("mended", "busy"):
        (tmp_path / name).touch()
    first = failing(graceful_shutdown_timeout_s=600.0)
    run_until(first, DeploymentStatus.HEALTHY)
    ((_, process),) = first.executor.replicas.items()
    before = process.address
    with pytest.raises(TimeoutError):
        first.stop(0.2)
    first.leave()
    (tmp_path / "busy").unlink()
    second = failing()
    assert not before.path(second._folder).exists()
    run_until(second, DeploymentStatus.HEALTHY)
    ((replica_id, _),) = second.executor.replicas.items()
    assert replica_id != before.replica_id  # what comes after a deletion is no replica of before
    assert {each.address.pid for each in second.executor.replicas.values()}.isdisjoint({before.pid})


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
