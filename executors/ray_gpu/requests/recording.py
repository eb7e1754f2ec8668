"""What becomes of the calls of this process, for its request file (`executors.engine.request_file`).

A router asks once, when it is made, whether its calls are recorded: where they are not, a call costs nothing more.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rankcore.routing.commands import Complete, Decline, Expire, Fail, Forget, Reject
from rankcore.routing.events import FailureKind, RequestId

if TYPE_CHECKING:
    from executors.engine.request_file import RecordedRequest, RequestLog  # a process that records nothing needs no journals

Final = Complete | Fail | Reject | Decline | Expire | Forget
OUTCOME_OF: dict[type, str] = {
    Complete: "done",
    Reject: "rejected",
    Decline: "declined",
    Expire: "expired",
    Forget: "cancelled",
}
_log: "RequestLog | None" = None


def record_to(log: "RequestLog | None") -> None:
    """Calls by handles that are made from now on go there; None: nowhere."""
    global _log
    _log = log


def recorder_of(deployment: str) -> "CallRecorder | None":
    """What writes down the calls to a deployment; None: they are not recorded."""
    return CallRecorder(deployment, _log.put) if _log is not None else None


class CallRecorder:
    """Follows the calls of one router, on its thread.

    Args:
        put: Is given each that has ended.
        now_ns: The clock; that of an event loop may be a millisecond behind.
    """

    def __init__(
        self, deployment: str, put: "Callable[[RecordedRequest], None]", now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._deployment = deployment
        self._put = put
        self._now_ns = now_ns
        from executors.engine.request_file import RecordedRequest

        self._make = RecordedRequest
        self._calls: dict[RequestId, _Going] = {}

    def arrived(self, request_id: RequestId) -> None:
        """A call has come."""
        self._calls[request_id] = _Going(self._now_ns())

    def sent(self, request_id: RequestId, replica_id: str, rank: int | None) -> None:
        """It is sent to a replica."""
        call = self._calls[request_id]
        call.dispatched, call.replica_id, call.rank = self._now_ns(), replica_id, rank

    def begun(self, request_id: RequestId) -> None:
        """An item of its stream is here."""
        call = self._calls[request_id]
        if call.first is None:
            call.first = self._now_ns()

    def ended(self, command: Final) -> None:
        """Its caller is told what became of it."""
        number: Any = command.request_id  # ours are numbers
        call, now = self._calls.pop(number), self._now_ns()
        outcome = OUTCOME_OF.get(type(command)) or _failure(command)
        whom = (self._deployment, call.replica_id, call.rank)
        self._put(self._make(number, *whom, call.arrived, call.dispatched, call.first, now, outcome))


class _Going:
    """A call that has not ended."""

    __slots__ = ("arrived", "dispatched", "first", "rank", "replica_id")

    def __init__(self, arrived: int) -> None:
        self.arrived = arrived
        self.dispatched: int | None = None
        self.first: int | None = None
        self.replica_id = ""
        self.rank: int | None = None


def _failure(command: Final) -> str:
    kind = command.kind if isinstance(command, Fail) else None
    return "closed" if kind is None else "raised" if kind is FailureKind.RAISED else "lost"
