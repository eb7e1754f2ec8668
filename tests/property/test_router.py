"""The router under any order of events: against a naive one, its promises (D1), and itself as a value."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rankcore.codec import from_json, to_json
from rankcore.events import ClockAdvanced
from rankcore.routing import FailureKind, Route, Router, RouterImage, RouterState, RouteStep, RoutingSpec, image_of, route_step
from rankcore.routing.commands import AskCredits, Command, Dispatch, FailPart, Reject, Retry, ReturnCredits, StopAttempt, WakeAt
from rankcore.routing.events import (
    AnswerBegun,
    AvailabilityChanged,
    CreditsGranted,
    Event,
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
from rankcore.routing.invariants import check, check_indexes, check_step
from tests.property.naive_router import NaiveRouter, Said

pytestmark = pytest.mark.traced

NAMES = ("llm#1.0", "llm#1.1", "llm#1.2", "llm#1.10")
names = st.sampled_from(NAMES)
ranks = st.none() | st.integers(0, 2)
specs = st.builds(
    RoutingSpec,
    name=st.just("llm"),
    max_ongoing_requests=st.integers(1, 3),
    max_queued_requests=st.integers(0, 5),
    policy=st.sampled_from(("least_loaded", "shared_queue", "round_robin", "affinity", "power_of_two")),
    router=st.sampled_from(("", "", "", "code", "other")),
    idempotent=st.booleans(),
    max_retries=st.integers(0, 2),
    request_timeout_s=st.none() | st.sampled_from((0.5, 2.0)),
    load_factor=st.sampled_from((1.25, 3.0)),
)
wants = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"key": st.sampled_from("abc")}),
    st.fixed_dictionaries({"rank": st.integers(0, 3)}),
    st.fixed_dictionaries({"broadcast": st.just(True), "keep_failures": st.booleans()}),
)
groups = st.lists(st.lists(st.sampled_from((*NAMES, "nobody")), max_size=3).map(tuple), max_size=3).map(tuple)
UNSAID = (AskCredits, ReturnCredits, WakeAt)


def is_untold(spec: RoutingSpec) -> bool:
    """Whether the naive one does not know how."""
    return spec.policy == "power_of_two" or bool(spec.router)


def said(command: Command) -> Said:
    word = type(command).__name__
    if isinstance(command, (Dispatch, Retry, StopAttempt)):
        return (word, command.request_id, command.replica_id, command.attempt, command.part)
    return (word, command.request_id, command.part) if isinstance(command, FailPart) else (word, command.request_id)


class Routers(RuleBasedStateMachine):
    """The same events to all, in any order."""

    @initialize(spec=specs, by_credits=st.booleans(), opened=st.booleans())
    def begin(self, spec: RoutingSpec, by_credits: bool, opened: bool) -> None:
        spec = attrs.evolve(spec, by_credits=by_credits)
        self.router = Router(spec, opened=opened)
        self.state = RouterState.of(image_of(self.router))
        self.naive: NaiveRouter | None = NaiveRouter(spec, opened=opened) if not is_untold(spec) else None
        self.now = 0.0
        self.arrived = 0
        self.version = 0
        self.flights: list[Dispatch | Retry] = []
        self.kept: list[tuple[RouterState, Event, RouteStep]] = []
        if not by_credits:
            self.send(RoutesChanged(added=(Route(NAMES[0], 0), Route(NAMES[1], 1)), world_size=2, at=self.now))

    def send(self, event: Event) -> None:
        before = self.state
        step = route_step(before, event)
        commands, notes = self.router.step(event)
        assert (commands, notes) == (step.commands, step.notes)
        assert check_step(before, event, step) == []
        if self.naive is not None:
            assert [said(each) for each in commands if not isinstance(each, UNSAID)] == self.naive.step(event)
        self.flights += [each for each in commands if isinstance(each, (Dispatch, Retry))]
        self.kept.append((before, event, step))
        self.state = step.state

    @rule(want=wants, timeout_s=st.none() | st.sampled_from((0.0, 0.25, 1.0)))
    def arrives(self, want: dict[str, object], timeout_s: float | None) -> None:
        self.arrived += 1
        deadline = None if timeout_s is None else self.now + timeout_s
        self.send(RequestArrived(request_id=self.arrived, deadline=deadline, at=self.now, **want))

    @rule(number=st.integers(1, 9))
    def arrives_again(self, number: int) -> None:
        if any(each.request_id == number for each in self.state.image.requests):
            self.send(RequestArrived(request_id=number, at=self.now))

    @precondition(lambda self: self.flights)
    @rule(ago=st.integers(0, 5), kind=st.none() | st.sampled_from(FailureKind), begun=st.booleans())
    def ends(self, ago: int, kind: FailureKind | None, begun: bool) -> None:
        """Also what has ended before: news comes late and twice."""
        flight = self.flights[-1 - ago % len(self.flights)]
        which = {"request_id": flight.request_id, "attempt": flight.attempt, "part": flight.part, "at": self.now}
        if begun:
            self.send(AnswerBegun(**which))
        self.send(RequestDone(**which) if kind is None else RequestFailed(kind=kind, reason="why", **which))

    @precondition(lambda self: self.arrived)
    @rule(ago=st.integers(0, 5))
    def is_cancelled(self, ago: int) -> None:
        self.send(RequestCancelled(request_id=max(1, self.arrived - ago), at=self.now))

    @rule(
        added=st.lists(st.tuples(names, ranks), max_size=3, unique_by=lambda each: each[0]),
        removed=st.lists(names, max_size=2, unique=True),
        complete=st.booleans(),
        world_size=st.none() | st.integers(0, 3),
    )
    def routes_change(
        self, added: list[tuple[str, int | None]], removed: list[str], complete: bool, world_size: int | None
    ) -> None:
        routes = tuple(Route(*each) for each in added)
        gone = tuple(removed)
        self.send(RoutesChanged(added=routes, removed=gone, complete=complete, world_size=world_size, at=self.now))

    @rule(name=names)
    def is_lost(self, name: str) -> None:
        self.send(ReplicaLost(replica_id=name, reason="oom", at=self.now))

    @precondition(lambda self: self.state.spec.by_credits)
    @rule(name=names, credits=st.integers(0, 3), is_late=st.booleans())
    def is_granted(self, name: str, credits: int, is_late: bool) -> None:
        self.version += not is_late
        self.send(CreditsGranted(replica_id=name, credits=credits, version=self.version, at=self.now))

    @rule(name=names, keys=st.lists(st.sampled_from("abc"), max_size=2, unique=True))
    def has_ready(self, name: str, keys: list[str]) -> None:
        self.send(KeysHeld(replica_id=name, keys=tuple(keys), at=self.now))

    @precondition(lambda self: self.arrived)
    @rule(ago=st.integers(0, 5), ranked=groups)
    def is_proposed(self, ago: int, ranked: tuple[tuple[str, ...], ...]) -> None:
        """Also what was so before, and what is not asked about."""
        self.send(ReplicasProposed(request_id=max(1, self.arrived - ago), ranked=ranked, at=self.now))

    @rule(quarters=st.integers(1, 4))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4
        if self.state.image.wake_at <= self.now:
            self.send(ClockAdvanced(at=self.now))

    @rule(spec=specs)
    def spec_changes(self, spec: RoutingSpec) -> None:
        if is_untold(spec):
            self.naive = None
        self.send(RoutingSpecChanged(spec=attrs.evolve(spec, by_credits=self.state.spec.by_credits), at=self.now))

    @rule()
    def is_opened(self) -> None:
        self.send(RouterOpened(at=self.now))

    @rule(problem=st.sampled_from(("", "it fails to start", "it fails again")), lasts_s=st.none() | st.sampled_from((0.0, 0.5)))
    def availability_changes(self, problem: str, lasts_s: float | None) -> None:
        """Also where there are routes, and again."""
        self.send(AvailabilityChanged(problem=problem, retry_after_s=5.0, lasts_s=lasts_s, at=self.now))

    @precondition(lambda self: self.state.image.replicas)
    @rule(lasts_s=st.none() | st.sampled_from((0.0, 0.5)))
    def nobody_is_left(self, lasts_s: float | None) -> None:
        self.send(RoutesChanged(complete=True, at=self.now))
        self.send(AvailabilityChanged(problem="all have died", lasts_s=lasts_s, at=self.now))

    @rule(sure=st.integers(0, 9))
    def is_closed(self, sure: int) -> None:
        if not sure:
            self.send(RouterClosed(at=self.now))

    @precondition(lambda self: self.kept)
    @rule(ago=st.integers(0, 200))
    def an_old_state_is_what_it_was(self, ago: int) -> None:
        before, event, step = self.kept[-1 - ago % len(self.kept)]
        assert route_step(before, event) == step

    @rule()
    def goes_on_from_its_text(self) -> None:
        image = from_json(to_json(self.state.image), RouterImage)
        assert image == self.state.image
        self.state = RouterState.of(image)

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "state"):
            assert check(self.state) == []
            assert check_indexes(self.router) == []
            assert self.state.image == image_of(self.router)
            shown = (self.state.waiting, self.state.in_flight, self.state.world_size)
            assert shown == (self.router.waiting, self.router.in_flight, self.router.world_size)


class Proposers(Routers):
    """The same where a user's code says who may have a request; also before and after it does."""

    @initialize(spec=specs.map(lambda spec: attrs.evolve(spec, router="code")), by_credits=st.booleans(), opened=st.booleans())
    def begin(self, spec: RoutingSpec, by_credits: bool, opened: bool) -> None:
        super().begin(spec, by_credits, opened)

    @precondition(lambda self: self.arrived)
    @rule(ago=st.integers(0, 5), ranked=groups)
    def is_proposed_too(self, ago: int, ranked: tuple[tuple[str, ...], ...]) -> None:
        self.is_proposed(ago, ranked)


