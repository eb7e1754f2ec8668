"""Whether the tables of a router agree with each other: each index against the slow way to the same."""

from collections.abc import Iterable

from rankcore.kernel import Violation
from rankcore.routing.image import image_of, router_of
from rankcore.routing.policies.proposed import Proposed, named_by
from rankcore.routing.records import NEVER, Request
from rankcore.routing.router import Router


def check_indexes(router: Router) -> list[Violation]:
    """What of a router's derived tables is not what its requests and replicas say; empty when all agree."""
    pairs = [*_counts(router), *_rooms(router), *_lines(router)]
    image = image_of(router)
    pairs.append(("the image of its image", image_of(router_of(image)), image))
    return [Violation("index", f"{what}: {found}, expected {expected}") for what, found, expected in pairs if found != expected]


Pair = tuple[str, object, object]


def _counts(router: Router) -> Iterable[Pair]:
    requests = router.requests.values()
    parts = [part for whole in requests for part in (whole.parts or {}).values()]
    waiting = sum(1 for each in requests if each.waits or any(part.waits for part in (each.parts or {}).values()))
    yield "waiting", router.waiting, waiting + len(router.unsplit)
    flying = sum(1 for each in (*requests, *parts) if each.replica_id is not None)
    yield "in flight", router.in_flight, flying
    yield "deadlines", router.deadlines, sum(1 for each in requests if each.deadline != NEVER and not each.answered)
    due = [each.deadline for each in requests if not each.answered]
    asides = [each.aside_until for each in router.replicas.values() if each.aside_until]
    yield "due", router.due, min((*due, *asides), default=NEVER)
    for whole in requests:
        own = list((whole.parts or {}).values())
        yield "parts waiting", whole.parts_waiting, sum(1 for part in own if part.waits)
        yield "parts flying", whole.parts_flying, sum(1 for part in own if part.replica_id is not None)
        yield "unfinished parts", whole.unfinished * (not whole.answered), _unfinished(own) * (not whole.answered)


def _unfinished(parts: list[Request]) -> int:
    return sum(1 for part in parts if not part.answered)


def _rooms(router: Router) -> Iterable[Pair]:
    replicas = sorted(router.replicas.values(), key=lambda replica: replica.birth)
    has_room = [each.replica_id for each in replicas if len(each.flights) < each.limit]
    yield "open replicas", sorted(each.replica_id for each in router.choice.order()), sorted(has_room)
    holders: dict[int, list[str]] = {}
    for replica in replicas:
        if replica.routed and replica.rank is not None:
            holders.setdefault(replica.rank, []).append(replica.replica_id)
    yield "holders", {rank: [each.replica_id for each in found] for rank, found in router.holders.items()}, holders
    could_grant = router.spec.max_ongoing_requests if router.spec.by_credits else 0
    for what, index in (("to ask", router.to_ask), ("asked", router.asked)):
        for birth, replica in index.items():
            yield what, (birth, replica.routed, replica.credits < could_grant), (replica.birth, True, True)
    if not router.waiting:
        yield "asked though nothing waits", list(router.asked), []


def _lines(router: Router) -> Iterable[Pair]:
    waiting = [each for whole in router.requests.values() for each in (whole, *(whole.parts or {}).values()) if each.waits]
    waiting.sort(key=lambda request: request.serial)
    for rank in sorted({each.rank for each in waiting if each.rank is not None} | router.ranked.keys()):
        expected = [each.serial for each in waiting if each.rank == rank]
        yield f"line of rank {rank}", [each.serial for each in router.ranked.get(rank, ())], expected
    if isinstance(router.choice, Proposed):
        unranked = [each for each in waiting if each.rank is None]
        yield "undecided", router.choice.undecided, {each.serial for each in unranked if each.ranked is None}
        named = {replica_id for each in unranked for replica_id in named_by(each.ranked or ())}
        found = {replica_id: [each.serial for each in line] for replica_id, line in router.choice.lines.items()}
        expected_of = {one: [each.serial for each in unranked if one in named_by(each.ranked or ())] for one in named}
        yield "proposed", found, expected_of
    yield "line", [each.serial for each in router.anyone], [each.serial for each in waiting if each.rank is None]
