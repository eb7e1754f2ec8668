"""How a gang's rounds open and close, and who gets which rank.

What: a round is open until no living seated member is out and the gang is full, or `last_call_s` is over and `min_size`
are there (TR7). While it is open, ranks do not change. When it closes, a lost rank goes to an agent of the lost one's
node, else the lowest to the spare that waits longest (TR2, TR3); other spares get the lowest free ranks (TR5); ranks
that nobody took are closed by moving exactly the members at or above the new size (TR4, R8). So who lives keeps its
rank (TR1), and who is above `max_size` stays parked and opens no round (TR6).

Why it ends: each closing admits all seated at once; an open round that cannot close refuses who waits in it after
`join_timeout_s`. The seated who are out end by `Joined`, `Left` or `LeaseLapsed`, which the lease forces (TR8).

Cost: O(members) for each round, O(log members) for an arrival in an open one, plus the look at who is out.

A race: (1) the coordinator restarts and forgets all ranks; (2) a new agent joins before the survivors; (3) it is given
rank 0, which a survivor holds. So while any agent of the first round believes a rank, only those count towards a full
gang, and the round else waits `recover_s`, by when a survivor that did not come has ended itself (TR9).
"""

from typing import assert_never

from msgspec.structs import replace

from rankcore.frozen import EMPTY, PMap
from rankcore.gang.state import Gang, Waiting
from rankcore.gang.words import (
    Admit,
    ClockAdvanced,
    CloseRequested,
    Command,
    Event,
    Joined,
    LeaseLapsed,
    Left,
    Park,
    Refuse,
    Restart,
)
from rankcore.ranks import RankTable
from rankcore.values import ReplicaRank


def step(gang: Gang, event: Event) -> tuple[Gang, tuple[Command, ...]]:
    """Take one event."""
    match event:
        case Joined():
            return _joined(gang, event)
        case Left() | LeaseLapsed():
            return _gone(gang, event.member)
        case CloseRequested():
            sent_away = tuple(Refuse(waiting.member, "the job is done") for waiting in gang.waiting)
            return replace(gang, closed=True, waiting=()), sent_away
        case ClockAdvanced():
            return _settle(replace(gang, now_s=max(gang.now_s, event.now_s)))
        case _ as unreachable:
            assert_never(unreachable)


def _joined(gang: Gang, event: Joined) -> tuple[Gang, tuple[Command, ...]]:
    member = event.member
    if gang.closed:
        return gang, (Refuse(member, "the job is done"),)
    if member in gang.lost:
        return gang, (Refuse(member, "its lease lapsed: its rank may be another's"),)
    if any(waiting.member == member for waiting in gang.waiting):
        return gang, (Park(member),)
    if member in gang.table:
        gang, restarts = _open(gang, member)
        gang, commands = _settle(replace(gang, arrived=gang.arrived.set(member, None)))
        return gang, restarts + commands
    gang = replace(gang, waiting=(*gang.waiting, Waiting(member, event.node_id, event.believed)))
    restarts = ()
    if len(gang.table) < gang.max_size:
        gang, restarts = _open(gang, member)
    gang, commands = _settle(gang)
    return gang, (Park(member), *restarts, *commands)


def _gone(gang: Gang, member: str) -> tuple[Gang, tuple[Command, ...]]:
    if member not in gang.table:
        return replace(gang, waiting=tuple(waiting for waiting in gang.waiting if waiting.member != member)), ()
    gang, restarts = _open(gang, member)
    arrived = PMap({other: None for other in gang.arrived if other != member})
    gang, commands = _settle(replace(gang, lost=gang.lost.set(member, None), arrived=arrived))
    return gang, restarts + commands


def _open(gang: Gang, cause: str) -> tuple[Gang, tuple[Command, ...]]:
    """Open a round, if none is: all that run are told, but who is the cause."""
    if gang.opened_s is not None or gang.closed:
        return gang, ()
    restarts = tuple(Restart(member) for member in gang.living if member != cause)
    return replace(gang, opened_s=gang.now_s, arrived=EMPTY), restarts


def _settle(gang: Gang) -> tuple[Gang, tuple[Command, ...]]:
    """Close the open round if it is time to, or give it up."""
    if gang.opened_s is None or gang.closed:
        return gang, ()
    age_s = gang.now_s - gang.opened_s
    there = len(gang.arrived) + len(gang.waiting)
    believers = sum(waiting.believed is not None for waiting in gang.waiting) if not len(gang.table) else 0
    full = (believers or there) >= gang.max_size
    called = age_s >= (gang.recover_s if believers else gang.last_call_s) and there >= gang.min_size
    if len(gang.arrived) + len(gang.lost) == len(gang.table) and (full or called):
        return _close(gang)
    if age_s < gang.join_timeout_s or there >= gang.min_size:
        return gang, ()
    reason = f"{there} agents are there after {gang.join_timeout_s:g} s, at least {gang.min_size} are needed"
    members = (*sorted(gang.arrived), *(waiting.member for waiting in gang.waiting))
    return replace(gang, closed=True, waiting=()), tuple(Refuse(member, reason) for member in members)


def _close(gang: Gang) -> tuple[Gang, tuple[Command, ...]]:
    table, waiting, last = gang.table, list(gang.waiting), gang.round
    if not len(table):
        survivors = [one for one in waiting if one.believed is not None][: gang.max_size]
        reports = []
        for one in survivors:
            assert one.believed is not None
            reports.append((one.member, one.node_id, ReplicaRank(one.believed.rank, one.believed.rank, 0)))
            last = max(last, one.believed.round)
        table, _ = RankTable.recover(reports)
        waiting = [one for one in waiting if one not in survivors]
    lost = [member for member in table.ranks if member in gang.lost]
    takers = {}
    for member in lost:
        returned = [one for one in waiting if one.node_id == table.node_of(member)]
        if returned:
            takers[member] = returned[0]
            waiting.remove(returned[0])
    for member in lost:
        if member not in takers and waiting:
            takers[member] = waiting.pop(0)
        taker = takers.get(member)
        table = table.replace(member, taker.member, taker.node_id)[0] if taker else table.release(member)
    while waiting and len(table) < gang.max_size:
        newcomer = waiting.pop(0)
        table, _ = table.assign(newcomer.member, newcomer.node_id)
    table, _ = table.compact()
    size = len(table)
    admitted = tuple(Admit(member, rank.rank, size, last + 1) for member, rank in table.ranks.items())
    closed = replace(gang, table=table, lost=EMPTY, arrived=EMPTY, waiting=tuple(waiting), round=last + 1, opened_s=None)
    return closed, admitted
