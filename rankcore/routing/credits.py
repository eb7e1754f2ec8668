"""A replica's side of what several routers share: who may have how much in flight there.

    book = open_credits(limit=8)
    book, commands, notes = credit_step(book, RouterJoined(router_id="proxy-1"))     # GrantCredits(..., credits=8, version=1)

A credit is the permission to have one request in flight at this replica, for as long as its router keeps it: what ends makes
room for the next without a word. The rules:

- C1: the credits that routers hold, *or may believe that they hold*, are never more than `limit`. What is called back counts
  until its router has returned it.
- C2: a grant says how many in all, with a version above all earlier ones of this replica, so that late news is told apart.
  Whoever joins is told at once how many it has, even if that is none.
- C3: whoever asks gets its fair share (max-min over what each wants, or has at work) once others have returned theirs; where
  there are fewer credits than routers that want one, they take turns: who has had one for longest makes room. Credits that
  nobody wants stay with those that have them, or are handed out evenly in advance: nothing is recalled but for somebody who
  asks. A router that has returned what it does not have at work gives back the rest as that ends, without a word.
- C4: what a lost router held comes back as what it left at work ends.

A router talks to a replica over one connection that keeps the order of messages; a connection that breaks is a router that is
lost, and whoever connects again is another router, with an id of its own.

**Why two numbers for each router.** A grant of fewer credits is under way for a while, and its router goes by the old one
until it arrives. So a replica keeps every grant that may still count (`Holder.grants`): the largest of them is what a router
may *hold*, the newest is what it *should*. The limit is kept by the first (C1), shares are made with the second (C3). A return
by version v ends all grants up to v; what a newer one has made meaningless is dropped at once, so the list is as long as
recalls are under way.

**Why it ends.** `_balanced` goes on while a round changes a grant. A round moves credits only from those above their fair
share to those below it, or hands out what nobody holds; a router that was given more has its wish taken for granted, so the
sum of what is wanted and not granted falls with every round that serves anybody, and one that serves nobody is the last. That
it comes to rest after every event is a property test.

**What it costs.** O(R log R) for R routers where credits move, O(log R) for a request that comes or ends; no message for
either. A recall is one message, and its return one more.

The races, and the line that each is for:

- *A recall crosses requests that were sent by the old grant*: they are admitted, `held` counts them (`CreditBook.admits`).
- *A recall crosses a wish for more.* The router has asked by an older version; when it meets the recall it returns, and asks
  again behind that if something still waits (`_on_returned`: the wish ends with the recall). Else a wish would be served
  twice.
- *A router has more at work than a recall leaves.* It returns what it can, and pays back the rest as that ends, without a
  word: `_on_ended` counts it down, since the replica sees the end itself.
- *A grant of more overtakes nothing*: it is behind the recall on the same connection. Both count until the older one is
  returned.
- *A connection breaks while requests of it run.* What runs goes on to count as held until it ends (C4); a return that was
  under way is lost with the connection, and nothing waits for it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rankcore import checks, kernel
from rankcore.errors import InvalidEventError, InvalidSpecError
from rankcore.frozen import EMPTY, PMap
from rankcore.routing.notes import RoutingNote, RoutingNoteKind
from rankcore.routing.spec import ONGOING_MAX

RouterId: TypeAlias = str


class RouterJoined(Struct, frozen=True, kw_only=True):
    """A router has connected."""

    router_id: RouterId

    def __post_init__(self) -> None:
        _router(self)


class RouterLost(Struct, frozen=True, kw_only=True):
    """A router's connection is gone; what it has at work here goes on, or is told as ended."""

    router_id: RouterId

    def __post_init__(self) -> None:
        _router(self)


class CreditsAsked(Struct, frozen=True, kw_only=True):
    """A router could use so many credits in all: its `AskCredits`.

    Attributes:
        wanted: Those that it has included; 0: nothing waits any more.
        version: Of the newest grant that it had seen.
    """

    router_id: RouterId
    wanted: int
    version: int

    def __post_init__(self) -> None:
        _router(self)
        checks.count(InvalidEventError, f"{type(self).__name__}.wanted", self.wanted, 0)
        checks.count(InvalidEventError, f"{type(self).__name__}.version", self.version, 0, checks.REVISION_MAX)


