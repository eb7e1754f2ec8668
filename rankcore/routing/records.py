"""The records of a router, changed in place by its rules: requests, replicas, and lines of requests that wait.

A request names its replica and does not refer to it, so that there are no cycles for a collector to find.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeAlias

import attrs
from msgspec import Struct

from rankcore.routing.events import RequestId
from rankcore.values import ReplicaId

Ranked: TypeAlias = tuple[tuple[ReplicaId, ...], ...]
"""Groups of replicas, the preferred ones first."""
NEVER = float("inf")
SERIAL_STRIDE = 1 << 24
"""Serials of requests are multiples of it; the part of a broadcast for rank k has the k-th serial after the request's own."""


class Request(Struct, eq=False, gc=False):
    """A request that has no final answer yet, or whose replica still works on it; or one part of a broadcast.

    Attributes:
        request_id: Of the request; its parts share it.
        serial: Its place in the order of arrival: what waits goes in this order.
        arrived_at: When it came.
        attempt: How many attempts were given out.
        deadline: When it expires; `NEVER`: it does not. Parts have none of their own.
        key: What it is affine to.
        rank: Only this rank will do; None: any replica will.
        part: The same, of a broadcast's part; None: it is no part.
        replica_id: Where the last one is in flight; None: nowhere.
        waits: Whether it stands in a line.
        begun: Whether part of the present attempt's answer was delivered.
        answered: Whether it has its final answer, and only the end of what is in flight is waited for.
        losses: How many attempts were lost.
        because: What became of the attempt before.
        parts: Of a broadcast, by rank; None: it is none, or not split into parts yet.
        is_broadcast: Whether it is the whole of a broadcast.
        keeps_failures: Of a broadcast: whether a part that fails decides nothing.
        unfinished: Of a broadcast: how many parts have no answer.
        parts_waiting, parts_flying: Of a broadcast: how many parts wait, and are in flight.
        ranked: Who was proposed for it, while it waits under a policy that asks; None: nothing was said yet.
    """

    request_id: RequestId
    serial: int
    arrived_at: float
    attempt: int = 0
    deadline: float = NEVER
    key: str | None = None
    rank: int | None = None
    part: int | None = None
    replica_id: ReplicaId | None = None
    waits: bool = False
    begun: bool = False
    answered: bool = False
    losses: int = 0
    because: str = ""
    parts: "dict[int, Request] | None" = None
    is_broadcast: bool = False
    keeps_failures: bool = False
    unfinished: int = 0
    parts_waiting: int = 0
    parts_flying: int = 0
    ranked: Ranked | None = None


class Unavailability(Struct, frozen=True):
    """Nobody serves, nor is about to.

    Attributes:
        problem: Why.
        retry_after_s: When it may be worth to try again, where it lasts until it is lifted; None: that is not known.
        until: When it ends by itself; `NEVER`: it has to be lifted.
    """

    problem: str
    retry_after_s: float | None
    until: float


@attrs.define(eq=False)
class RoutedReplica:
    """A replica that is routed, or that still works on something.

    It changes with every request and is seldom made, for which attrs is quicker than msgspec; requests are the other way round.

    Attributes:
        replica_id: Its id.
        birth: Its place in the order in which the router heard of them.
        rank: Its rank; None: it gets no request for a rank.
        routed: Whether it is given requests.
        aside_until: It is left alone before this time, since it refused a request.
        credits: What it has granted; counts only where the router goes by credits.
        version: Of that grant; 0: none.
        returned: What the router has promised last to stay within under this version; None: nothing.
        limit: How many requests it may have in flight now; 0 while it is not routed, or left alone. Derived.
        flights: What it has in flight, by serial.
        listed: Where the policy keeps it, -1: nowhere, since it has no room. Belongs to the policy.
        turn: When it was last given a request, for policies that go by it.
        keys: What it has ready, for a policy that goes by it.
    """

    replica_id: ReplicaId
    birth: int
    rank: int | None = None
    routed: bool = False
    aside_until: float = 0.0
    credits: int = 0
    version: int = 0
    returned: int | None = None
    limit: int = 0
    flights: dict[int, Request] = attrs.Factory(dict)
    listed: int = -1
    turn: int = 0
    keys: tuple[str, ...] = ()


class Line:
    """Requests that wait for the same thing, in the order of their serials.

    New ones are appended. Those that come back, after an attempt that was refused or lost, keep their place among the others.
    """

    __slots__ = ("_back", "_last", "_new")

    def __init__(self) -> None:
        self._new: OrderedDict[int, Request] = OrderedDict()
        self._last = 0
        self._back: list[tuple[int, Request]] = []

    def __len__(self) -> int:
        return len(self._new) + len(self._back)

    def __iter__(self) -> Iterator[Request]:
        """In order."""
        yield from sorted([*self._new.values(), *(each for _, each in self._back)], key=_serial)

    def add(self, request: Request) -> None:
        """Put a request at its place."""
        serial = request.serial
        if serial > self._last:
            self._new[serial] = request
            self._last = serial
        else:
            insort(self._back, (serial, request), key=_first)

    def head(self) -> Request:
        """The first; there has to be one."""
        back = self._back
        if not back:
            return next(iter(self._new.values()))
        if self._new and (new := next(iter(self._new.values()))).serial < back[0][0]:
            return new
        return back[0][1]

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        if self._new.pop(request.serial, None) is None:
            del self._back[bisect_left(self._back, request.serial, key=_first)]


def _first(pair: tuple[int, Request]) -> int:
    return pair[0]


def _serial(request: Request) -> int:
    return request.serial
