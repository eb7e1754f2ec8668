"""A fleet at one moment, as plain frozen records: what can be compared, written as JSON, and gone on from."""

from msgspec import Struct

from rankcore.autoscaling import AutoscalerState
from rankcore.dispatching.alarms import Alarm, Alarms
from rankcore.dispatching.commands import Status
from rankcore.dispatching.seats import Ranking
from rankcore.dispatching.spec import DispatchPolicy, ServingSpec
from rankcore.dispatching.state import FleetState, MoveUnderWay, OpenRequest, Served
from rankcore.frozen import PMap
from rankcore.residency import CantAccommodate, ResidencyState
from rankcore.routing import RequestId, RouterImage, RouterState
from rankcore.values import NodeId, ReplicaId


class ServedImage(Struct, frozen=True):
    """A model, as in `Served`."""

    spec: ServingSpec
    router: RouterImage
    autoscaler: AutoscalerState | None
    routed: tuple[ReplicaId, ...]
    draining: tuple[ReplicaId, ...]
    status: Status | None
    demanded: bool
    failed_until: float
    failed_because: str
    cant: CantAccommodate | None
    ranking: Ranking | None


class OpenRequestImage(Struct, frozen=True):
    """A request, as in `OpenRequest`, with its id."""

    request_id: RequestId
    request: OpenRequest


class Bandwidth(Struct, frozen=True):
    """Measured bytes/s of loads from a source on a node."""

    node_id: NodeId
    source: str
    bytes_per_s: float


class FleetImage(Struct, frozen=True):
    """All of a fleet, as in `FleetState`; what can be worked out again is left out."""

    policy: DispatchPolicy
    residency: ResidencyState
    models: PMap[str, ServedImage]
    requests: tuple[OpenRequestImage, ...]
    moves: PMap[ReplicaId, MoveUnderWay]
    bandwidths: tuple[Bandwidth, ...]
    alarms: tuple[Alarm, ...]
    clock: float
    serial: int
    revision: int
    wake_at: float | None
    epoch: int


def image_of(state: FleetState) -> FleetImage:
    """Everything that a fleet is. Costs O(its size)."""
    requests = sorted(state.requests.items(), key=lambda item: item[1].serial)
    return FleetImage(
        policy=state.policy,
        residency=state.residency,
        models=PMap({model: _served_image(served) for model, served in state.models.items()}),
        requests=tuple(OpenRequestImage(*each) for each in requests),
        moves=state.moves,
        bandwidths=tuple(Bandwidth(*pair, state.bandwidths[pair]) for pair in sorted(state.bandwidths)),
        alarms=state.alarms.order,
        clock=state.clock,
        serial=state.serial,
        revision=state.revision,
        wake_at=state.wake_at,
        epoch=state.epoch,
    )


def fleet_of(image: FleetImage) -> FleetState:
    """The fleet that an image shows, such as one read from JSON."""
    waiting: dict[str, dict[int, RequestId]] = {}
    for each in image.requests:
        if each.request.waits:
            waiting.setdefault(each.request.model, {})[each.request.serial] = each.request_id
    models = {model: _served(served, PMap(waiting.get(model, {}))) for model, served in image.models.items()}
    return FleetState(
        policy=image.policy,
        residency=image.residency,
        models=PMap(models),
        requests=PMap({each.request_id: each.request for each in image.requests}),
        moves=image.moves,
        bandwidths=PMap({(each.node_id, each.source): each.bytes_per_s for each in image.bandwidths}),
        alarms=Alarms(PMap({(alarm.kind, alarm.model): alarm.at for alarm in image.alarms})),
        clock=image.clock,
        serial=image.serial,
        revision=image.revision,
        wake_at=image.wake_at,
        epoch=image.epoch,
    )


def _served_image(served: Served) -> ServedImage:
    fields = {name: getattr(served, name) for name in ServedImage.__struct_fields__ if name != "router"}
    return ServedImage(router=served.router.image, **fields)


def _served(image: ServedImage, waiting: PMap[int, RequestId]) -> Served:
    fields = {name: getattr(image, name) for name in ServedImage.__struct_fields__ if name != "router"}
    return Served(router=RouterState.of(image.router), waiting=waiting, **fields)
