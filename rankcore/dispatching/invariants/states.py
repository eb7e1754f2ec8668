"""Promises about a state: who waits, for what, and whether planner and routers agree."""

from collections.abc import Iterable

from rankcore.dispatching.alarms import AlarmKind
from rankcore.dispatching.commands import StatusKind
from rankcore.dispatching.draft import is_moving
from rankcore.dispatching.invariants.ranks import check_ranks
from rankcore.dispatching.standing import ON_THE_WAY
from rankcore.dispatching.state import FleetState, Served
from rankcore.kernel import Violation
from rankcore.residency import Phase
from rankcore.residency.invariants import check as check_residency
from rankcore.routing.invariants import check as check_router

_TAKES = frozenset({Phase.SERVING, Phase.LEAVING})


def check(state: FleetState) -> list[Violation]:
    """Check a state against the promises.

    Returns:
        What is broken; empty when all promises hold.
    """
    found = [*check_residency(state.residency), *_requests(state), *_alarms(state), *_moves(state)]
    for model in sorted(state.models):
        served = state.models[model]
        found += check_router(served.router)
        found += [*_one_index(state, model, served), *_routes(state, model, served)]
        if served.ranking is not None:
            found += check_ranks(state, model, served.ranking)
        found += [*_waits_for_something(state, model, served), *_asked_for_once(state, model, served)]
    return found


def _requests(state: FleetState) -> Iterable[Violation]:
    """D1: whoever has no answer is known to the router of its model; D5: no two were told one revision."""
    for request_id, request in state.requests.items():
        if not state.models[request.model].router.knows(request_id):
            yield Violation("D1", f"request {request_id!r} is nowhere")
        if request.waits and not request.revision:
            yield Violation("D5", f"request {request_id!r} waits and was told nothing")
        if request.revision > state.revision:
            yield Violation("D5", f"request {request_id!r} was told {request.revision} of {state.revision}")
    told = [request.revision for request in state.requests.values() if request.revision]
    if len(set(told)) < len(told):
        yield Violation("D5", f"{len(told)} requests were told {len(set(told))} revisions")


def _one_index(state: FleetState, model: str, served: Served) -> Iterable[Violation]:
    """D1, D3: what the router has without an answer, and what waits in it, is what the fleet has entered."""
    wholes = [each for each in served.router.image.requests if each.part is None]
    for what, theirs, ours in (
        ("has", {each.request_id for each in wholes}, {each for each, is_of in state.requests.items() if is_of.model == model}),
        (
            "owes an answer to",
            {each.request_id for each in wholes if not each.answered},
            {each for each, is_of in state.requests.items() if is_of.model == model and not is_of.answered},
        ),
        ("lets wait", {each.request_id for each in wholes if each.waits}, set(served.waiting.values())),
    ):
        if theirs != ours:
            yield Violation("D1", f"the router of {model!r} {what} {sorted(map(repr, theirs ^ ours))} or does not")
    for serial, request_id in served.waiting.items():
        request = state.requests.get(request_id)
        if request is None or not request.waits or request.serial != serial:
            yield Violation("D3", f"request {request_id!r} is in line for {model!r} and does not wait")


def _routes(state: FleetState, model: str, served: Served) -> Iterable[Violation]:
    """D6: the router knows whoever is SERVING, and nobody else has anything in flight but who is leaving; D8.

    Where they have ranks, those who know theirs and run (D12).
    """
    image = served.router.image
    serving = sorted(state.residency.hot_replicas(model))
    if served.ranking is not None:
        serving = [each for each in serving if served.ranking.takes_requests(each, routed=each in served.routed)]
    routed = sorted(each.replica_id for each in image.replicas if each.routed)
    if not serving == routed == list(served.routed):
        yield Violation("D6", f"of {model!r} {serving} serve, {routed} are routed, {list(served.routed)} are entered")
    for replica in image.replicas:
        resident = state.residency.replicas.get(replica.replica_id)
        phase = None if resident is None else resident.phase
        if phase not in _TAKES:
            yield Violation("D6", f"{replica.replica_id} has {replica.in_flight} requests in flight and is {phase}")
        elif phase is Phase.SERVING and resident is not None and resident.in_flight != replica.in_flight:
            yield Violation(
                "D8", f"{replica.replica_id} has {replica.in_flight} in flight, the planner says {resident.in_flight}"
            )
        elif phase is Phase.LEAVING and replica.replica_id not in served.draining:
            yield Violation("D6", f"{replica.replica_id} is leaving with {replica.in_flight} in flight, and nobody looks")

    busy = {replica.replica_id for replica in image.replicas if replica.in_flight}
    for replica_id in served.draining:
        if replica_id not in busy:
            yield Violation("D6", f"{replica_id} has nothing in flight, and is still seen off")


def _waits_for_something(state: FleetState, model: str, served: Served) -> Iterable[Violation]:
    """D3, D4, D7: what waits is told what it waits for, and that is on its way."""
    if not served.waiting:
        if served.status is not None:
            yield Violation("D3", f"nobody waits for {model!r}, and they are told {served.status}")
        return
    kind = None if served.status is None else served.status.kind
    allowed = {StatusKind.QUEUED} if served.routed else {StatusKind.PROVISIONING, StatusKind.LOADING}
    if kind not in allowed:
        yield Violation("D3", f"{len(served.waiting)} wait for {model!r} with {list(served.routed)} routed, told {kind}")
    if served.routed:
        return
    if not state.residency.target(model):
        yield Violation("D4", f"{len(served.waiting)} wait for {model!r}, and no replica of it is wanted")
    placed = any(state.residency.replicas[each].phase in ON_THE_WAY for each in state.residency.wanted_replicas(model))
    if placed == ((AlarmKind.ROOM, model) in state.alarms.times):
        yield Violation("D7", f"{model!r} has {'a' if placed else 'no'} place, and its alarm says otherwise")


def _asked_for_once(state: FleetState, model: str, served: Served) -> Iterable[Violation]:
    """D2: what was asked for because requests wait is one replica, that is not HOT yet."""
    if served.demanded and (served.routed or state.residency.target(model) != 1):
        yield Violation("D2", f"{state.residency.target(model)} replicas of {model!r} are asked for, {served.routed} serve")


def _moves(state: FleetState) -> Iterable[Violation]:
    """D10: what the planner waits for is what nodes were told, so that they can be told again."""
    told = {replica_id: under_way.command.move for replica_id, under_way in state.moves.items()}
    awaited = {each.replica_id: each.move for each in state.residency.replicas.values() if is_moving(each)}
    if told != awaited:
        yield Violation("D10", f"the planner waits for {awaited}, nodes were told {told}")


def _alarms(state: FleetState) -> Iterable[Violation]:
    """D10: nothing is overdue, and the clock was asked for before the next thing is due."""
    for alarm in state.alarms.order:
        if alarm.kind is AlarmKind.ROOM and alarm.at <= state.clock:
            yield Violation("D7", f"room for {alarm.model!r} was waited for until {alarm.at:g}, it is {state.clock:g}")
    next_at = state.alarms.next_at
    if next_at is not None and (state.wake_at is None or state.wake_at > next_at):
        yield Violation("D10", f"something is due at {next_at:g}, the clock comes at {state.wake_at}")
