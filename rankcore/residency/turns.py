"""The first in line: it has a reservation, and is HOT when it was promised to be, whoever comes after it (T12, T13).

**What.** Whoever fits nowhere waits in a line: the highest `standing` first, which is the priority and one more for each
`aging_s` waited, then who has waited for longest. The first of them that would fit if all that it may displace were gone has
a reservation: a place, and victims there that serve on until all of them may leave. It is the only one (EASY backfill): the
others are placed wherever that is possible without it, and the next in line has one as soon as it is loaded.

**How.** Who has the reservation is RESERVING, like anybody who waits for victims to leave, and holds what is free at its place,
so that the books leave nothing there for others. `Ledger.promised` keeps others from its victims. Among these may be replicas
that are not HOT yet, or are on their way out for somebody else: `Resident.waits_for` names everybody whose bytes it counts on.

1. A replica begins to wait, or something has changed on a node: `review` looks for the first in line that could be placed.
2. Each victim has its turn, `roster.ripe_at`. Once all are over the victims leave together (`begin`), not one after the
   other: bytes that lie about help nobody.
3. Bytes that become free at its place meanwhile are its own before anybody else is tried (`placing.settle`).
4. Something better turns up on another node, free room or victims whose turns are over: it goes there at once (`elsewhere`).
5. A newcomer of a higher standing that could have the place takes it: the line begins anew, and it says so (SLIPPED).
6. Somebody at its place is succeeded: by a new version, or since its process has ended. The memory is the successor's, so an
   update takes nobody's place in the rollout away, and it is one of those waited for instead (`placing._let_pass`). What was
   promised moves by its load and its turn, which is said.

**How long a turn is.** Who is displaced and comes back costs a round trip, two loads: a turn of a few of them wastes little,
one of half a load wastes most of the time. Between these two it is cut, for the first in line alone:

- *whole*: `turn_factor` times its load (6, three round trips of two that are alike), or, where it is not called, until it has
  not been for a round trip: it is likely to be called before another one has come and gone;
- *least*: half a load (`LEAST_LOADS`), or where it is not called `min_hot_s`: for a higher priority, or a line that is pressed.

The line is pressed from `begins_by` on: when victims have to leave for each in line to be HOT within its wait target, and to be
the first before it is given up for want of a place, if they are loaded one after the other (`_begins_by`). That is computed
when the line changes and only becomes earlier, so that what was promised does not move. A turn is by how long a load takes
alone: what it has waited for others on its disk does not count.

**Why it ends.** Each turn has an end that no call can move: `hot_since + max(min_hot_s, turn_s)`. A victim that loads is HOT
after its load, or has failed and is none. So all turns are over at some time that was known in the step in which the first in
line got its place, and nobody is added to its victims. That time, and how long they take to leave, and the load itself, are
`due_at`. A lost victim makes it earlier; what makes it later is noted.

A successor would be one more, and so would be its own: updated again and again, or dying young, the victims would never have
had their turns. So a successor that has gone ahead has no successor ahead of it (`Reservation.heirs`): what it leaves is the
first in line's, and who is to be in its place then waits in line. Each of the victims is succeeded once at most, by one whose
turn ends; so there are at most as many hand-overs as there were victims, and then all turns are over as above.

**What it costs.** `LINE_MAX` of those that wait are tried, on `NODES_MAX` nodes, where there is no reservation and somebody has
begun to wait or one has ended; else on nodes alone where something has changed. So beyond these limits it is one of the first.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from rankcore.residency import estimates
from rankcore.residency.cover import Victim, cheapest_cover
from rankcore.residency.displacement import NODES_MAX, Need, cheapest_displacement, cost_of
from rankcore.residency.fit import Place, degree_on, share
from rankcore.residency.ledger import Ledger, has_copy
from rankcore.residency.levels import Level, Phase
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.placing import best_fit, give_up_place, need_of, place, say_where, set_out, settle
from rankcore.residency.room import degrees_of
from rankcore.residency.roster import ROUND_TRIP_LOADS, Group, turn_end
from rankcore.residency.state import Reservation, ResidencyNode, Resident, replica_id_of
from rankcore.values import NodeId, ReplicaId

NEVER = float("inf")
LINE_MAX = 16
"""Of those that wait so many are tried, the first ones in line."""
LEAST_LOADS = 0.5
"""For so many times as long as its load took a replica with calls stays, whoever waits."""
TO_COME = (Phase.SERVING, Phase.LOADING, Phase.RESERVING)
"""Who is in one of these holds its place until it is displaced."""
TO_LOAD = (Phase.LOADING, Phase.RESERVING)
"""Who is in one of these has a share of the disk, now or soon."""


class Prospect(NamedTuple):
    """A place that could be had, and when at the latest.

    Attributes:
        cost: What the victims weigh, in bytes.
        waits_for: The victims, and who leaves the place anyway.
    """

    due_at: float
    cost: int
    place: Place
    waits_for: tuple[ReplicaId, ...]


class Claim(NamedTuple):
    """What the first in line has to do with the turns of its victims.

    Attributes:
        load_s: How long its load is likely to take.
        leaves_s: How long its victims may take to leave.
        begins_by: When they have to begin to, for all in line to be HOT within their targets; None: whenever they do.
        priority: Its own; who has a lower one has the least turn.
    """

    load_s: float
    leaves_s: float
    begins_by: float | None
    priority: int


def cut_turn(whole_ends: float, least_ends: float, priority: int, claim: Claim) -> float:
    """When a turn is over for the first in line: it is cut for wait targets, but not below the least turn."""
    if priority < claim.priority:
        return min(whole_ends, least_ends)
    return whole_ends if claim.begins_by is None else min(whole_ends, max(least_ends, claim.begins_by))


def standing(ledger: Ledger, record: Resident, since: float) -> int:
    """Where it stands in line: its priority, and one more for each `aging_s` that it has waited."""
    return _aged(ledger, ledger.spec_of(record).priority, since)


def _aged(ledger: Ledger, priority: int, since: float) -> int:
    return priority + int((ledger.clock - since) // ledger.policy.aging_s)


def in_line(ledger: Ledger) -> Iterator[str]:
    """The models that wait, in the order of `turn_in_line`; as many as are looked at cost O(log) each."""
    return (model for _, _, model in merge(*[_of_priority(ledger, *each) for each in ledger.queue.line.items()]))


def _of_priority(ledger: Ledger, priority: int, waiting: Iterable[tuple[float, str]]) -> Iterator[tuple[int, float, str]]:
    return ((-_aged(ledger, priority, since), since, model) for since, model in waiting)


def turn_in_line(ledger: Ledger, model: str) -> tuple[int, float, str]:
    """The place in line of the oldest replica of a model that waits; the least is the first."""
    oldest = first_of(ledger, model)
    return -standing(ledger, oldest, oldest.since), oldest.since, model


def first_of(ledger: Ledger, model: str) -> Resident:
    """The oldest replica of a model that waits."""
    return ledger.replicas[replica_id_of(model, ledger.roster.members(model, Group.WAITING).first())]


def follow_the_first(ledger: Ledger) -> None:
    """Who is first in line goes where it can at once: to its place, or elsewhere."""
    settle(ledger)
    if ledger.head is None:
        return
    record = ledger.replicas[ledger.head.replica_id]
    if not _holds(ledger, record):
        # Other nodes may do for what it asks now, though nothing has changed there.
        place(ledger, give_up_place(ledger, record, "what it asked for is another thing, or whom it may displace"))
    elif not _elsewhere(ledger, record):
        _begin(ledger, record)


def review(ledger: Ledger, nodes: Iterable[NodeId]) -> None:
    """See who is first in line now, and give it its place.

    Args:
        ledger: The books.
        nodes: Where something has changed; where somebody has begun to wait, or was first in line before, all are looked at.
    """
    among = None if ledger.stirred else nodes
    ledger.stirred = False
    if not ledger.policy.reserves:
        return
    for record in _candidates(ledger):
        found = earliest(ledger, record, among)
        if found is not None:
            if ledger.head is not None:
                give_up_place(ledger, ledger.replicas[ledger.head.replica_id], f"{record.replica_id} goes ahead of it")
            _reserve(ledger, record, found)
            break
    if ledger.head is not None:
        _see_when(ledger, ledger.replicas[ledger.head.replica_id])


def _candidates(ledger: Ledger) -> Iterator[Resident]:
    if ledger.head is None:
        for model in islice(in_line(ledger), LINE_MAX):
            yield first_of(ledger, model)
        return
    head = ledger.head
    mark = standing(ledger, ledger.replicas[head.replica_id], head.since)
    come = [ledger.replicas[each] for each in ledger.newcomers if each != head.replica_id]
    waiting = [each for each in come if each.phase is Phase.WAITING and standing(ledger, each, each.since) > mark]
    yield from sorted(waiting, key=lambda each: (-standing(ledger, each, each.since), each.since, each.replica_id))


def earliest(ledger: Ledger, record: Resident, among: Iterable[NodeId] | None = None) -> Prospect | None:
    """Where a replica that waits could be HOT at first, once all are gone that it may displace (T4); None: nowhere."""
    need, best = need_of(ledger, record.model, record.size_bytes), None
    labels = need.spec.node_labels.items()
    for node_id in islice(_likely(ledger, need), NODES_MAX) if among is None else among:
        node = ledger.nodes.get(node_id)
        if node is None or node_id in need.excluded or not labels <= node.labels.items():
            continue
        degree = degree_on(node, need.spec, need.total_bytes)
        found = None if degree is None else _prospect(ledger, need, record, node, degree)
        if found is not None and (best is None or found < best):
            best = found
    return best


def _likely(ledger: Ledger, need: Need) -> Iterator[NodeId]:
    """The nodes that are large enough, each once, by what is free there and what others there weigh."""
    shelves = []
    for shape in need.shapes:
        degrees = degrees_of(shape, need.spec, need.total_bytes)
        if degrees:
            shelves.append(iter(ledger.shelf(shape, degrees[0]).cheap))
    return (node_id for _, node_id in merge(*shelves))


def _prospect(ledger: Ledger, need: Need, record: Resident, node: ResidencyNode, degree: int) -> Prospect | None:
    each_bytes = share(need.spec, need.total_bytes, degree)
    stay = [each for each in ledger.on_gpus(node.node_id) if each.phase in TO_COME and not _is_first(ledger, each)]
    room = [0 if gpu.excess_bytes else gpu.capacity_bytes for gpu in node.gpus]
    for other in stay:
        for gpu, size in zip(other.gpus, other.need_bytes, strict=True):
            room[gpu] -= size
    short = {
        number: max(0, each_bytes - room[number])
        for number, gpu in enumerate(node.gpus)
        if gpu.real_bytes >= each_bytes and not gpu.excess_bytes
    }
    # Those whose turns are over first, and of them no more than it takes: of these the cheapest.
    claim = _claim(ledger, record, node, ())
    ends = {each.replica_id: _turn_ends(ledger, node, each, claim) for each in stay if _may_be_displaced(ledger, need, each)}
    soonest = sorted(
        (each for each in stay if each.replica_id in ends), key=lambda each: (ends[each.replica_id], each.replica_id)
    )
    victims = [
        Victim(each.replica_id, _weight(ledger, each), dict(zip(each.gpus, each.need_bytes, strict=True))) for each in soonest
    ]
    cover = cheapest_cover(victims, short, degree)
    if cover is None:
        return None
    least, most = 0, len(victims)
    while least < most:
        half = (least + most) // 2
        fewer = cheapest_cover(victims[:half], short, degree)
        if fewer is None:
            least = half + 1
        else:
            most, cover = half, fewer
    leaving = [
        each.replica_id
        for each in ledger.on_gpus(node.node_id)
        if each.phase is Phase.LEAVING and not set(each.gpus).isdisjoint(cover.gpus)
    ]
    waits_for = tuple(sorted({*cover.victims, *leaving}))
    due_at = _due_at(ledger, record, node, waits_for)
    return Prospect(due_at, cover.cost, Place(node.node_id, cover.gpus, each_bytes), waits_for)


def _is_first(ledger: Ledger, record: Resident) -> bool:
    return ledger.head is not None and ledger.head.replica_id == record.replica_id


def _may_be_displaced(ledger: Ledger, need: Need, other: Resident) -> bool:
    """Whether it may be displaced at some time (T4): aging moves nobody's priority here."""
    spec = ledger.spec_of(other)
    return (
        other.model != need.spec.model
        and ledger.asked[other.model] != need.asked
        and not spec.dedicated
        and spec.priority <= need.spec.priority
    )


