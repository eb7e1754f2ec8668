"""The parts of the local executor that need no replica: what an application may want, folders, locks, and one process."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from executors.local.controller import Controller
from executors.local.folders import folder_of, is_locked, lock
from executors.local.places import Address
from executors.local.process import Process
from executors.local.wanted import spec_of
from executors.private_folder import PlaceError
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.errors import InvalidDeploymentError
from rankcore import DeploymentSpec


@deployment(num_replicas=2, user_config={"a": 1}, health_check_period_s=3.0)
class Model:
    """Deployed by nobody."""


def test_the_options_of_a_deployment_become_a_spec():
    spec = spec_of(Model.bind())
    assert (spec.name, spec.target_replicas, spec.user_config, spec.health_check_period_s) == ("Model", 2, {"a": 1}, 3.0)
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
        monkeypatch.setattr("tempfile.tempdir", short)
        top = Path(short) / f"rankcore-{os.getuid()}"
        for name in ("m", "..", "../../up", "a/b", "ü"):
            folder = folder_of("rankcore", name)
            assert folder.parent == top / "rankcore"
            assert folder.is_dir()
        assert top.stat().st_mode & 0o777 == 0o700


def test_a_path_that_no_socket_can_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(PlaceError, match="shorten the deployment's name"):
        folder_of("rankcore", "m" * 100)


def test_a_deployment_has_one_controller(tmp_path):
    held = lock(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(PlaceError, match="another `rankcore run` runs this deployment"):
        Controller(tmp_path, "models:app", DeploymentSpec(name="m", target_replicas=0))
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
