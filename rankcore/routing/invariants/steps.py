"""Promises about one step: what may be answered, dispatched and done again."""

from collections.abc import Iterable

from rankcore.kernel import Violation
from rankcore.routing.commands import FINAL, Complete, Decline, Dispatch, Expire, Fail, FailPart, Reject, Retry
from rankcore.routing.events import (
    AvailabilityChanged,
    Event,
    FailureKind,
    ReplicaLost,
    ReplicasProposed,
    RequestArrived,
    RequestFailed,
    RequestId,
    RouterOpened,
    RoutingSpecChanged,
)
from rankcore.routing.image import RequestImage, RouterImage
from rankcore.routing.invariants.states import room_of
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.policies.proposed import named_by
from rankcore.routing.records import NEVER
from rankcore.routing.state import RouterState, RouteStep

Key = tuple[RequestId, int | None]


def check_step(before: RouterState, event: Event, step: RouteStep) -> list[Violation]:
    """Check a step against the promises.

    Args:
        before: The state that the event was applied to.
        event: The event.
        step: What `route_step(before, event)` returned.

    Returns:
        What is broken; empty when all promises hold.
    """
    old, new = before.image, step.state.image
    return [
        *_one_answer_each(old, new, event, step),
        *_limits(new, step),
        *_order(old, new, event, step),
        *_turned_away(old, event, step),
        *_opened(old, new, event, step),
        *_done_again(old, event, step),
        *_deadlines(old, new, event, step),
        *_spec_keeps_the_line(old, new, event, step),
        *_gathered(old, event, step),
        *_available(old, new, event, step),
        *_explained(old, new, step),
    ]


def _by_key(image: RouterImage) -> dict[Key, RequestImage]:
    return {(each.request_id, each.part): each for each in image.requests}


def _open(image: RouterImage) -> set[RequestId]:
    return {each.request_id for each in image.requests if each.part is None and not each.answered}


