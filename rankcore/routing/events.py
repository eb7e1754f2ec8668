"""What a router is told: one frozen class each, in the past tense, built with keyword arguments.

`at` says when it happened, in seconds on the clock of the router's process; it is that clock which deadlines are on.

A request is named by an id that its router has never seen before: an int or a non-empty string. What is sent to a replica
is an *attempt*, numbered from 1; a broadcast has an attempt for each of its *parts*, which are named by their rank. News of
an attempt that is not the present one any more is late: it changes nothing and leaves a note.

Every class raises `InvalidEventError` when it is built with something its field does not allow.
"""

from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct

from rankcore import checks
from rankcore.errors import InvalidEventError
from rankcore.events import ClockAdvanced
from rankcore.routing.spec import RoutingSpec
from rankcore.values import ReplicaId

RequestId: TypeAlias = int | str


class FailureKind(StrEnum):
    """How far an attempt had come when it failed, which decides whether it is done again."""

    RAISED = "raised"
    """The user's code raised: the answer is that error, and final."""
    REFUSED = "refused"
    """The replica did not take it, and none of it was done: always done again, elsewhere."""
    LOST = "lost"
    """It ended with its replica, or its connection; nobody knows whether it was begun: done again only when idempotent."""
    CUT_OFF = "cut off"
    """Part of its answer was delivered already: never done again."""


class Route(Struct, frozen=True, gc=False):
    """A replica that takes requests.

    Attributes:
        replica_id: Its id, never reused.
        rank: Its global rank; None: it has none that matters, and gets no request for a rank.
    """

    replica_id: ReplicaId
    rank: int | None = None


class RequestArrived(Struct, frozen=True, kw_only=True, gc=False):
    """A caller wants an answer. Exactly one of Complete, Fail, Reject, Expire and Forget follows (Q1).

    Attributes:
        request_id: Seen for the first time.
        key: A session, a prompt's prefix or a model: under the policy "affinity", requests of one key go to one replica.
        rank: Only the replica with this rank will do.
        broadcast: All ranks are to answer: one part for each rank below the world size of that moment.
        keep_failures: Of a broadcast: a part that fails has that for its answer, and the others are waited for. A rank that
            nobody has at the moment fails at once, unless nobody has any.
        deadline: When the caller no longer waits, on the clock of `at`; None: `RoutingSpec.request_timeout_s` decides.
    """

    request_id: RequestId
    key: str | None = None
    rank: int | None = None
    broadcast: bool = False
    keep_failures: bool = False
    deadline: float | None = None
    at: float

    def __post_init__(self) -> None:
        _request(self, self.request_id)
        _moment(self, self.at)
        if self.key is None and self.rank is None and self.deadline is None and self.broadcast is self.keep_failures is False:
            return
        if self.key is not None:
            _text(self, "key", self.key)
        if self.rank is not None:
            _count(self, "rank", self.rank)
        checks.flag(InvalidEventError, _path(self, "broadcast"), self.broadcast)
        checks.flag(InvalidEventError, _path(self, "keep_failures"), self.keep_failures)
        if self.keep_failures and not self.broadcast:
            raise InvalidEventError(_path(self, "keep_failures"), True, "false where broadcast is")
        if (self.key is not None) + (self.rank is not None) + self.broadcast > 1:
            raise InvalidEventError(_path(self, "key"), self.key, "the only one of key, rank and broadcast that is given")
        if self.deadline is not None:
            _moment(self, self.deadline, "deadline")


class AnswerBegun(Struct, frozen=True, kw_only=True, gc=False):
    """Part of an attempt's answer was delivered to the caller, such as the first item of a stream: it is never done again."""

    request_id: RequestId
    attempt: int = 1
    part: int | None = None
    at: float

    def __post_init__(self) -> None:
        _attempt(self)


