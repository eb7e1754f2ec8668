"""Which folder a deployment has, and whose turn it is there: for the command. An executor is given its folder."""

import fcntl
import os
import time
from pathlib import Path

from executors.deployment_ids import SHORTEST_FILE_NAME, escaped
from executors.private_folder import SOCKET_PATH_BYTES_MAX, PlaceError, home, made

NAME_BYTES_MAX = 40
"""Of a replica's socket in its folder."""
LOCK_S = 0.5
"""So long a lock is tried: who only asks whether it is held has it for a moment."""
LOOK_EVERY_S = 0.01


def folder_of(namespace: str, deployment: str) -> Path:
    """The folder of a deployment, which is made where there is none. Only this user can look into it.

    Raises:
        PlaceError: Other users could get at it, or its path is too long for sockets.
    """
    inside = namespace_folder(namespace)
    room_bytes = SOCKET_PATH_BYTES_MAX - len(os.fsencode(inside)) - len("//") - NAME_BYTES_MAX
    folder = inside / escaped(deployment, max(room_bytes, SHORTEST_FILE_NAME))
    if len(os.fsencode(folder)) + 1 + NAME_BYTES_MAX > SOCKET_PATH_BYTES_MAX:
        raise PlaceError(f"{folder} is too long a path for sockets: set TMPDIR to a shorter one, or shorten the namespace")
    made(folder.parent)
    return made(folder)


def namespace_folder(namespace: str) -> Path:
    """Where the folders of all deployments of a namespace are, if there are any.

    Raises:
        PlaceError: There can be none, since other users could get at it.
    """
    return home() / escaped(namespace)


def lock(folder: Path) -> int:
    """Become the one controller of a deployment; returns the file to be closed at the end.

    Raises:
        PlaceError: There is one.
    """
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_S
    while not _is_taken(file, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            os.close(file)
            raise PlaceError(f"another `rankcore run` runs this deployment: end that first, or give --namespace ({folder})")
        time.sleep(LOOK_EVERY_S)
    return file


def is_locked(folder: Path) -> bool:
    """Whether a controller runs the deployment."""
    try:
        file = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _is_taken(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _is_taken(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
