"""What a local controller writes down of a step before it carries out the step's commands: its checkpoint, then its journal.

The order is the promise. A crash after the checkpoint and before the commands loses commands, which the core repeats; a crash
after commands and before the checkpoint would lose decisions: a build that was given up would be started again, replicas of a
version that was rolled back would be taken for the ones that are wanted.
"""

from contextlib import suppress
from pathlib import Path

from executors.journal import Beginning, Journal, Recovered
from executors.local.fence import Fence
from executors.local.places import DamagedFileError
from executors.whole_files import write_whole
from rankcore import DeploymentState, DeploymentStatus, Step
from rankcore.codec import from_json, to_json
from rankcore.errors import CodecError
from rankcore.events import Event
from rankcore.upgrade import upgraded

RECORD = "record.json"
GOING = (DeploymentStatus.DELETING, DeploymentStatus.DELETED)


class FencedJournal:
    """The `Journal` of a driver: nothing is written, and no step taken, once a newer controller has begun.

    Args:
        folder: Of the deployment.
        fence: Of this controller.
        journal: What steps are written to besides; None: nothing.

    Attributes:
        checkpoint: As it is on the disk, by what `Driver.begin` takes; None: there is none of this controller yet.
    """

    def __init__(self, folder: Path, fence: Fence, journal: Journal | None) -> None:
        self._folder, self._fence, self._journal = folder, fence, journal
        self.checkpoint: Recovered | None = None

    def begin(self, how: Beginning, first: Step) -> None:
        """A deployment begins.

        Raises:
            FenceError: This controller may not act any more.
            OSError: The checkpoint cannot be written.
        """
        self._keep(first.state)
        if self._journal is not None:
            with self._fence.upheld():
                self._journal.begin(how, first)

    def append(self, event: Event, result: Step) -> None:
        """A step is about to be taken.

        Raises:
            FenceError: This controller may not act any more.
            OSError: The checkpoint cannot be written, and is as it was.
        """
        self._keep(result.state)
        with self._fence.upheld():
            if self._journal is not None:
                self._journal.append(event, result)

    def _keep(self, state: DeploymentState) -> None:
        found = checkpoint_of(state)
        if found != self.checkpoint:
            write_whole(self._folder / RECORD, to_json(found), self._fence.upheld())
            self.checkpoint = found


def checkpoint_of(state: DeploymentState) -> Recovered:
    """What outlives a controller. Never ranks: the replicas know them."""
    return Recovered(
        spec=state.spec,
        replica_ids=(),
        at=0.0,
        epoch=0,
        previous=state.previous,
        deleting=state.status in GOING,
        failed=state.status is DeploymentStatus.DEPLOY_FAILED,
    )


def read_checkpoint(folder: Path) -> Recovered | None:
    """What an earlier controller has left; None: nothing. Only behind the fence nobody writes another one meanwhile.

    Raises:
        DamagedFileError: It cannot be read.
    """
    path = folder / RECORD
    with suppress(FileNotFoundError):
        try:
            return from_json(upgraded(path.read_text(encoding="utf-8")), Recovered)
        except (CodecError, UnicodeDecodeError) as error:
            raise DamagedFileError(
                path,
                f"must hold what an earlier controller wanted, and cannot be read: {error}; "
                "end the replicas whose sockets are in that folder (<epoch>.<serial>@<node>.<pid>), then remove the file",
            ) from None
    return None
