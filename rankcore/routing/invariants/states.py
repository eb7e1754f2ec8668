"""Promises about a state: what may wait, what may be in flight."""

from collections import Counter
from collections.abc import Iterable

from rankcore.kernel import Violation
from rankcore.routing.image import ReplicaImage, RequestImage, RouterImage
from rankcore.routing.policies.proposed import named_by
from rankcore.routing.state import RouterState


def check(state: RouterState) -> list[Violation]:
    """Check a state against the promises.

    Returns:
        What is broken; empty when all promises hold.
    """
    image = state.image
    checks = (_one_place_each, _nobody_idles, _nothing_is_overdue, _broadcasts_are_whole, _nobody_waits_for_nobody)
    return [violation for each in checks for violation in each(image)]


def room_of(replica: ReplicaImage) -> int:
    """How many more requests a replica may be given."""
    return max(0, replica.limit - replica.in_flight)


def holder_of(image: RouterImage, rank: int) -> ReplicaImage | None:
    """Who takes requests for a rank: the youngest routed replica that has it."""
    return next((each for each in reversed(image.replicas) if each.routed and each.rank == rank), None)


def _one_place_each(image: RouterImage) -> Iterable[Violation]:
    """Q1: what has no answer waits, or is in flight, and not both; what has one does not wait."""
    flights = Counter(request.replica_id for request in image.requests if request.replica_id is not None)
    for replica in image.replicas:
        if flights[replica.replica_id] != replica.in_flight:
            found = f"{replica.replica_id} has {replica.in_flight} in flight, requests say {flights[replica.replica_id]}"
            yield Violation("Q1", found)
        if not replica.routed and not replica.in_flight:
            yield Violation("Q1", f"{replica.replica_id} is neither routed nor has anything in flight")
    for stranger in sorted(flights.keys() - {replica.replica_id for replica in image.replicas}):
        yield Violation("Q1", f"{flights[stranger]} requests are in flight on {stranger}, which nobody knows")
    for request in image.requests:
        if request.is_broadcast:
            continue
        places = request.waits + (request.replica_id is not None)
        if places > 1 or (not request.answered and not places):
            yield Violation("Q1", f"{_name(request)} is at {places} places")
        if request.answered and request.waits:
            yield Violation("Q1", f"{_name(request)} has its answer and waits")


def _nobody_idles(image: RouterImage) -> Iterable[Violation]:
    """Q3: nothing waits while a replica that could take it has room."""
    rooms = {replica.replica_id: room_of(replica) for replica in image.replicas}
    for request in image.requests:
        if not request.waits:
            continue
        if request.rank is None:
            may = rooms.keys() if not image.spec.router else named_by(request.ranked or ())
            idle = sorted(replica_id for replica_id, room in rooms.items() if room and replica_id in may)
        else:
            holder = holder_of(image, request.rank)
            idle = [holder.replica_id] if holder is not None and rooms[holder.replica_id] else []
        if idle:
            yield Violation("Q3", f"{_name(request)} waits while {', '.join(idle)} has room")
        if request.rank is not None and image.world_size and request.rank >= image.world_size:
            yield Violation("Q3", f"{_name(request)} waits for rank {request.rank} of {image.world_size}")


def _nothing_is_overdue(image: RouterImage) -> Iterable[Violation]:
    """Q7: who has no answer has time left, and the clock was asked for before the first runs out of it."""
    for request in image.requests:
        if request.answered or request.part is not None:
            continue
        if request.deadline <= image.clock:
            yield Violation("Q7", f"{_name(request)} was due at {request.deadline:g}, it is {image.clock:g}")
        if request.deadline < image.wake_at:
            yield Violation("Q7", f"{_name(request)} is due at {request.deadline:g}, the clock comes at {image.wake_at:g}")


def _broadcasts_are_whole(image: RouterImage) -> Iterable[Violation]:
    """Q9: a broadcast has a part for each rank from 0 on, and is open as long as one of them is."""
    for whole in image.requests:
        if not whole.is_broadcast or not whole.is_split:
            continue
        parts = [each for each in image.requests if each.request_id == whole.request_id and each.part is not None]
        if [part.part for part in parts] != list(range(len(parts))):
            yield Violation("Q9", f"{_name(whole)} has the parts {[part.part for part in parts]}")
        if not whole.answered and all(part.answered for part in parts):
            yield Violation("Q9", f"{_name(whole)} has the answers of all its parts and is open")


def _nobody_waits_for_nobody(image: RouterImage) -> Iterable[Violation]:
    """Q11: while nobody serves nothing waits, and while a replica is routed somebody does."""
    if image.unavailable is None:
        return
    routed = [replica.replica_id for replica in image.replicas if replica.routed]
    if routed:
        yield Violation("Q11", f"{', '.join(routed)} is routed, and nobody serves: {image.unavailable.problem}")
    for request in image.requests:
        waits = request.waits or (request.is_broadcast and not request.is_split and not request.answered)
        if waits and image.clock < image.unavailable.until:
            yield Violation("Q11", f"{_name(request)} waits, and nobody serves: {image.unavailable.problem}")


def _name(request: RequestImage) -> str:
    return f"request {request.request_id!r}" + (f" part {request.part}" if request.part is not None else "")
