"""What a router knows, and the few moves that every rule is made of. Changed in place, while a step runs."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import chain

from rankcore.routing.commands import Command, Dispatch, Retry
from rankcore.routing.events import RequestId
from rankcore.routing.notes import RoutingNote, RoutingNoteKind
from rankcore.routing.policies import choice_for
from rankcore.routing.policies.proposed import Proposed
from rankcore.routing.records import NEVER, Line, Request, RoutedReplica, Unavailability
from rankcore.routing.spec import RoutingSpec
from rankcore.values import ReplicaId

STALE_MIN = 64

Timer = tuple[float, int, int, Request | RoutedReplica]
"""(when, serial or birth, a number that no other timer has, whose deadline it is or who is left alone until then)."""


class Tables:
    """The tables of a router.

    Attributes:
        spec: As it is now.
        clock: The largest `at` so far.
        world_size: How many ranks there are; 0: none, or not known yet.
        closed: Why nothing waits any more; empty: the router is not closed.
        opened: Whether the limits are known; until then everything waits.
        unavailable: That nobody serves, nor is about to; None: that was not said, or is over. It may have ended by itself.
        requests: Every request without a final answer, and those whose replica still works on them.
        replicas: Every replica that is routed or has something in flight.
        holders: The routed replicas of each rank, by birth; the youngest gets the requests.
        anyone: What waits for whoever has room.
        ranked: What waits for a rank; no line is empty.
        unsplit: Broadcasts that wait for the world size to be known, by serial.
        waiting: How many requests wait; a broadcast counts as one while any part of it waits.
        in_flight: How many attempts are in flight.
        serial: Of the newest request.
        births: How many replicas there were.
        choice: The index of the policy.
        timers: A heap. Those of requests that are answered, and of replicas that are gone, may be in it.
        deadlines: How many requests without an answer have one.
        due: When the first timer is due.
        wake_at: When `ClockAdvanced` was asked for; `NEVER`: it was not.
        to_ask: Replicas that were not asked for credits since their last grant, by birth.
        asked: Those that were asked, and do not know yet whether anything waits still.
        commands: Of this step.
        notes: Of this step.
        explains: Whether steps leave notes.
    """

    def __init__(self, spec: RoutingSpec, *, at: float = 0.0, explains: bool = True, opened: bool = True) -> None:
        self.spec = spec
        self.clock = at
        self.world_size = 0
        self.closed = ""
        self.opened = opened
        self.unavailable: Unavailability | None = None
        self.requests: dict[RequestId, Request] = {}
        self.replicas: dict[ReplicaId, RoutedReplica] = {}
        self.holders: dict[int, list[RoutedReplica]] = {}
        self.anyone = Line()
        self.ranked: dict[int, Line] = {}
        self.unsplit: dict[int, Request] = {}
        self.waiting = 0
        self.in_flight = 0
        self.serial = 0
        self.births = 0
        self.choice = choice_for(spec)
        self.timers: list[Timer] = []
        self.timer_serial = 0
        self.deadlines = 0
        self.due = NEVER
        self.wake_at = NEVER
        self.to_ask: dict[int, RoutedReplica] = {}
        self.asked: dict[int, RoutedReplica] = {}
        self.commands: list[Command] = []
        self.notes: list[RoutingNote] = []
        self.explains = explains

    def note(
        self,
        kind: RoutingNoteKind,
        rule: str,
        request_id: RequestId | None = None,
        replica_id: ReplicaId | None = None,
        because: str = "",
    ) -> None:
        """Record one decision and its cause."""
        if self.explains:
            self.notes.append(RoutingNote(kind, rule, request_id, replica_id, because=because))

    @property
    def unavailable_now(self) -> Unavailability | None:
        """That nobody serves, nor is about to, at this moment."""
        unavailable = self.unavailable
        return unavailable if unavailable is not None and self.clock < unavailable.until else None

    @property
    def waits_since(self) -> float | None:
        """When the first of the requests that wait came; None: none waits."""
        lines = [self.anyone, *self.ranked.values()]
        heads = [line.head() for line in lines if line]
        return min((each.arrived_at for each in (*heads, *self.unsplit.values())), default=None)

    @property
    def waiting_requests(self) -> list[RequestId]:
        """Those that wait, in the order of arrival; a broadcast once, while any part of it does."""
        lines: list[Iterable[Request]] = [self.anyone, *self.ranked.values(), self.unsplit.values()]
        wait = sorted(chain.from_iterable(lines), key=lambda each: each.serial)
        return list(dict.fromkeys(each.request_id for each in wait))

    # -- what is in flight

    def give(self, request: Request, replica: RoutedReplica) -> None:
        """Give a request that stands in no line to this replica, which has room."""
        replica.flights[request.serial] = request
        self.choice.given(replica)
        self.dispatch(request, replica)

    def dispatch(self, request: Request, replica: RoutedReplica) -> None:
        """A replica has taken a request that stands in no line: send it."""
        request.attempt = attempt = request.attempt + 1
        request.replica_id = replica_id = replica.replica_id
        self.in_flight += 1
        part = request.part
        if part is not None:
            self.requests[request.request_id].parts_flying += 1
        if attempt == 1:
            self.commands.append(Dispatch(request.request_id, replica_id, 1, part))
        else:
            self.commands.append(Retry(request.request_id, replica_id, attempt, part, request.because))
        if self.explains:
            policy = "proposed" if self.choice.asks else self.spec.policy
            why = policy if request.rank is None else f"rank {request.rank}"
            self.notes.append(RoutingNote(RoutingNoteKind.CHOSEN, "Q4", request.request_id, replica_id, because=why))

    def land(self, request: Request) -> RoutedReplica:
        """An attempt is not in flight any more; who had it has not been offered anything else yet."""
        replica = self.replicas[request.replica_id or ""]
        del replica.flights[request.serial]
        request.replica_id = None
        request.begun = False
        self.in_flight -= 1
        self.choice.update(replica)
        if request.part is not None:
            self.requests[request.request_id].parts_flying -= 1
        return replica

    # -- what waits

    def line_of(self, request: Request) -> Line:
        """Where a request waits."""
        return self.anyone if request.rank is None else self.ranked.setdefault(request.rank, Line())

    def enqueue(self, request: Request) -> None:
        """Put a request into its line, at its place."""
        request.waits = True
        self.line_of(request).add(request)
        if self.choice.asks and request.rank is None:
            self.choice.waits(request)
        if request.part is None:
            self.waiting += 1
            return
        whole = self.requests[request.request_id]
        whole.parts_waiting += 1
        self.waiting += whole.parts_waiting == 1

    def dequeue(self, request: Request) -> None:
        """Take a request out of its line."""
        request.waits = False
        line = self.line_of(request)
        line.remove(request)
        if request.rank is not None and not line:
            del self.ranked[request.rank]
        if self.choice.asks and request.rank is None:
            self.choice.waits_no_more(request)
        if request.part is None:
            self.waiting -= 1
            return
        whole = self.requests[request.request_id]
        whole.parts_waiting -= 1
        self.waiting -= not whole.parts_waiting

    def waiting_for(self, replica: RoutedReplica) -> int:
        """How many requests wait that this replica may be given."""
        if isinstance(self.choice, Proposed):
            of_rank = len(self.ranked.get(replica.rank, ())) if replica.rank is not None else 0
            return self.choice.waiting_for(replica.replica_id) + of_rank
        return self.waiting

    def holder_of(self, rank: int) -> RoutedReplica | None:
        """Who takes requests for a rank; None: nobody."""
        holders = self.holders.get(rank)
        return holders[-1] if holders else None

    # -- time

    def set_timer(self, at: float, subject: Request | RoutedReplica) -> None:
        """Have a request expire, or a replica no longer left alone, at this time."""
        self.timer_serial += 1
        order = subject.serial if isinstance(subject, Request) else subject.birth
        heappush(self.timers, (at, order, self.timer_serial, subject))
        if at < self.due:
            self.due = at
        if len(self.timers) > 2 * (self.deadlines + len(self.replicas)) + STALE_MIN:
            self.timers = [timer for timer in self.timers if is_live(timer)]
            heapify(self.timers)

    def drop_stale_timers(self) -> None:
        """Let `due` be the time of something that is still to be looked at."""
        timers = self.timers
        while timers and not is_live(timers[0]):
            heappop(timers)
        self.due = timers[0][0] if timers else NEVER


def is_live(timer: Timer) -> bool:
    """Whether there is still somebody to be looked at."""
    at, _, _, subject = timer
    return not subject.answered if isinstance(subject, Request) else subject.aside_until == at
