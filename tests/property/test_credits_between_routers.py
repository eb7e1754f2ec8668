"""Several routers and one replica that keeps to its limit: no credit lies idle while a call waits, and all have their turn.

Messages keep their order on each connection, and nothing else: which connection is heard next is drawn.
"""

from collections import Counter, deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rankcore.routing import Router, RoutingSpec
from rankcore.routing.commands import AskCredits, Complete, Dispatch, ReturnCredits
from rankcore.routing.credits import (
    CreditsAsked,
    CreditsReturned,
    LimitChanged,
    RequestEnded,
    RequestTaken,
    RouterJoined,
    credit_step,
    open_credits,
)
from rankcore.routing.events import CreditsGranted, RequestArrived, RequestDone, Route, RoutesChanged
from rankcore.routing.invariants import check_credits

LIMIT_MAX = 5
ROUNDS_MAX = 300


class Exchange:
    """Routers, a replica, and the messages between them."""

    def __init__(self, limit, routers):
        self.book = open_credits(limit)
        self.routers, self.up, self.down, self.at_work, self.asked = {}, {}, {}, [], 0
        self.answered = Counter()
        for name in "abcd"[:routers]:
            spec = RoutingSpec(name="m", by_credits=True, max_ongoing_requests=LIMIT_MAX)
            self.routers[name] = router = Router(spec, at=0.0, explains=False)
            router.step(RoutesChanged(added=(Route("r", 0),), complete=True, world_size=1, at=0.0))
            self.up[name], self.down[name] = deque([RouterJoined(router_id=name)]), deque()

    def arrives(self, name):
        self.asked += 1
        self.tell_router(name, RequestArrived(request_id=self.asked, at=0.0))

    def tell_router(self, name, event):
        for command in self.routers[name].step(event).commands:
            match command:
                case Dispatch():
                    self.up[name].append(command)
                case AskCredits(wanted=wanted, version=version):
                    self.up[name].append(CreditsAsked(router_id=name, wanted=wanted, version=version))
                case ReturnCredits(credits=credits, version=version):
                    self.up[name].append(CreditsReturned(router_id=name, credits=credits, version=version))
                case Complete():
                    self.answered[name] += 1

    def tell_book(self, event):
        self.book, commands, _ = credit_step(self.book, event)
        for each in commands:
            self.down[each.router_id].append(CreditsGranted(replica_id="r", credits=each.credits, version=each.version, at=0.0))

    def replica_hears(self, name):
        if not self.up[name]:
            return
        message = self.up[name].popleft()
        if not isinstance(message, Dispatch):
            self.tell_book(message)
            return
        assert self.book.admits(name), "who keeps to its grants is never refused"
        self.at_work.append((name, message))
        self.tell_book(RequestTaken(router_id=name))

    def router_hears(self, name):
        if self.down[name]:
            self.tell_router(name, self.down[name].popleft())

    def ends(self, index):
        name, sent = self.at_work.pop(index)
        self.down[name].append(RequestDone(request_id=sent.request_id, attempt=sent.attempt, part=sent.part, at=0.0))
        self.tell_book(RequestEnded(router_id=name))
        return name

    def settle(self):
        """All that was said is heard."""
        rounds = 0
        while any(self.up.values()) or any(self.down.values()):
            rounds += 1
            assert rounds < ROUNDS_MAX, "routers and replica talk to each other without end"
            for name in self.routers:
                self.replica_hears(name)
                self.router_hears(name)

    @property
    def unanswered(self):
        return self.asked - self.answered.total()


class Exchanges(RuleBasedStateMachine):
    @initialize(limit=st.integers(1, LIMIT_MAX), routers=st.integers(1, 4))
    def begin(self, limit: int, routers: int) -> None:
        self.exchange = Exchange(limit, routers)
        self.names = list(self.exchange.routers)

    @rule(which=st.integers(0, 3), how_many=st.integers(1, 4))
    def arrive(self, which: int, how_many: int) -> None:
        for _ in range(how_many):
            self.exchange.arrives(self.names[which % len(self.names)])

    @rule(which=st.integers(0, 3), is_up=st.booleans(), how_many=st.integers(1, 4))
    def is_heard(self, which: int, is_up: bool, how_many: int) -> None:
        hears = self.exchange.replica_hears if is_up else self.exchange.router_hears
        for _ in range(how_many):
            hears(self.names[which % len(self.names)])

    @rule(which=st.integers(0, LIMIT_MAX - 1))
    def ends(self, which: int) -> None:
        if which < len(self.exchange.at_work):
            self.exchange.ends(which)

    @rule()
    def no_credit_lies_idle_while_a_call_waits(self) -> None:
        self.exchange.settle()
        assert len(self.exchange.at_work) == min(self.exchange.book.limit, self.exchange.unanswered)

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "exchange"):
            assert check_credits(self.exchange.book) == []

    def teardown(self) -> None:
        if hasattr(self, "exchange"):
            self.exchange.settle()
            while self.exchange.at_work:
                self.exchange.ends(0)
                self.exchange.settle()
            assert self.exchange.unanswered == 0


TestExchanges = Exchanges.TestCase
TestExchanges.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("limit", range(1, LIMIT_MAX + 1))
@pytest.mark.parametrize("routers", range(1, 5))
def test_routers_that_always_want_more_fill_the_limit_and_have_their_turn(limit, routers):
    """C3."""
    exchange = Exchange(limit, routers)
    for name in exchange.routers:
        for _ in range(8):
            exchange.arrives(name)
    exchange.settle()
    ended = Counter(dict.fromkeys(exchange.routers, 0))
    for _ in range(30 * routers):
        name = exchange.ends(0)  # all take as long
        ended[name] += 1
        exchange.arrives(name)
        exchange.settle()
        assert len(exchange.at_work) == limit
    most, least = max(ended.values()), min(ended.values())
    assert most - least <= limit if limit < routers else most <= 2 * least + limit + 1, "all have as many, but for one"


@pytest.mark.parametrize(("first", "second"), [(2, 6), (6, 2), (3, 6), (6, 3)])
def test_what_a_router_does_not_use_goes_to_another_though_it_uses_the_rest(first, second):
    exchange = Exchange(4, 2)
    for name, calls in zip(exchange.routers, (first, second), strict=True):
        for _ in range(calls):
            exchange.arrives(name)
    exchange.settle()
    for name in exchange.routers:
        mine = [index for index, (whose, _) in enumerate(exchange.at_work) if whose == name]
        if mine:
            exchange.ends(mine[0])
        exchange.settle()
        assert len(exchange.at_work) == 4 or len(exchange.at_work) == exchange.unanswered


def test_whoever_joins_hears_what_it_has_even_if_that_is_nothing():
    exchange = Exchange(1, 2)
    for name in exchange.routers:
        exchange.replica_hears(name)
    assert [len(line) for line in exchange.down.values()] == [1, 1]
    assert exchange.down["b"][0].credits == 0


def test_a_lower_limit_is_kept_once_what_is_too_much_has_ended():
    exchange = Exchange(4, 2)
    for name in exchange.routers:
        for _ in range(4):
            exchange.arrives(name)
    exchange.settle()
    exchange.tell_book(LimitChanged(limit=2))
    exchange.settle()
    for _ in range(4):
        exchange.ends(0)
        exchange.settle()
    assert len(exchange.at_work) == 2
