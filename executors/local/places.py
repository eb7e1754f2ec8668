"""The folder of one deployment: where controllers and replicas that know nothing of each other meet.

epoch                              of the newest controller: the fence
lock                               held by the controller that runs
record.json  status.json           what outlives a controller; how it was when somebody last looked
log                                what replicas print
<epoch>.<serial>@<node>.<pid>      the socket of a replica, which is alive if it takes connections
"""

import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from executors.private_folder import checked, connected
from rankcore.values import ReplicaId

LOG = "log"


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
    """Every replica that takes connections, with one to it. Who is not ready for that may have a socket already: it stays.

    Raises:
        PlaceError: Other users could get at the folder.
    """
    checked(folder)
    for path in sorted(folder.glob("*@*")):
        try:
            connection = connected(path)
        except OSError:
            continue
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
