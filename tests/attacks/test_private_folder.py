"""What another user of the machine does to our folder and sockets: he can neither get in, nor put his own in their place."""

import asyncio
import os
import pickle
import socket
import stat
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors import private_folder
from executors.private_folder import NAMES_MAX, PlaceError, bound, check_peer, checked, connected, home, made
from executors.ray_gpu import socket_files
from executors.ray_gpu.requests.frames import CALL, CONNECTION, HEADER, HELLO
from executors.ray_gpu.requests.loops import new_loop
from executors.ray_gpu.requests.server import CallServer
from tests.attacks.ways_in import every_way_in
from tests.second_user import NEEDS_ROOT, PATIENCE_S, another_user_who, as_another_user

pytestmark = NEEDS_ROOT


def test_nobody_else_reaches_a_socket_or_moves_what_it_lies_in(shared_tmp):
    path = Path(socket_files.new_path())
    with bound(path) as server:
        server.listen()
        assert None not in as_another_user(every_way_in, str(path))
        with connected(path):
            pass
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.lstat(path.parent).st_mode) == 0o700


def squat(folder, number, kind):
    for each in range(number):
        path = folder / (f"rankcore-0.{each}" if each else "rankcore-0")
        match kind:
            case "folder":
                path.mkdir(mode=0o777)
            case "link":
                path.symlink_to("/etc")
            case "file":
                path.touch()


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_a_name_that_another_user_has_taken_is_left_to_him_also_once_he_gives_it_up(shared_tmp, kind):
    as_another_user(squat, shared_tmp, 2, kind)
    taken = shared_tmp / "rankcore-0"
    before = os.lstat(taken)
    assert home() == shared_tmp / "rankcore-0.2"
    assert os.lstat(taken).st_mode == before.st_mode
    (taken.rmdir if kind == "folder" else taken.unlink)()
    assert home() == shared_tmp / "rankcore-0.2"


def test_where_another_user_has_taken_all_names_that_is_said(shared_tmp):
    as_another_user(squat, shared_tmp, NAMES_MAX, "folder")
    with pytest.raises(PlaceError, match=f"{shared_tmp}/rankcore-0 belongs to user 65534, and this is user 0: set TMPDIR to"):
        home()
    assert socket_files.new_path() == ""  # calls go through Ray


def test_a_folder_below_one_that_others_can_change_is_refused(shared_tmp):
    os.chmod(shared_tmp, 0o777)  # as Ray's /tmp/ray is: not sticky
    with pytest.raises(PlaceError, match=f"other users can write to {shared_tmp}, which has mode 0777: they could replace"):
        made(shared_tmp / "ours")
    assert list(shared_tmp.iterdir()) == []
    os.chmod(shared_tmp, 0o1777)
    as_another_user(os.mkdir, str(shared_tmp / "his"), 0o755)
    with pytest.raises(PlaceError, match=r"/his belongs to user 65534, who could replace .*/his/ours"):
        made(shared_tmp / "his" / "ours")
    as_another_user(os.symlink, str(shared_tmp / "his"), str(shared_tmp / "link"))
    with pytest.raises(PlaceError, match="belongs to user 65534"):
        made(shared_tmp / "link" / "ours")


def test_a_folder_that_was_left_open_is_closed_and_one_that_others_could_write_to_refused(shared_tmp):
    ours = made(shared_tmp / "ours")
    os.chmod(ours, 0o755)
    assert stat.S_IMODE(checked(ours).stat().st_mode) == 0o700
    os.chmod(ours, 0o777)
    with pytest.raises(PlaceError, match=r"other users could write to .*/ours, which has mode 0777: remove it"):
        checked(ours)


# -- behind the folder: who is at the other end?


class Bomb:
    """Where it is unpickled, a folder appears."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def send_bomb(path, bomb):
    """Connect as a caller does and send a call that explodes; how many bytes come back, none if it is hung up on."""
    body = pickle.dumps(("wait", (Bomb(bomb),), {}, None))
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(path)
        caller.settimeout(PATIENCE_S)
        try:
            caller.sendall(HEADER.pack(4, CONNECTION, HELLO) + b"mine" + HEADER.pack(len(body), 1, CALL) + body)
            return len(caller.recv(100))
        except (BrokenPipeError, ConnectionResetError):
            return 0


def leave_open(path):
    """As if the folder did not protect any more."""
    for each in (path.parent, path.parent.parent):
        os.chmod(each, 0o777)
    os.chmod(path, 0o777)


@pytest.mark.parametrize("new_loop", [new_loop, asyncio.new_event_loop])
def test_a_replica_reads_nothing_that_another_user_sends(shared_tmp, new_loop):
    path, bomb = Path(socket_files.new_path()), shared_tmp / "unpickled"

    async def attacked():
        server = CallServer(None, str(path), 5)
        await server.listen()
        leave_open(path)
        assert await asyncio.to_thread(as_another_user, send_bomb, str(path), str(bomb)) == 0
        assert not bomb.exists()
        assert await asyncio.to_thread(send_bomb, str(path), str(bomb)) > 0  # it does explode where it is let in
        assert bomb.exists()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(attacked())


def listen_in_the_place_of(say, path):
    os.rename(path, f"{path}.away")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        say("listening")
        connection, _ = server.accept()
        say(connection.recv(1000).decode())


def test_a_caller_sends_nothing_to_a_socket_that_another_user_has_put_in_place(shared_tmp, monkeypatch):
    path = Path(socket_files.new_path())
    with bound(path) as server:
        server.listen()
        leave_open(path)
        with another_user_who(listen_in_the_place_of, str(path)) as heard:
            assert heard() == "listening"
            with pytest.raises(PlaceError, match="other users can write to"):
                connected(path)
            monkeypatch.setattr(private_folder, "checked", lambda path: path)
            with pytest.raises(PlaceError, match="the other end of a socket belongs to user 65534, and this is user 0"):
                connected(path)
            assert heard() == ""


def test_the_same_user_is_let_in():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        check_peer(ours)
        check_peer(theirs)


def test_no_thread_ever_works_with_another_mask(shared_tmp, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the mask of the whole process was changed"))

    async def listen():
        await CallServer(None, socket_files.new_path(), 5).listen()

    asyncio.run(listen())
    assert len(list(socket_files.folder().iterdir())) == 1
