"""A world of routers and replicas as one value, and the moves that lead from it to others."""

from collections.abc import Iterator

import attrs

from rankcore.events import ClockAdvanced
from rankcore.routing.commands import (
    FINAL,
    AskCredits,
    Command,
    Dispatch,
    Retry,
    ReturnCredits,
    StopAttempt,
)
from rankcore.routing.credits import (
    CreditBook,
    CreditEvent,
    CreditsAsked,
    CreditsReturned,
    GrantCredits,
    RequestEnded,
    RequestTaken,
    RouterJoined,
    RouterLost,
    credit_step,
    open_credits,
)
from rankcore.routing.events import (
    AnswerBegun,
    AvailabilityChanged,
    CreditsGranted,
    Event,
    FailureKind,
    ReplicaLost,
    RequestArrived,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    Route,
    RouterOpened,
    RoutesChanged,
)
from rankcore.routing.image import RouterImage, image_of, router_of
from rankcore.routing.invariants import Violation, check, check_credits, check_indexes, check_step
from rankcore.routing.router import Router
from rankcore.routing.state import RouterState, RouteStep
from rankcore.testing.model_routing.bounds import RoutingBounds

Message = object
Work = tuple[int, int, int, int | None, bool]
"""(router, request, attempt, part, whether its answer has begun)."""
Move = tuple[str, int, int]
"""What, of whom, and which of several."""


@attrs.frozen
class RoutingWorld:
    """All there is.

    Attributes:
        bounds: How it began, and what may happen in all.
        routers: Each one's image; None: it is gone.
        books: What each replica has granted; None: it has died.
        work: What each replica works on.
        up, down: By router and replica: messages under way to the replica, and to the router, oldest first.
        arrived: How many requests have come.
        answers: How many final answers each request has, whose router lives.
        spent: How often each budget was used, in the order of `BUDGETS`.
        routed: Whether the routes have come.
    """

    bounds: RoutingBounds
    routers: tuple[RouterImage | None, ...]
    books: tuple[CreditBook | None, ...]
    work: tuple[tuple[Work, ...], ...]
    up: tuple[tuple[tuple[Message, ...], ...], ...]
    down: tuple[tuple[tuple[Message, ...], ...], ...]
    arrived: int = 0
    answers: tuple[int, ...] = ()
    spent: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
    routed: bool = False


FAIR = ("up", "down", "ends", "time passes", "routes come", "arrives")
"""Moves that have to happen at some time: without a fault, they lead to a world where everything is answered."""
BUDGETS = ("crashes", "failures", "begun", "cancels", "router_losses", "outages")


class RoutingWorldDraft:
    """A world that is being changed by one move, with the promises that it breaks."""

    def __init__(self, world: RoutingWorld) -> None:
        self.bounds = world.bounds
        self.routers = list(world.routers)
        self.books = list(world.books)
        self.work = [list(each) for each in world.work]
        self.up = [[list(line) for line in lines] for lines in world.up]
        self.down = [[list(line) for line in lines] for lines in world.down]
        self.arrived = world.arrived
        self.answers = list(world.answers)
        self.spent = list(world.spent)
        self.routed = world.routed
        self.broken: list[Violation] = []

    def close(self) -> RoutingWorld:
        """As a value."""
        return RoutingWorld(
            self.bounds,
            tuple(self.routers),
            tuple(self.books),
            tuple(tuple(sorted(each, key=repr)) for each in self.work),
            tuple(tuple(tuple(line) for line in lines) for lines in self.up),
            tuple(tuple(tuple(line) for line in lines) for lines in self.down),
            self.arrived,
            tuple(self.answers),
            tuple(self.spent),
            self.routed,
        )

    def spend(self, budget: str) -> None:
        """Use one of a budget."""
        self.spent[BUDGETS.index(budget)] += 1

    def tell_router(self, number: int, event: Event) -> None:
        """Step a router, check the promises, and let its commands go on their way."""
        image = self.routers[number]
        if image is None:
            return
        router = router_of(image)
        commands, notes = router.step(event)
        before, after = RouterState.of(image), RouterState.of(image_of(router))
        self.routers[number] = after.image
        self.broken += check(after)
        self.broken += check_step(before, event, RouteStep(after, commands, notes))
        self.broken += check_indexes(router)
        for command in commands:
            self._carry_out(number, command)

    def _carry_out(self, number: int, command: Command) -> None:
        if isinstance(command, FINAL):
            index = int(command.request_id)
            self.answers[index] += 1
            if self.answers[index] > 1:
                self.broken.append(Violation("Q1", f"request {index} is answered again by {command}"))
        elif isinstance(command, (Dispatch, Retry, StopAttempt, AskCredits, ReturnCredits)):
            self.up[number][_replica(command.replica_id)].append(command)

    def tell_book(self, replica: int, event: CreditEvent) -> None:
        """Step what a replica has granted, check the promises, and let its grants go on their way."""
        book = self.books[replica]
        if book is None or self.bounds.routers == 1:
            return
        book, commands, _ = credit_step(book, event)
        self.books[replica] = book
        self.broken += check_credits(book)
        for command in commands:
            self.down[int(command.router_id)][replica].append(command)


