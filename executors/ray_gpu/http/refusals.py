"""Which error is which status, and what a client is told."""

import math
from typing import NamedTuple

from executors.ray_gpu.errors import (
    CallCancelledError,
    CallError,
    DeadlineError,
    NotRunningError,
    OverloadedError,
    RemoteError,
    ReplicaGoneError,
    UnavailableError,
    UnknownNameError,
)


class Refusal(NamedTuple):
    """A response that has no result.

    Attributes:
        status: Of HTTP.
        text: Its body.
        headers: Besides the usual ones.
    """

    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class BodyTooLargeError(CallError):
    """The client has sent, or has announced, more than it may."""


class SlowBodyError(CallError):
    """The client has stopped in the middle of its body, or sends it too slowly."""


class OpenBodiesError(CallError):
    """The client's address has too many bodies on their way already."""


UNAUTHENTICATED = Refusal(401, "this needs a bearer token\n", ((b"www-authenticate", b"Bearer"),))

STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (BodyTooLargeError, 413),
    (SlowBodyError, 408),
    (OpenBodiesError, 429),
    (OverloadedError, 503),
    (UnavailableError, 503),
    (DeadlineError, 504),
    (ReplicaGoneError, 502),
    (UnknownNameError, 503),
    (NotRunningError, 503),
    (CallCancelledError, 499),
    (CallError, 500),
)
"""The first that fits."""


def refusal_of(error: Exception, request_id: str, traceback: str | None, debug: bool = False) -> Refusal:
    """What a client is told about an error.

    Args:
        traceback: Of user code, for the client to see; None: it is in the log only.
        debug: Whether a client may see the traceback of a replica that has failed to start.
    """
    for kind, status in STATUSES:
        if isinstance(error, kind) and not isinstance(error, RemoteError):  # whose text is the user's
            status = error.status_code if isinstance(error, OverloadedError) else status
            return Refusal(status, f"{str(error) if debug else text_of(error)}\n", _headers(error))
    if traceback is not None:
        return Refusal(500, f"{traceback}\n")
    return Refusal(500, f"Internal Server Error: the log has the traceback of request {request_id}\n")


def _headers(error: Exception) -> tuple[tuple[bytes, bytes], ...]:
    if (retry_s := retry_after_s(error)) is not None:
        return ((b"retry-after", b"%d" % retry_s),)
    if isinstance(error, (SlowBodyError, OpenBodiesError)):
        return ((b"connection", b"close"),)  # nobody waits for the rest
    return ()


def retry_after_s(error: Exception) -> int | None:
    """When it may be worth to try again, in whole seconds; None: nobody knows."""
    if isinstance(error, (OverloadedError, UnavailableError)) and error.retry_after_s is not None:
        return max(1, math.ceil(error.retry_after_s))
    return None


def text_of(error: Exception) -> str:
    """What a client is told of an error that is ours."""
    return error.reason if isinstance(error, UnavailableError) else str(error)


def trace_of(error: Exception) -> str:
    """The remote traceback of what user code raised; the error itself, where it came without one."""
    return str(error.__cause__).strip() if error.__cause__ is not None else repr(error)
