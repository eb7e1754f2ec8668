"""What another user of the machine does to replicas that are processes, and to the place where they meet their controller."""

import json
import os
import socket
import threading

import pytest

from executors.local.places import Address, survivors
from executors.local.process import spawn
from executors.private_folder import PlaceError
from executors.run.door import Door
from executors.run.files import DOOR
from executors.run.folders import folder_of
from rankcore.commands import StartReplica
from tests.attacks.ways_in import every_way_in
from tests.ray_local import eventually
from tests.second_user import NEEDS_ROOT, as_another_user

pytestmark = [NEEDS_ROOT, pytest.mark.slow]


@pytest.fixture
def folder(shared_tmp):
    return folder_of("rankcore", "m")


@pytest.fixture
def replica(folder):
    process = spawn(folder, "models:app", StartReplica("m#1.0", 0, "1", None, (), 1), "local")
    path = Address("m#1.0", "local", process.address.pid).path(folder)
    eventually(path.exists, "it listens")
    try:
        yield path
    finally:
        process.kill()
        eventually(process.has_ended, "it has ended")
        process.close()


def observation(path):
    """What a replica says of itself to whoever connects."""
    with socket.socket(socket.AF_UNIX) as asking, asking.makefile() as answers:
        asking.connect(path)
        asking.settimeout(60)
        try:
            asking.sendall(b"observe\n")
            return answers.readline()
        except (BrokenPipeError, ConnectionResetError):
            return ""


def test_a_replica_hears_only_its_own_user(folder, replica):
    assert None not in as_another_user(every_way_in, str(replica))
    for each in (replica, folder, *folder.parents[:2]):  # as if they did not protect any more
        os.chmod(each, 0o777)
    assert as_another_user(observation, str(replica)) == ""
    assert json.loads(observation(str(replica)))["replica_id"] == "m#1.0"


def asked(path):
    """What a controller answers to whoever connects."""
    with socket.socket(socket.AF_UNIX) as asking, asking.makefile() as answers:
        asking.connect(path)
        asking.settimeout(60)
        try:
            asking.sendall(b"status\n")
            return answers.readline()
        except (BrokenPipeError, ConnectionResetError):
            return ""


def test_a_controller_answers_only_its_own_user(folder):
    door, heard, over = Door(folder), [], threading.Event()

    def serve():
        while not over.wait(0.01):
            door.serve(lambda line: heard.append(line) or "an answer")

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        path = str(folder / DOOR)
        assert None not in as_another_user(every_way_in, path)
        assert (asked(path), heard) == ("an answer\n", ["status"])
        for each in (folder / DOOR, folder, *folder.parents[:2]):  # as if they did not protect any more
            os.chmod(each, 0o777)
        assert (as_another_user(asked, path), heard) == ("", ["status"])
        assert asked(path) == "an answer\n"
    finally:
        over.set()
        serving.join()
        door.close()


def test_a_controller_meets_nobody_in_a_folder_that_others_can_write_to(folder, replica):
    assert [address.replica_id for address, connection in survivors(folder, "m") if connection.close() is None] == ["m#1.0"]
    os.chmod(folder, 0o777)
    with pytest.raises(PlaceError, match="other users could write to"):
        list(survivors(folder, "m"))