def _name(replica: int) -> str:
    return f"llm#1.{replica}"


def _replica(replica_id: str) -> int:
    return int(replica_id.rpartition(".")[2])


def root(bounds: RoutingBounds) -> RoutingWorld:
    """All replicas are routed, and nothing has been asked of anybody."""
    empty: tuple[tuple[tuple[Message, ...], ...], ...] = (((),) * bounds.replicas,) * bounds.routers
    draft = RoutingWorldDraft(
        RoutingWorld(
            bounds,
            tuple(image_of(Router(bounds.spec, opened=not bounds.opens_late)) for _ in range(bounds.routers)),
            (open_credits(bounds.max_ongoing),) * bounds.replicas,
            ((),) * bounds.replicas,
            empty,
            empty,
            answers=(0,) * bounds.requests,
        )
    )
    if not bounds.routes_late:
        _routes_come(draft, 0, 0)
    for number in range(bounds.routers):
        for replica in range(bounds.replicas):
            draft.tell_book(replica, RouterJoined(router_id=str(number)))
    assert not draft.broken, draft.broken
    return draft.close()


def moves(world: RoutingWorld) -> Iterator[Move]:
    """What may happen next: first what has to happen at some time, then what an adversary may do."""
    bounds = world.bounds
    for number in range(bounds.routers):
        for replica in range(bounds.replicas):
            if world.up[number][replica]:
                yield "up", number, replica
            if world.down[number][replica]:
                yield "down", number, replica
    for replica, work in enumerate(world.work):
        for index in range(len(work)):
            yield "ends", replica, index
    for number, image in enumerate(world.routers):
        if image is not None and _next_at(image) < float("inf"):
            yield "time passes", number, 0
    if not world.routed:
        yield "routes come", 0, 0
    if world.arrived < bounds.requests:
        for number, image in enumerate(world.routers):
            if image is not None:
                yield "arrives", number, 0
    for number, image in enumerate(world.routers):
        if image is not None and not image.opened:
            yield "opens", number, 0
    left = {budget: getattr(bounds, budget) > spent for budget, spent in zip(BUDGETS, world.spent, strict=True)}
    for replica, work in enumerate(world.work):
        for index, each in enumerate(work):
            if left["failures"]:
                yield "raises", replica, index
                yield "is lost", replica, index
            if left["begun"] and not each[-1]:
                yield "begins", replica, index
        if left["crashes"] and world.books[replica] is not None:
            yield "dies", replica, 0
    for number, image in enumerate(world.routers):
        if image is None:
            continue
        if left["cancels"]:
            for request in image.requests:
                if request.part is None and not request.answered:
                    yield "is cancelled", number, int(request.request_id)
        if left["router_losses"]:
            yield "router dies", number, 0
        if left["outages"]:
            yield "nobody serves", number, 0
            yield "nobody serves", number, 1
        if image.unavailable is not None:
            yield "somebody is about to", number, 0