class CreditsReturned(Struct, frozen=True, kw_only=True):
    """A router will never have more than `credits` in flight under this or an older grant: its `ReturnCredits`."""

    router_id: RouterId
    credits: int
    version: int

    def __post_init__(self) -> None:
        _router(self)
        checks.count(InvalidEventError, f"{type(self).__name__}.credits", self.credits, 0)
        checks.count(InvalidEventError, f"{type(self).__name__}.version", self.version, 0, checks.REVISION_MAX)


class RequestTaken(Struct, frozen=True, kw_only=True):
    """The replica has begun to work on a request of a router, which `admits` allowed."""

    router_id: RouterId

    def __post_init__(self) -> None:
        _router(self)


class RequestEnded(Struct, frozen=True, kw_only=True):
    """The replica does not work on a request of a router any more."""

    router_id: RouterId

    def __post_init__(self) -> None:
        _router(self)


class LimitChanged(Struct, frozen=True, kw_only=True):
    """The deployment has another `max_ongoing_requests`."""

    limit: int

    def __post_init__(self) -> None:
        checks.count(InvalidEventError, f"{type(self).__name__}.limit", self.limit, 0, ONGOING_MAX)


CreditEvent: TypeAlias = RouterJoined | RouterLost | CreditsAsked | CreditsReturned | RequestTaken | RequestEnded | LimitChanged


class GrantCredits(Struct, frozen=True, gc=False):
    """Tell a router how many requests it may have in flight here, in all: a `CreditsGranted` there."""

    router_id: RouterId
    credits: int
    version: int


class Grant(NamedTuple):
    """A grant that a router may still go by."""

    version: int
    credits: int


class Holder(Struct, frozen=True):
    """A router, as a replica sees it.

    Attributes:
        joined: Its place in the order of joining.
        grants: Those that it may still go by, oldest first, each of fewer credits than the one before; the last one is the
            newest, or as good. Empty: none was ever made.
        credits: Of the newest grant.
        wanted: What it has asked for and not got, until it has met a recall, behind which it asks again; 0: it is content.
        at_work: How many requests of it the replica works on.
        served: When it was given more for the last time, in grants of the replica.
        lost: Whether it is gone, and only what it left at work is waited for.
    """

    joined: int
    grants: tuple[Grant, ...] = ()
    credits: int = 0
    wanted: int = 0
    at_work: int = 0
    served: int = 0
    lost: bool = False

    @property
    def held(self) -> int:
        """How much it may have in flight, by whatever grant it goes (C1)."""
        return self.grants[0].credits if self.grants else 0


class CreditBook(Struct, frozen=True):
    """What a replica has granted.

    Attributes:
        limit: How many credits there are: the deployment's `max_ongoing_requests`.
        holders: The routers, by id.
        version: Of the newest grant.
        joined: How many routers have ever joined.
    """

    limit: int
    holders: PMap[RouterId, Holder] = EMPTY
    version: int = 0
    joined: int = 0

    @property
    def held(self) -> int:
        """Credits that routers hold, or may believe that they hold; at most `limit`, unless that was lowered (C1)."""
        return sum(holder.held for holder in self.holders.values())

    def admits(self, router_id: RouterId) -> bool:
        """Whether the replica may begin to work on one more request of this router; else it refuses it."""
        holder = self.holders.get(router_id)
        return holder is not None and not holder.lost and holder.at_work < holder.held


CreditStep: TypeAlias = kernel.Step[CreditBook, GrantCredits, RoutingNote]


def open_credits(limit: int) -> CreditBook:
    """A replica that no router knows yet.

    Raises:
        InvalidSpecError: `limit` is no integer from 0 to 100,000.
    """
    checks.count(InvalidSpecError, "limit", limit, 0, ONGOING_MAX)
    return CreditBook(limit)


