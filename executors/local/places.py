"""The folder of one deployment: where controllers and replicas that know nothing of each other meet.

epoch                              of the newest controller: see `fence`; it outlives the deployment, since epochs only grow
lock                               held by the controller that runs; it stays too, so that all lock the same file
record.json  status.json           the checkpoint, which outlives a controller; how it was after the last step
executor                           the name of the executor, which another one may not go on with
said                               what users have asked of nodes and replicas, beside the checkpoint (`maintenance_file`)
door                               the socket of the controller, for what users ask of it (`door`)
log                                what replicas print
<epoch>.<serial>@<node>.<pid>      the socket of a replica, which is alive if it takes connections
"""

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from executors.private_folder import checked, connected
from rankcore.errors import RankcoreError
from rankcore.values import ReplicaId

LOG, SAID, DOOR = "log", "said", "door"
EPOCH_DIGITS_MAX = 18
STAYS = frozenset((LOG, "epoch", "lock"))
"""What is left of a deployment that has ended: why it has, and what the next controller of that name has to go on from."""


class DamagedFileError(RankcoreError):
    """A file in a deployment's folder does not hold what it should.

    Attributes:
        path: Of the file; of a record that is in none, where it is.
        problem: What was found, what is allowed, and what to do.
    """

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.problem)


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
    """The epoch of the newest controller; 0: none has been here.

    Raises:
        DamagedFileError: That cannot be known. A guess could let an older controller in.
    """
    try:
        text = (folder / "epoch").read_bytes()
    except FileNotFoundError:
        return 0
    if not text.isdigit() or len(text) > EPOCH_DIGITS_MAX or int(text) < 1:
        found = "nothing" if not text else repr(text[:40])
        raise DamagedFileError(
            folder / "epoch",
            f"must hold the newest controller's epoch, a whole number from 1, found {found}; "
            "end the replicas whose sockets are in that folder (<epoch>.<serial>@<node>.<pid>), then remove the file",
        )
    return int(text)
