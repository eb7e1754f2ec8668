"""What is asked of a gang after each step: TR1 to TR8, from the outside, by no code that `step` uses.

`check` looks at a gang, `check_step` at a step. Both cost O(members), and more only where a round has closed.
"""

from collections.abc import Iterator, Sequence

from rankcore.gang.state import Gang, RefusalReason, WaitingMember
from rankcore.gang.words import Admit, Command, Event, Joined, LeaseLapsed, Left, Refuse, Restart
from rankcore.kernel import Violation


def check(gang: Gang) -> Iterator[Violation]:
    """What is wrong with a gang between two events."""
    seated, waiting = set(gang.table.ranks), [one.member for one in gang.waiting]
    if len({*seated, *waiting}) != len(seated) + len(waiting):
        yield Violation("TR6", f"somebody is twice in {sorted(seated)} and {waiting}")
    if not seated >= {*gang.lost, *gang.arrived} or set(gang.lost) & set(gang.arrived):
        yield Violation("TR8", f"lost are {[*gang.lost]}, arrived {[*gang.arrived]}, seated {sorted(seated)}")
    if gang.closed is not None or gang.opened_s is not None:
        return
    held = [rank.rank for rank in gang.table.ranks.values()]
    if held != list(range(len(held))) or not gang.min_size <= len(held) <= gang.max_size:
        yield Violation("TR7", f"a round runs with ranks {held} where {gang.min_size} to {gang.max_size} were asked for")
    if gang.lost or gang.arrived:
        yield Violation("TR7", f"a round runs though {[*gang.lost]} are lost and {[*gang.arrived]} have come again")
    if waiting and len(held) < gang.max_size:
        yield Violation("TR6", f"{waiting} are parked beside a free rank")


def check_step(before: Gang, event: Event, after: Gang, commands: Sequence[Command]) -> Iterator[Violation]:
    """What a step breaks."""
    admitted = {said.member: said.rank for said in commands if isinstance(said, Admit)}
    gone = {event.member} if isinstance(event, Left | LeaseLapsed) else set[str]()
    there = {*before.living} - gone
    if not there <= {*after.living}:
        yield Violation("TR1", f"{sorted(there - {*after.living})} live and have no rank any more")
    if {*after.lost} - {*before.lost} - gone:
        yield Violation("TR8", f"{sorted({*after.lost} - {*before.lost} - gone)} are lost and nobody has said so")
    is_above = isinstance(event, Joined) and event.member not in before.table and len(before.table) == before.max_size
    if is_above and before.opened_s is None and any(isinstance(said, Restart) for said in commands):
        yield Violation("TR6", "an agent above MAX restarts the others")
    late = [said.member for said in commands if isinstance(said, Refuse) and said.reason is RefusalReason.TIMED_OUT]
    count = sum(member in after.arrived or member not in after.living for member in late)
    if before.closed is None and count >= before.min_size:
        yield Violation("TR7", f"{late} are sent away as too few, and {count} are there")
    if admitted:
        yield from _closed_round(before, event, after, admitted)
    elif _ranks(before) != _ranks(after):
        yield Violation("TR1", f"ranks change while no round closes: {_ranks(before)} to {_ranks(after)}")


def _ranks(gang: Gang) -> dict[str, int]:
    return {member: rank.rank for member, rank in gang.table.ranks.items()}


def _closed_round(before: Gang, event: Event, after: Gang, admitted: dict[str, int]) -> Iterator[Violation]:
    held, size = _ranks(before), len(admitted)
    lost = ({*before.lost} | ({event.member} if isinstance(event, Left | LeaseLapsed) else set())) & {*held}
    joined = [WaitingMember(event.member, event.node_id, None)] if isinstance(event, Joined) else []
    gone = event.member if isinstance(event, Left | LeaseLapsed) else None
    waiting = [one for one in (*before.waiting, *joined) if one.member not in (*held, gone)]
    out = {*held} - lost - {*before.arrived} - {one.member for one in joined}
    if admitted != _ranks(after) or {*admitted} & lost:
        yield Violation("TR8", f"{sorted(admitted)} are admitted, {sorted(lost)} are lost, ranks are {_ranks(after)}")
    if out:
        yield Violation("TR7", f"a round closes while {sorted(out)} are out")
    for member in sorted({*held} - lost):
        if admitted.get(member) != held[member] and held[member] < size:
            rule = "TR5" if size > len(held) else "TR1"
            yield Violation(rule, f"{member} had rank {held[member]} and has {admitted.get(member)} of {size}")
    room = min(before.max_size, len(held) - len(lost) + len(waiting))
    if held and size != room:
        yield Violation("TR4", f"{size} are admitted, there is room for {room}")
    if held:
        yield from _taken(before, held, lost, waiting, admitted, after)


def _taken(
    before: Gang, held: dict[str, int], lost: set[str], waiting: list[WaitingMember], admitted: dict[str, int], after: Gang
) -> Iterator[Violation]:
    """Who has the ranks of the lost, in a round of a gang that was seated before."""
    size, heirs = len(admitted), set[str]()
    for node_id in sorted({before.table.node_of(member) for member in lost}):
        ranks = sorted(held[member] for member in lost if before.table.node_of(member) == node_id)
        returned = [one.member for one in waiting if one.node_id == node_id][: len(ranks)]
        heirs |= {*returned}
        wrong = [member for member in returned if admitted.get(member) not in ranks]
        if wrong and any(_is_others(after, rank, node_id) for rank in ranks if rank < size):
            yield Violation("TR2", f"{wrong} are of {node_id} and have none of its ranks {ranks}")
    spares = [one.member for one in waiting if one.member not in heirs]
    seats = [admitted[member] for member in spares if member in admitted]
    if seats != sorted(seats) or any(member not in admitted for member in spares[: len(seats)]):
        yield Violation("TR3", f"spares {spares} waited in this order and have ranks {seats}")


def _is_others(gang: Gang, rank: int, node_id: str) -> bool:
    holder = gang.table.holder_of(rank)
    return holder is not None and gang.table.node_of(holder) != node_id
