"""A second router, written from docs/routing.md with lists and scans: nothing is kept up to date, everything is looked for."""

from bisect import bisect_left
from hashlib import blake2b
from math import ceil, inf

import attrs

from rankcore.events import ClockAdvanced
from rankcore.routing import RoutingSpec
from rankcore.routing.events import (
    AnswerBegun,
    AvailabilityChanged,
    CreditsGranted,
    FailureKind,
    KeysHeld,
    ReplicaLost,
    ReplicasProposed,
    RequestArrived,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    RouterClosed,
    RouterOpened,
    RoutesChanged,
    RoutingSpecChanged,
)

Said = tuple[object, ...]


@attrs.define(eq=False)
class NaiveReplica:
    name: str
    born: int
    rank: int | None = None
    routed: bool = False
    aside_until: float = 0.0
    credits: int = 0
    version: int = 0
    since: int = 0  # the turn in which it got to where it is in the order of its policy
    given: int = 0  # the turn in which it was given a request last
    keys: tuple[str, ...] = ()
    place: int | None = None  # its load when that was; None: it had no room


@attrs.define(eq=False)
class NaiveRequest:
    name: int | str
    order: tuple[int, int]
    deadline: float
    key: str | None = None
    rank: int | None = None
    part: int | None = None
    state: str = "waits"  # or "flies", "over"; of a broadcast that is split: "split"
    on: NaiveReplica | None = None
    attempt: int = 0
    begun: bool = False
    answered: bool = False
    losses: int = 0
    broadcast: bool = False
    keeps_failures: bool = False
    came: float = 0.0


