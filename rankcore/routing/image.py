"""A router at one moment, as plain frozen records: what can be compared, hashed, written as JSON, and gone on from."""

from msgspec import Struct

from rankcore.routing.events import RequestId
from rankcore.routing.records import NEVER, Ranked, Request, RoutedReplica, Unavailability
from rankcore.routing.router import Router
from rankcore.routing.routes import reopen
from rankcore.routing.spec import RoutingSpec
from rankcore.values import ReplicaId


class RequestImage(Struct, frozen=True):
    """A request without a final answer, or one whose replica still works on it; or a part of a broadcast.

    Attributes:
        request_id: Of the request; parts share it.
        serial: Its place in the order of arrival.
        arrived_at: When it came.
        deadline: When it expires; infinity: never.
        key: What it is affine to.
        rank: Only this rank will do.
        part: Of a broadcast: its rank; None: it is the whole request.
        attempt: How many attempts were given out.
        replica_id: Where the last one is in flight; None: nowhere.
        waits: Whether it waits in a line.
        begun: Whether part of its answer was delivered.
        answered: Whether it has its final answer, or this part its own.
        losses: How many attempts were lost.
        because: What became of the attempt before.
        is_broadcast: Whether it is the whole of a broadcast.
        keeps_failures: Of a broadcast: whether a part that fails decides nothing.
        is_split: Whether its parts are known; else it waits for the world size.
        ranked: Who was proposed for it, while it waits; None: nothing was said yet, or nobody is asked.
    """

    request_id: RequestId
    serial: int
    arrived_at: float
    deadline: float
    key: str | None
    rank: int | None
    part: int | None
    attempt: int
    replica_id: ReplicaId | None
    waits: bool
    begun: bool
    answered: bool
    losses: int
    because: str
    is_broadcast: bool
    keeps_failures: bool
    is_split: bool
    ranked: Ranked | None = None


class ReplicaImage(Struct, frozen=True):
    """A replica that is routed, or that still works on something.

    Attributes:
        replica_id: Its id.
        birth: Its place in the order in which the router heard of them.
        rank: Its rank; None: it gets no request for a rank.
        routed: Whether it is given requests.
        aside_until: It is left alone until this time; 0: it is not.
        credits: What it has granted.
        version: Of that grant.
        returned: What the router has promised last to stay within under this version; None: nothing.
        turn: When it was last given a request, for policies that go by it.
        limit: How many requests it may have in flight now.
        in_flight: How many it has.
        keys: What it has said that it has ready.
    """

    replica_id: ReplicaId
    birth: int
    rank: int | None
    routed: bool
    aside_until: float
    credits: int
    version: int
    returned: int | None
    turn: int
    limit: int
    in_flight: int
    keys: tuple[str, ...] = ()


class RouterImage(Struct, frozen=True):
    """All of a router.

    Attributes:
        spec: As it is now.
        clock: The largest `at` so far.
        world_size: How many ranks there are; 0: none, or not known yet.
        closed: Why nothing waits any more; empty: the router is not closed.
        requests: In the order of arrival; the parts of a broadcast come after it, in rank order.
        replicas: By birth.
        open: Ids of the replicas that have room, as the policy has them.
        to_ask: Ids of those that could be asked for credits, the next one first.
        asked: Ids of those that were, and do not know yet whether anything waits still.
        draws: What the policy has counted.
        serial: Of the newest request.
        births: How many replicas there were.
        wake_at: When `ClockAdvanced` was asked for; infinity: it was not.
        opened: Whether the limits are known; until then everything waits.
        unavailable: That nobody serves, nor is about to; None: that was not said, or is over.
    """

    spec: RoutingSpec
    clock: float
    world_size: int
    closed: str
    requests: tuple[RequestImage, ...]
    replicas: tuple[ReplicaImage, ...]
    open: tuple[ReplicaId, ...]
    to_ask: tuple[ReplicaId, ...]
    asked: tuple[ReplicaId, ...]
    draws: int
    serial: int
    births: int
    wake_at: float
    opened: bool = True
    unavailable: Unavailability | None = None


