"""Who waits for room, by what would do: a node that has more room than before is shown to those alone who may fit (T7).

And in line: of those of one priority who has waited for longest is always before the others, however much they have aged, so
that as many orders as there are priorities, kept as records change, are all of it (`turns.in_line` merges them).
"""

from rankcore.ordered import Ordered
from rankcore.residency.index import Kind, Lack, Queue
from rankcore.residency.levels import Phase
from rankcore.residency.spec import ModelSpec
from rankcore.residency.state import Resident, serial_of

NO_SIZES: Ordered[tuple[int, int]] = Ordered()
NO_MODELS: Ordered[tuple[int, int, str]] = Ordered()
NO_WAITS: Ordered[tuple[int, float]] = Ordered()
NO_LINE: Ordered[tuple[float, str]] = Ordered()


class QueueDraft:
    """A queue that is changed in place while a step runs."""

    def __init__(self, queue: Queue) -> None:
        self.lacks = queue.lacks
        self.sizes = queue.sizes
        self.line = queue.line

    def freeze(self) -> Queue:
        """The same as a value."""
        return Queue(lacks=self.lacks, sizes=self.sizes, line=self.line)

    def change(self, old: Resident | None, new: Resident, spec: ModelSpec, asked: int) -> None:
        """A record has changed; its model is as it was."""
        before = (lack_of(old, spec), old.since) if old is not None and old.phase is Phase.WAITING else None
        after = (lack_of(new, spec), new.since) if new.phase is Phase.WAITING else None
        if before == after:
            return
        lack = self.lacks.get(spec.model)
        sizes, waits = (lack.sizes, lack.since) if lack is not None else (NO_SIZES, NO_WAITS)
        serial = serial_of(new.replica_id)
        if before is not None:
            sizes, waits = sizes.discard((before[0], serial)), waits.discard((serial, before[1]))
        if after is not None:
            sizes, waits = sizes.add((after[0], serial)), waits.add((serial, after[1]))
        self._set(spec.model, Lack(kind_of(spec), asked, sizes, waits))

    def respecify(self, records: list[Resident], spec: ModelSpec, asked: int) -> None:
        """A model has another spec, or is asked for by another request: `records` are those of it that wait."""
        sizes, waits = NO_SIZES, NO_WAITS
        for record in records:
            serial = serial_of(record.replica_id)
            sizes, waits = sizes.add((lack_of(record, spec), serial)), waits.add((serial, record.since))
        self._set(spec.model, Lack(kind_of(spec), asked, sizes, waits))

    def ask(self, model: str, asked: int) -> None:
        """A model is asked for by another request."""
        lack = self.lacks.get(model)
        if lack is not None:
            self._set(model, Lack(lack.kind, asked, lack.sizes, lack.since))

    def _set(self, model: str, lack: Lack) -> None:
        old = self.lacks.get(model)
        self._line_up(model, old, lack)
        if old is not None and (old.kind, old.asked, distinct(old.sizes)) == (lack.kind, lack.asked, distinct(lack.sizes)):
            self.lacks = self.lacks.set(model, lack)
            return
        for each, shows in ((old, False), (lack, True)):
            if each is not None:
                self._show(model, each, shows)
        if lack.sizes:
            self.lacks = self.lacks.set(model, lack)
        elif old is not None:
            self.lacks = self.lacks.delete(model)

    def _line_up(self, model: str, old: Lack | None, new: Lack) -> None:
        before, after = [
            (each.kind.priority, each.since.first()[1]) if each is not None and each.since else None for each in (old, new)
        ]
        if before == after:
            return
        if before is not None:
            left = self.line[before[0]].discard((before[1], model))
            self.line = self.line.set(before[0], left) if left else self.line.delete(before[0])
        if after is not None:
            self.line = self.line.set(after[0], self.line.get(after[0], NO_LINE).add((after[1], model)))

    def _show(self, model: str, lack: Lack, shows: bool) -> None:
        sizes = self.sizes.get(lack.kind, NO_MODELS)
        for size in distinct(lack.sizes):
            entry = (size, lack.asked, model)
            sizes = sizes.add(entry) if shows else sizes.discard(entry)
        if sizes:
            self.sizes = self.sizes.set(lack.kind, sizes)
        elif lack.kind in self.sizes:
            self.sizes = self.sizes.delete(lack.kind)


def lack_of(record: Resident, spec: ModelSpec) -> int:
    """For how many bytes of room a replica waits."""
    return max(spec.total_bytes, record.size_bytes)


def kind_of(spec: ModelSpec) -> Kind:
    """With whom a model waits for the same."""
    return Kind(spec.priority, spec.dedicated, spec.gpus, tuple(sorted(spec.node_labels.items())), spec.shard_bytes)


def distinct(sizes: Ordered[tuple[int, int]]) -> list[int]:
    """Each size once, the least first."""
    found: list[int] = []
    entry = next(iter(sizes), None)
    while entry is not None:
        found.append(entry[0])
        entry = next(sizes.since((entry[0] + 1,)), None)
    return found
