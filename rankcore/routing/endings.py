"""How requests end: each with exactly one final answer (Q1), done again only where that is allowed (Q6)."""

from rankcore.routing.commands import Complete, Decline, Expire, Fail, FailPart, Forget, Reject, StopAttempt
from rankcore.routing.events import FailureKind
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.records import NEVER, Request
from rankcore.routing.tables import Tables

RETRY_AFTER_MAX_S = 60.0

Final = Complete | Fail | Reject | Decline | Expire | Forget

_NOTE_KINDS: dict[type[Final], tuple[RoutingNoteKind, str]] = {
    Complete: (RoutingNoteKind.ANSWERED, "Q1"),
    Fail: (RoutingNoteKind.FAILED, "Q6"),
    Reject: (RoutingNoteKind.REJECTED, "Q5"),
    Decline: (RoutingNoteKind.DECLINED, "Q11"),
    Expire: (RoutingNoteKind.EXPIRED, "Q7"),
    Forget: (RoutingNoteKind.CANCELLED, "Q1"),
}


def answer(tables: Tables, whole: Request, final: Final, because: str = "") -> None:
    """Give a request its final answer: nothing of it waits any more, and what is in flight is told to stop."""
    tables.commands.append(final)
    whole.answered = True
    if whole.deadline != NEVER:
        tables.deadlines -= 1
    if tables.explains:
        kind, rule = _NOTE_KINDS[type(final)]
        tables.note(kind, rule, whole.request_id, None, because)
    if tables.unsplit.pop(whole.serial, None) is not None:
        tables.waiting -= 1
    for each in whole.parts.values() if whole.parts is not None else (whole,):
        each.answered = True
        if each.waits:
            tables.dequeue(each)
        elif each.replica_id is not None:
            tables.commands.append(StopAttempt(each.request_id, each.replica_id, each.attempt, each.part))
    drop_if_over(tables, whole)


def drop_if_over(tables: Tables, whole: Request) -> None:
    """Forget a request that has its answer, once nothing of it is in flight."""
    if whole.answered and whole.replica_id is None and not whole.parts_flying:
        del tables.requests[whole.request_id]


def turn_away(tables: Tables, request: Request, waiting: int) -> None:
    """There is no room for a request, nor may it wait besides so many (Q5), or at all since nobody serves (Q11)."""
    if tables.closed:
        answer(tables, request, Fail(request.request_id, None, tables.closed), tables.closed)
        return
    unavailable = tables.unavailable_now
    if unavailable is not None:
        left_s = unavailable.retry_after_s if unavailable.until == NEVER else unavailable.until - tables.clock
        answer(tables, request, Decline(request.request_id, unavailable.problem, left_s), unavailable.problem)
        return
    limit = tables.spec.max_queued_requests
    why = f"{waiting} requests of deployment {tables.spec.name!r} wait, max_queued_requests is {limit}"
    answer(tables, request, Reject(request.request_id, retry_after_s(tables), why), why)


def those_that_wait(tables: Tables) -> list[Request]:
    """Requests of which anything waits, the oldest first."""
    waiting = (each for each in tables.requests.values() if each.waits or each.parts_waiting or each.serial in tables.unsplit)
    return sorted(waiting, key=_serial)


def _serial(request: Request) -> int:
    return request.serial


def retry_after_s(tables: Tables) -> float:
    """For how long the oldest has waited, which is about how long a newcomer would; within the spec's bounds."""
    oldest = tables.anyone.head() if tables.anyone else None
    waited_s = tables.clock - oldest.arrived_at if oldest is not None else 0.0
    return max(tables.spec.retry_after_s, min(waited_s, RETRY_AFTER_MAX_S))


def fail_beyond(tables: Tables, request: Request, rank: int) -> None:
    """Nobody has, or will have, the rank that a request is for."""
    if request.part is not None and tables.requests[request.request_id].keeps_failures:
        tables.dequeue(request)
    _fail(tables, request, None, beyond(tables, rank))


def fail_vacant(tables: Tables, part: Request) -> None:
    """Nobody has the rank of a part that is not to wait for anybody."""
    _fail(tables, part, None, f"nobody has rank {part.part} of deployment {tables.spec.name!r} at the moment")


def beyond(tables: Tables, rank: int) -> str:
    """Why nothing can be done for a rank."""
    return f"deployment {tables.spec.name!r} has no rank {rank}: its world size is {tables.world_size}"


def done(tables: Tables, request: Request) -> None:
    """An attempt that is not in flight any more has ended well."""
    whole = request if request.part is None else tables.requests[request.request_id]
    if whole.answered:
        drop_if_over(tables, whole)
    elif request.part is None:
        # As `answer` does, where nothing waits or flies.
        whole.answered = True
        tables.deadlines -= whole.deadline != NEVER
        del tables.requests[whole.request_id]
        tables.commands.append(Complete(whole.request_id))
        tables.note(RoutingNoteKind.ANSWERED, "Q1", whole.request_id)
    else:
        _part_over(tables, request, whole)


def _part_over(tables: Tables, part: Request, whole: Request) -> None:
    part.answered = True
    whole.unfinished -= 1
    if not whole.unfinished:
        answer(tables, whole, Complete(whole.request_id, len(whole.parts or ())))


def _fail(tables: Tables, request: Request, kind: FailureKind | None, reason: str) -> None:
    """There is no answer of a request, or of a part; nothing of that waits or is in flight, where the others are waited for."""
    whole = tables.requests[request.request_id]
    because = reason if kind is None else f"{kind.value}: {reason}"
    if request.part is None or not whole.keeps_failures:
        answer(tables, whole, Fail(request.request_id, kind, reason, request.part), because)
    else:
        tables.commands.append(FailPart(request.request_id, kind, reason, request.part))
        tables.note(RoutingNoteKind.FAILED, "Q9", request.request_id, None, f"rank {request.part}: {because}")
        _part_over(tables, request, whole)


def failed(tables: Tables, request: Request, kind: FailureKind, reason: str) -> bool:
    """An attempt that is not in flight any more has failed.

    Returns:
        Whether it waits to be done again.
    """
    whole = request if request.part is None else tables.requests[request.request_id]
    if whole.answered:
        drop_if_over(tables, whole)
        return False
    if kind is FailureKind.LOST:
        request.losses += 1
    why_not = why_final(tables, request, kind)
    if why_not is None:
        request.because = f"{kind.value}: {reason}" if reason else kind.value
        tables.enqueue(request)
        tables.note(RoutingNoteKind.QUEUED_AGAIN, "Q6", request.request_id, None, request.because)
        return True
    text = "; ".join(each for each in (reason, why_not) if each)
    _fail(tables, request, kind, text)
    return False


def why_final(tables: Tables, request: Request, kind: FailureKind) -> str | None:
    """Why an attempt that has failed in this way is not done again; None: it is (Q6)."""
    spec = tables.spec
    if kind is FailureKind.RAISED:
        return ""
    if kind is FailureKind.CUT_OFF:
        return "part of the answer was delivered already, so it is not done again"
    if request.rank is not None and 0 < tables.world_size <= request.rank:
        return beyond(tables, request.rank)
    if kind is FailureKind.REFUSED:
        return None
    if not spec.idempotent:
        return (
            "nobody knows whether it was begun, and deployment "
            f"{spec.name!r} does not say that its requests are idempotent, so it is not done again"
        )
    if request.losses > spec.max_retries:
        return f"lost {request.losses} times, and max_retries is {spec.max_retries}"
    return None