def _one_answer_each(old: RouterImage, new: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q1: who had no answer, or has just come, either has none still or was given exactly one."""
    arrived = {event.request_id} if isinstance(event, RequestArrived) else set()
    known = {each.request_id for each in old.requests}
    had_none = _open(old) | (arrived - known)
    finals = [command.request_id for command in step.commands if isinstance(command, FINAL)]
    for request_id in sorted(set(finals), key=repr):
        if finals.count(request_id) > 1:
            yield Violation("Q1", f"request {request_id!r} is answered {finals.count(request_id)} times")
        if request_id not in had_none:
            yield Violation("Q1", f"request {request_id!r} is answered again")
    for request_id in sorted(had_none ^ (_open(new) | set(finals)), key=repr):
        yield Violation("Q1", f"request {request_id!r} vanished, or came back, without an answer")


def _limits(new: RouterImage, step: RouteStep) -> Iterable[Violation]:
    """Q2: who is given a request has no more in flight than it may have, and than the deployment allows."""
    replicas = {replica.replica_id: replica for replica in new.replicas}
    for command in step.commands:
        if not isinstance(command, (Dispatch, Retry)):
            continue
        replica = replicas.get(command.replica_id)
        if replica is None or not replica.routed:
            yield Violation("Q2", f"{command} goes to a replica that is not routed")
            continue
        allowed = min(replica.limit, new.spec.max_ongoing_requests)
        if new.spec.by_credits:
            allowed = min(allowed, replica.credits)
        if replica.in_flight > allowed:
            yield Violation("Q2", f"{command} makes {replica.in_flight} of at most {allowed}")


def _order(old: RouterImage, new: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q4: of those that wait for the same, the older one goes first; what is for a rank goes to that rank."""
    after = _by_key(new)
    # What has come back in this very step may be older than what went before it came.
    waited = {key for key, each in _by_key(old).items() if each.waits}
    waits = [each for each in new.requests if each.waits and (each.request_id, each.part) in waited]
    for command in step.commands:
        if not isinstance(command, (Dispatch, Retry)):
            continue
        sent = after.get((command.request_id, command.part)) or _by_key(old).get((command.request_id, command.part))
        if sent is None:
            yield Violation("Q4", f"{command} is of no request")
            continue
        older = [each for each in waits if each.rank == sent.rank and each.serial < sent.serial and _may(new, each, command)]
        if older:
            yield Violation("Q4", f"{command} overtakes request {older[0].request_id!r}")
        rank = next((each.rank for each in new.replicas if each.replica_id == command.replica_id), None)
        if sent.rank is not None and rank != sent.rank:
            yield Violation("Q4", f"{command} goes to rank {rank}, and is for {sent.rank}")


def _may(image: RouterImage, request: RequestImage, command: Dispatch | Retry) -> bool:
    """Whether a request that waits could have been sent there in its place."""
    if not image.spec.router or request.rank is not None:
        return True
    return command.replica_id in named_by(request.ranked or ())


def _is_undecided(image: RouterImage, request: RequestImage) -> bool:
    """Whether nobody has said yet who may have it."""
    return bool(image.spec.router) and request.waits and request.rank is None and request.ranked is None


def _turned_away(old: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q5: only who has just come is turned away, and only where as many wait as may."""
    for command in step.commands:
        if not isinstance(command, Reject) or isinstance(event, RouterOpened):
            continue
        waiting = len(_waiting(old))
        if isinstance(event, ReplicasProposed):
            yield from _turned_away_by_proposal(old, event, command)
            continue
        if not old.opened:
            yield Violation("Q5", f"{command} before the limit is known")
        if not isinstance(event, RequestArrived) or event.request_id != command.request_id:
            yield Violation("Q5", f"{command} turns away what had been accepted")
        elif event.rank is None and not event.broadcast and any(room_of(replica) for replica in old.replicas):
            yield Violation("Q5", f"{command} while a replica has room")
        elif waiting < old.spec.max_queued_requests:
            yield Violation("Q5", f"{command} while {waiting} of {old.spec.max_queued_requests} wait")
        if command.retry_after_s < old.spec.retry_after_s:
            yield Violation("Q5", f"{command} has a Retry-After below {old.spec.retry_after_s:g}")


def _turned_away_by_proposal(old: RouterImage, event: ReplicasProposed, command: Reject) -> Iterable[Violation]:
    """Q5, of what was asked about: it is so when the first proposal names nobody who has room."""
    was = _by_key(old).get((command.request_id, None))
    if was is None or event.request_id != command.request_id or not _is_undecided(old, was) or was.attempt:
        yield Violation("Q5", f"{command} turns away what had been accepted")
        return
    having_room = {replica.replica_id for replica in old.replicas if room_of(replica)}
    if having_room & named_by(event.ranked).keys():
        yield Violation("Q5", f"{command} while a replica that was proposed has room")
    decided = _waiting(old) - {each.request_id for each in old.requests if _is_undecided(old, each)}
    if len(decided) < old.spec.max_queued_requests:
        yield Violation("Q5", f"{command} while {len(decided)} of {old.spec.max_queued_requests} wait")


def _opened(old: RouterImage, new: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q5: when the limit comes to be known, the oldest that wait are accepted, as many as may wait, and nobody else."""
    if not isinstance(event, RouterOpened):
        return
    rejected = {command.request_id for command in step.commands if isinstance(command, Reject)}
    begun = {each.request_id for each in old.requests if each.attempt}
    if (rejected and old.opened) or rejected & begun:
        yield Violation("Q5", f"{sorted(rejected, key=repr)} are turned away, and had been accepted")
    new_ones = [
        each
        for each in new.requests
        if each.request_id in _waiting(new) - begun and each.part is None and not _is_undecided(new, each)
    ]
    older = {each.request_id: each.serial for each in old.requests if each.part is None}
    if rejected and any(each.serial > min(older[one] for one in rejected) for each in new_ones):
        yield Violation("Q5", f"{sorted(rejected, key=repr)} are turned away, and younger ones wait")
    room = max(0, new.spec.max_queued_requests - len(_waiting(new) & begun))
    if not old.opened and len(new_ones) != min(room, len(new_ones) + len(rejected)):
        yield Violation("Q5", f"{len(new_ones)} of {len(new_ones) + len(rejected)} are accepted, and {room} may wait")


def _waiting(image: RouterImage) -> set[RequestId]:
    unsplit = {each.request_id for each in image.requests if each.is_broadcast and not each.is_split and not each.answered}
    return unsplit | {each.request_id for each in image.requests if each.waits}


def _done_again(old: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q6: an attempt follows another one only where that is allowed, and one at a time."""
    before = _by_key(old)
    for key, request in _by_key(step.state.image).items():
        was = before.get(key)
        if was is None or was.replica_id is None or not (request.waits or request.attempt > was.attempt):
            continue
        if was.begun:
            yield Violation("Q6", f"request {key} is done again, and part of its answer was delivered")
        refused = isinstance(event, RequestFailed) and event.kind is FailureKind.REFUSED
        lost = isinstance(event, ReplicaLost) or (isinstance(event, RequestFailed) and event.kind is FailureKind.LOST)
        if not refused and not (lost and old.spec.idempotent and was.losses < old.spec.max_retries):
            yield Violation("Q6", f"request {key} is done again after {event}")
    for command in step.commands:
        is_first = isinstance(command, Dispatch)
        if isinstance(command, (Dispatch, Retry)) and is_first != (command.attempt == 1):
            yield Violation("Q6", f"{command} is attempt {command.attempt}")


def _deadlines(old: RouterImage, new: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q7: a request expires if, and only if, its deadline has come; the clock never goes back."""
    if new.clock < old.clock:
        yield Violation("Q7", f"the clock went from {old.clock:g} to {new.clock:g}")
    deadlines = {each.request_id: each.deadline for each in old.requests if each.part is None}
    if isinstance(event, RequestArrived) and event.request_id not in deadlines:
        timeout_s = old.spec.request_timeout_s
        default = float("inf") if timeout_s is None else new.clock + timeout_s
        deadlines[event.request_id] = default if event.deadline is None else event.deadline
    if isinstance(event, RouterOpened) and not old.opened and old.spec.request_timeout_s is not None:
        by_default = {
            each.request_id: each.arrived_at + old.spec.request_timeout_s for each in old.requests if each.part is None
        }
        deadlines = {each: min(deadline, by_default[each]) for each, deadline in deadlines.items()}
    for command in step.commands:
        if isinstance(command, Expire) and deadlines[command.request_id] > new.clock:
            yield Violation("Q7", f"{command} comes at {new.clock:g}, before {deadlines[command.request_id]:g}")
        if isinstance(command, (Dispatch, Retry)) and deadlines.get(command.request_id, float("inf")) <= new.clock:
            yield Violation("Q7", f"{command} comes after its deadline")


def _spec_keeps_the_line(old: RouterImage, new: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q8: another spec answers nobody who still has time; what waited waits, or is in flight."""
    if not isinstance(event, RoutingSpecChanged):
        return
    for command in step.commands:
        if isinstance(command, FINAL) and not isinstance(command, Expire):
            yield Violation("Q8", f"{command} for another spec")
    if new.spec != event.spec:
        yield Violation("Q8", f"the spec is {new.spec}")


def _gathered(old: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q9: a broadcast is complete when all its parts are, one for each rank; what fails decides, or is kept."""
    keeping = {each.request_id for each in old.requests if each.keeps_failures}
    if isinstance(event, RequestArrived) and event.keep_failures:
        keeping.add(event.request_id)
    failed = [(command.request_id, command.part) for command in step.commands if isinstance(command, FailPart)]
    for command in step.commands:
        kept = command.request_id in keeping if isinstance(command, (Fail, FailPart)) else None
        if isinstance(command, FailPart) and not (kept and failed.count((command.request_id, command.part)) == 1):
            yield Violation("Q9", f"{command} of a broadcast that does not keep failures, or twice")
        if isinstance(command, Fail) and kept and command.kind is not None:
            yield Violation("Q9", f"{command} of a broadcast that keeps failures")
        if not isinstance(command, Complete):
            continue
        parts = [each for each in old.requests if each.request_id == command.request_id and each.part is not None]
        if (command.parts or 0) != len(parts):
            yield Violation("Q9", f"{command} has {len(parts)} parts")
        if sum(1 for part in parts if not part.answered and (part.request_id, part.part) not in failed) > 1:
            yield Violation("Q9", f"{command} before all parts are there")


def _available(old: RouterImage, new: RouterImage, event: Event, step: RouteStep) -> Iterable[Violation]:
    """Q11: declined is only who comes, or waits, while nobody serves nor is about to; it is over when it is said to be."""
    said = event if isinstance(event, AvailabilityChanged) else None
    if said is not None and not said.problem and new.unavailable is not None:
        yield Violation("Q11", f"it is said to be over, and lasts: {new.unavailable.problem}")
    known = new.unavailable
    if known is not None and known != old.unavailable and (said is None or said.problem != known.problem):
        yield Violation("Q11", f"nobody has said that {known.problem}")
    for command in step.commands:
        if not isinstance(command, Decline):
            continue
        if known is None or new.clock >= known.until or command.reason != known.problem:
            yield Violation("Q11", f"{command} while it is not so")
        elif command.retry_after_s != (known.retry_after_s if known.until == NEVER else known.until - new.clock):
            yield Violation("Q11", f"{command} has another Retry-After than {known}")


def _explained(old: RouterImage, new: RouterImage, step: RouteStep) -> Iterable[Violation]:
    """Q10: each answer and each dispatch has a note that says why, and late news changes nothing but the clock."""
    explained = {note.request_id for note in step.notes}
    about = (Dispatch, Retry, FailPart, *FINAL)
    for command in step.commands:
        if isinstance(command, about) and command.request_id not in explained:
            yield Violation("Q10", f"{command} has no note that says why")
    late = [note for note in step.notes if note.kind is RoutingNoteKind.LATE]
    if late and len(late) == len(step.notes) and (old.requests, old.open) != (new.requests, new.open):
        yield Violation("Q10", f"late news changes something: {late}")