def make(world: RoutingWorld, move: Move) -> tuple[RoutingWorld, tuple[Violation, ...]]:
    """The world after a move, and the promises that it has broken."""
    draft = RoutingWorldDraft(world)
    what, who, which = move
    _MOVES[what](draft, who, which)
    _check_limits(draft)
    return draft.close(), tuple(draft.broken)


def _check_limits(draft: RoutingWorldDraft) -> None:
    """Q2 as the replicas see it, whatever any router believes."""
    for replica, work in enumerate(draft.work):
        if len(work) > draft.bounds.max_ongoing:
            draft.broken.append(Violation("Q2", f"replica {replica} works on {len(work)} of {draft.bounds.max_ongoing}"))


def _now(draft: RoutingWorldDraft, number: int) -> float:
    image = draft.routers[number]
    return image.clock if image is not None else 0.0


def _arrives(draft: RoutingWorldDraft, number: int, _: int) -> None:
    index, bounds = draft.arrived, draft.bounds
    draft.arrived += 1
    event = RequestArrived(
        request_id=index,
        rank=0 if index < bounds.ranked else None,
        broadcast=index >= bounds.requests - bounds.broadcasts,
        at=_now(draft, number),
    )
    draft.tell_router(number, event)


def _up(draft: RoutingWorldDraft, number: int, replica: int) -> None:
    message = draft.up[number][replica].pop(0)
    router_id = str(number)
    book = draft.books[replica]
    if isinstance(message, (Dispatch, Retry)):
        alone = draft.bounds.routers == 1
        if book is None:
            return  # its router is told that the replica is lost
        if alone or book.admits(router_id):
            draft.work[replica].append((number, int(message.request_id), message.attempt, message.part, False))
            draft.tell_book(replica, RequestTaken(router_id=router_id))
        else:
            draft.broken.append(Violation("C1", f"replica {replica} has to refuse {message}"))
    elif isinstance(message, StopAttempt):
        for each in draft.work[replica]:
            if each[:4] == (number, message.request_id, message.attempt, message.part):
                draft.work[replica].remove(each)
                draft.down[number][replica].append(_failed(draft, each, FailureKind.RAISED))
                draft.tell_book(replica, RequestEnded(router_id=router_id))
                break
    elif isinstance(message, AskCredits):
        draft.tell_book(replica, CreditsAsked(router_id=router_id, wanted=message.wanted, version=message.version))
    else:
        assert isinstance(message, ReturnCredits)
        draft.tell_book(replica, CreditsReturned(router_id=router_id, credits=message.credits, version=message.version))


def _down(draft: RoutingWorldDraft, number: int, replica: int) -> None:
    message = draft.down[number][replica].pop(0)
    now = _now(draft, number)
    if isinstance(message, GrantCredits):
        grant = CreditsGranted(replica_id=_name(replica), credits=message.credits, version=message.version, at=now)
        draft.tell_router(number, grant)
    else:
        assert isinstance(message, (RequestDone, RequestFailed, AnswerBegun, ReplicaLost))
        draft.tell_router(number, message)


def _failed(draft: RoutingWorldDraft, work: Work, kind: FailureKind) -> RequestFailed:
    number, index, attempt, part, _ = work
    return RequestFailed(request_id=index, attempt=attempt, part=part, kind=kind, at=_now(draft, number))


def _end(draft: RoutingWorldDraft, replica: int, which: int) -> Work:
    work = sorted(draft.work[replica], key=repr)[which]
    draft.work[replica].remove(work)
    draft.tell_book(replica, RequestEnded(router_id=str(work[0])))
    return work


def _ends(draft: RoutingWorldDraft, replica: int, which: int) -> None:
    number, index, attempt, part, _ = work = _end(draft, replica, which)
    done = RequestDone(request_id=index, attempt=attempt, part=part, at=_now(draft, number))
    draft.down[work[0]][replica].append(done)


