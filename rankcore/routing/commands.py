"""What a router asks for: one frozen class each, in the imperative, to be carried out in this order.

Complete, Fail, Reject, Decline, Expire and Forget are *final* (`FINAL`): each request gets exactly one of them (Q1).
"""

from typing import TypeAlias

from msgspec import Struct

from rankcore import kernel
from rankcore.routing.events import FailureKind, RequestId
from rankcore.values import ReplicaId


class Dispatch(Struct, frozen=True, gc=False):
    """Send a request to a replica; answer `RequestDone`, `RequestFailed`, or `ReplicaLost`.

    Several for one replica in one step may well travel in one message.

    Attributes:
        attempt: 1 for the first; comes back in the answer.
        part: The rank whose part of a broadcast it is; None: it is the whole request. Comes back in the answer.
    """

    request_id: RequestId
    replica_id: ReplicaId
    attempt: int = 1
    part: int | None = None


class Retry(Struct, frozen=True, gc=False):
    """Send a request again, here, since an earlier attempt was refused or lost; answer as to `Dispatch`.

    Attributes:
        attempt: 2 or more.
        because: What became of the attempt before.
    """

    request_id: RequestId
    replica_id: ReplicaId
    attempt: int
    part: int | None = None
    because: str = ""


class Propose(Struct, frozen=True, gc=False):
    """Ask the user's code who may have a request, and tell `ReplicasProposed`: again after a while, as long as it waits.

    Said once whenever a request for anybody comes to wait where a user's code is to say it (`RoutingSpec.router`).
    """

    request_id: RequestId


class StopAttempt(Struct, frozen=True, gc=False):
    """Tell a replica that nobody waits for this attempt any more. It counts as in flight until its end is told."""

    request_id: RequestId
    replica_id: ReplicaId
    attempt: int
    part: int | None = None


class Complete(Struct, frozen=True, gc=False):
    """Final: hand the answer over.

    Attributes:
        parts: Of a broadcast: how many; the answers go to the caller as a list in rank order, 0 to parts - 1. None: it is
            no broadcast.
    """

    request_id: RequestId
    parts: int | None = None


class Fail(Struct, frozen=True, gc=False):
    """Final: tell the caller that there is no answer (500).

    Attributes:
        kind: Of the attempt that decided it. "raised": hand over the user's own error; else `reason` is all there is. None:
            there was no attempt, such as for a rank that does not exist.
        reason: What happened and, if it was not retried, why not.
        part: The rank whose part failed, of a broadcast.
    """

    request_id: RequestId
    kind: FailureKind | None
    reason: str
    part: int | None = None


class FailPart(Struct, frozen=True, gc=False):
    """There is no answer of this part of a broadcast, which keeps failures: it stands in its place once all are `Complete`.

    Attributes:
        kind, reason, part: As in `Fail`; where there was no attempt, nobody has the rank, at the moment or any more.
    """

    request_id: RequestId
    kind: FailureKind | None
    reason: str
    part: int


class Reject(Struct, frozen=True, gc=False):
    """Final: turn the request away (503), with a Retry-After of so many seconds."""

    request_id: RequestId
    retry_after_s: float
    reason: str


class Decline(Struct, frozen=True, gc=False):
    """Final: nobody serves the deployment, nor is about to (503).

    Attributes:
        reason: Why.
        retry_after_s: When it may be worth to try again; None: not by itself.
    """

    request_id: RequestId
    reason: str
    retry_after_s: float | None = None


class Expire(Struct, frozen=True, gc=False):
    """Final: the deadline has passed (504)."""

    request_id: RequestId
    reason: str


class Forget(Struct, frozen=True, gc=False):
    """Final: the caller has cancelled; drop what is kept of the request."""

    request_id: RequestId


class AskCredits(Struct, frozen=True, gc=False):
    """Tell a replica how many credits this router could use there now, those that it has included; it may grant some.

    Attributes:
        wanted: 0: none, since nothing waits and nothing is in flight.
        version: Of the newest grant that the router has seen, 0 for none.
    """

    replica_id: ReplicaId
    wanted: int
    version: int


class ReturnCredits(Struct, frozen=True, gc=False):
    """Tell a replica that this router will never again have more than `credits` in flight under this or an older grant.

    Attributes:
        credits: What the grant allows, or as many as are in flight where that is more; then another one follows as they end.
        version: Of the grant.
    """

    replica_id: ReplicaId
    credits: int
    version: int


WakeAt = kernel.WakeAt
Command: TypeAlias = (
    Dispatch
    | Retry
    | Propose
    | StopAttempt
    | Complete
    | Fail
    | FailPart
    | Reject
    | Decline
    | Expire
    | Forget
    | AskCredits
    | ReturnCredits
    | WakeAt
)

FINAL = (Complete, Fail, Reject, Decline, Expire, Forget)
"""The answers: each request gets exactly one."""
