"""What a sweep has done so far, one line a cell, so that it can go on after it was stopped."""

import fcntl
import hashlib
import json
import os
from functools import lru_cache
from importlib import metadata
from io import FileIO
from pathlib import Path
from typing import Any, Self

import attrs

import executors.simulator
import rankcore
from executors.planted import unplanted
from executors.simulator.questions.cells import Cell, CellOutcome
from executors.simulator.scenario.errors import ScenarioError

FORMAT = 1


@lru_cache(maxsize=1)
def code_version() -> str:
    """The package's version, and a digest of its sources: a result of other code is another result."""
    try:
        version = metadata.version("rankcore")
    except metadata.PackageNotFoundError:
        version = "checkout"
    core, simulator = Path(rankcore.__file__).parent, Path(executors.simulator.__file__).parent
    digest = hashlib.sha256()
    for path in sorted((*core.rglob("*.py"), *simulator.rglob("*.py"), *simulator.parent.glob("*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{version}+{digest.hexdigest()[:16]}"


def key_of(cell: Cell, traces: dict[str, str]) -> str:
    """Names everything that a cell's outcome depends on: scenario, traces, settings, seed, checks, and the code."""
    source = cell.source
    settings = [[setting.key, setting.text] for setting in source.settings]
    text = json.dumps(
        [FORMAT, code_version(), source.text, settings, cell.seed, cell.checking, sorted(traces.items()), cell.for_windows]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class CellFile:
    """Outcomes by the keys of their cells, in a file that is only ever added to.

    A last line that was cut off is left out, and removed before the next is written.

    Raises:
        ScenarioError: There is something else in this place, which is left alone.
        OSError: It cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.kept: dict[str, CellOutcome] = {}
        self._end = 0
        self._file = FileIO(unplanted(os.fspath(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC), "r+")
        try:
            self._read()
            self._file.truncate(self._end)
            self._file.seek(self._end)
        except BaseException:
            self._file.close()
            raise

    def add(self, key: str, cell: Cell, outcome: CellOutcome) -> None:
        """Keep one more. It is there whatever happens next, short of a power failure."""
        line = {
            "cell": key,
            "settings": {setting.key: setting.text for setting in cell.source.settings},
            "seed": cell.seed,
            "figures": outcome.figures,
        }
        text = (json.dumps(line, allow_nan=False) + "\n").encode()
        if self._file.write(text) != len(text):
            raise OSError(f"the disk took only a part of a line of {len(text)} bytes")
        self._end += len(text)
        self.kept[key] = outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._file.truncate(self._end)  # what a full disk took of the last line
        self._file.close()

    def _read(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ScenarioError(f"{self._path}: expected a file of its own, found one that another sweep writes to") from None
        with open(self._file.fileno(), "rb", closefd=False) as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    return
                line = self._parse(raw, number)
                self.kept[line["cell"]] = CellOutcome(line["figures"])
                self._end += len(raw)

    def _parse(self, raw: bytes, number: int) -> dict[str, Any]:
        try:
            line = json.loads(raw)
            if isinstance(line, dict) and isinstance(line.get("cell"), str) and isinstance(line.get("figures"), dict):
                return line
        except ValueError:
            pass
        raise ScenarioError(f"{self._path}:{number}: expected a line of a sweep, found something else; --fresh begins anew")


@attrs.frozen
class Keys:
    """The keys of many cells; the traces of each source are read once."""

    _traces: dict[Any, dict[str, str]] = attrs.Factory(dict)

    def of(self, cell: Cell) -> str:
        """The key of a cell.

        Raises:
            ScenarioError: A trace cannot be read.
        """
        traces = self._traces.get(cell.source)
        if traces is None:
            traces = self._traces[cell.source] = cell.source.trace_digests()
        return key_of(cell, traces)
