"""The fleet at one moment: its planner, one router a model, and who waits for what."""

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from rankcore import kernel
from rankcore.autoscaling import AutoscalerState, AutoscalingNote
from rankcore.dispatching.alarms import Alarms
from rankcore.dispatching.commands import Command, Move, Status
from rankcore.dispatching.notes import FleetNote
from rankcore.dispatching.seats import Ranking
from rankcore.dispatching.spec import DispatchPolicy, ServingSpec
from rankcore.frozen import EMPTY, PMap
from rankcore.notes import RankNote
from rankcore.residency import CantAccommodate, ResidencyNote, ResidencyPolicy, ResidencyState, open_residency
from rankcore.routing import RequestId, RouterState, RoutingNote
from rankcore.values import ReplicaId, ReplicaRank

Note: TypeAlias = FleetNote | RoutingNote | ResidencyNote | AutoscalingNote | RankNote
"""Each of the parts explains itself."""


@attrs.frozen
class OpenRequest:
    """A request without a final answer, or one that has it and is still worked on.

    Attributes:
        model: Whom it is for.
        serial: Its place in the order of arrival, over all models.
        waits: Whether it waits, for its model or for room.
        answered: Whether it has its final answer.
        revision: Of what its caller was told last; 0: nothing.
    """

    model: str
    serial: int
    waits: bool = False
    answered: bool = False
    revision: int = 0


@attrs.frozen
class Served:
    """How a model stands with those who ask for it.

    Attributes:
        spec: As it is now.
        router: Of its requests.
        autoscaler: None: its number of replicas does not follow the load.
        routed: Its replicas that the router knows, sorted: those that are SERVING (D6), and have their ranks (D12).
        draining: Replicas that have left the routes with requests in flight, sorted.
        waiting: Ids of the requests that wait, by their serials.
        status: What those who wait were told last; None: nobody has waited since it was ready.
        demanded: Whether its one replica was asked for only because requests wait (D2).
        failed_until: Requests fail at once before this time, since a load has failed for good (D7).
        failed_because: Why.
        cant: Why it fitted nowhere when all nodes were last looked at, since it was last HOT; None: it has always fitted.
        ranking: The ranks of its HOT replicas; None: they have none.
    """

    spec: ServingSpec
    router: RouterState
    autoscaler: AutoscalerState | None = None
    routed: tuple[ReplicaId, ...] = ()
    draining: tuple[ReplicaId, ...] = ()
    waiting: PMap[int, RequestId] = EMPTY
    status: Status | None = None
    demanded: bool = False
    failed_until: float = 0.0
    failed_because: str = ""
    cant: CantAccommodate | None = None
    ranking: Ranking | None = None


@attrs.frozen
class MoveUnderWay:
    """What a node was told to do with a replica's weights, and has not answered.

    Attributes:
        command: As it was given.
        since: When.
        bytes_done: Of a load: how much had arrived at the newest step that was told.
        seen_at: When that was; 0: nothing has arrived.
    """

    command: Move
    since: float
    bytes_done: int = 0
    seen_at: float = 0.0


@attrs.frozen(kw_only=True)
class FleetState:
    """A value: never changed, equal to another exactly if both go on alike, hashable.

    Attributes:
        policy: How those who wait are treated.
        residency: Where all weights are: the planner's state.
        models: How each model is served, of those that were deployed or have a `ServingSpec`.
        requests: Every request without a final answer, and those that are still worked on.
        moves: What nodes were told to do and have not answered, by replica.
        bandwidths: Measured bytes/s by node and source (D9).
        alarms: What is due when.
        clock: The largest `at` so far.
        serial: How many requests have come.
        revision: How many statuses were told.
        wake_at: When `ClockAdvanced` was asked for; None: it was not.
        epoch: Of the controller, for replicas that have ranks.
    """

    policy: DispatchPolicy
    residency: ResidencyState
    models: PMap[str, Served] = EMPTY
    requests: PMap[RequestId, OpenRequest] = EMPTY
    moves: PMap[ReplicaId, MoveUnderWay] = EMPTY
    bandwidths: PMap[tuple[str, str], float] = EMPTY
    alarms: Alarms = attrs.Factory(Alarms)
    clock: float = 0.0
    serial: int = 0
    revision: int = 0
    wake_at: float | None = None
    epoch: int = 1

    @property
    def unanswered(self) -> Mapping[RequestId, OpenRequest]:
        """Whoever is still owed an answer, in the order of arrival. O(their number)."""
        found = [(each.serial, request_id, each) for request_id, each in self.requests.items() if not each.answered]
        return {request_id: each for _, request_id, each in sorted(found, key=lambda item: item[0])}

    def waiting(self, model: str) -> tuple[RequestId, ...]:
        """The requests that wait for a model, the oldest first."""
        served = self.models.get(model)
        return () if served is None else tuple(served.waiting[serial] for serial in sorted(served.waiting))

    def ranks_of(self, model: str) -> Mapping[ReplicaId, ReplicaRank]:
        """The ranks of a model's HOT replicas, by the planner's ids, sorted; who is not initialised yet has none (D12)."""
        served = self.models.get(model)
        return {} if served is None or served.ranking is None else served.ranking.ranks

    def world_size_of(self, model: str) -> int | None:
        """How many ranks a model has, which is the planner's target of it; None: its replicas have no ranks."""
        served = self.models.get(model)
        return None if served is None or served.ranking is None else served.ranking.deployment.world_size


FleetStep: TypeAlias = kernel.Step[FleetState, Command, Note]


def open_fleet(policy: DispatchPolicy | None = None, residency: ResidencyPolicy | None = None) -> FleetState:
    """A fleet without nodes, models and requests."""
    return FleetState(
        policy=policy if policy is not None else DispatchPolicy(),
        residency=open_residency(residency if residency is not None else ResidencyPolicy()),
    )