@attrs.define(eq=False)
class NaiveRouter:
    spec: RoutingSpec
    clock: float = 0.0
    world: int = 0
    closed: bool = False
    problem: str = ""
    problem_ends: float = inf
    opened: bool = True
    turn: int = 0
    number: int = 0
    born: int = 0
    requests: list[NaiveRequest] = attrs.Factory(list)
    replicas: list[NaiveReplica] = attrs.Factory(list)
    said: list[Said] = attrs.Factory(list)

    # -- looking

    def load(self, replica: NaiveReplica) -> int:
        return sum(1 for each in self.requests if each.on is replica)

    def room(self, replica: NaiveReplica) -> int:
        if not replica.routed or replica.aside_until:
            return 0
        most = self.spec.max_ongoing_requests
        return max(0, (min(most, replica.credits) if self.spec.by_credits else most) - self.load(replica))

    def holder(self, rank: int) -> NaiveReplica | None:
        found = [each for each in self.replicas if each.routed and each.rank == rank]
        return max(found, key=lambda each: each.born) if found else None

    def whole(self, request: NaiveRequest) -> NaiveRequest:
        return next(each for each in self.requests if each.name == request.name and each.part is None)

    def parts(self, whole: NaiveRequest) -> list[NaiveRequest]:
        return [each for each in self.requests if each.name == whole.name and each.part is not None]

    def waiting(self) -> int:
        return len({each.name for each in self.requests if each.state == "waits"})

    def find(self, event: object) -> NaiveRequest | None:
        for each in self.requests:
            if (each.name, each.part, each.attempt) == (event.request_id, event.part, event.attempt) and each.on is not None:
                return each
        return None

    def choose(self, request: NaiveRequest) -> NaiveReplica | None:
        free = [each for each in self.replicas if self.room(each)]
        if request.rank is not None:
            holder = self.holder(request.rank)
            return holder if holder in free else None
        if not free:
            return None
        policy = self.spec.policy
        if policy == "round_robin":
            return min(free, key=lambda each: (each.given, each.born))
        if policy == "shared_queue":
            return min(free, key=lambda each: each.since)
        if policy == "affinity" and request.key is not None:
            holding = [each for each in free if request.key in each.keys]
            if holding:
                return min(holding, key=lambda each: (self.load(each), each.born))
            found = self.on_ring(request.key)
            if found is not None:
                return found
        return min(free, key=lambda each: (self.load(each), each.since))

    def on_ring(self, key: str) -> NaiveReplica | None:
        def hashed(text: str) -> int:
            return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")

        routed = [each for each in self.replicas if each.routed]
        bound = ceil(self.spec.load_factor * (sum(self.load(each) for each in routed) + 1) / len(routed))
        ring = sorted(
            (hashed(f"{each.name if each.rank is None else f'rank {each.rank}'}/{number}"), each.born, each)
            for each in routed
            for number in range(64)
        )
        begin = bisect_left([point[:2] for point in ring], (hashed(key), 0))
        for _, _, replica in (ring[begin:] + ring[:begin])[:256]:
            if self.room(replica) and self.load(replica) < bound:
                return replica
        return None

    # -- changing

    def settle(self) -> None:
        """Note for each replica when it came to where it is."""
        for replica in sorted(self.replicas, key=lambda each: each.born):
            self.touch(replica)

    def touch(self, replica: NaiveReplica, given: bool = False) -> None:
        place = self.load(replica) if self.room(replica) else None
        if self.spec.policy == "shared_queue" and not given and place is not None and replica.place is not None:
            replica.place = place
            return
        if place != replica.place:
            self.turn += 1
            replica.since, replica.place = self.turn, place

    def send(self, request: NaiveRequest, replica: NaiveReplica) -> None:
        request.state, request.on, request.attempt = "flies", replica, request.attempt + 1
        if self.spec.policy == "round_robin":
            self.turn += 1
            replica.given = self.turn
        self.touch(replica, given=True)
        word = "Dispatch" if request.attempt == 1 else "Retry"
        self.said.append((word, request.name, replica.name, request.attempt, request.part))

    def fill(self) -> None:
        while True:
            for request in sorted(self.requests, key=lambda each: each.order):
                if request.state == "waits" and not (request.broadcast and request.part is None):
                    replica = self.choose(request)
                    if replica is not None:
                        self.send(request, replica)
                        break
            else:
                return

    def answer(self, whole: NaiveRequest, word: str) -> None:
        self.said.append((word, whole.name))
        whole.answered = True
        for each in self.parts(whole) or [whole]:
            each.answered = True
            if each.state == "waits":
                each.state = "over"
            elif each.on is not None:
                self.said.append(("StopAttempt", each.name, each.on.name, each.attempt, each.part))
        self.clean()

    def clean(self) -> None:
        busy = {each.name for each in self.requests if each.on is not None}
        self.requests = [each for each in self.requests if not self.whole(each).answered or each.name in busy]
        self.replicas = [each for each in self.replicas if each.routed or self.load(each)]

    def land(self, request: NaiveRequest) -> NaiveReplica:
        replica = request.on
        assert replica is not None
        request.on, request.state, request.begun = None, "over", False
        self.touch(replica)
        return replica

    def fails(self, request: NaiveRequest, kind: FailureKind) -> None:
        whole = self.whole(request)
        if whole.answered:
            self.clean()
            return
        lost = kind is FailureKind.LOST
        request.losses += lost
        if request.rank is not None and 0 < self.world <= request.rank:
            self.fail(request)
        elif kind is FailureKind.REFUSED or (lost and self.spec.idempotent and request.losses <= self.spec.max_retries):
            request.state = "waits"
        else:
            self.fail(request)

    def fail(self, request: NaiveRequest) -> None:
        whole = self.whole(request)
        if not (whole.keeps_failures and request.part is not None):
            self.answer(whole, "Fail")
            return
        self.said.append(("FailPart", request.name, request.part))
        request.state, request.answered = "over", True
        self.complete(whole)

    def complete(self, whole: NaiveRequest) -> None:
        if all(each.answered for each in self.parts(whole) or [whole]):
            self.answer(whole, "Complete")

    # -- events

    def step(self, event: object) -> list[Said]:
        self.said = []
        self.clock = max(self.clock, event.at)
        self.pass_time()
        getattr(self, type(event).__name__)(event)
        self.fill()
        if self.turns_away():
            for request in sorted(self.requests, key=lambda each: each.order):
                if request.state == "waits":
                    self.answer(self.whole(request), self.turns_away())
        self.clean()
        return self.said

    def pass_time(self) -> None:
        due = [(each.deadline, 1, each.order, each) for each in self.requests if each.part is None and not each.answered]
        due += [(each.aside_until, 0, (each.born, 0), each) for each in self.replicas if each.aside_until]
        for when, _, _, subject in sorted(due, key=lambda each: each[:3]):
            if when > self.clock:
                continue
            if isinstance(subject, NaiveRequest):
                self.answer(subject, "Expire")
            else:
                subject.aside_until = 0.0
                self.touch(subject)
        self.fill()

    def KeysHeld(self, event: KeysHeld) -> None:
        for each in self.replicas:
            if each.name == event.replica_id:
                each.keys = event.keys

    def ReplicasProposed(self, _: ReplicasProposed) -> None:
        """It asks nobody."""

    def ClockAdvanced(self, _: ClockAdvanced) -> None:
        pass

    def RequestArrived(self, event: RequestArrived) -> None:
        if any(each.name == event.request_id for each in self.requests):
            return
        self.number += 1
        after = inf if self.spec.request_timeout_s is None else self.clock + self.spec.request_timeout_s
        deadline = after if event.deadline is None else event.deadline
        request = NaiveRequest(event.request_id, (self.number, 0), deadline, event.key, event.rank, broadcast=event.broadcast)
        request.came, request.keeps_failures = self.clock, event.keep_failures
        full = (self.opened and self.waiting() >= self.spec.max_queued_requests) or bool(self.turns_away())
        self.requests.append(request)
        if deadline <= self.clock:
            self.answer(request, "Expire")
        elif event.broadcast:
            ranks = self.asked(request)
            fits = self.world and all((each := self.holder(rank)) is not None and self.room(each) for rank in ranks)
            if full and not fits:
                self.answer(request, self.turns_away() or "Reject")
            elif self.world:
                self.split(request)
        elif event.rank is not None and self.world and event.rank >= self.world:
            self.answer(request, "Fail")
        elif full and self.choose(request) is None:
            self.answer(request, self.turns_away() or "Reject")

    def turns_away(self) -> str:
        """How all are answered that would have to wait."""
        unavailable = self.problem and self.clock < self.problem_ends
        return "Fail" if self.closed else "Decline" if unavailable else ""

    def AvailabilityChanged(self, event: AvailabilityChanged) -> None:
        if not event.problem or not any(each.routed for each in self.replicas):
            self.problem = event.problem
            self.problem_ends = inf if event.lasts_s is None else self.clock + event.lasts_s

    def asked(self, whole: NaiveRequest) -> list[int]:
        everybody = list(range(self.world))
        there = [rank for rank in everybody if self.holder(rank) is not None]
        return there if whole.keeps_failures and there else everybody

    def split(self, whole: NaiveRequest) -> None:
        whole.state = "split"
        asked = self.asked(whole)
        for rank in range(self.world):
            order = (whole.order[0], 1 + rank)
            self.requests.append(NaiveRequest(whole.name, order, inf, rank=rank, part=rank, broadcast=True))
        for part in self.parts(whole):
            if part.rank not in asked:
                self.fail(part)

    def RequestDone(self, event: RequestDone) -> None:
        request = self.find(event)
        if request is None:
            return
        was_answered = request.answered
        replica = self.land(request)
        whole = self.whole(request)
        if not was_answered:
            request.answered = True
            self.complete(whole)
        self.clean()
        replica.aside_until = 0.0
        self.touch(replica)

    def AnswerBegun(self, event: AnswerBegun) -> None:
        request = self.find(event)
        if request is not None:
            request.begun = True

    def RequestFailed(self, event: RequestFailed) -> None:
        request = self.find(event)
        if request is None:
            return
        kind = event.kind
        undone = kind in (FailureKind.LOST, FailureKind.REFUSED)
        if request.begun and undone:
            kind = FailureKind.CUT_OFF
        replica = self.land(request)
        if undone and replica.routed:
            replica.aside_until = self.clock + self.spec.refusal_backoff_s
            self.touch(replica)
        self.fails(request, kind)

    def RequestCancelled(self, event: RequestCancelled) -> None:
        for each in self.requests:
            if each.name == event.request_id and each.part is None and not each.answered:
                self.answer(each, "Forget")
                return

    def RoutesChanged(self, event: RoutesChanged) -> None:
        added = {route.replica_id for route in event.added}
        for replica in list(self.replicas):
            if replica.routed and (replica.name in event.removed or (event.complete and replica.name not in added)):
                replica.routed = False
                self.touch(replica)
                self.clean()
        for route in event.added:
            self.problem = ""
            replica = next((each for each in self.replicas if each.name == route.replica_id), None)
            if replica is None:
                self.born += 1
                replica = NaiveReplica(route.replica_id, self.born)
                self.replicas.append(replica)
            elif replica.routed and replica.rank != route.rank:
                replica.routed = False
                self.touch(replica)
            replica.routed, replica.rank, replica.aside_until = True, route.rank, 0.0
            self.touch(replica)
        if event.world_size is not None and event.world_size != self.world:
            self.world = event.world_size
            if self.world:
                for request in sorted(self.requests, key=lambda each: (each.rank or 0, each.order)):
                    if request.state == "waits" and request.rank is not None and request.rank >= self.world:
                        self.fail(request)
                for request in list(self.requests):
                    if request.state == "waits" and request.broadcast and request.part is None:
                        self.split(request)

    def ReplicaLost(self, event: ReplicaLost) -> None:
        replica = next((each for each in self.replicas if each.name == event.replica_id), None)
        if replica is None:
            return
        replica.routed = False
        self.touch(replica)
        for request in sorted((each for each in self.requests if each.on is replica), key=lambda each: each.order):
            if request.on is not replica:
                continue
            kind = FailureKind.CUT_OFF if request.begun else FailureKind.LOST
            self.land(request)
            self.fails(request, kind)
        self.clean()

    def CreditsGranted(self, event: CreditsGranted) -> None:
        replica = next((each for each in self.replicas if each.name == event.replica_id), None)
        if replica is not None and self.spec.by_credits and event.version > replica.version:
            replica.credits, replica.version, replica.aside_until = event.credits, event.version, 0.0
            self.touch(replica)

    def RoutingSpecChanged(self, event: RoutingSpecChanged) -> None:
        anew = attrs.evolve(self.spec, policy=event.spec.policy, load_factor=event.spec.load_factor) != self.spec
        self.spec = event.spec
        for replica in sorted(self.replicas, key=lambda each: each.born):
            if anew:
                replica.place = None
            self.touch(replica)

    def RouterOpened(self, _: RouterOpened) -> None:
        if self.opened:
            return
        self.opened = True
        for request in self.requests:
            if request.part is None and request.deadline == inf and self.spec.request_timeout_s is not None:
                request.deadline = request.came + self.spec.request_timeout_s
        self.pass_time()
        names = [each.name for each in self.requests if each.state == "waits"]
        wholes = [each for each in self.requests if each.part is None and each.name in names]
        begun = [each for each in wholes if any(part.attempt for part in (each, *self.parts(each)))]
        new = [each for each in sorted(wholes, key=lambda each: each.order) if each not in begun]
        for request in new[max(0, self.spec.max_queued_requests - len(begun)) :]:
            self.answer(request, "Reject")

    def RouterClosed(self, _: RouterClosed) -> None:
        self.closed = True
