"""The fence of a controller whose record is a file: the folder of a deployment, as `executors.plugin` speaks to it."""

from contextlib import AbstractContextManager
from pathlib import Path

from executors.run.checkpoint import RECORD
from executors.run.fence import Fence
from executors.run.files import newest_epoch
from executors.whole_files import write_whole


class FolderFence:
    """A `ControllerFence` that is a folder of this machine; see `files`.

    Attributes:
        folder: Of the deployment.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._raised: Fence | None = None

    @property
    def where(self) -> Path:
        """The file with the record."""
        return self.folder / RECORD

    @property
    def raised(self) -> Fence:
        """The right to act, once it was raised."""
        assert self._raised is not None, "whoever acts has raised the fence before"
        return self._raised

    def newest(self) -> int:
        """The epoch of the newest controller; 0: there was none."""
        return newest_epoch(self.folder)

    def raise_to(self, epoch: int) -> None:
        """Begin an epoch, if it is newer than all before."""
        self._raised = Fence(self.folder, epoch)

    def upheld(self) -> AbstractContextManager[None]:
        """What is done inside is done before any newer controller begins, or not at all."""
        return self.raised.upheld()

    def read(self) -> bytes | None:
        """The record, as it was written; None: there is none."""
        try:
            return self.where.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, text: str | None) -> None:
        """Replace the record whole, or remove it, behind the fence."""
        if text is not None:
            return write_whole(self.where, text, self.upheld())
        with self.upheld():
            self.where.unlink(missing_ok=True)
