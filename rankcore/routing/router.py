"""The router: a state machine that changes in place, for whoever owns it alone.

`rankcore.routing.state` has the same as a value. Both run the rules that the modules of this package are named after.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from rankcore import kernel
from rankcore.errors import UnknownDeploymentError
from rankcore.events import ClockAdvanced
from rankcore.routing import availability, broadcasts, endings, grants, opening, proposals, queueing, routes
from rankcore.routing.commands import Command, Fail, Forget
from rankcore.routing.deadlines import ask_to_wake, pass_time
from rankcore.routing.events import (
    AnswerBegun,
    AvailabilityChanged,
    CreditsGranted,
    Event,
    FailureKind,
    KeysHeld,
    ReplicaLost,
    ReplicasProposed,
    RequestArrived,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    RequestId,
    RouterClosed,
    RouterOpened,
    RoutesChanged,
    RoutingSpecChanged,
)
from rankcore.routing.notes import RoutingNote, RoutingNoteKind
from rankcore.routing.records import NEVER, SERIAL_STRIDE, Request, RoutedReplica
from rankcore.routing.tables import Tables
from rankcore.values import ReplicaId


class Outcome(NamedTuple):
    """What one step in place came to.

    Attributes:
        commands: What should happen, in this order.
        notes: Why, one for each decision.
    """

    commands: tuple[Command, ...]
    notes: tuple[RoutingNote, ...]


class Router(Tables):
    """Routes the requests of one deployment, in place.

    A step costs O(1), or O(log N) where the policy or a deadline needs it, plus the size of what it changes; N replicas,
    however many requests wait.

    Args:
        spec: How requests are routed.
        at: The clock to begin with.
        explains: Whether steps leave notes; without them a step takes half the time.
        opened: Whether the limits hold at once; False: from `RouterOpened` on.
    """

    def step(self, event: Event) -> Outcome:
        """Apply one event.

        Raises:
            InvalidEventError: It is no event of a router. The router is as it was.
            UnknownDeploymentError: A spec of another deployment. Likewise.
        """
        handler = kernel.handler_of(HANDLERS, event, "an event of rankcore.routing.events")
        if type(event) is RoutingSpecChanged and event.spec.name != self.spec.name:
            raise UnknownDeploymentError("RoutingSpecChanged.spec.name", event.spec.name, f"{self.spec.name!r}")
        self.commands, self.notes = [], []
        self._begin(event.at)
        handler(self, event)
        self._end()
        return Outcome(tuple(self.commands), tuple(self.notes))

    # -- the two moves that each request makes, without the objects around them: the rules, written out for the usual case

    def arrive(self, request_id: RequestId, at: float) -> ReplicaId | None:
        """Do what `step(RequestArrived(request_id=request_id, at=at))` does, without checks.

        Returns:
            Where it is dispatched to, if that is all there is to do; None: `commands` says what.
        """
        requests = self.requests
        if at >= self.wake_at or self.explains or self.spec.request_timeout_s or request_id in requests:
            self._arrive_slowly(request_id, at)
            return None
        if at > self.clock:
            self.clock = at
        else:
            at = self.clock
        self.serial = serial = self.serial + SERIAL_STRIDE
        requests[request_id] = request = Request(request_id, serial, at, 1)
        replica = self.choice.take(request)
        if replica is None:  # such as when anybody waits for it (Q3)
            request.attempt = 0
            self.commands = []
            queueing.admit(self, request)
            return None
        request.replica_id = replica_id = replica.replica_id
        self.in_flight += 1
        return replica_id

    def finish(self, request_id: RequestId, attempt: int, at: float) -> bool:
        """Do what `step(RequestDone(request_id=request_id, attempt=attempt, at=at))` does, without checks.

        Returns:
            Whether it is complete and that is all there is to do; if not, `commands` says what.
        """
        if at >= self.wake_at or self.waiting or self.explains:
            return self._finish_slowly(request_id, attempt, at)
        try:
            request = self.requests[request_id]
            replica = self.replicas[request.replica_id]  # type: ignore[index]  # None is nobody's key
        except KeyError:
            return self._finish_slowly(request_id, attempt, at)
        if (
            request.attempt != attempt
            or request.answered
            or request.deadline != NEVER
            or not replica.limit
            or replica.returned is not None
        ):
            return self._finish_slowly(request_id, attempt, at)
        if at > self.clock:
            self.clock = at
        del self.requests[request_id]
        del replica.flights[request.serial]
        self.in_flight -= 1
        self.choice.update(replica)
        return True

    def _arrive_slowly(self, request_id: RequestId, at: float) -> None:
        self.commands, self.notes = [], []
        self._begin(at)
        self._arrive(request_id, None, None, False, None)
        self._end()

    def _finish_slowly(self, request_id: RequestId, attempt: int, at: float) -> bool:
        self.commands, self.notes = [], []
        self._begin(at)
        self._finish(request_id, attempt, None)
        self._end()
        return False

    # -- a step begins and ends

    def _begin(self, at: float) -> None:
        if at >= self.wake_at:
            pass_time(self, at)
        elif at > self.clock:
            self.clock = at

    def _end(self) -> None:
        if self.asked and not self.waiting:
            grants.need_no_more(self)
        if self.timers:
            ask_to_wake(self)

    # -- one method per event

    def _arrive(
        self,
        request_id: RequestId,
        key: str | None,
        rank: int | None,
        is_broadcast: bool,
        deadline: float | None,
        keeps_failures: bool = False,
    ) -> None:
        if request_id in self.requests:
            self.note(RoutingNoteKind.LATE, "Q1", request_id, None, "a request of this id is known")
            return
        self.serial = serial = self.serial + SERIAL_STRIDE
        if deadline is None:
            timeout_s = self.spec.request_timeout_s
            deadline = NEVER if timeout_s is None else self.clock + timeout_s
        request = Request(request_id, serial, self.clock, 0, deadline, key, rank)
        request.is_broadcast, request.keeps_failures = is_broadcast, keeps_failures
        self.requests[request_id] = request
        if deadline != NEVER:
            self.deadlines += 1
            self.set_timer(deadline, request)
            if deadline <= self.clock:
                pass_time(self, self.clock)
                return
        if is_broadcast:
            broadcasts.admit(self, request)
        else:
            queueing.admit(self, request)

    def _finish(self, request_id: RequestId, attempt: int, part: int | None) -> None:
        request = self._in_flight(request_id, attempt, part)
        if request is None:
            return
        replica = self.land(request)
        endings.done(self, request)
        if replica.aside_until:
            routes.take_back(self, replica)
        self._freed(replica)

    def _freed(self, replica: RoutedReplica) -> None:
        """A replica has less in flight than before."""
        if replica.returned is not None:
            grants.landed(self, replica)
        if not replica.routed:
            routes.drop_if_gone(self, replica)
        elif self.waiting:
            queueing.fill(self, (replica.rank,))

    def _in_flight(self, request_id: RequestId, attempt: int, part: int | None) -> Request | None:
        """The attempt that an event speaks of; None: it is not, or no longer, in flight."""
        request = self.requests.get(request_id)
        if request is not None and part is not None:
            request = None if request.parts is None else request.parts.get(part)
        if request is None or request.attempt != attempt or request.replica_id is None:
            what = f"attempt {attempt}" if part is None else f"attempt {attempt} of part {part}"
            self.note(RoutingNoteKind.LATE, "Q1", request_id, None, f"{what} is not in flight")
            return None
        return request

    def _on_request_arrived(self, event: RequestArrived) -> None:
        self._arrive(event.request_id, event.key, event.rank, event.broadcast, event.deadline, event.keep_failures)

    def _on_request_done(self, event: RequestDone) -> None:
        self._finish(event.request_id, event.attempt, event.part)

    def _on_answer_begun(self, event: AnswerBegun) -> None:
        request = self._in_flight(event.request_id, event.attempt, event.part)
        if request is not None:
            request.begun = True

    def _on_request_failed(self, event: RequestFailed) -> None:
        request = self._in_flight(event.request_id, event.attempt, event.part)
        if request is None:
            return
        kind = _kind(request, event.kind)
        replica = self.land(request)
        if event.kind in (FailureKind.REFUSED, FailureKind.LOST):
            routes.put_aside(self, replica, f"{event.kind.value}: {event.reason}" if event.reason else event.kind.value)
        if endings.failed(self, request, kind, event.reason):
            self._again((request,))
        self._freed(replica)

    def _again(self, requests: tuple[Request, ...]) -> None:
        """What is to be done again goes wherever there is room; nothing waits where nobody serves."""
        queueing.fill(self, [request.rank for request in requests])
        for request in requests:
            if request.waits and self.closed:
                whole = self.requests[request.request_id]
                why = f"{request.because}; {self.closed}"
                endings.answer(self, whole, Fail(request.request_id, None, why, request.part), why)
            elif request.waits and self.unavailable_now is not None:
                endings.turn_away(self, self.requests[request.request_id], 0)
            elif request.waits and request.rank is None and self.choice.asks:
                proposals.ask(self, request)
            elif request.waits and self.spec.by_credits:
                grants.ask_for(self, request)

    def _on_request_cancelled(self, event: RequestCancelled) -> None:
        request = self.requests.get(event.request_id)
        if request is None or request.answered:
            self.note(RoutingNoteKind.LATE, "Q1", event.request_id, None, "it has its answer already")
            return
        endings.answer(self, request, Forget(event.request_id), "the caller has cancelled it")

    def _on_routes_changed(self, event: RoutesChanged) -> None:
        routes.change(self, event)

    def _on_replica_lost(self, event: ReplicaLost) -> None:
        replica = self.replicas.get(event.replica_id)
        if replica is None:
            self.note(RoutingNoteKind.LATE, "Q6", None, event.replica_id, "it is not known (any more)")
            return
        reason = f"replica {event.replica_id} was lost" + (f" ({event.reason})" if event.reason else "")
        self.note(RoutingNoteKind.REPLICA_LOST, "Q6", None, event.replica_id, event.reason)
        lost = sorted(replica.flights.values(), key=lambda request: request.serial)
        if replica.routed:
            routes.unroute(self, event.replica_id, "lost")
        again = []
        for request in lost:
            kind = _kind(request, FailureKind.LOST)
            self.land(request)
            if endings.failed(self, request, kind, reason):
                again.append(request)
        routes.drop_if_gone(self, replica)
        self._again(tuple(again))

    def _on_replicas_proposed(self, event: ReplicasProposed) -> None:
        proposals.propose(self, event)

    def _on_keys_held(self, event: KeysHeld) -> None:
        routes.hold(self, event)

    def _on_credits_granted(self, event: CreditsGranted) -> None:
        replica = grants.granted(self, event)
        if replica is None:
            return
        routes.take_back(self, replica)
        queueing.fill(self, (replica.rank,))
        grants.ask_again(self, replica)

    def _on_routing_spec_changed(self, event: RoutingSpecChanged) -> None:
        routes.adopt_spec(self, event.spec)

    def _on_router_opened(self, _: RouterOpened) -> None:
        opening.open_up(self)

    def _on_availability_changed(self, event: AvailabilityChanged) -> None:
        availability.change(self, event)

    def _on_router_closed(self, event: RouterClosed) -> None:
        self.closed = event.reason or "closed"
        self.note(RoutingNoteKind.CLOSED, "Q5", because=self.closed)
        waiting = [*self.anyone, *self.unsplit.values(), *(each for rank in sorted(self.ranked) for each in self.ranked[rank])]
        for request in sorted(waiting, key=lambda each: each.serial):
            whole = self.requests.get(request.request_id)
            if whole is not None and not whole.answered:
                endings.answer(self, whole, Fail(request.request_id, None, self.closed, request.part), self.closed)

    def _on_clock_advanced(self, _: ClockAdvanced) -> None:
        """All is done by then: a step begins with what is due."""


def _kind(request: Request, told: FailureKind) -> FailureKind:
    """What the failure amounts to: nothing that has begun to answer is done again."""
    if request.begun and told in (FailureKind.LOST, FailureKind.REFUSED):
        return FailureKind.CUT_OFF
    return told


HANDLERS: dict[type[Any], Callable[[Router, Any], None]] = {
    RequestArrived: Router._on_request_arrived,
    AnswerBegun: Router._on_answer_begun,
    RequestDone: Router._on_request_done,
    RequestFailed: Router._on_request_failed,
    RequestCancelled: Router._on_request_cancelled,
    RoutesChanged: Router._on_routes_changed,
    ReplicaLost: Router._on_replica_lost,
    ReplicasProposed: Router._on_replicas_proposed,
    KeysHeld: Router._on_keys_held,
    CreditsGranted: Router._on_credits_granted,
    RoutingSpecChanged: Router._on_routing_spec_changed,
    RouterOpened: Router._on_router_opened,
    AvailabilityChanged: Router._on_availability_changed,
    RouterClosed: Router._on_router_closed,
    ClockAdvanced: Router._on_clock_advanced,
}