def image_of(router: Router) -> RouterImage:
    """Everything that a router is, at this moment. Costs O(its size)."""
    requests = []
    for whole in sorted(router.requests.values(), key=lambda request: request.serial):
        requests += [whole, *(whole.parts or {}).values()]
    replicas = sorted(router.replicas.values(), key=lambda replica: replica.birth)
    return RouterImage(
        spec=router.spec,
        clock=router.clock,
        world_size=router.world_size,
        closed=router.closed,
        requests=tuple(_request_image(each) for each in requests),
        replicas=tuple(_replica_image(each) for each in replicas),
        open=tuple(replica.replica_id for replica in router.choice.order()),
        to_ask=tuple(replica.replica_id for replica in router.to_ask.values()),
        asked=tuple(replica.replica_id for _, replica in sorted(router.asked.items())),
        draws=router.choice.draws,
        serial=router.serial,
        births=router.births,
        wake_at=router.wake_at,
        opened=router.opened,
        unavailable=router.unavailable,
    )


def router_of(image: RouterImage, *, explains: bool = True) -> Router:
    """A router that is what the image shows, and shares nothing with any other. Costs O(its size)."""
    router = Router(image.spec, at=image.clock, explains=explains, opened=image.opened)
    router.world_size, router.closed = image.world_size, image.closed
    router.unavailable = image.unavailable
    router.serial, router.births, router.wake_at = image.serial, image.births, image.wake_at
    for each in image.replicas:
        _add_replica(router, each)
    for request in image.requests:
        _add_request(router, request)
    first = set(image.open)
    for replica_id in (*(each.replica_id for each in image.replicas if each.replica_id not in first), *image.open):
        reopen(router, router.replicas[replica_id])
    for replica_id in image.to_ask:
        replica = router.replicas[replica_id]
        router.to_ask[replica.birth] = replica
    for replica_id in image.asked:
        replica = router.replicas[replica_id]
        router.asked[replica.birth] = replica
    router.choice.draws = image.draws
    router.drop_stale_timers()
    return router


def _request_image(request: Request) -> RequestImage:
    return RequestImage(
        request.request_id,
        request.serial,
        request.arrived_at,
        request.deadline,
        request.key,
        request.rank,
        request.part,
        request.attempt,
        request.replica_id,
        request.waits,
        request.begun,
        request.answered,
        request.losses,
        request.because,
        request.is_broadcast,
        request.keeps_failures,
        request.parts is not None,
        request.ranked,
    )


def _replica_image(replica: RoutedReplica) -> ReplicaImage:
    return ReplicaImage(
        replica.replica_id,
        replica.birth,
        replica.rank,
        replica.routed,
        replica.aside_until,
        replica.credits,
        replica.version,
        replica.returned,
        replica.turn,
        replica.limit,
        len(replica.flights),
        replica.keys,
    )


def _add_replica(router: Router, image: ReplicaImage) -> None:
    replica = RoutedReplica(
        image.replica_id,
        image.birth,
        image.rank,
        image.routed,
        image.aside_until,
        image.credits,
        image.version,
        image.returned,
        turn=image.turn,
        keys=image.keys,
    )
    router.replicas[image.replica_id] = replica
    if replica.routed:
        router.choice.enter(replica)
        if replica.rank is not None:
            router.holders.setdefault(replica.rank, []).append(replica)
    if replica.aside_until:
        router.set_timer(replica.aside_until, replica)


def _add_request(router: Router, image: RequestImage) -> None:
    request = _request(image)
    if image.part is None:
        router.requests[image.request_id] = request
        if image.is_split:
            request.parts = {}
        elif request.is_broadcast and not request.answered:
            router.unsplit[request.serial] = request
            router.waiting += 1
        if request.deadline != NEVER and not request.answered:
            router.deadlines += 1
            router.set_timer(request.deadline, request)
    else:
        whole = router.requests[image.request_id]
        assert whole.parts is not None
        whole.parts[image.part] = request
        whole.unfinished += not image.answered
        whole.parts_flying += image.replica_id is not None
    if image.waits:
        router.enqueue(request)
    elif image.replica_id is not None:
        router.replicas[image.replica_id].flights[request.serial] = request
        router.in_flight += 1


def _request(image: RequestImage) -> Request:
    return Request(
        image.request_id,
        image.serial,
        image.arrived_at,
        image.attempt,
        image.deadline,
        image.key,
        image.rank,
        image.part,
        image.replica_id,
        image.waits,
        image.begun,
        image.answered,
        image.losses,
        image.because,
        is_broadcast=image.is_broadcast,
        keeps_failures=image.keeps_failures,
        ranked=image.ranked,
    )