class RequestDone(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt has ended well; of a stream: its last item is there.

    Attributes:
        attempt: As in the `Dispatch` or `Retry` that it answers.
        part: Likewise: the rank, of a broadcast's part.
    """

    request_id: RequestId
    attempt: int = 1
    part: int | None = None
    at: float

    def __post_init__(self) -> None:
        _attempt(self)


class RequestFailed(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt has ended, and not well: nothing of it is in flight any more.

    Attributes:
        kind: How far it had come. An `AnswerBegun` before makes "lost" and "refused" into "cut off".
        reason: In words, for the caller.
    """

    request_id: RequestId
    kind: FailureKind
    reason: str = ""
    attempt: int = 1
    part: int | None = None
    at: float

    def __post_init__(self) -> None:
        _attempt(self)
        kind: object = self.kind
        if not isinstance(kind, FailureKind):
            allowed = "a FailureKind: one of " + ", ".join(repr(each.value) for each in FailureKind)
            raise InvalidEventError(_path(self, "kind"), kind, allowed)
        _text(self, "reason", self.reason)


class RequestCancelled(Struct, frozen=True, kw_only=True, gc=False):
    """The caller does not want the answer any more."""

    request_id: RequestId
    at: float

    def __post_init__(self) -> None:
        _request(self, self.request_id)
        _moment(self, self.at)


class RoutesChanged(Struct, frozen=True, kw_only=True, gc=False):
    """Which replicas take requests. One that is removed gets no further ones, and finishes those that it has.

    Attributes:
        added: From now on; a replica that is routed already is listed again when its rank has changed.
        removed: No longer.
        complete: Whether `added` are all that there are, and everybody else is removed.
        world_size: How many ranks there are; None: as before. Requests for a rank beyond it fail.
    """

    added: tuple[Route, ...] = ()
    removed: tuple[ReplicaId, ...] = ()
    complete: bool = False
    world_size: int | None = None
    at: float

    def __post_init__(self) -> None:
        _moment(self, self.at)
        checks.flag(InvalidEventError, _path(self, "complete"), self.complete)
        if self.world_size is not None:
            _count(self, "world_size", self.world_size)
        _tuple(self, "added", self.added, "routes")
        for index, route in enumerate(self.added):
            if not isinstance(route, Route):
                raise InvalidEventError(_path(self, f"added[{index}]"), route, "a Route")
            checks.identifier(InvalidEventError, _path(self, f"added[{index}].replica_id"), route.replica_id)
            if route.rank is not None:
                _count(self, f"added[{index}].rank", route.rank)
        _tuple(self, "removed", self.removed, "replica ids")
        for index, replica_id in enumerate(self.removed):
            checks.identifier(InvalidEventError, _path(self, f"removed[{index}]"), replica_id)


class ReplicaLost(Struct, frozen=True, kw_only=True, gc=False):
    """Final: a replica has ended, and every attempt on it is lost, or cut off."""

    replica_id: ReplicaId
    reason: str = ""
    at: float

    def __post_init__(self) -> None:
        checks.identifier(InvalidEventError, _path(self, "replica_id"), self.replica_id)
        _text(self, "reason", self.reason)
        _moment(self, self.at)


class ReplicasProposed(Struct, frozen=True, kw_only=True, gc=False):
    """Who may have a request, says the user's code that `Propose` has asked; an answer, or another one later.

    Attributes:
        ranked: Groups of replicas, the preferred ones first. Who is not routed is left out; nobody at all: none will do now.
    """

    request_id: RequestId
    ranked: tuple[tuple[ReplicaId, ...], ...] = ()
    at: float

    def __post_init__(self) -> None:
        _request(self, self.request_id)
        _moment(self, self.at)
        _tuple(self, "ranked", self.ranked, "groups of replica ids")
        for index, group in enumerate(self.ranked):
            _tuple(self, f"ranked[{index}]", group, "replica ids")
            for number, replica_id in enumerate(group):
                checks.identifier(InvalidEventError, _path(self, f"ranked[{index}][{number}]"), replica_id)


class KeysHeld(Struct, frozen=True, kw_only=True, gc=False):
    """A replica says what it has ready for requests of which keys, such as models; all that it has.

    Under the policy "affinity" requests of such a key go to those who have it, as long as one of them has room.
    """

    replica_id: ReplicaId
    keys: tuple[str, ...]
    at: float

    def __post_init__(self) -> None:
        checks.identifier(InvalidEventError, _path(self, "replica_id"), self.replica_id)
        _tuple(self, "keys", self.keys, "keys")
        for index, key in enumerate(self.keys):
            _text(self, f"keys[{index}]", key)
        _moment(self, self.at)


class CreditsGranted(Struct, frozen=True, kw_only=True, gc=False):
    """A replica says how many requests this router may have in flight there, from now on (C2).

    Attributes:
        credits: In all, not in addition. Fewer than before is a recall: `ReturnCredits` answers when it is met.
        version: Grows with each grant of this replica to this router: an older one is late.
    """

    replica_id: ReplicaId
    credits: int
    version: int
    at: float

    def __post_init__(self) -> None:
        checks.identifier(InvalidEventError, _path(self, "replica_id"), self.replica_id)
        _count(self, "credits", self.credits)
        checks.count(InvalidEventError, _path(self, "version"), self.version, 0, checks.REVISION_MAX)
        _moment(self, self.at)


class RoutingSpecChanged(Struct, frozen=True, kw_only=True, gc=False):
    """Another policy or other limits. What waits keeps its place, and is never rejected for a limit that is lower now."""

    spec: RoutingSpec
    at: float

    def __post_init__(self) -> None:
        if not isinstance(self.spec, RoutingSpec):
            raise InvalidEventError(_path(self, "spec"), self.spec, "a RoutingSpec")
        _moment(self, self.at)


class RouterOpened(Struct, frozen=True, kw_only=True, gc=False):
    """The spec is the deployment's by now, and replicas have said what room they have: the limits hold from here on.

    For a router that was made with `opened=False`, since its first requests came before all that was known. What waits beyond
    `max_queued_requests` is rejected, the newest of it, and what brought no deadline has that of the spec.
    """

    at: float

    def __post_init__(self) -> None:
        _moment(self, self.at)


class AvailabilityChanged(Struct, frozen=True, kw_only=True, gc=False):
    """The controller says whether anybody serves the deployment, or is about to (Q11). May be said again.

    To be said of a deployment that has no route and of which nothing is being loaded or initialised; while the router has a
    route it is late, and a new route takes it back.

    Attributes:
        problem: Why nobody serves it, nor is about to; empty: that is over.
        retry_after_s: When it may be worth to try again, for those that it is lifted for; None: not by itself.
        lasts_s: After so long requests may wait again; None: once it is lifted.
    """

    problem: str = ""
    retry_after_s: float | None = None
    lasts_s: float | None = None
    at: float

    def __post_init__(self) -> None:
        _text(self, "problem", self.problem)
        for field in ("retry_after_s", "lasts_s"):
            if getattr(self, field) is not None:
                _moment(self, getattr(self, field), field)
        _moment(self, self.at)


class RouterClosed(Struct, frozen=True, kw_only=True, gc=False):
    """The deployment is deleted: nothing waits any more. What is in flight goes on."""

    reason: str = "the deployment is deleted"
    at: float

    def __post_init__(self) -> None:
        _text(self, "reason", self.reason)
        _moment(self, self.at)


Event: TypeAlias = (
    RequestArrived
    | AnswerBegun
    | RequestDone
    | RequestFailed
    | RequestCancelled
    | RoutesChanged
    | ReplicaLost
    | ReplicasProposed
    | KeysHeld
    | CreditsGranted
    | RoutingSpecChanged
    | RouterOpened
    | AvailabilityChanged
    | RouterClosed
    | ClockAdvanced
)
"""`ClockAdvanced` is that of `rankcore.events`: time has passed, and what is due is done."""


def _path(event: object, field: str) -> str:
    return f"{type(event).__name__}.{field}"


def _request(event: object, request_id: object) -> None:
    if type(request_id) is int or (type(request_id) is str and request_id):
        return
    raise InvalidEventError(_path(event, "request_id"), request_id, "an integer or a non-empty string")


def _moment(event: object, at: object, field: str = "at") -> None:
    if type(at) is float and 0.0 <= at <= checks.SECONDS_MAX:
        return
    checks.seconds(InvalidEventError, _path(event, field), at)


def _count(event: object, field: str, value: object) -> None:
    checks.count(InvalidEventError, _path(event, field), value, 0)


def _text(event: object, field: str, value: object) -> None:
    checks.text(InvalidEventError, _path(event, field), value)


def _tuple(event: object, field: str, value: object, of_what: str) -> None:
    if not isinstance(value, tuple):
        raise InvalidEventError(_path(event, field), value, f"a tuple of {of_what}")


def _attempt(event: Any) -> None:
    _request(event, event.request_id)
    _moment(event, event.at)
    if type(event.attempt) is not int or event.attempt < 1:
        checks.count(InvalidEventError, _path(event, "attempt"), event.attempt, 1)
    if event.part is not None:
        _count(event, "part", event.part)
