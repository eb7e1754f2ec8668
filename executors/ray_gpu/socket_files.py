"""Where a replica's socket lies, and what becomes of it when the replica was killed and could not remove it.

In the private folder of this user, and not with Ray's sockets, whose folder all users can write to. A socket's name says whose
it is. Whoever opens or ends something on a node removes what nobody listens at any more.
"""

import logging
import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path

from executors.private_folder import PlaceError, home, made
from executors.ray_gpu.os_processes import started_at

LOG = logging.getLogger(__name__)

PREFIX = "rankcore-"
FOLDER = ".sockets"
NAME_BYTES_MAX = 48


def new_path() -> str:
    """A name for this process's socket that nobody else uses; "": it can have none, which the log says, and calls take the
    longer way through Ray.
    """
    pid = os.getpid()
    try:
        return str(folder() / f"{PREFIX}{pid:x}-{started_at(pid) or 0:x}-{uuid.uuid4().hex[:8]}")
    except PlaceError as error:
        LOG.warning("this replica has no socket, and calls to it are slow: %s", error)
        return ""


def folder() -> Path:
    """Where the sockets of this user's replicas are on this node, whatever cluster they belong to.

    Raises:
        PlaceError: There is none that only this user can write to.
    """
    return made(home(len(FOLDER) + NAME_BYTES_MAX + 2) / FOLDER)


def remove(path: str) -> None:
    """Remove the socket of a process that is gone, if it had one, on this node, and it is still there."""
    with suppress(OSError):
        os.unlink(path)


def sweep(folder: Path) -> int:
    """Remove the sockets of processes that are gone; returns how many.

    A process of a container that shares the folder, and has a number of its own there, looks gone and is not: it still listens.
    """
    removed = 0
    for path in folder.glob(f"{PREFIX}*"):
        owner = owner_of(path.name)
        if owner is not None and started_at(owner[0]) != owner[1] and not _is_listened_at(path):
            with suppress(OSError):  # another was faster, or it is another user's
                path.unlink()
                removed += 1
    return removed


def owner_of(name: str) -> tuple[int, int] | None:
    """The process whose socket has this name, and when it started; None: it is no socket of ours."""
    parts = name.removeprefix(PREFIX).split("-")
    try:
        pid, started, _ = (int(part, 16) for part in parts)
    except ValueError:
        return None
    return pid, started


def _is_listened_at(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # its queue is full, say
            return True
    return True
