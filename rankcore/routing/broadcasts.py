"""Broadcasts: one part for each rank, gathered in rank order, with one answer for all of them (Q9).

A rank that nobody has at the moment is waited for, unless failures are kept and another rank has somebody: who asks so wants
the answers of those that run, and the part fails at once. Where nobody runs at all every rank is waited for.
"""

from collections.abc import Sequence

from rankcore.routing import endings
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.queueing import has_room, line_up, may_wait
from rankcore.routing.records import Request
from rankcore.routing.tables import Tables


def admit(tables: Tables, whole: Request) -> None:
    """A new broadcast: split it, or let it wait until the world size is known, or turn it away (Q5)."""
    world_size = tables.world_size
    if may_wait(tables):
        if world_size:
            _send(tables, whole)
        else:
            tables.unsplit[whole.serial] = whole
            tables.waiting += 1
            tables.note(RoutingNoteKind.QUEUED, "Q9", whole.request_id, None, "the world size is not known yet")
    elif world_size and all(has_room(tables.holder_of(rank)) for rank in _ranks_asked(tables, whole)):
        _send(tables, whole)
    else:
        endings.turn_away(tables, whole, tables.waiting)


def _ranks_asked(tables: Tables, whole: Request) -> Sequence[int]:
    """Whose answers are wanted, of the ranks of this moment."""
    ranks = range(tables.world_size)
    held = [rank for rank in ranks if tables.holder_of(rank) is not None] if whole.keeps_failures else ranks
    return held or ranks


def _split(tables: Tables, whole: Request) -> list[Request]:
    """One part for each rank of this moment; those are returned that are to be answered."""
    asked = _ranks_asked(tables, whole)
    whole.unfinished = tables.world_size
    whole.parts = {
        rank: Request(whole.request_id, whole.serial + 1 + rank, whole.arrived_at, rank=rank, part=rank)
        for rank in range(tables.world_size)
    }
    if len(asked) < tables.world_size:
        for rank in sorted(whole.parts.keys() - set(asked)):
            endings.fail_vacant(tables, whole.parts[rank])
    return [whole.parts[rank] for rank in asked]


def _send(tables: Tables, whole: Request) -> None:
    """A part goes at once where its rank has room."""
    for part in _split(tables, whole):
        replica = tables.holder_of(part.rank or 0)
        if replica is not None and has_room(replica):
            tables.give(part, replica)
        else:
            line_up(tables, part)


def resize(tables: Tables, world_size: int) -> range:
    """There are so many ranks from now on: nothing waits for a rank that nobody will have, broadcasts know their parts.

    A world size of 0 is a pause: what waits for a rank goes on waiting.

    Returns:
        The ranks for which something waits that did not before.
    """
    tables.world_size = world_size
    if not world_size:
        return range(0)
    for rank in sorted(rank for rank in tables.ranked if rank >= world_size):
        while rank in tables.ranked:
            endings.fail_beyond(tables, tables.ranked[rank].head(), rank)
    waiting, tables.unsplit = tables.unsplit, {}
    for whole in waiting.values():
        tables.waiting -= 1
        for part in _split(tables, whole):
            line_up(tables, part)
    return range(world_size if waiting else 0)