def _weight(ledger: Ledger, other: Resident) -> int:
    """What a victim weighs, by what it will hold; who is not HOT yet as if it was used just now."""
    spec, policy = ledger.spec_of(other), ledger.policy
    if other.phase is Phase.SERVING:
        return cost_of(other, spec, policy, ledger.clock)
    return sum(other.need_bytes) * (1 + spec.priority) + policy.recent_cost_bytes


def _due_at(ledger: Ledger, record: Resident, node: ResidencyNode, waits_for: Iterable[ReplicaId]) -> float:
    """When a replica is HOT at the latest: after the last turn, once all have left, and its load.

    Who leaves already has begun to when its turn was over: its drain does not begin again with each look.
    """
    others = [ledger.replicas[each] for each in waits_for]
    claim = _claim(ledger, record, node, others)
    start_at = max((_turn_ends(ledger, node, each, claim) for each in others), default=ledger.clock)
    return max(start_at + claim.leaves_s, ledger.clock) + claim.load_s


def _claim(ledger: Ledger, record: Resident, node: ResidencyNode, others: Sequence[Resident]) -> Claim:
    """What a replica has to do with the turns on a node: who has the reservation there, as was found when the line changed."""
    beside = _loading_bytes(ledger, node, others)
    source = Level.WARM if has_copy(record) and record.copy_node_id == node.node_id else Level.COLD
    load_s = estimates.load_s(ledger.policy, node, ledger.spec_of(record).weight_bytes + beside, source)
    leaves_s = ledger.policy.drain_timeout_s + sum(_copy_s(ledger, each) for each in others)
    priority = ledger.spec_of(record).priority
    if ledger.head is not None and _is_first(ledger, record):
        return Claim(load_s, leaves_s, ledger.head.begins_by, priority)
    return Claim(load_s, leaves_s, _begins_by(ledger, record, record.since, node, load_s, leaves_s), priority)


