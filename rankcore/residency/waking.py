"""What falls due as time passes, and who is tried again when there is room (T7)."""

from collections.abc import Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import takewhile
from operator import itemgetter

from rankcore.residency.index import Lack
from rankcore.residency.leaving import drop, leave
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Phase
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.placing import place
from rankcore.residency.reach import Reach
from rankcore.residency.state import Resident, replica_id_of
from rankcore.residency.turns import NEVER, begins_at, turn_in_line
from rankcore.values import NodeId


def do_what_is_due(ledger: Ledger) -> None:
    """Replicas that were idle for too long leave; who has been HOT for its minimum time may be displaced now."""
    while ledger.roster.timers and ledger.roster.timers.first()[0] <= ledger.clock:
        _due(ledger, ledger.replicas[ledger.roster.timers.first()[1]])
    while ledger.roster.ages and ledger.roster.ages.first()[0] <= ledger.clock:
        due, replica_id = ledger.roster.ages.first()
        ledger.roster.ripen(replica_id, due, None, ledger.clock)
        ledger.roomier[ledger.node_of(replica_id)] = None


def retry(ledger: Ledger) -> None:
    """Those that wait and may fit are tried on the nodes where something has become possible; nothing has on the others.

    Within a round room only shrinks, so who does not fit is not looked at again, nor are others of its model and size.
    """
    while ledger.roomier and ledger.queue.sizes:
        nodes = sorted(ledger.roomier)
        ledger.roomier = {}
        reach = Reach(ledger, nodes)
        waiting: dict[str, set[int]] = {}
        for model, size in reach.waiting():
            waiting.setdefault(model, set()).add(size)
        for model in sorted(waiting, key=lambda each: turn_in_line(ledger, each)):
            if _try_those_of(ledger, model, waiting[model], reach, nodes):
                reach = Reach(ledger, nodes)
                if next(reach.waiting(), None) is None:
                    break


def _try_those_of(ledger: Ledger, model: str, sizes: set[int], reach: Reach, nodes: list[NodeId]) -> bool:
    """Returns whether any of them has got a place."""
    lack, placed = ledger.queue.lacks[model], False
    for size, serial in _oldest_first(lack, sizes):
        if not sizes:
            break
        if size in sizes:
            record = ledger.replicas[replica_id_of(model, serial)]
            if (placed or reach.holds(lack.kind, lack.asked, size)) and place(ledger, record, among=nodes):
                placed = True
            else:
                sizes.discard(size)
    return placed


def _oldest_first(lack: Lack, sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(size, serial number) of those that wait for rooms of these sizes, by serial number."""
    waiting = [takewhile(partial(_is_of, size), lack.sizes.since((size,))) for size in sizes]
    return merge(*waiting, key=itemgetter(1))


def _is_of(size: int, entry: tuple[int, int]) -> bool:
    return entry[0] == size


def ask_to_be_woken(ledger: Ledger) -> None:
    """At the next time when something falls due without any news."""
    due = [ledger.roster.timers.first()[0]] if ledger.roster.timers else []
    if ledger.roster.ages and (ledger.queue.lacks or ledger.head is not None):
        due.append(ledger.roster.ages.first()[0])
    begins = begins_at(ledger)
    if begins < NEVER:
        due.append(begins)
    if due:
        ledger.wake(min(due))


def _due(ledger: Ledger, record: Resident) -> None:
    if record.phase is Phase.SERVING:
        ledger.note(ResidencyNoteKind.IDLE, "T10", record, f"not used since {record.last_used:g} s")
        leave(ledger, record, "idle")
    else:
        ledger.note(ResidencyNoteKind.IDLE, "T6", record, f"not used since {record.since:g} s")
        drop(ledger, record, because="idle")
