"""Credits on the replica's side: never more than the limit, a fair share for who asks, and what is lost comes back."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rankcore.errors import InvalidEventError, InvalidSpecError
from rankcore.routing import credits
from rankcore.routing.credits import (
    CreditBook,
    CreditsAsked,
    CreditsReturned,
    LimitChanged,
    RequestEnded,
    RequestTaken,
    RouterJoined,
    RouterLost,
    credit_step,
    open_credits,
)
from rankcore.routing.invariants import check_credits


def play(book: CreditBook, *events):
    said = []
    for event in events:
        book, commands, _ = credit_step(book, event)
        said += [(each.router_id, each.credits) for each in commands]
    return book, said


def asks(name: str, wanted: int = 1) -> CreditsAsked:
    return CreditsAsked(router_id=name, wanted=wanted, version=0)


def joined(*names: str, limit: int = 8):
    return play(open_credits(limit), *(RouterJoined(router_id=name) for name in names))


def test_a_router_that_is_alone_has_everything_at_once():
    assert joined("a")[1] == [("a", 8)]


def test_who_joins_gets_one_and_who_asks_its_fair_share_of_what_is_used():
    book, said = joined("a", "b")
    assert said == [("a", 8), ("a", 7), ("b", 0)]
    book, said = play(book, CreditsReturned(router_id="a", credits=7, version=2))
    assert said == [("b", 1)]
    book, said = play(book, *[RequestTaken(router_id="a")] * 7, CreditsAsked(router_id="b", wanted=9, version=3))
    assert said == [("a", 4)]
    book, said = play(book, CreditsReturned(router_id="a", credits=6, version=4))
    assert said == [("b", 2)]
    assert book.held == 8


def test_what_nobody_uses_goes_to_who_asks_but_for_one():
    book, _ = joined("a", "b")
    book, said = play(
        book,
        CreditsReturned(router_id="a", credits=7, version=2),
        CreditsAsked(router_id="b", wanted=8, version=3),
        CreditsReturned(router_id="a", credits=1, version=4),
    )
    assert said[-1] == ("b", 7)


def test_what_an_idle_router_leaves_goes_to_who_still_wants_more():
    book, _ = joined("a", "b")
    book, said = play(book, CreditsReturned(router_id="a", credits=7, version=2), RequestTaken(router_id="a"), asks("b", 8))
    assert said == [("b", 1), ("a", 1)]
    book, said = play(book, CreditsReturned(router_id="a", credits=1, version=4), RequestEnded(router_id="a"))
    assert said == [("b", 7), ("a", 0)]


def test_fewer_credits_than_routers_are_taken_in_turns():
    """C3."""
    book, said = joined("a", "b", limit=1)
    assert said == [("a", 1), ("b", 0)]
    book, said = play(book, asks("b"), CreditsReturned(router_id="a", credits=0, version=2))
    assert said == [("a", 0), ("b", 1)]
    book, said = play(book, asks("a"))
    assert said == [("b", 0)]
    book, said = play(book, asks("b"), CreditsReturned(router_id="b", credits=0, version=4))
    assert said == [("a", 1), ("a", 0)], "a turn, and no longer"


def test_what_a_lost_router_held_comes_back_as_its_work_ends():
    book, _ = joined("a", "b", limit=2)
    book, _ = play(book, CreditsReturned(router_id="a", credits=1, version=2), RequestTaken(router_id="a"))
    assert not book.admits("a")
    assert book.admits("b")
    assert not book.admits("c")
    book, said = play(
        book, RouterLost(router_id="a"), RouterLost(router_id="a"), CreditsAsked(router_id="b", wanted=2, version=3)
    )
    assert said == []
    assert not book.admits("a")
    book, said = play(book, RequestEnded(router_id="a"))
    assert said == [("b", 2)]
    assert play(book, RouterLost(router_id="b"))[0].held == 0


def test_who_wants_no_more_calls_nothing_back():
    book, _ = joined("a", "b", limit=1)
    book, _ = play(book, RequestTaken(router_id="a"), asks("b"), CreditsReturned(router_id="a", credits=1, version=3))
    book, said = play(book, asks("b", 0), asks("b", 0))
    assert said == [("a", 1)]
    assert play(book, RequestEnded(router_id="a"))[1] == []


def test_what_a_router_had_at_work_when_it_met_a_recall_comes_back_as_it_ends():
    book, _ = joined("a", "b", limit=2)
    book, _ = play(book, CreditsReturned(router_id="a", credits=2, version=2), *[RequestTaken(router_id="a")] * 2)
    assert not book.admits("b")
    book, said = play(book, RequestEnded(router_id="a"))
    assert said == [("b", 1)]
    assert not book.admits("a"), "it has one at work, and one is what it has"


def test_a_wish_ends_with_a_recall_behind_which_it_is_told_again():
    """Routers that wanted nothing any more handed a credit round without end."""
    book, _ = joined("a", "b", "c", limit=1)
    book, _ = play(book, asks("a", 3), RequestTaken(router_id="a"), asks("b"), RequestEnded(router_id="a"))
    book, said = play(book, CreditsReturned(router_id="a", credits=0, version=book.version))
    assert said == [("b", 1)]


def test_late_news_changes_nothing():
    book, _ = joined("a")
    for event in (
        RouterJoined(router_id="a"),
        RouterLost(router_id="x"),
        CreditsAsked(router_id="x", wanted=1, version=0),
        CreditsAsked(router_id="a", wanted=8, version=1),
        CreditsReturned(router_id="a", credits=1, version=99),
        CreditsReturned(router_id="x", credits=1, version=1),
        RequestTaken(router_id="x"),
        RequestEnded(router_id="a"),
    ):
        after, commands, notes = credit_step(book, event)
        assert (after, commands) == (book, ())
        assert len(notes) == 1


def test_a_lower_limit_calls_back_and_a_higher_one_hands_out():
    book, said = play(joined("a")[0], LimitChanged(limit=3))
    assert said == [("a", 3)]
    book, said = play(book, CreditsReturned(router_id="a", credits=3, version=2), LimitChanged(limit=5))
    assert said == [("a", 5)]


def test_malformed_news_names_its_field():
    with pytest.raises(InvalidEventError, match=r"RouterJoined.router_id must be"):
        RouterJoined(router_id="")
    with pytest.raises(InvalidEventError, match=r"CreditsAsked.wanted must be"):
        CreditsAsked(router_id="a", wanted=-1, version=0)
    with pytest.raises(InvalidEventError, match=r"LimitChanged.limit must be"):
        LimitChanged(limit=-1)
    with pytest.raises(InvalidSpecError, match=r"limit must be"):
        open_credits(-1)


NAMES = ("a", "b", "c")


class Books(RuleBasedStateMachine):
    """Routers that keep their half: in order on each connection, and never more at work than the newest grant allows."""

    @initialize(limit=st.integers(1, 5))
    def begin(self, limit: int) -> None:
        self.book = open_credits(limit)
        self.sent: dict[str, list[tuple[int, int]]] = {}
        self.allowed: dict[str, int] = {}
        self.work: dict[str, int] = {}
        self.debt: dict[str, int] = {}
        self.joined = 0

    def tell(self, event) -> None:
        self.book, commands, _ = credit_step(self.book, event)
        for each in commands:
            self.sent[each.router_id].append((each.version, each.credits))

    @rule()
    def joins(self) -> None:
        name = f"router-{self.joined}"
        if len(self.allowed) < 4:
            self.joined += 1
            self.sent[name], self.allowed[name], self.work[name] = [], 0, 0
            self.tell(RouterJoined(router_id=name))

    def pick(self, which: int) -> str | None:
        names = sorted(self.allowed)
        return names[which % len(names)] if names else None

    @rule(which=st.integers(0, 3))
    def hears(self, which: int) -> None:
        name = self.pick(which)
        if name is not None and self.sent[name]:
            version, credits = self.sent[name].pop(0)
            before, self.allowed[name] = self.allowed[name], credits
            if credits < before:
                self.debt[name] = version
                self.tell(CreditsReturned(router_id=name, credits=max(credits, self.work[name]), version=version))
            else:
                self.debt.pop(name, None)

    @rule(which=st.integers(0, 3), wanted=st.integers(0, 6))
    def asks(self, which: int, wanted: int) -> None:
        name = self.pick(which)
        if name is not None:
            self.tell(CreditsAsked(router_id=name, wanted=wanted, version=0))

    @rule(which=st.integers(0, 3))
    def works(self, which: int) -> None:
        name = self.pick(which)
        if name is not None and self.work[name] < self.allowed[name]:
            assert self.book.admits(name), "C1: who keeps to its grant is never refused"
            self.work[name] += 1
            self.tell(RequestTaken(router_id=name))

    @rule(which=st.integers(0, 3))
    def ends(self, which: int) -> None:
        name = self.pick(which)
        if name is not None and self.work[name]:
            self.work[name] -= 1
            self.tell(RequestEnded(router_id=name))
            if name in self.debt:
                most = max(self.allowed[name], self.work[name])
                self.tell(CreditsReturned(router_id=name, credits=most, version=self.debt[name]))

    @rule(which=st.integers(0, 3))
    def is_lost(self, which: int) -> None:
        name = self.pick(which)
        if name is not None and self.work[name] == 0:
            del self.allowed[name]
            self.tell(RouterLost(router_id=name))

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "book"):
            assert check_credits(self.book) == []


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=40, deadline=None)


@given(st.integers(1, 4), st.binary(min_size=60, max_size=240))
@settings(max_examples=150)
def test_credits_come_to_rest_after_every_event(limit, draws):
    """Two routers that were handed back in turn what they may still hold kept a replica busy for ever."""
    rounds = itertools.count()
    with pytest.MonkeyPatch.context() as patched:
        one_round = credits._round

        def counted(book, because):
            assert next(rounds) < 100, "credits go round and round"
            return one_round(book, because)

        patched.setattr(credits, "_round", counted)
        book, told, seen, at_work = open_credits(limit), {}, {}, {}
        for draw in draws:
            router_id, what, wanted = "abcd"[draw & 3], draw >> 2 & 7, (draw >> 5) + 1
            if router_id not in seen:
                seen[router_id], at_work[router_id], told[router_id] = (0, 0), 0, []
                event = RouterJoined(router_id=router_id)
            elif what in (0, 1):
                event = CreditsAsked(router_id=router_id, wanted=wanted, version=seen[router_id][1])
            elif what in (2, 3) and told[router_id]:
                seen[router_id] = told[router_id].pop(0)
                event = returned(router_id, seen, at_work)
            elif what in (4, 5) and at_work[router_id] < seen[router_id][0] and book.admits(router_id):
                at_work[router_id] += 1
                event = RequestTaken(router_id=router_id)
            elif what == 6 and at_work[router_id]:
                at_work[router_id] -= 1
                book, commands, _ = credit_step(book, RequestEnded(router_id=router_id))
                for command in commands:
                    told[command.router_id].append((command.credits, command.version))
                event = returned(router_id, seen, at_work)
            else:
                event = LimitChanged(limit=limit)
            rounds = itertools.count()
            book, commands, _ = credit_step(book, event)
            for command in commands:
                told[command.router_id].append((command.credits, command.version))
            assert book.held <= limit


def returned(router_id, seen, at_work):
    credits_, version = seen[router_id]
    return CreditsReturned(router_id=router_id, credits=max(credits_, at_work[router_id]), version=version)