def _begins_by(
    ledger: Ledger, record: Resident, since: float, node: ResidencyNode, load_s: float, leaves_s: float
) -> float | None:
    """When victims have to begin to leave, for all in line to have a place and be HOT in time; None: whenever they do.

    Those behind it are loaded after it, on as many nodes at a time as there are; who is behind one is the first once it loads.
    """
    due: list[float] = []
    target_s, loaded_bytes, ahead_bytes = ledger.spec_of(record).wait_target_s, 0, ledger.spec_of(record).weight_bytes
    if target_s is not None:
        due.append(since + target_s - load_s)
    for model in islice(in_line(ledger), LINE_MAX):
        spec = ledger.models[model]
        if model != record.model:
            waits_since = first_of(ledger, model).since
            if spec.place_target_s is not None:
                took_s = estimates.load_s(ledger.policy, node, loaded_bytes // len(ledger.nodes), Level.COLD)
                due.append(waits_since + spec.place_target_s - took_s)
            loaded_bytes, ahead_bytes = ahead_bytes, ahead_bytes + spec.weight_bytes
            if spec.wait_target_s is not None:
                size = max(ahead_bytes // len(ledger.nodes), spec.weight_bytes)
                took_s = estimates.load_s(ledger.policy, node, size, Level.COLD)
                due.append(waits_since + spec.wait_target_s - took_s)
    return min(due) - leaves_s if due else None


def _turn_ends(ledger: Ledger, node: ResidencyNode, victim: Resident, claim: Claim) -> float:
    """When its turn is over at the latest, as far as is known: of a load as it was known when it began."""
    if victim.phase is Phase.LEAVING:
        return victim.since
    spec = ledger.spec_of(victim)
    if victim.phase is Phase.SERVING:
        assert victim.hot_since is not None
        hot_since, load_s, turn_s = victim.hot_since, victim.load_s, victim.turn_s
    else:
        hot_since, load_s = victim.hot_by, victim.load_s
        if victim.phase is not Phase.LOADING:
            copies_s = sum(_copy_s(ledger, ledger.replicas[each]) for each in victim.waits_for)
            begins = max(victim.since + ledger.policy.drain_timeout_s + copies_s, ledger.clock)
            load_s = estimates.load_s(ledger.policy, node, spec.weight_bytes, Level.COLD)
            size = spec.weight_bytes + _loading_bytes(ledger, node, (victim,))
            hot_since = begins + estimates.load_s(ledger.policy, node, size, Level.COLD)
        hot_since, turn_s = max(hot_since, ledger.clock), ledger.policy.turn_factor * load_s
    least = turn_end(hot_since, min(turn_s, LEAST_LOADS * load_s), spec)
    return max(cut_turn(turn_end(hot_since, turn_s, spec), least, spec.priority, claim), ledger.clock)


def _ends_for(ledger: Ledger, victim: Resident, claim: Claim) -> float:
    """When the turn of who serves is over for the first in line, as things are; in the past: it is."""
    spec = ledger.spec_of(victim)
    assert victim.hot_since is not None
    whole = turn_end(victim.hot_since, victim.turn_s, spec)
    least = turn_end(victim.hot_since, min(victim.turn_s, LEAST_LOADS * victim.load_s), spec)
    if not victim.in_flight:
        unused_since = max(victim.hot_since, victim.last_used)
        whole = min(whole, unused_since + max(spec.min_hot_s, ROUND_TRIP_LOADS * victim.load_s))
        least = min(least, unused_since + spec.min_hot_s)
    return cut_turn(whole, least, spec.priority, claim)


def _copy_s(ledger: Ledger, leaver: Resident) -> float:
    return estimates.copy_s(ledger.policy, ledger.spec_of(leaver).weight_bytes)


def _loading_bytes(ledger: Ledger, node: ResidencyNode, but: Sequence[Resident]) -> int:
    """What is loaded on a node besides, or will be before who is first in line: that is for whom somebody leaves already."""
    without = {each.replica_id for each in but}
    loading = [each for each in ledger.on_gpus(node.node_id) if each.phase in TO_LOAD and not _is_first(ledger, each)]
    return sum(ledger.spec_of(each).weight_bytes for each in loading if each.replica_id not in without)


def _reserve(ledger: Ledger, record: Resident, found: Prospect) -> None:
    node, at = ledger.nodes[found.place.node_id], found.place
    own = tuple([min(at.each_bytes, node.gpus[gpu].free_bytes) for gpu in at.gpus])
    gpus = f"GPU {at.gpus[0]}" if len(at.gpus) == 1 else "GPUs " + ", ".join(str(gpu) for gpu in at.gpus)
    once = f" once {', '.join(found.waits_for)} left" if found.waits_for else ""
    since = record.since
    begins_by = _claim(ledger, record, node, [ledger.replicas[each] for each in found.waits_for]).begins_by
    record = ledger.change(
        record,
        phase=Phase.RESERVING,
        node_id=at.node_id,
        gpus=at.gpus,
        gpu_bytes=own,
        need_bytes=(at.each_bytes,) * len(at.gpus),
        waits_for=found.waits_for,
        used_bytes=(),
        due_at=found.due_at,
        because=f"it is first in line, and goes to {gpus}{once}",
    )
    ledger.head = Reservation(record.replica_id, since, begins_by=begins_by)
    within = f"{record.because}: HOT within {found.due_at - ledger.clock:.0f} s"
    ledger.note(ResidencyNoteKind.RESERVED, "T12", record, within, size=sum(record.need_bytes))
    _begin(ledger, record)


def _begin(ledger: Ledger, record: Resident) -> None:
    """Its victims leave, once the turn of each is over."""
    victims = [ledger.replicas[each] for each in record.waits_for]
    gone = tuple(each.replica_id for each in victims if each.phase is not Phase.LEAVING)
    if gone and begins_at(ledger) > ledger.clock:
        return
    if gone:
        cost = sum(_weight(ledger, ledger.replicas[each]) for each in gone)
        assert record.node_id is not None
        ledger.places.append((record, Place(record.node_id, record.gpus, record.need_bytes[0]), gone, cost))
    if gone or not record.waits_for:
        say_where(ledger, record, gone, True)
    set_out(ledger, record, gone)


def begins_at(ledger: Ledger) -> float:
    """When the victims of the first in line are to leave, unless something happens before; never: something has to."""
    if ledger.head is None:
        return NEVER
    record = ledger.replicas[ledger.head.replica_id]
    victims = [each for each in (ledger.replicas[each] for each in record.waits_for) if each.phase is not Phase.LEAVING]
    if not victims or any(each.phase is not Phase.SERVING for each in victims):
        return NEVER
    if ledger.spec_of(record).dedicated:
        return ledger.clock
    assert record.node_id is not None
    claim = _claim(ledger, record, ledger.nodes[record.node_id], [ledger.replicas[each] for each in record.waits_for])
    return max(_ends_for(ledger, each, claim) for each in victims)


def _holds(ledger: Ledger, record: Resident) -> bool:
    """Whether its place would still be found: specs, requests and labels may be others by now."""
    assert record.node_id is not None
    need, node = need_of(ledger, record.model, record.size_bytes), ledger.nodes[record.node_id]
    victims = [ledger.replicas[each] for each in record.waits_for]
    return (
        need.spec.node_labels.items() <= node.labels.items()
        and degree_on(node, need.spec, need.total_bytes) == len(record.gpus)
        and share(need.spec, need.total_bytes, len(record.gpus)) == record.need_bytes[0]
        and all(each.phase is Phase.LEAVING or _may_be_displaced(ledger, need, each) for each in victims)
    )


def has_begun(ledger: Ledger, record: Resident) -> bool:
    """Whether anybody leaves for who is first in line."""
    return any(ledger.replicas[each].makes_room_for == record.replica_id for each in record.waits_for)


def _elsewhere(ledger: Ledger, record: Resident) -> bool:
    """Whether there is something better on another node, where something has changed: it goes there."""
    assert record.node_id is not None
    if has_begun(ledger, record):
        return False
    need = need_of(ledger, record.model, record.size_bytes)
    labels = need.spec.node_labels.items()
    others = [
        each for each in sorted(ledger.roomier) if each not in need.excluded and labels <= ledger.nodes[each].labels.items()
    ]
    if not others or (best_fit(ledger, need, others) is None and cheapest_displacement(ledger, need, others) is None):
        return False
    record = give_up_place(ledger, ledger.change(record, due_at=None), "there is room elsewhere")
    return place(ledger, record, among=others)


def _see_when(ledger: Ledger, record: Resident) -> None:
    """What was promised does not move to a later time without a word."""
    assert record.node_id is not None
    assert record.due_at is not None
    assert ledger.head is not None
    node = ledger.nodes[record.node_id]
    if ledger.newcomers:
        claim = _claim(ledger, record, node, [ledger.replicas[each] for each in record.waits_for])
        begins_by = _begins_by(ledger, record, ledger.head.since, node, claim.load_s, claim.leaves_s)
        if begins_by is not None and (ledger.head.begins_by is None or begins_by < ledger.head.begins_by):
            ledger.head = replace(ledger.head, begins_by=begins_by)
    due_at = _due_at(ledger, record, node, record.waits_for)
    if due_at > record.due_at:
        late_s = due_at - record.due_at
        heirs = [each for each in ledger.heirs if each in record.waits_for]
        because = f"{', '.join(heirs)} succeeds who was there" if heirs else f"{', '.join(record.waits_for)} took longer"
        ledger.note(ResidencyNoteKind.SLIPPED, "T13", record, f"{late_s:.0f} s later than promised: {because}")
        # What took longer may do so again: twice the time, so that it is said a few times, and not at each look.
        ledger.change(record, due_at=due_at if heirs else due_at + late_s)