def credit_step(book: CreditBook, event: CreditEvent) -> CreditStep:
    """What becomes of the credits. News of a router that is not known, or older than what is known, changes nothing.

    Costs O(R log R) for R routers where credits move, else O(log R).
    """
    if not isinstance(book, CreditBook):
        raise InvalidEventError("credit_step.book", book, "a CreditBook, such as open_credits returns")
    return kernel.handler_of(_HANDLERS, event, "an event of rankcore.routing.credits")(book, event)


def _on_joined(book: CreditBook, event: RouterJoined) -> CreditStep:
    if event.router_id in book.holders:
        return _late(book, event.router_id, "it has joined already")
    holders = book.holders.set(event.router_id, Holder(book.joined))
    step = _balanced(replace(book, holders=holders, joined=book.joined + 1), f"{event.router_id} has joined")
    if step.state.holders[event.router_id].grants:
        return step
    version = step.state.version + 1
    told = replace(step.state.holders[event.router_id], grants=(Grant(version, 0),))
    nothing = GrantCredits(event.router_id, 0, version)
    return step._replace(
        state=replace(_with(step.state, event.router_id, told), version=version), commands=(*step.commands, nothing)
    )


def _on_lost(book: CreditBook, event: RouterLost) -> CreditStep:
    holder = book.holders.get(event.router_id)
    if holder is None or holder.lost:
        return _late(book, event.router_id, "it is lost already")
    return _balanced(_left_with(book, event.router_id, replace(holder, lost=True)), f"{event.router_id} is lost")


def _left_with(book: CreditBook, router_id: RouterId, holder: Holder) -> CreditBook:
    """A lost router holds what it left at work, and nothing once that has ended (C4)."""
    if not holder.at_work:
        return replace(book, holders=book.holders.delete(router_id))
    left = replace(holder, grants=(Grant(0, holder.at_work),), credits=holder.at_work, wanted=0)
    return replace(book, holders=book.holders.set(router_id, left))


def _on_asked(book: CreditBook, event: CreditsAsked) -> CreditStep:
    holder = book.holders.get(event.router_id)
    if holder is None or holder.lost:
        return _late(book, event.router_id, "it is not known")
    wanted = min(event.wanted, book.limit)
    if not wanted and holder.wanted:
        return _balanced(_with(book, event.router_id, replace(holder, wanted=0)), f"{event.router_id} wants no more")
    if wanted <= holder.credits:
        return _late(book, event.router_id, f"it wants {wanted} credits and has been granted {holder.credits}")
    return _balanced(_with(book, event.router_id, replace(holder, wanted=wanted)), f"{event.router_id} wants {wanted}")


def _on_returned(book: CreditBook, event: CreditsReturned) -> CreditStep:
    holder = book.holders.get(event.router_id)
    known = holder is not None and holder.grants and holder.grants[0].version <= event.version <= book.version
    if holder is None or holder.lost or not known:
        return _late(book, event.router_id, f"what it returns by version {event.version} is known")
    newer = [grant for grant in holder.grants if grant.version > event.version]
    most = max(grant.credits for grant in holder.grants if grant.version <= event.version)
    grants = _stack([Grant(event.version, min(event.credits, most)), *newer])
    # Less than was granted: it gives up what it does not need.
    credits = holder.credits if newer else min(holder.credits, event.credits)
    # It has just met a recall: if something waits for it yet, it asks again behind this.
    wanted = 0 if event.version > holder.grants[0].version and not newer else holder.wanted
    holder = replace(holder, grants=grants, credits=credits, wanted=wanted)
    return _balanced(_with(book, event.router_id, holder), f"{event.router_id} has returned some")


def _on_taken(book: CreditBook, event: RequestTaken) -> CreditStep:
    holder = book.holders.get(event.router_id)
    if holder is None:
        return _late(book, event.router_id, "it is not known")
    return kernel.Step(_with(book, event.router_id, replace(holder, at_work=holder.at_work + 1)), (), ())


