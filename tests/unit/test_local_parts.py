"""The parts of the local executor that need no replica: what an application may want, folders, locks, and one process."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import attrs
import pytest
from typer.testing import CliRunner

from executors.cli.app import app as command_line
from executors.controller import read_status
from executors.engine.backend import ClusterBackend
from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.journal import JournalWriter
from executors.engine.loop import Loop
from executors.engine.store import FencedJournal, TextStore
from executors.local import LocalExecutor
from executors.local.places import Address
from executors.local.process import Process, found
from executors.private_folder import PlaceError, connected
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.errors import InvalidDeploymentError, NoAnswerError
from executors.run.answers import Answers
from executors.run.checkpoint import RECORD, read_record
from executors.run.door import Door, ask
from executors.run.fence import Fence, FenceError, ReplacedError
from executors.run.files import DOOR, SAID, DamagedFileError
from executors.run.folders import folder_of, is_locked, lock
from executors.run.wanted import spec_of
from executors.whole_files import write_whole
from rankcore import DeploymentSpec, DeploymentStatus
from rankcore.cluster import ApplicationSpec, EntrySpec
from rankcore.cluster.events import ApplyRequested, DeletionRequested
from rankcore.codec import to_plain
from rankcore.commands import KillReplica, StartReplica
from rankcore.errors import RankcoreError
from rankcore.events import ReplicaPending, ReplicaPlaced, ReplicaReady, ReplicaStartFailed, ReplicaStopped
from rankcore.values import age_key
from tests.local_controller import local_controller as Controller

PATIENCE_S = 60.0


@deployment(num_replicas=2, user_config={"a": 1}, health_check_period_s=3.0)
class Model:
    """Deployed by nobody."""


def test_the_options_of_a_deployment_become_a_spec():
    spec = spec_of(Model.bind())
    assert (spec.name, spec.target_replicas, spec.user_config, spec.health_check_period_s) == (
        "default/Model",
        2,
        {"a": 1},
        3.0,
    )
    assert spec == spec_of(Model.bind())
    assert spec_of(Model.options(version="7").bind()).version == "7"
    assert spec_of(deployment(Model.target).bind()).target_replicas == 1


@pytest.mark.parametrize(
    ("application", "problem"),
    [
        (Model.options(num_replicas=-3).bind(), "num_replicas must be an integer from 0"),
        (Model.options(_placement_info=object()).bind(), "_placement_info of Model needs --executor ray"),
        (Model.bind(Model.bind()), "needs --executor ray"),
        (Model.bind(models={"one": [Model.bind()]}), "needs --executor ray"),
    ],
)
def test_what_needs_ray_is_refused(application, problem):
    with pytest.raises(InvalidDeploymentError, match=problem):
        spec_of(application)


@pytest.mark.parametrize("replica_id", ["m#1.0", "a.b#3.14", "a@b c#1.2"])
def test_an_address_can_be_read_from_its_path(tmp_path, replica_id):
    address = Address(replica_id, "node-1", 77)
    path = address.path(tmp_path)
    assert path.parent == tmp_path
    assert Address.of(path, replica_id.rpartition("#")[0]) == address


def test_folders_stay_where_they_belong_whatever_a_deployment_is_called(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # sockets have short paths
        monkeypatch.setenv("TMPDIR", short)
        top = Path(short) / f"rankcore-{os.getuid()}"
        for name in ("m", "..", "../../up", "a/b", "ü"):
            folder = folder_of("rankcore", name)
            assert folder.parent == top / "rankcore"
            assert folder.is_dir()
        assert top.stat().st_mode & 0o777 == 0o700


def test_a_path_that_no_socket_can_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(PlaceError, match="set TMPDIR to a shorter one, or shorten the namespace"):
        folder_of("n" * 100, "m")


def test_a_disk_without_room_sends_nobody_to_another_folder(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setenv("TMPDIR", short)
        monkeypatch.setattr("tempfile.tempdir", None)
        with monkeypatch.context() as disk:
            disk.setattr("os.mkdir", full)
            with pytest.raises(PlaceError, match="No space left on device"):
                folder_of("rankcore", "m")
        before = folder_of("rankcore", "m")
        monkeypatch.setattr("tempfile._get_default_tempdir", lambda *_: "/tmp")  # as it answers when it cannot write there
        assert folder_of("rankcore", "m") == before


def test_a_name_that_is_too_long_for_sockets_has_a_folder_of_its_own(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setenv("TMPDIR", short)
        found = [folder_of("rankcore", f"default/{'m' * 200}{end}") for end in "12"]
        assert len(set(found)) == 2
        for folder in found:
            listener = Address(f"m#{10**6}.{10**6}", "node-1", 2**22).path(folder)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(listener))


def test_who_asks_whether_a_deployment_runs_keeps_no_controller_from_it(tmp_path):
    held = lock(tmp_path)
    asking = threading.Timer(0.1, os.close, (held,))
    asking.start()
    os.close(lock(tmp_path))
    asking.join()
    assert not is_locked(tmp_path)


def test_a_folder_that_cannot_be_had_is_one_line_of_the_command(tmp_path, monkeypatch):
    source = "from executors import ray_gpu\n@ray_gpu.deployment\ndef f():\n    pass\napp = f.bind()\n"
    (tmp_path / "app_of_no_folder.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    def problem(namespace):
        done = CliRunner().invoke(
            command_line, ["run", "app_of_no_folder:app", "--executor", "local", "--namespace", namespace]
        )
        assert done.exit_code == 2
        return done.stderr

    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setenv("TMPDIR", short)
        assert "is too long a path for sockets: set TMPDIR to a shorter one" in problem("x" * 120)
        held = lock(folder_of("taken", "default/f"))
        assert problem("taken").startswith("rankcore: error: another `rankcore run` runs this deployment: end that first")
        os.close(held)


def test_a_deployment_has_one_controller(tmp_path):
    held = lock(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(PlaceError, match="another `rankcore run` runs this deployment"):
        Controller(tmp_path, "models:app", DeploymentSpec(name="a/m", target_replicas=0))
    os.close(held)
    assert not is_locked(tmp_path)


@pytest.fixture
def sleeper():
    ours, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield Process(Address("m#1.0", "here", child.pid), ours, child), theirs
    child.kill()
    child.wait()


def test_what_a_process_does_not_read_yet_waits_and_arrives_whole(sleeper):
    process, theirs = sleeper
    lines = [f"{number} {'x' * 1000}" for number in range(2000)]
    for line in lines:
        process.send(line)  # more than a socket holds: nothing blocks
    arrived = b""
    theirs.setblocking(False)
    while arrived.count(b"\n") < len(lines):
        process.flush()
        arrived += theirs.recv(2**20)
    assert arrived.decode().splitlines() == lines


def test_what_comes_in_pieces_is_heard_in_lines(sleeper):
    process, theirs = sleeper
    assert process.hear() == []
    theirs.sendall(b"one\ntw")
    assert process.hear() == ["one"]
    theirs.sendall(b"o\nthree\n")
    assert process.hear() == ["two", "three"]


def test_a_closed_connection_is_no_end(sleeper):
    process, theirs = sleeper
    theirs.close()
    process.send("is anybody there?")
    assert process.hear() == []
    assert not process.has_ended()
    process.kill()
    deadline = time.monotonic() + 300.0
    while not process.has_ended():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.close() == f"killed by {signal.SIGKILL.name}"


# ---------------------------------------------------------------------------------------------------------------------
# the fence


def test_a_deed_is_done_before_the_next_controller_begins_or_not_at_all(tmp_path):
    older = Fence(tmp_path, 1)
    newer = threading.Thread(target=Fence, args=(tmp_path, 2))
    with older.upheld():
        newer.start()
        newer.join(0.05)
        assert (tmp_path / "epoch").read_text() == "1"
    newer.join(PATIENCE_S)
    assert (tmp_path / "epoch").read_text() == "2"
    done = []
    with pytest.raises(ReplacedError, match="epoch 1 is over"), older.upheld():
        done.append("what a newer controller has")
    assert done == []


def test_a_controller_that_is_stopped_within_a_deed_is_never_passed_by(tmp_path, monkeypatch):
    Fence(tmp_path, 1)
    holder = (
        "import fcntl, os, sys, time; file = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(file, fcntl.LOCK_SH);"
        "print('held', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"held\n"
    child.send_signal(signal.SIGSTOP)
    monkeypatch.setattr("executors.run.fence.PATIENCE_S", 0.1)
    with pytest.raises(FenceError, match=f"a controller holds {tmp_path}"):
        Fence(tmp_path, 2)
    assert (tmp_path / "epoch").read_text() == "1"
    child.kill()
    child.wait()
    child.stdout.close()
    Fence(tmp_path, 2)


def test_epochs_only_grow_even_when_a_deployment_ends_and_comes_again(tmp_path):
    spec = DeploymentSpec(name="a/m", target_replicas=0)
    for epoch in (1, 2, 3):
        controller = Controller(tmp_path, "models:app", spec)
        assert controller.epoch == epoch
        controller.stop(PATIENCE_S)
        assert not (tmp_path / "record.json").exists()
    with pytest.raises(ReplacedError):
        Fence(tmp_path, 3)


def test_the_sockets_of_a_newer_controllers_replicas_are_not_swept(tmp_path, monkeypatch):
    theirs = tmp_path / "2.0@local.77"

    def look_while_a_newer_one_begins(*_):
        Fence(tmp_path, 2)
        theirs.touch()
        return iter(())

    monkeypatch.setattr("executors.local.executor.found", look_while_a_newer_one_begins)
    LocalExecutor(tmp_path, "models:app", lambda: DeploymentSpec(name="a/m", target_replicas=0), 1)
    assert theirs.exists()


def test_a_process_that_took_the_number_of_a_replica_is_not_taken_for_it(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder, opened = Path(short), os.pidfd_open
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(Address("m#1.0", "local", os.getpid()).path(folder)))
        listening.listen()

        def open_after_its_end(pid):
            listening.close()
            return opened(pid)

        monkeypatch.setattr(os, "pidfd_open", open_after_its_end)
        assert list(found(folder, "m")) == []


# ---------------------------------------------------------------------------------------------------------------------
# what outlives a controller


def test_the_record_is_on_the_disk_before_the_commands_of_its_step_are_carried_out(tmp_path):
    spec = DeploymentSpec(name="a/m", target_replicas=1, max_start_failures=1)
    carried_out = []

    class Executor:
        def execute(self, command):
            carried_out.append(command)
            ranks, on_disk = deployment_now().ranks, read_record(tmp_path, "a/m")
            assert (on_disk.spec, on_disk.previous) == (ranks.spec, ranks.previous)
            assert on_disk.failed == (ranks.status is DeploymentStatus.DEPLOY_FAILED)
            assert on_disk.deleting == (ranks.status in (DeploymentStatus.DELETING, DeploymentStatus.DELETED))

        def poll(self):
            return None

    upheld = Fence(tmp_path, 1).upheld
    backend = ClusterBackend(
        TextStore(lambda text: write_whole(tmp_path / RECORD, text, upheld())), lambda _: Executor(), lambda: 0.0
    )
    loop = Loop.begun(CLUSTER, backend, ClusterRecovered(), journal=FencedJournal(None, upheld))

    def deployment_now():
        return loop.state.deployments["a/m"]

    def happens(event):
        loop.deliver(event)
        loop.deliver_all()

    def apply(at, **fields):
        wanted = ApplicationSpec(name="a", deployments=[EntrySpec(ranks=attrs.evolve(spec, **fields))])
        happens(ApplyRequested(applications=[wanted], at=at))

    def come_up(replica_id, at):
        happens(ReplicaPlaced(replica_id=replica_id, node_id="n", at=at))
        happens(ReplicaReady(replica_id=replica_id, at=at))

    def newest():
        return max(deployment_now().ranks.replicas, key=age_key)

    def update_and_fail(at, **fields):
        running = newest()
        apply(at, **fields)
        assert read_record(tmp_path, "a/m").spec.version == fields["version"]
        happens(ReplicaStopped(replica_id=running, at=at + 0.1))
        happens(ReplicaStartFailed(replica_id=newest(), reason="no weights", at=at + 0.2))

    apply(0.0)
    come_up(newest(), 1.0)
    assert read_record(tmp_path, "a/m").previous == spec  # healthy for the first time
    update_and_fail(2.0, version="2", rollback=True)
    assert read_record(tmp_path, "a/m").spec.version == "1"  # rolled back
    assert read_record(tmp_path, "a/m").applied.ranks.version == "2"
    come_up(newest(), 3.0)
    update_and_fail(4.0, version="3")
    assert deployment_now().ranks.status is DeploymentStatus.DEPLOY_FAILED
    assert read_record(tmp_path, "a/m").failed
    happens(DeletionRequested(deployments=["a/m"], at=6.0))
    assert read_record(tmp_path, "a/m").deleting
    assert {"StartReplica", "StopReplica"} <= {type(command).__name__ for command in carried_out}


RECORDS_OF_BEFORE = [
    '{"format":3,"type":"Recovered","spec":%s,"replica_ids":[],"at":0.0,"epoch":0,"previous":%s,"deleting":false,"failed":true}',
    '{"format":[4,0],"type":"Recovered","spec":%s,"replica_ids":[],"at":0.0,"epoch":0,"previous":%s,"deleting":false,"failed":true}',
]


@pytest.mark.parametrize("text", RECORDS_OF_BEFORE, ids=["format 3", "format 4.0"])
def test_what_a_controller_of_an_older_release_stored_is_gone_on_with(tmp_path, text):
    now, before = (DeploymentSpec(name="a/m", target_replicas=0, version=version) for version in "21")
    fields = [json.dumps({key: value for key, value in to_plain(each).items() if key != "type"}) for each in (now, before)]
    (tmp_path / RECORD).write_text(text % tuple(fields))
    kept = read_record(tmp_path, "a/m")
    assert (kept.spec, kept.applied.ranks, kept.previous, kept.failed, kept.deleting) == (now, now, before, True, False)
    controller = Controller(tmp_path, "models:app", now)
    assert controller.entry.ranks.status is DeploymentStatus.DEPLOY_FAILED  # given up by then, and still
    stored = read_record(tmp_path, "a/m")
    assert (stored.epoch, stored.previous, stored.failed) == (1, before, True)
    controller.stop(PATIENCE_S)


def test_a_record_of_another_deployment_is_left_as_it_is(tmp_path):
    Controller(tmp_path, "models:app", DeploymentSpec(name="a/other", target_replicas=0)).leave()
    record = (tmp_path / RECORD).read_bytes()
    with pytest.raises(DamagedFileError, match="it is about 'a/other', in the folder of 'a/m'"):
        Controller(tmp_path, "models:app", DeploymentSpec(name="a/m", target_replicas=0))
    assert (tmp_path / RECORD).read_bytes() == record


def test_replicas_of_one_executor_are_not_gone_on_with_by_another(tmp_path):
    spec = DeploymentSpec(name="a/m", target_replicas=0)
    Controller(tmp_path, "models:app", spec, name="slurm").leave()
    with pytest.raises(PlaceError, match="a/m is of executor 'slurm', whose replicas may live, found --executor local"):
        Controller(tmp_path, "models:app", spec)
    assert not is_locked(tmp_path)
    Controller(tmp_path, "models:app", spec, name="slurm").stop(PATIENCE_S)
    Controller(tmp_path, "models:app", spec).stop(PATIENCE_S)


def test_a_replaced_controller_takes_no_step_and_writes_nothing(tmp_path):
    controller = Controller(
        tmp_path,
        "models:app",
        DeploymentSpec(name="a/m", target_replicas=0),
        lambda: JournalWriter.create(tmp_path / "journal", kind=CLUSTER),
    )
    newer = Fence(tmp_path, controller.epoch + 1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for act in (lambda: controller.run_for(0.0), lambda: controller.stop(1.0)):
        with pytest.raises(ReplacedError):
            act()
    assert controller.entry.ranks.status is DeploymentStatus.HEALTHY
    controller.leave()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    newer.check()


def test_nothing_follows_from_a_step_that_a_full_disk_does_not_take(tmp_path, monkeypatch, caplog):
    controller = Controller(tmp_path, "models:app", DeploymentSpec(name="a/m", target_replicas=0))
    record = (tmp_path / "record.json").read_bytes()
    with monkeypatch.context() as full:
        full.setattr("executors.run.folder_fence.write_whole", refuse)
        with pytest.raises(TimeoutError):
            controller.stop(0.05)
        assert "No space left on device" in controller.status().deployments["a/m"].message
    assert (tmp_path / "record.json").read_bytes() == record
    assert f"{tmp_path / 'record.json'}" in caplog.text
    assert controller.entry is not None
    controller.stop(PATIENCE_S)  # it is tried again, and there is room
    assert controller.entry is None


# -- what users ask for


def asked_of(controller, folder, *lines):
    """What is answered to these lines, each said by a caller of its own, which hangs up at its end."""
    callers = [connected(folder / DOOR, PATIENCE_S) for _ in lines]
    for caller, line in zip(callers, lines, strict=True):
        caller.sendall(line)
    controller.run_for(0.0)
    answers = []
    for caller in callers:
        caller.setblocking(False)
        try:
            answers.append(caller.recv(2**16))
        except BlockingIOError:
            answers.append(None)
        caller.close()
    return answers


def test_who_asks_what_cannot_be_asked_is_told_so_and_holds_up_nobody(tmp_path):
    controller = Controller(tmp_path, "models:app", DeploymentSpec(name="a/m", target_replicas=0))
    half, odd, unknown, wrong, fine = asked_of(
        controller,
        tmp_path,
        b'{"verb": "sta',
        b"\xff\xfe\n",
        b'{"verb": "explode", "arguments": []}\n',
        b'{"verb": "drain", "arguments": []}\n',
        b'{"verb": "status", "arguments": []}\n',
    )
    assert half is None
    for answer in (odd, unknown, wrong):
        assert b"cannot be asked so" in answer
    assert json.loads(fine)["answer"]["deployments"]["a/m"]["status"] == "HEALTHY"
    controller.run_for(0.0)
    controller.stop(PATIENCE_S)
    assert not (tmp_path / DOOR).exists()


def test_who_does_not_take_a_long_answer_holds_up_nobody_and_may_take_it_later(tmp_path):
    door, answer = Door(tmp_path), "x" * 10**7
    slow, quick = (connected(tmp_path / DOOR, PATIENCE_S) for _ in range(2))
    slow.sendall(b"all\n")
    door.serve(lambda line: answer)
    quick.sendall(b"little\n")
    door.serve(lambda line: line)
    assert quick.recv(2**16) == b"little\n"
    with slow, slow.makefile("rb") as taken:
        assert len(taken.read()) == len(answer) + 1
    quick.close()
    door.close()


@pytest.mark.parametrize("stopped", [True, False])
def test_a_controller_that_is_stopped_is_refused_at_once_and_one_that_is_silent_is_named_while_it_is_waited_for(
    tmp_path, monkeypatch, caplog, stopped
):
    monkeypatch.setattr("executors.run.door.SILENT_S", 0.1)
    listens = (
        "import signal, sys, pathlib\nfrom executors.run.door import Door\nit = Door(pathlib.Path(sys.argv[1]))\n"
        "print('up', flush=True)\nsignal.pause()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", listens, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"up\n"
        if stopped:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(NoAnswerError) as caught:
            ask(tmp_path, "status", (), timeout_s=3600.0 if stopped else 0.5)
    finally:
        process.kill()
        process.communicate()
    what = (
        f"is stopped (SIGSTOP) and does not answer: `kill -CONT {process.pid}`" if stopped else "has not answered within 0.5 s"
    )
    assert f"process {process.pid}, {what}" in str(caught.value)
    silent = f"the controller of {tmp_path}, process {process.pid}, is silent: it is waited for, for 0.5 s in all"
    assert caplog.messages == ([] if stopped else [silent])
    with pytest.raises(NoAnswerError, match="takes no requests: it begins, or ends"):
        ask(tmp_path, "status", (), timeout_s=3600.0)


def test_a_controller_that_cannot_forget_what_was_asked_of_a_node_that_is_gone_ends_with_the_file_that_is_full(
    tmp_path, monkeypatch
):
    spec = DeploymentSpec(name="a/m", target_replicas=0)
    controller = Controller(tmp_path, "models:app", spec, nodes=("a", "b"))
    Answers(controller).line('{"verb": "cordon", "arguments": ["b"]}')
    controller.leave()
    with monkeypatch.context() as full:
        full.setattr("executors.run.maintenance_file.write_whole", refuse)
        with pytest.raises(OSError, match="No space left on device") as caught:
            Controller(tmp_path, "models:app", spec, nodes=("a",))
    assert caught.value.filename == str(tmp_path / SAID)
    assert not is_locked(tmp_path)
    after = Controller(tmp_path, "models:app", spec, nodes=("a", "b"))
    assert list(after.maintenance.cordons) == ["b"]
    after.stop(PATIENCE_S)


def test_what_is_said_of_a_node_is_kept_before_it_counts_and_a_line_that_is_damaged_is_left_out(tmp_path, monkeypatch, caplog):
    spec = DeploymentSpec(name="a/m", target_replicas=0)
    controller = Controller(tmp_path, "models:app", spec, nodes=("a", "b"))
    answers = Answers(controller)
    with monkeypatch.context() as full:
        full.setattr("executors.run.maintenance_file.write_whole", refuse)
        assert "it is as it was, since nothing can be written" in answers.line('{"verb": "cordon", "arguments": ["a"]}')
    assert controller.maintenance.cordons == {}
    answers.line('{"verb": "cordon", "arguments": ["a"]}')
    answers.line('{"verb": "drain", "arguments": ["b", null, "why"]}')
    controller.leave()
    first, second = (tmp_path / SAID).read_bytes().splitlines(keepends=True)
    (tmp_path / SAID).write_bytes(first[: len(first) // 2] + b"\n\xff\n" + second)
    after = Controller(tmp_path, "models:app", spec, nodes=("a", "b"))
    assert list(after.maintenance.cordons) == ["b"]
    assert caplog.text.count("cordon, drain or replace that again") == 2
    assert [(each.node_id, each.reason) for each in after.status().cordons] == [("b", "why")]
    after.leave()
    without = Controller(tmp_path, "models:app", spec, nodes=("a",))
    assert (without.maintenance.cordons, (tmp_path / SAID).read_bytes()) == ({}, b""), "there is no such node any more"
    without.stop(PATIENCE_S)


def test_who_waits_for_a_node_that_is_open_is_started_once_one_is(tmp_path):
    executor = LocalExecutor(tmp_path, "models:app", lambda: DeploymentSpec(name="a/m", target_replicas=1), 1, ("a",))
    executor.close_nodes({"a"})
    start = StartReplica("a/m#1.0", 0, "1", None, (), 1)
    for _ in range(3):
        executor.execute(start)
    (pending,) = iter(executor.poll, None)
    assert (type(pending), pending.reason) == (ReplicaPending, "all nodes are cordoned")
    executor.execute(KillReplica(replica_id="a/m#1.0", epoch=1))
    assert isinstance(executor.poll(), ReplicaStopped)
    executor.close_nodes(())
    assert (executor.replicas, executor.poll()) == ({}, None), "it is not wanted any more"
    executor.close_nodes({"a"})
    executor.execute(StartReplica("a/m#1.1", 0, "1", None, (), 1))
    assert isinstance(executor.poll(), ReplicaPending)
    executor.close_nodes(())
    placed = executor.poll()
    assert (type(placed), placed.replica_id, placed.node_id) == (ReplicaPlaced, "a/m#1.1", "a")
    executor.kill(executor.replicas["a/m#1.1"])
    executor.close()


def test_a_status_that_cannot_be_written_stops_nobody(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("executors.controller.write_whole", refuse_status)
    controller = Controller(tmp_path, "models:app", DeploymentSpec(name="a/m", target_replicas=0))
    assert controller.entry.ranks.status is DeploymentStatus.HEALTHY
    assert f"{tmp_path / 'status.json'}" in caplog.text
    controller.stop(1.0)


def refuse(path, *_):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def refuse_status(path, text, *_):
    refuse(path) if path.name == "status.json" else path.write_text(text)


@pytest.mark.parametrize("text", [b"", b"one", b"-1", b"0", b"1.5", b"\xff", b"9" * 40, "\u0661".encode()])
def test_an_epoch_that_cannot_be_read_is_one_error_that_names_the_file(tmp_path, text):
    (tmp_path / "epoch").write_bytes(text)
    with pytest.raises(RankcoreError, match=f"{tmp_path / 'epoch'} must hold the newest controller's epoch"):
        Controller(tmp_path, "models:app", DeploymentSpec(name="a/m", target_replicas=0))
    assert not is_locked(tmp_path)
    assert (tmp_path / "epoch").read_bytes() == text


@pytest.mark.parametrize("length", [0, 1, 40, -1])
def test_a_cut_file_is_one_error_that_names_it(tmp_path, length):
    Controller(tmp_path, "models:app", DeploymentSpec(name="a/m", target_replicas=0)).leave()
    for name, read in (("record.json", lambda _: read_record(tmp_path, "a/m")), ("status.json", read_status)):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(DamagedFileError, match=f"{path} must hold .* cannot be read"):
            read(path)
        path.write_bytes(b"\xff")
        with pytest.raises(DamagedFileError, match=str(path)):
            read(path)


# ---------------------------------------------------------------------------------------------------------------------
# files that are replaced whole


def test_a_file_is_on_the_disk_before_its_name_is_and_the_name_before_anybody_acts_on_it(tmp_path, monkeypatch):
    path, done, fsync, rename = tmp_path / "f", [], os.fsync, os.replace
    path.write_text("old")

    def forced(file):
        done.append("folder" if os.path.samestat(os.fstat(file), os.stat(tmp_path)) else path.read_text())
        fsync(file)

    monkeypatch.setattr(os, "fsync", forced)
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("rename"), rename(*names)))
    write_whole(path, "new")
    assert done == ["old", "rename", "folder"]
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("f", "new")]


def test_a_file_that_cannot_be_written_is_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", lambda _: refuse("anything"))
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_whole(path, "new")
    assert caught.value.filename == str(path)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("f", "old")]
