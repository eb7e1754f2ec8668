"""Requests on the controller's side: what they ask, what their callers are told meanwhile, and their answers."""

import asyncio

import attrs

from executors.ray_gpu.errors import CallCancelledError, CallError, DeadlineError, OverloadedError, ReplicaGoneError
from executors.ray_gpu.residency.words import Answer, pack_error
from rankcore.dispatching import Status
from rankcore.routing import FailureKind
from rankcore.routing.commands import Complete, Expire, Fail, Forget, Reject

LONG_POLL_S = 30.0


@attrs.define
class Open:
    """One request that has no answer yet.

    Attributes:
        call: Method and arguments, as bytes.
        answer: What its caller waits for.
        newest: What the newest attempt came to.
        told: What its caller was told last, with its revision.
        news: Set at each change of `told`, and at the end.
    """

    call: bytes
    answer: "asyncio.Future[Answer]"
    newest: Answer | None = None
    told: tuple[int, Status] | None = None
    news: asyncio.Event = attrs.Factory(asyncio.Event)


class Waiting:
    """All requests that have no answer yet, by id."""

    def __init__(self) -> None:
        self._open: dict[str, Open] = {}

    def enter(self, request_id: str, call: bytes) -> Open:
        """Take a request in, or find it here: a caller may ask twice."""
        if request_id not in self._open:
            self._open[request_id] = Open(call, asyncio.get_running_loop().create_future())
        return self._open[request_id]

    def get(self, request_id: str) -> Open | None:
        """The request; None: it has been answered."""
        return self._open.get(request_id)

    def tell(self, request_id: str, revision: int, status: Status) -> None:
        """How it stands."""
        entry = self._open.get(request_id)
        if entry is not None and (entry.told is None or revision > entry.told[0]):
            entry.told = (revision, status)
            entry.news.set()

    async def told(self, request_id: str, after: int) -> tuple[int, Status] | None:
        """What a caller is told next; None: nothing for long, or the request has been answered."""
        entry = self._open.get(request_id)
        while entry is not None and not entry.answer.done():
            if entry.told is not None and entry.told[0] > after:
                return entry.told
            entry.news.clear()
            try:
                await asyncio.wait_for(entry.news.wait(), LONG_POLL_S)
            except TimeoutError:
                return None
        return None

    def close(self, command: Complete | Fail | Reject | Expire | Forget) -> None:
        """Give the final answer."""
        entry = self._open.pop(str(command.request_id), None)
        if entry is None or entry.answer.done():
            return
        entry.answer.set_result(_final(command, entry.newest))
        entry.news.set()


def _final(command: Complete | Fail | Reject | Expire | Forget, newest: Answer | None) -> Answer:
    if isinstance(command, Complete) and newest is not None:
        return newest
    if isinstance(command, Fail) and command.kind is FailureKind.RAISED and newest is not None and newest.error is not None:
        return newest
    return Answer(error=pack_error(_error(command), ""))


def _error(command: Complete | Fail | Reject | Expire | Forget) -> CallError:
    if isinstance(command, Reject):
        return OverloadedError(command.reason, command.retry_after_s)
    if isinstance(command, Expire):
        return DeadlineError(command.reason)
    if isinstance(command, Forget):
        return CallCancelledError("the request was given up")
    if isinstance(command, Fail) and command.kind in (FailureKind.LOST, FailureKind.CUT_OFF):
        return ReplicaGoneError(command.reason)
    return CallError(command.reason if isinstance(command, Fail) else "the answer has been lost")