def _on_ended(book: CreditBook, event: RequestEnded) -> CreditStep:
    holder = book.holders.get(event.router_id)
    if holder is None or not holder.at_work:
        return _late(book, event.router_id, "nothing of it is at work")
    holder = replace(holder, at_work=holder.at_work - 1)
    if holder.lost:
        return _balanced(_left_with(book, event.router_id, holder), f"what {event.router_id} left has ended")
    if len(holder.grants) == 1 and holder.held > holder.credits:
        # It has met the recall but for what it had at work, and begins nothing new before it has met all of it.
        paid = Grant(holder.grants[0].version, holder.held - 1)
        return _balanced(_with(book, event.router_id, replace(holder, grants=(paid,))), f"{event.router_id} pays back")
    after = _with(book, event.router_id, holder)
    uses_all = holder.at_work and (holder.wanted or holder.at_work >= holder.credits)
    if uses_all or not any(each.wanted for each in book.holders.values()):
        return kernel.Step(after, (), ())
    return _balanced(after, f"{event.router_id} has a credit that it does not use")


def _on_limit(book: CreditBook, event: LimitChanged) -> CreditStep:
    return _balanced(replace(book, limit=event.limit), f"the limit is {event.limit}")


def _with(book: CreditBook, router_id: RouterId, holder: Holder) -> CreditBook:
    return replace(book, holders=book.holders.set(router_id, holder))


def _late(book: CreditBook, router_id: RouterId, because: str) -> CreditStep:
    return kernel.Step(book, (), (RoutingNote(RoutingNoteKind.LATE, "C2", because=f"{router_id}: {because}"),))


def _stack(grants: list[Grant]) -> tuple[Grant, ...]:
    """Without those that a newer one of as many credits has made meaningless."""
    kept: list[Grant] = []
    for grant in grants:
        while kept and kept[-1].credits <= grant.credits:
            kept.pop()
        kept.append(grant)
    return tuple(kept)


def _balanced(book: CreditBook, because: str) -> CreditStep:
    """Hand out what is free, and call back what somebody else is short of (C1, C3).

    A credit that was just granted may be called back in the next round, since somebody else waits for a turn: its router
    hears of both in this order, and does one request in between, if it has one.
    """
    commands: list[GrantCredits] = []
    notes: list[RoutingNote] = []
    while True:
        book, granted, why = _round(book, because)
        if not granted:
            return kernel.Step(book, tuple(commands), tuple(notes))
        commands += granted
        notes += why


def _round(book: CreditBook, because: str) -> CreditStep:
    live = {router_id: holder for router_id, holder in sorted(book.holders.items()) if not holder.lost}
    for_live = max(0, book.limit - sum(holder.held for holder in book.holders.values() if holder.lost))
    fair = _fair_shares(live, for_live)
    credits = {router_id: holder.credits for router_id, holder in live.items()}
    _recall(credits, fair, for_live)
    _hand_out(credits, fair, live, book.limit - sum(_held_with(book, credits)))
    commands, notes = [], []
    for router_id in credits:
        holder, now = live[router_id], credits[router_id]
        if now == holder.credits:
            continue
        version = book.version + 1
        after = replace(
            holder,
            grants=_stack([*holder.grants, Grant(version, now)]),
            credits=now,
            wanted=holder.wanted if now < holder.wanted else 0,
            served=version if now > holder.held else holder.served,
        )
        book = replace(_with(book, router_id, after), version=version)
        commands.append(GrantCredits(router_id, now, version))
        why = f"{router_id}: {holder.credits} -> {now}, since {because}"
        notes.append(RoutingNote(RoutingNoteKind.CREDITS_CHANGED, "C3", because=why))
    return kernel.Step(book, tuple(commands), tuple(notes))


def _held_with(book: CreditBook, credits: Mapping[RouterId, int]) -> list[int]:
    return [max(holder.held, credits.get(router_id, 0)) for router_id, holder in book.holders.items()]


