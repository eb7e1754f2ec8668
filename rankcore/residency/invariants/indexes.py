"""Every index, made again the slow way."""

from collections.abc import Iterable
from typing import Any

from rankcore.frozen import PMap
from rankcore.kernel import Violation
from rankcore.ordered import Ordered
from rankcore.residency.derive import derive_index
from rankcore.residency.index import Lack, Shelf
from rankcore.residency.state import ResidencyState


def check_indexes(state: ResidencyState) -> Iterable[Violation]:
    """What is derived agrees with the books."""
    kept, made = state.index, derive_index(state, state.index.room.degrees)
    for name in ("on_gpus", "copies", "groups", "timers", "ages"):
        if _plain(getattr(kept.roster, name)) != _plain(getattr(made.roster, name)):
            yield Violation("index", f"roster.{name}")
    for name in ("lacks", "sizes", "line"):
        if _plain(getattr(kept.queue, name)) != _plain(getattr(made.queue, name)):
            yield Violation("index", f"queue.{name}")
    for name in ("shapes", "shown", "shelves"):
        if _plain(getattr(kept.room, name)) != _plain(getattr(made.room, name)):
            yield Violation("index", f"room.{name}")


def _plain(table: Any) -> object:
    """Sorted sets may be cut into other pieces."""
    if isinstance(table, PMap):
        return {key: _plain(value) for key, value in table.items()}
    if isinstance(table, Shelf):
        return [list(table.fits), list(table.cheap), list(table.ripe), list(table.fresh)]
    if isinstance(table, Lack):
        return [table.kind, table.asked, list(table.sizes), list(table.since)]
    return list(table) if isinstance(table, Ordered) else table
