"""The sockets of replicas that were killed are removed by others, and those of the living never."""

import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import socket_files
from executors.ray_gpu.os_processes import started_at


def listening(path):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    return server


def session(tmp_path, monkeypatch):
    """A session's folder whose name is short, wherever the test runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sockets").mkdir()
    return socket_files.folder_of(".")


def test_a_socket_is_named_after_its_process():
    path = socket_files.new_path("/s")
    assert socket_files.owner_of(os.path.basename(path)) == (os.getpid(), started_at(os.getpid()))
    assert path.startswith("/s/sockets/")
    assert len(socket_files.new_path("/" + "s" * 80)) <= socket_files.PATH_MAX


def test_sockets_of_the_dead_are_removed_and_no_others(tmp_path, monkeypatch):
    folder = session(tmp_path, monkeypatch)
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    own = os.path.basename(socket_files.new_path("."))
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


def test_a_socket_at_which_somebody_listens_stays_whoever_it_is_named_after(tmp_path, monkeypatch):
    folder = session(tmp_path, monkeypatch)
    with listening(folder / "rankcore-7fffffff-1-abc"):
        assert socket_files.sweep(folder) == 0
    assert socket_files.sweep(folder) == 1