TestProposers = Proposers.TestCase
TestProposers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRouters = Routers.TestCase
TestRouters.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(
    spec=specs.map(lambda spec: attrs.evolve(spec, request_timeout_s=None)),
    by_credits=st.booleans(),
    calls=st.lists(st.none(), max_size=12) | st.lists(st.integers(0, 1), max_size=12),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_a_first_burst_is_accepted_and_rejected_as_one_that_comes_when_all_is_known(
    spec: RoutingSpec, by_credits: bool, calls: list[int | None], order: object
) -> None:
    """Whatever of the deployment comes to be known before, between and after the calls: to anybody, or each to a rank."""
    spec = attrs.evolve(spec, by_credits=by_credits)
    news: list[Event] = [RoutingSpecChanged(spec=spec, at=0.0)]
    news += [RoutesChanged(added=tuple(Route(NAMES[rank], rank) for rank in range(2)), world_size=2, at=0.0)]
    news += [CreditsGranted(replica_id=NAMES[rank], credits=spec.max_ongoing_requests, version=1, at=0.0) for rank in range(2)]
    arrivals: list[Event] = [RequestArrived(request_id=1 + at, rank=rank, at=0.0) for at, rank in enumerate(calls)]

    def outcome(router: Router, events: list[Event]) -> tuple[list[object], list[object]]:
        commands = [command for event in events for command in router.step(event).commands]
        kinds = (Reject, Dispatch)
        found = [sorted(each.request_id for each in commands if isinstance(each, kind)) for kind in kinds]
        return found[0], found[1]

    whose = sorted([0] * len(news) + [1] * len(arrivals), key=lambda _: order.random())  # type: ignore[attr-defined]
    lines = (iter(news), iter(arrivals))
    mixed = [next(lines[which]) for which in whose]
    burst = outcome(Router(RoutingSpec(name="llm", by_credits=by_credits), opened=False), [*mixed, RouterOpened(at=0.0)])
    known = outcome(Router(spec), [*news, *arrivals])
    assert burst == known
