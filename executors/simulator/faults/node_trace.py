"""Which nodes go down and come up when, read from a trace of a real cluster onto the nodes of a scenario."""

import heapq
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from pathlib import Path

import attrs

from executors.simulator.fields import shown
from executors.simulator.load.csvfile import TraceError
from executors.simulator.load.table import Reading, Words, read_table

EVENTS_MAX = 5_000_000

DOWN, UP = 1, -1


@attrs.frozen
class NodeTrace:
    """What happens to the nodes of a scenario, in the order of time.

    Attributes:
        node_ids: The scenario's nodes that it is about.
        down_at_first: Whether all of them are down until the trace says that they come up.
        at_s: Virtual seconds, ascending.
        node: Which of `node_ids`.
        change: `DOWN` or `UP`; faults of one node may overlap, and it is up when all of them are over.
        left_out: How many nodes of the trace the scenario has no node for.
        population: Of how many nodes the trace is; `node` is then which of these, and each run draws who stands for whom
            (`population.drawn`). None: `node` is which of `node_ids`.
        window_s: How long the window lasts; where it has no end, until its last line.
        notes: What a reader of the figures has to know of the file.
    """

    node_ids: tuple[str, ...]
    down_at_first: bool = False
    at_s: "array[float]" = attrs.Factory(lambda: array("d"))
    node: "array[int]" = attrs.Factory(lambda: array("l"))
    change: "array[int]" = attrs.Factory(lambda: array("b"))
    left_out: int = 0
    population: int | None = None
    window_s: float = 0.0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.at_s)


@attrs.frozen(kw_only=True)
class NodeTraceForm:
    """How a trace file is to be read; `FaultTrace` says what each of these means.

    Attributes:
        reading: Its origin is where the window begins.
        window_s: How long it lasts; None: to the end of the file.
    """

    reading: Reading
    node_column: str
    event_column: str
    down: str
    up: str
    window_s: float | None
    map: str
    cluster_size: int | None


def read_node_trace(path: Path, form: NodeTraceForm, node_ids: Sequence[str]) -> NodeTrace:
    """Read a file, up to the end of its window.

    Raises:
        TraceError: One line that says where, what was found and what is allowed.
        FieldProblem: The window is in no time of such a file.
    """
    mapping = _MAPPINGS[form.map](path, form, tuple(node_ids))
    names, changes = Words("node"), Words("event", {form.down: DOWN, form.up: UP}, fixed=True)
    columns = {"node": (form.node_column, names), "change": (form.event_column, changes)}
    table = read_table(path, form.reading, columns)
    name_of = list(names.numbers)
    for line, at_s, node, change in zip(table.lines, table.after_s, table.cells["node"], table.cells["change"], strict=True):
        mapping.take(line, name_of[node], at_s, change)
    return attrs.evolve(mapping.finish(), notes=table.notes)


class _Mapping(ABC):
    """Maps the trace's nodes onto the scenario's; what happened before the window only says how it begins."""

    DOWN_AT_FIRST = False
    DRAWN = False

    def __init__(self, path: Path, form: NodeTraceForm, node_ids: tuple[str, ...]) -> None:
        self._path = path
        self._form = form
        self._node_ids = node_ids
        self._trace = NodeTrace(node_ids, self.DOWN_AT_FIRST)
        self._open: dict[str, int] = {}  # faults under way, or 1 for a node that was added, before the window
        self._began = False
        self._line = 1
        self._beyond: dict[str, None] = {}

    def take(self, line: int, name: str, at_s: float, change: int) -> None:
        """The next row of the trace, in the order of time."""
        self._line = line
        if not self._began and at_s >= 0.0:
            self._begin(line)
        if not self._began:
            self._before(line, name, change)
            return
        self._within(line, name, at_s, change)

    def finish(self) -> NodeTrace:
        """The trace is over."""
        if not self._began:
            self._begin(self._line)
        if not len(self._trace):
            raise TraceError(f"{self._path}: expected node faults within the window, found none that meets a node")
        population = self._form.cluster_size if self.DRAWN else None
        window_s = self._form.window_s if self._form.window_s is not None else self._trace.at_s[-1]
        return attrs.evolve(self._trace, left_out=len(self._beyond), population=population, window_s=window_s)

    def _begin(self, line: int) -> None:
        self._began = True
        opened, self._open = self._open, {}
        for name, count in opened.items():
            for _ in range(count):
                self._within(line, name, 0.0, UP if self.DOWN_AT_FIRST else DOWN)

    @abstractmethod
    def _before(self, line: int, name: str, change: int) -> None:
        """A line from before the window."""

    @abstractmethod
    def _within(self, line: int, name: str, at_s: float, change: int) -> None:
        """A line within the window."""

    def _add(self, line: int, index: int, at_s: float, change: int) -> None:
        if len(self._trace) >= EVENTS_MAX:
            raise TraceError(f"{self._path}:{line}: expected at most {EVENTS_MAX} lines within the window")
        self._trace.at_s.append(at_s)
        self._trace.node.append(index)
        self._trace.change.append(change)

    def _leave_out(self, name: str) -> None:
        self._beyond[name] = None


