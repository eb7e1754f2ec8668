"""Where replicas that are processes and controllers that know nothing of each other meet: the deployment's folder.

<epoch>.<serial>@<node>.<pid>      the socket of a replica, which is alive if it takes connections

`executors.run.files` has what else is there.
"""

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from executors.private_folder import checked, connected
from rankcore.values import ReplicaId


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
