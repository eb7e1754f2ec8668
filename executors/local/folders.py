"""Which folder a deployment has, and whose turn it is there: for the command. An executor is given its folder."""

import fcntl
import os
import tempfile
from pathlib import Path
from urllib.parse import quote

from rankcore.errors import RankcoreError

SOCKET_PATH_MAX = 107
"""In bytes: what Linux allows."""
NAME_BYTES_MAX = 40
"""Of a replica's socket in its folder."""


class PlaceError(RankcoreError):
    """A folder cannot be used; the text says why, and what to do."""


def folder_of(namespace: str, deployment: str) -> Path:
    """The folder of a deployment, which is made where there is none. Only this user can look into it.

    Raises:
        PlaceError: It belongs to somebody else, or its path is too long for sockets.
    """
    folder = namespace_folder(namespace) / _plain(deployment)
    if len(os.fsencode(folder)) + 1 + NAME_BYTES_MAX > SOCKET_PATH_MAX:
        raise PlaceError(
            f"{folder} is too long a path for sockets: set TMPDIR to a shorter one, or shorten the deployment's name"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    top = folder.parents[1]
    if top.stat().st_uid != os.getuid():
        raise PlaceError(f"{top} belongs to somebody else: set TMPDIR to a folder of your own")
    top.chmod(0o700)
    return folder


def namespace_folder(namespace: str) -> Path:
    """Where the folders of all deployments of a namespace are, if there are any."""
    return Path(tempfile.gettempdir()) / f"rankcore-{os.getuid()}" / _plain(namespace)


def lock(folder: Path) -> int:
    """Become the one controller of a deployment; returns the file to be closed at the end.

    Raises:
        PlaceError: There is one.
    """
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise PlaceError(
            f"another `rankcore run` runs this deployment: end that first, or give --namespace ({folder})"
        ) from None
    return file


def is_locked(folder: Path) -> bool:
    """Whether a controller runs the deployment."""
    try:
        os.close(lock(folder))
    except PlaceError:
        return True
    return False


def _plain(name: str) -> str:
    """A name as that of a file."""
    return quote(name, safe="").replace(".", "%2E")
