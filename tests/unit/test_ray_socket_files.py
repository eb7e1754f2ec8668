"""The sockets of replicas that were killed are removed by others, and those of the living never."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.private_folder import SOCKET_PATH_BYTES_MAX, PlaceError
from executors.ray_gpu import socket_files
from executors.ray_gpu.os_processes import started_at
from executors.ray_gpu.requests.connection import Connection
from executors.ray_gpu.requests.frames import CONNECTION, GOODBYE
from executors.ray_gpu.requests.server import CallServer


def listening(path):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    return server


@pytest.fixture
def folder(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # sockets have short paths
        monkeypatch.setenv("TMPDIR", short)
        yield socket_files.folder()


def test_a_socket_is_named_after_its_process(folder):
    path = socket_files.new_path()
    assert socket_files.owner_of(os.path.basename(path)) == (os.getpid(), started_at(os.getpid()))
    assert os.path.dirname(path) == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_socket_goes_elsewhere_where_its_path_would_be_too_long(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("s" * 80)))
    path = socket_files.new_path()
    assert path.startswith("/tmp/rankcore-")
    assert len(path) <= SOCKET_PATH_BYTES_MAX


def test_a_replica_without_a_safe_place_has_no_socket_and_says_so(monkeypatch, caplog):
    monkeypatch.setattr("executors.ray_gpu.socket_files.home", refuse)
    assert socket_files.new_path() == ""
    assert "squatted" in caplog.text


def test_a_replica_without_a_socket_says_goodbye_to_whoever_comes_while_it_drains():
    said = []

    async def live():
        server = CallServer(None, "", 5)
        await server.listen()
        await server.drain()
        caller = Connection(server, type("Outbox", (), {"put": lambda self, *frame: said.append(frame)})(), None)
        caller.key = "late"
        server.joined(caller)

    asyncio.run(live())
    assert (CONNECTION, GOODBYE) in said


def refuse(room_bytes):
    raise PlaceError("squatted")


def test_sockets_of_the_dead_are_removed_and_no_others(folder):
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    own = os.path.basename(socket_files.new_path())
    used_again = f"rankcore-{os.getpid():x}-{started_at(os.getpid()) - 1:x}-0"
    names = {"dead": f"rankcore-{dead.pid:x}-1-abc", "own": own, "used": used_again, "other": "plasma_store"}
    for name in names.values():
        listening(folder / name).close()
    (folder / "rankcore-notes").touch()
    assert socket_files.sweep(folder) == 2
    assert {path.name for path in folder.iterdir()} == {own, "plasma_store", "rankcore-notes"}
    socket_files.remove(str(folder / own))
    socket_files.remove(str(folder / own))
    assert not (folder / own).exists()


def test_a_socket_at_which_somebody_listens_stays_whoever_it_is_named_after(folder):
    with listening(folder / "rankcore-7fffffff-1-abc"):
        assert socket_files.sweep(folder) == 0
    assert socket_files.sweep(folder) == 1


def test_a_process_whose_name_is_cut_within_a_character_has_a_start():
    """Ray calls a replica's process by the actor's name, of which the system keeps 15 bytes: an app "é" never came up."""
    name = Path("/proc/self/comm")
    before, started = name.read_bytes(), started_at(os.getpid())
    try:
        name.write_bytes("ray::) 1 2 3é".encode()[:-1])
        assert started_at(os.getpid()) == started
    finally:
        name.write_bytes(before.strip())
