"""The folder of one deployment: where controllers and replicas that know nothing of each other meet.

epoch                              of the newest controller: the fence
lock                               held by the controller that runs
record.json  status.json           what outlives a controller; how it was when somebody last looked
log                                what replicas print
<epoch>.<serial>@<node>.<pid>      the socket of a replica, which is alive if it takes connections
"""

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import attrs

from rankcore.values import ReplicaId

LOG = "log"
SOCKET_PATH_MAX = 107
"""In bytes: what Linux allows."""
NAME_BYTES_MAX = 40
"""Of a replica's socket in its folder."""


class PlaceError(Exception):
    """A folder cannot be used; the text says why, and what to do."""


@attrs.frozen
class Address:
    """Where a replica listens, and which one it is."""

    replica_id: ReplicaId
    node_id: str
    pid: int

    def path(self, folder: Path) -> Path:
        """Of its socket. The name of the deployment is not repeated: paths are short."""
        return folder / f"{self.replica_id.rpartition('#')[2]}@{self.node_id}.{self.pid}"

    @classmethod
    def of(cls, path: Path, deployment: str) -> "Address":
        """What `path` was made of."""
        serial, _, rest = path.name.partition("@")
        node_id, _, pid = rest.rpartition(".")
        return cls(f"{deployment}#{serial}", node_id, int(pid))


def survivors(folder: Path, deployment: str) -> Iterator[tuple[Address, socket.socket]]:
    """Every replica that takes connections, with one to it. Who is not ready for that may have a socket already: it stays."""
    for path in sorted(folder.glob("*@*")):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
        else:
            yield Address.of(path, deployment), connection


def sweep(folder: Path, keep: Iterable[Address]) -> None:
    """Remove the sockets of all others. Behind the fence, since who comes up after it ends itself."""
    kept = {address.path(folder) for address in keep}
    for path in folder.glob("*@*"):
        if path not in kept:
            path.unlink(missing_ok=True)


def newest_epoch(folder: Path) -> int:
    """The fence; 0: no controller has been here."""
    try:
        return int((folder / "epoch").read_text())
    except FileNotFoundError:
        return 0


def write_whole(path: Path, text: str) -> None:
    """Write a file that others never see in part."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


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
