"""What a journal of the simulator says of the run that it records, and that run again, checked line by line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Generic, Self, TypeVar, cast

import attrs

from executors.engine.chain import ChainError, last_link
from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.reading import JournalError, JournalReader
from executors.engine.run_id import RUN, derived_id
from executors.simulator.faults.fault_words import inject
from executors.simulator.faults.residency_words import inject_with_residency
from executors.simulator.load.sources import Source
from executors.simulator.questions.settings import Setting
from executors.simulator.residency.run import ResidencyRun
from executors.simulator.run import Run
from executors.simulator.scenario.errors import ScenarioError

EXECUTOR = "simulator"
SHOWN = 60
"""So many characters of two lines that differ are told, around the first that does."""


@attrs.frozen
class Fork:
    """Where a recorded run itself left another one, and what happened then: faults in words."""

    at: float
    faults: tuple[str, ...]


@attrs.frozen
class Recording:
    """How to make a run again.

    Attributes:
        forks: The forks that led to it, the first one first.
        traces: Digests of the files that the scenario names.
    """

    source: Source
    seed: int
    forks: tuple[Fork, ...] = ()
    traces: dict[str, str] = attrs.Factory(dict)

    @property
    def has_residency(self) -> bool:
        """Whether its deployments have weights that may be COLD."""
        return self.source.scenario(self.seed).has_residency

    def about(self) -> dict[str, Any]:
        """What goes into the first line of a journal."""
        source, scenario = self.source, self.source.scenario()
        about: dict[str, Any] = {
            "executor": EXECUTOR,
            "scenario": scenario.name,
            "seed": self.seed,
            "source": {
                "file": source.name,
                "folder": source.folder,
                "text": source.text,
                "settings": [[setting.key, setting.text] for setting in source.settings],
                "traces": self.traces,
            },
        }
        if self.forks:
            about["forks"] = [{"at": fork.at, "faults": list(fork.faults)} for fork in self.forks]
        return {**about, RUN: derived_id(about)}


def is_own(path: Path) -> bool:
    """Whether a journal was written by the simulator, so that its world can be made again from the beginning.

    Raises:
        JournalError: It is no journal.
    """
    return _about(path).get("executor") == EXECUTOR


def read_recording(path: Path, folder: Path | None) -> Recording:
    """How the run of a journal is made again.

    Args:
        path: The journal.
        folder: Where its traces are now; None: where they were.

    Raises:
        JournalError: It is no journal of the simulator, or does not say enough.
        ScenarioError: A trace is not there, or not what it was.
    """
    about = _about(path)
    if about.get("executor") != EXECUTOR:
        problem = f"expected a journal of the {EXECUTOR}, whose world can be made again, found another executor's"
        raise JournalError(str(path), 1, problem)
    try:
        recording = _structured(about, folder)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        problem = "expected a first line that says of which scenario, found none: record the run again with this version"
        raise JournalError(str(path), 1, problem) from None
    now = recording.source.trace_digests()
    for name, digest in recording.traces.items():
        if now.get(name) != digest:
            raise ScenarioError(f"{path}: {Path(recording.source.folder) / name} is not the file that the run was made with")
    return recording


def _about(path: Path) -> dict[str, Any]:
    """What the first line says besides."""
    reader = JournalReader(path, None)
    reader.read_header()
    return reader.about


def _structured(about: dict[str, Any], folder: Path | None) -> Recording:
    said = about["source"]
    settings = tuple(Setting(str(key), str(text)) for key, text in said["settings"])
    where = str(folder) if folder is not None else str(said["folder"])
    source = Source(str(said["file"]), str(said["text"]), where, settings)
    forks = tuple(Fork(float(fork["at"]), tuple(map(str, fork["faults"]))) for fork in about.get("forks", ()))
    return Recording(source, int(about["seed"]), forks, {str(name): str(digest) for name, digest in said["traces"].items()})


class RecordedLines:
    """Stands for a journal's file: instead of being written, each line is compared with the one that was recorded.

    What a journal that was cut off no longer has is not compared.

    Attributes:
        after: The chain up to the first line, which is about itself.
        cut_off: Whether some of what was to be compared is not there.

    Raises:
        JournalError: A line differs, or no line has a number to compare.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self._line = 1
        self.cut_off = False
        try:
            self.after = last_link(self._file.readline())
        except ChainError as error:
            self._file.close()
            raise JournalError(str(path), 1, f"{error}: record the run again with this version") from None

    def write(self, text: bytes) -> int:
        """Compare a line."""
        recorded = self._file.readline()
        self._line += 1
        if not recorded.endswith(b"\n"):
            self.cut_off = True
        elif recorded != text:
            self._fail(recorded, text)
        return len(text)

    def finish(self) -> None:
        """The run is over, and so must be the journal, but for its end marker."""
        recorded = b'{"end":'
        while recorded.startswith(b'{"end":'):
            recorded = self._file.readline()
            self._line += 1
        if recorded.endswith(b"\n"):
            self._fail(recorded, b"the end of the run\n")

    def tell(self) -> int:
        """As files have it."""
        return 0

    def close(self) -> None:
        """As files have it."""
        self._file.close()

    def _fail(self, recorded: bytes, now: bytes) -> None:
        pairs = zip(recorded, now, strict=False)
        place = next((place for place, (old, new) in enumerate(pairs) if old != new), min(len(recorded), len(now)))
        begin = max(0, place - SHOWN // 2)
        expected, found = (repr(text[begin : begin + SHOWN].decode(errors="replace").rstrip("\n")) for text in (recorded, now))
        problem = f"the run does not repeat itself: expected ...{expected}..., found ...{found}...; another version made it"
        raise JournalError(str(self._path), self._line, problem)


R = TypeVar("R", Run, ResidencyRun)


@attrs.frozen
class Repeat(Generic[R]):
    """A recorded run, made again; its journal is compared with the recorded one while it goes on."""

    run: R
    lines: RecordedLines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lines.close()


def repeat(path: Path, recording: Recording) -> Repeat[Run]:
    """Make a recorded run again, up to its beginning or, for a fork, to where it left the other run.

    Raises:
        ScenarioError: The scenario or a trace cannot be used any more.
        JournalError: The first line differs.
        FaultWordsError: The words of a fork say nothing any more.
    """
    scenario = recording.source.scenario(recording.seed)
    arrivals = recording.source.arrivals(scenario)
    lines = RecordedLines(path)
    compared = JournalWriter(cast(BinaryIO, lines), after=lines.after)
    run = _again(recording, compared, lambda journal: Run(scenario, arrivals, journal), inject)
    return Repeat(run, lines)


def repeat_residency(path: Path, recording: Recording) -> Repeat[ResidencyRun]:
    """The same with a recorded run with residency.

    Raises:
        ScenarioError, JournalError, FaultWordsError: As `repeat`.
    """
    scenario = recording.source.scenario(recording.seed)
    arrivals = recording.source.arrivals(scenario)
    lines = RecordedLines(path)
    compared = JournalWriter(cast(BinaryIO, lines), kind=CLUSTER, after=lines.after)
    run = _again(recording, compared, lambda journal: ResidencyRun(scenario, arrivals, journal), inject_with_residency)
    return Repeat(run, lines)


def _again(recording: Recording, compared: Any, begin: Callable[[Any], R], inject: Callable[[R, str, float], None]) -> R:
    """Begin, and take every fork that led to the run; the last one is compared."""
    if not recording.forks:
        return begin(compared)
    run = begin(None)
    for number, fork in enumerate(recording.forks, start=1):
        run.until(fork.at)
        run = run.fork(compared if number == len(recording.forks) else None)
        for text in fork.faults:
            inject(run, text, fork.at)
    return run