def _raises(draft: RoutingWorldDraft, replica: int, which: int) -> None:
    draft.spend("failures")
    work = _end(draft, replica, which)
    draft.down[work[0]][replica].append(_failed(draft, work, FailureKind.RAISED))


def _is_lost(draft: RoutingWorldDraft, replica: int, which: int) -> None:
    draft.spend("failures")
    work = _end(draft, replica, which)
    draft.down[work[0]][replica].append(_failed(draft, work, FailureKind.LOST))


def _begins(draft: RoutingWorldDraft, replica: int, which: int) -> None:
    draft.spend("begun")
    work = sorted(draft.work[replica], key=repr)[which]
    draft.work[replica][draft.work[replica].index(work)] = (*work[:4], True)
    number, index, attempt, part, _ = work
    begun = AnswerBegun(request_id=index, attempt=attempt, part=part, at=_now(draft, number))
    draft.down[number][replica].append(begun)


def _dies(draft: RoutingWorldDraft, replica: int, _: int) -> None:
    """What it had said still arrives; what was on its way to it does not."""
    draft.spend("crashes")
    draft.books[replica] = None
    draft.work[replica] = []
    for number in range(draft.bounds.routers):
        draft.up[number][replica] = []
        draft.down[number][replica].append(ReplicaLost(replica_id=_name(replica), at=_now(draft, number)))


def _is_cancelled(draft: RoutingWorldDraft, number: int, index: int) -> None:
    draft.spend("cancels")
    draft.tell_router(number, RequestCancelled(request_id=index, at=_now(draft, number)))


def _opens(draft: RoutingWorldDraft, number: int, _: int) -> None:
    draft.tell_router(number, RouterOpened(at=_now(draft, number)))


def _next_at(image: RouterImage) -> float:
    """When something changes by itself; infinity: never."""
    unavailable = image.unavailable
    ends_at = unavailable.until if unavailable is not None and unavailable.until > image.clock else float("inf")
    return min(image.wake_at, ends_at)


def _time_passes(draft: RoutingWorldDraft, number: int, _: int) -> None:
    image = draft.routers[number]
    assert image is not None
    draft.tell_router(number, ClockAdvanced(at=_next_at(image)))


def _routes_come(draft: RoutingWorldDraft, _: int, __: int) -> None:
    """Of the replicas that live, to all routers."""
    draft.routed = True
    alive = [replica for replica, book in enumerate(draft.books) if book is not None]
    for number in range(draft.bounds.routers):
        routes = tuple(Route(_name(replica), replica) for replica in alive)
        draft.tell_router(number, RoutesChanged(added=routes, world_size=draft.bounds.replicas, at=_now(draft, number)))


def _nobody_serves(draft: RoutingWorldDraft, number: int, lasts_s: int) -> None:
    """For one second, or until it is lifted. Where that is not so, the router is not to believe it (Q11)."""
    draft.spend("outages")
    draft.tell_router(number, AvailabilityChanged(problem="all fail", lasts_s=lasts_s or None, at=_now(draft, number)))


def _somebody_is_about_to(draft: RoutingWorldDraft, number: int, _: int) -> None:
    draft.tell_router(number, AvailabilityChanged(at=_now(draft, number)))


def _router_dies(draft: RoutingWorldDraft, number: int, _: int) -> None:
    """Its callers are gone with it; replicas that have read what it sent learn of its end, and finish what they have."""
    draft.spend("router_losses")
    draft.routers[number] = None
    for replica in range(draft.bounds.replicas):
        draft.up[number][replica] = []
        draft.down[number][replica] = []
        draft.tell_book(replica, RouterLost(router_id=str(number)))


_MOVES = {
    "up": _up,
    "down": _down,
    "ends": _ends,
    "time passes": _time_passes,
    "opens": _opens,
    "arrives": _arrives,
    "raises": _raises,
    "is lost": _is_lost,
    "begins": _begins,
    "dies": _dies,
    "is cancelled": _is_cancelled,
    "router dies": _router_dies,
    "routes come": _routes_come,
    "nobody serves": _nobody_serves,
    "somebody is about to": _somebody_is_about_to,
}
