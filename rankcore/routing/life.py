"""The life of a request, as one table of (source, trigger, dest): what docs/routing.md is drawn from.

The rules do not look anything up here; a test plays random runs and demands that requests move as the table says, and that
every row is met.
"""

from enum import StrEnum

from rankcore.routing.image import RequestImage


class RequestState(StrEnum):
    """Where a request is."""

    NEW = "NEW"
    WAITING = "WAITING"
    IN_FLIGHT = "IN_FLIGHT"
    STREAMING = "STREAMING"
    """In flight, and part of its answer was delivered."""
    ABANDONED = "ABANDONED"
    """It has its final answer, and its replica still works on it."""
    OVER = "OVER"


_R = RequestState

ROWS: tuple[tuple[RequestState, str, RequestState], ...] = (
    (_R.NEW, "Dispatch", _R.IN_FLIGHT),
    (_R.NEW, "no room", _R.WAITING),
    (_R.NEW, "Reject, Decline, Fail, Expire", _R.OVER),
    (_R.WAITING, "Dispatch, Retry", _R.IN_FLIGHT),
    (_R.WAITING, "Reject, Decline, Fail, Expire, Forget", _R.OVER),
    (_R.IN_FLIGHT, "AnswerBegun", _R.STREAMING),
    (_R.IN_FLIGHT, "refused, lost", _R.WAITING),
    (_R.IN_FLIGHT, "Complete, Fail", _R.OVER),
    (_R.IN_FLIGHT, "Expire, Forget", _R.ABANDONED),
    (_R.STREAMING, "Complete, Fail", _R.OVER),
    (_R.STREAMING, "Expire, Forget", _R.ABANDONED),
    (_R.ABANDONED, "RequestDone, RequestFailed, ReplicaLost", _R.OVER),
)


def state_of(request: RequestImage | None) -> RequestState:
    """Where a request, or a part of one, is; None: a router knows nothing of it any more."""
    if request is None:
        return RequestState.OVER
    if request.replica_id is None:
        return RequestState.WAITING
    if request.answered:
        return RequestState.ABANDONED
    return RequestState.STREAMING if request.begun else RequestState.IN_FLIGHT


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = [f"    {source} --> {dest}: {trigger}" for source, trigger, dest in ROWS]
    return "\n".join(["stateDiagram-v2", "    [*] --> NEW", *lines, "    OVER --> [*]"])