def _fair_shares(live: Mapping[RouterId, Holder], limit: int) -> dict[RouterId, int]:
    """Max-min fair: nobody gets more than it needs, and nobody less than somebody who gets more, but for one credit.

    Who was served longest ago is first where a credit cannot be split. What is left gives one to each
    that needs none, first to those that have some.
    """
    needs = {router_id: max(holder.wanted, holder.at_work) for router_id, holder in live.items()}
    turns = sorted(live, key=lambda router_id: (live[router_id].served, live[router_id].joined))
    shares = dict.fromkeys(live, 0)
    left, needy = limit, [router_id for router_id in turns if needs[router_id]]
    while left and needy:
        each = left // len(needy)
        if not each:
            each, needy = 1, _in_turn(needy, live, shares[needy[0]])[:left]
        for router_id in needy:
            more = min(each, needs[router_id] - shares[router_id])
            shares[router_id] += more
            left -= more
        needy = [router_id for router_id in needy if shares[router_id] < needs[router_id]]
    idle = [router_id for router_id in turns if not needs[router_id]]
    for router_id in sorted(idle, key=lambda router_id: not live[router_id].credits)[:left]:
        shares[router_id] = 1
    return shares


def _in_turn(needy: list[RouterId], live: Mapping[RouterId, Holder], have: int) -> list[RouterId]:
    """Who is first to have one more than `have`, where that is not enough for all.

    Where it is a turn or none at all: who waits, for longest first; then who has one, the newest first, so that the one
    that has had it for longest makes room. Else nobody goes without, and who has it keeps it.
    """
    waits = [router_id for router_id in needy if live[router_id].held <= have]
    has = [router_id for router_id in needy if live[router_id].held > have]
    return has + waits if have else waits + sorted(has, key=lambda router_id: -live[router_id].served)


def _recall(credits: dict[RouterId, int], fair: Mapping[RouterId, int], limit: int) -> None:
    """As much as others are short of, from those that are furthest above their share."""
    short = sum(max(0, fair[router_id] - held) for router_id, held in credits.items())
    missing = sum(credits.values()) + short - limit
    while missing > 0:
        router_id = max(credits, key=lambda each: (credits[each] - fair[each], each))
        surplus = credits[router_id] - fair[router_id]
        others = sorted((credits[each] - fair[each] for each in credits if each != router_id), reverse=True)
        # Down to the next highest in one go: never one by one.
        less = min(missing, max(1, surplus - max(0, others[0] if others else 0)))
        credits[router_id] -= less
        missing -= less


def _hand_out(credits: dict[RouterId, int], fair: Mapping[RouterId, int], live: Mapping[RouterId, Holder], free: int) -> None:
    """First what others are short of, who was served longest ago first; then the rest, evenly."""
    turns = sorted(live, key=lambda router_id: (live[router_id].served, live[router_id].joined))
    for router_id in turns:
        more = min(max(0, fair[router_id] - credits[router_id]), _free_for(free, live[router_id], credits[router_id]))
        free -= max(0, credits[router_id] + more - max(live[router_id].held, credits[router_id]))
        credits[router_id] += more
    if any(credits[router_id] < fair[router_id] for router_id in turns):
        return
    while free > 0 and turns:
        lowest = min(turns, key=lambda router_id: (max(credits[router_id], live[router_id].held), live[router_id].joined))
        credits[lowest] = max(credits[lowest], live[lowest].held) + 1
        free -= 1


def _free_for(free: int, holder: Holder, credits: int) -> int:
    """How much more a router can be granted: what is free, and what it may believe that it has anyway."""
    return max(0, free + max(0, holder.held - credits))


def _router(event: Any) -> None:
    checks.identifier(InvalidEventError, f"{type(event).__name__}.router_id", event.router_id)


_HANDLERS: dict[type[Any], Callable[[CreditBook, Any], CreditStep]] = {
    RouterJoined: _on_joined,
    RouterLost: _on_lost,
    CreditsAsked: _on_asked,
    CreditsReturned: _on_returned,
    RequestTaken: _on_taken,
    RequestEnded: _on_ended,
    LimitChanged: _on_limit,
}
