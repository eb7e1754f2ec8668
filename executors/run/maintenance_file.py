"""The file of what operators have asked of one deployment's nodes and replicas: a line for each request, replaced whole."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from executors.engine.store import Upheld
from executors.whole_files import write_whole


class MaintenanceFile:
    """A store of `executors.maintenance`. It ends with the deployment.

    Args:
        path: Of the file.
        upheld: Of the fence; see `executors.engine.store`.
    """

    def __init__(self, path: Path, upheld: Upheld) -> None:
        self._path, self._upheld = path, upheld

    def maintenance(self) -> Iterator[tuple[str, str | None, bytes]]:
        """The lines, which have no keys.

        Raises:
            OSError: They cannot be read.
        """
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            yield f"a line of {self._path}", None, line

    def put_maintenance(self, texts: Mapping[str, str], changed: Collection[str]) -> None:
        """All texts are in the file when this returns.

        Raises:
            OSError: It cannot be written. Nothing has changed.
            RankcoreError: This process may not act any more. Likewise.
        """
        write_whole(self._path, "".join(text + "\n" for text in texts.values()), self._upheld())
