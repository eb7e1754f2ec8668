"""The folder of one deployment, where its controllers meet, one after the other, and those who ask them.

epoch                     of the newest controller: see `fence`; it outlives the deployment, since epochs only grow
lock                      held by the controller that runs; it stays too, so that all lock the same file
record.json  status.json  the checkpoint, which outlives a controller; how it was after the last step
executor                  the name of the executor, which another one may not go on with
said                      what users have asked of nodes and replicas, beside the checkpoint (`maintenance_file`)
door                      the socket of the controller, for what users ask of it (`door`)
log                       what replicas print

Replicas meet their controllers in a folder of the executor: the same (`executors.local.places`), or another with an epoch and a
record of its own, which all nodes share (`executors.slurm.folder`).
"""

from pathlib import Path

from rankcore.errors import RankcoreError

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