class _Faults(_Mapping):
    """Nodes that fail and are repaired; how many faults each has at a time is counted."""

    def __init__(self, path: Path, form: NodeTraceForm, node_ids: tuple[str, ...]) -> None:
        super().__init__(path, form, node_ids)
        self._indices: dict[str, int] = {}

    def _before(self, line: int, name: str, change: int) -> None:
        count = self._open.get(name, 0) + change
        self._open.pop(name, None)
        if count > 0:
            self._open[name] = count

    def _within(self, line: int, name: str, at_s: float, change: int) -> None:
        if change == UP and not self._open.get(name):
            return  # the end of a fault whose beginning the trace does not have
        index = self._index(line, name)
        if index is None:
            return
        self._open[name] = self._open.get(name, 0) + change
        self._add(line, index, at_s, change)

    @abstractmethod
    def _index(self, line: int, name: str) -> int | None:
        """Which node of the scenario this name stands for; None: none."""


class _Sampled(_Faults):
    """Names are numbered as they appear; which of the scenario's nodes have the faults of which number each run draws."""

    DRAWN = True

    def _index(self, line: int, name: str) -> int | None:
        most = self._form.cluster_size
        assert most is not None, "FaultTrace asks for it"
        index = self._indices.setdefault(name, len(self._indices))
        if index >= most:
            where = f"{self._path}:{line}: {self._form.node_column}"
            problem = f"expected the names of at most {most} nodes, which is cluster_size, found one more"
            raise TraceError(f"{where}: {problem}: {shown(name)}")
        return index


class _First(_Sampled):
    """The first node that the window names stands for the scenario's first: only the unlucky ones, if there are fewer here."""

    DRAWN = False

    def _index(self, line: int, name: str) -> int | None:
        index = super()._index(line, name)
        if index is None or index < len(self._node_ids):
            return index
        self._leave_out(name)
        return None


class _ByName(_Faults):
    def __init__(self, path: Path, form: NodeTraceForm, node_ids: tuple[str, ...]) -> None:
        super().__init__(path, form, node_ids)
        self._indices = {node_id: index for index, node_id in enumerate(node_ids)}

    def _index(self, line: int, name: str) -> int | None:
        index = self._indices.get(name)
        if index is None:
            self._leave_out(name)
        return index


class _Slots(_Mapping):
    """Nodes that are added and removed, each of which takes the first node of the scenario that is free."""

    DOWN_AT_FIRST = True

    def __init__(self, path: Path, form: NodeTraceForm, node_ids: tuple[str, ...]) -> None:
        super().__init__(path, form, node_ids)
        self._slot_of: dict[str, int] = {}
        self._free = list(range(len(node_ids)))  # a heap
        self._without: set[str] = set()

    def _before(self, line: int, name: str, change: int) -> None:
        self._check(line, name, change, name in self._open)
        if change == UP:
            self._open[name] = 1
        else:
            del self._open[name]

    def _within(self, line: int, name: str, at_s: float, change: int) -> None:
        self._check(line, name, change, name in self._slot_of or name in self._without)
        if change == UP:
            self._come(line, name, at_s)
        elif name in self._without:
            self._without.remove(name)
        else:
            slot = self._slot_of.pop(name)
            heapq.heappush(self._free, slot)
            self._add(line, slot, at_s, DOWN)

    def _come(self, line: int, name: str, at_s: float) -> None:
        if not self._free:
            self._leave_out(name)
            self._without.add(name)
            return
        slot = self._slot_of[name] = heapq.heappop(self._free)
        self._add(line, slot, at_s, UP)

    def _check(self, line: int, name: str, change: int, there: bool) -> None:
        if there == (change == UP):
            problem = "a node that is not there yet" if there else "a node that was added before"
            raise TraceError(f"{self._path}:{line}: {self._form.node_column}: expected {problem}, found {shown(name)}")


_MAPPINGS: dict[str, type[_Mapping]] = {"sample": _Sampled, "first": _First, "by_name": _ByName, "slots": _Slots}
