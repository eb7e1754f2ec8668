"""Where a replica's socket lies, and what becomes of it when the replica was killed and could not remove it.

A socket's name says whose it is. Whoever opens or ends something on a node removes what nobody listens at any more.
"""

import os
import socket
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from executors.ray_gpu.os_processes import started_at

PREFIX = "rankcore-"
PATH_MAX = 100
"""A Unix socket's path may have some 100 bytes."""


def new_path(session_dir: str) -> str:
    """A name for this process's socket, somewhere short that nobody else uses.

    Args:
        session_dir: Of the cluster's session on this node.
    """
    pid = os.getpid()
    name = f"{PREFIX}{pid:x}-{started_at(pid) or 0:x}-{uuid.uuid4().hex[:8]}"
    path = str(folder_of(session_dir) / name)
    return path if len(path) <= PATH_MAX else os.path.join(tempfile.gettempdir(), name)


def folder_of(session_dir: str) -> Path:
    """Where the sockets of a session are, unless its name is too long."""
    return Path(session_dir) / "sockets"


def remove(path: str) -> None:
    """Remove the socket of a process that is gone, if it is on this node and still there."""
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
