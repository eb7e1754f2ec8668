"""How a gang's rounds open and close, and who gets which rank.

What: a round is open until no living seated member is out and the gang is full, or `last_call_s` is over and `min_size`
are there (TR7). While it is open, ranks do not change. When it closes, a lost rank goes to an agent of the lost one's
node, else the lowest to the spare that waits longest (TR2, TR3); other spares get the lowest free ranks (TR5); ranks
that nobody took are closed by moving exactly the members at or above the new size (TR4, R8). So who lives keeps its
rank (TR1), and who is above `max_size` stays parked and opens no round (TR6).

Who returns and who waits: a round with enough spares is full as soon as its survivors are back, so it waits for nobody
who may return: a gang that stands still costs more than one rank on another node. Only where spares lack does it wait
`last_call_s` for agents of the lost nodes. One that is there in time has its node's rank in either case.

Why it ends: each closing admits all seated at once; an open round that cannot close refuses all after `join_timeout_s`.
The seated who are out end by `Joined`, `Left` or `LeaseLapsed`, which the lease forces (TR8).

Cost: O(members) for each round and each newcomer, O(log members) where a seated one arrives in an open round.

A race: (1) the coordinator restarts and forgets all ranks; (2) a new agent joins before the survivors; (3) it is given
rank 0, which a survivor holds. So where a coordinator was there before (`restarted`), or an agent of the first round
believes a rank, only those who do count towards a full gang, and the round else waits `recover_s`, by when a survivor
that did not come has ended itself (TR9). A newcomer of another `nproc`, or on a survivor's node, has to go for it.
"""

from typing import assert_never

from msgspec.structs import replace

from rankcore.frozen import EMPTY, PMap
from rankcore.gang.state import Gang, RefusalReason, WaitingMember
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
            return _closed(gang, RefusalReason.DONE)
        case ClockAdvanced():
            return _settle(replace(gang, now_s=max(gang.now_s, event.now_s)))
        case _ as unreachable:
            assert_never(unreachable)


def _joined(gang: Gang, event: Joined) -> tuple[Gang, tuple[Command, ...]]:
    member = event.member
    if gang.closed is not None:
        return gang, (Refuse(member, gang.closed),)
    if member in gang.lost:
        return gang, (Refuse(member, RefusalReason.LAPSED),)
    if any(waiting.member == member for waiting in gang.waiting):
        return gang, (Park(member),)
    if member in gang.table:
        gang, restarts = _open(gang, member)
        gang, commands = _settle(replace(gang, arrived=gang.arrived.set(member, None)))
        return gang, restarts + commands
    is_survivor = event.believed is not None and not len(gang.table)
    known = replace(gang, waiting=tuple(one for one in gang.waiting if one.believed is not None)) if is_survivor else gang
    refused = _misfit(known, event)
    if refused is not None:
        return gang, (refused,)
    gang, sent_away = _outweighed(gang, event) if is_survivor else (gang, ())
    gang = replace(gang, waiting=(*gang.waiting, WaitingMember(member, event.node_id, event.believed, event.nproc)))
    restarts = ()
    if len(gang.table) < gang.max_size:
        gang, restarts = _open(gang, member)
    gang, commands = _settle(gang)
    return gang, (*sent_away, Park(member), *restarts, *commands)


def _misfit(gang: Gang, event: Joined) -> Refuse | None:
    """Why an agent cannot be of this gang."""
    nproc = gang.said_nproc
    if event.max_size not in (None, gang.max_size):
        return Refuse(event.member, RefusalReason.OTHER_MAX, f"MAX is {event.max_size}, expected {gang.max_size}")
    if nproc is not None and event.nproc not in (None, nproc):
        return Refuse(event.member, RefusalReason.OTHER_NPROC, f"nproc is {event.nproc}, expected {nproc}")
    if gang.agents_on(event.node_id) >= gang.agents_per_node:
        detail = f"node {event.node_id} has {gang.agents_per_node} already, expected no more"
        return Refuse(event.member, RefusalReason.SAME_NODE, detail)
    return None


def _outweighed(gang: Gang, survivor: Joined) -> tuple[Gang, tuple[Command, ...]]:
    """Send those without a rank away that do not go with a survivor: it was there first, though it comes later."""
    kept = [one for one in gang.waiting if one.believed is not None]
    told = WaitingMember(survivor.member, survivor.node_id, survivor.believed, survivor.nproc)
    sent_away = []
    for one in gang.waiting:
        if one.believed is None:
            refused = _misfit(replace(gang, waiting=(*kept, told)), Joined(one.member, one.node_id, None, one.nproc))
            if refused is None:
                kept.append(one)
            else:
                sent_away.append(refused)
    return replace(gang, waiting=tuple(one for one in gang.waiting if one in kept)), tuple(sent_away)


def _gone(gang: Gang, member: str) -> tuple[Gang, tuple[Command, ...]]:
    if member not in gang.table:
        return replace(gang, waiting=tuple(waiting for waiting in gang.waiting if waiting.member != member)), ()
    gang, restarts = _open(gang, member)
    arrived = PMap({other: None for other in gang.arrived if other != member})
    gang, commands = _settle(replace(gang, lost=gang.lost.set(member, None), arrived=arrived))
    return gang, restarts + commands


def _open(gang: Gang, cause: str) -> tuple[Gang, tuple[Command, ...]]:
    """Open a round, if none is: all that run are told, but who is the cause."""
    if gang.opened_s is not None or gang.closed is not None:
        return gang, ()
    restarts = tuple(Restart(member) for member in gang.living if member != cause)
    return replace(gang, opened_s=gang.now_s, arrived=EMPTY), restarts


def _settle(gang: Gang) -> tuple[Gang, tuple[Command, ...]]:
    """Close the open round if it is time to, or give it up."""
    if gang.opened_s is None or gang.closed is not None:
        return gang, ()
    age_s = gang.now_s - gang.opened_s
    there = len(gang.arrived) + len(gang.waiting)
    believers = sum(waiting.believed is not None for waiting in gang.waiting)
    recovers = not len(gang.table) and (gang.restarted or believers > 0)
    full = (believers if recovers else there) >= gang.max_size
    called = age_s >= (gang.recover_s if recovers else gang.last_call_s) and there >= gang.min_size
    if len(gang.arrived) + len(gang.lost) == len(gang.table) and (full or called):
        return _close(gang)
    if age_s < gang.join_timeout_s or there >= gang.min_size:
        return gang, ()
    return _closed(
        gang, RefusalReason.TIMED_OUT, f"{there} agents are there after {gang.join_timeout_s:g} s, expected {gang.min_size}"
    )


def _closed(gang: Gang, reason: RefusalReason, detail: str = "") -> tuple[Gang, tuple[Command, ...]]:
    """No more rounds: all that live are told, also those that run."""
    if gang.closed is not None:
        return gang, ()
    members = (*gang.living, *(waiting.member for waiting in gang.waiting))
    return replace(gang, closed=reason, waiting=()), tuple(Refuse(member, reason, detail) for member in members)


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
    gang = replace(gang, nproc=gang.said_nproc, waiting=tuple(waiting), opened_s=None)
    return replace(gang, table=table, lost=EMPTY, arrived=EMPTY, round=last + 1), admitted
