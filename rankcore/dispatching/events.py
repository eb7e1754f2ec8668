"""What a fleet is told: requests by model, how loads come on, and all that its routers and its planner know.

Each is a frozen class, in the past tense, built with keyword arguments; `at` is in seconds on the executor's clock. Every
one raises `InvalidEventError` when it is built with something its field does not allow. Which of the events a router and
the planner share a name (`ReplicaLost`) is the planner's: the fleet tells its routers.
"""

from typing import TypeAlias

from msgspec import Struct

from rankcore import checks
from rankcore.dispatching.spec import ServingSpec
from rankcore.errors import InvalidEventError
from rankcore.events import (
    ClockAdvanced,
    ReplicaMissing,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
)
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    ScaleRequested,
    UsageReported,
)
from rankcore.routing import RequestId
from rankcore.routing.events import AnswerBegun, RequestArrived, RequestCancelled, RequestDone, RequestFailed
from rankcore.values import ReplicaId

BYTES_MAX = 2**63 - 1
EPOCH_MAX = 2**31 - 1


class ModelRequested(Struct, frozen=True, kw_only=True, gc=False):
    """A caller wants an answer from a model, wherever its weights are. Exactly one final answer follows (D1).

    Attributes:
        request_id: Seen for the first time by this fleet.
        model: Whom it is for; one that nobody has deployed is answered by Fail.
        key: A session or a prompt's prefix: under the policy "affinity", requests of one key go to one replica.
        deadline: When the caller no longer waits, on the clock of `at`; None: `RoutingSpec.request_timeout_s` decides.
        begun: A fleet that was lost since had a replica begin it, and what came of that is not known: it is done again only
            where the model is `idempotent`, and else answered by Fail (D6).
    """

    request_id: RequestId
    model: str
    key: str | None = None
    deadline: float | None = None
    begun: bool = False
    at: float

    def __post_init__(self) -> None:
        checks.identifier(InvalidEventError, "ModelRequested.model", self.model)
        checks.flag(InvalidEventError, "ModelRequested.begun", self.begun)
        self.arrival()

    def arrival(self) -> RequestArrived:
        """The same, as the router of its model is told."""
        return RequestArrived(request_id=self.request_id, key=self.key, deadline=self.deadline, at=self.at)


class LoadProgressed(Struct, frozen=True, kw_only=True, gc=False):
    """So much of the weights has arrived.

    Attributes:
        move: Of the `LoadToGpu` that it is about; another one's is late.
        bytes_done: In all; fewer than before is late.
    """

    replica_id: ReplicaId
    move: int
    bytes_done: int
    at: float

    def __post_init__(self) -> None:
        checks.identifier(InvalidEventError, "LoadProgressed.replica_id", self.replica_id)
        checks.count(InvalidEventError, "LoadProgressed.move", self.move, 0, checks.REVISION_MAX)
        checks.count(InvalidEventError, "LoadProgressed.bytes_done", self.bytes_done, 0, BYTES_MAX)
        checks.seconds(InvalidEventError, "LoadProgressed.at", self.at)


class ServingChanged(Struct, frozen=True, kw_only=True, gc=False):
    """Other limits, another policy or other bounds for the requests of one model, deployed already or not yet."""

    spec: ServingSpec
    at: float

    def __post_init__(self) -> None:
        if not isinstance(self.spec, ServingSpec):
            raise InvalidEventError("ServingChanged.spec", self.spec, "a ServingSpec")
        checks.seconds(InvalidEventError, "ServingChanged.at", self.at)


RankNews: TypeAlias = (
    ReplicaReady | ReplicaReconfigured | ReplicaReconfigureFailed | ReplicaStartFailed | ReplicaReported | ReplicaMissing
)
"""What a replica says about its rank. The `replica_id` in it names its seat."""


class ReplicaSaid(Struct, frozen=True, kw_only=True, gc=False):
    """A replica answers what it was told about its rank (D12).

    Attributes:
        replica_id: The planner's.
        news: `ReplicaStartFailed` is final: the process has ended, and the planner is told by the fleet. `ReplicaMissing`
            is the answer to a query, or to a kill, of a seat that this replica does not know and will not take any more.
    """

    replica_id: ReplicaId
    news: RankNews
    at: float

    def __post_init__(self) -> None:
        checks.identifier(InvalidEventError, "ReplicaSaid.replica_id", self.replica_id)
        if not isinstance(self.news, RankNews):
            raise InvalidEventError("ReplicaSaid.news", self.news, "an event of rankcore.events that a replica answers with")
        checks.seconds(InvalidEventError, "ReplicaSaid.at", self.at)


class ControllerTookOver(Struct, frozen=True, kw_only=True, gc=False):
    """Another controller goes on with a fleet: replicas refuse the one before, and are asked for their ranks (R10, D12).

    Attributes:
        epoch: Above that of every earlier controller; a fleet begins with 1.
    """

    epoch: int
    at: float

    def __post_init__(self) -> None:
        checks.count(InvalidEventError, "ControllerTookOver.epoch", self.epoch, 1, EPOCH_MAX)
        checks.seconds(InvalidEventError, "ControllerTookOver.at", self.at)


AttemptNews: TypeAlias = AnswerBegun | RequestDone | RequestFailed | RequestCancelled
"""About a request that was accepted: its router is told."""

Placing: TypeAlias = (
    NodeJoined
    | NodeLost
    | MemoryMeasured
    | DeployRequested
    | ScaleRequested
    | EvictRequested
    | UsageReported
    | LoadFinished
    | LoadFailed
    | OffloadFinished
    | OffloadFailed
    | ReplicaLost
)
"""About nodes, weights and what is wanted: the planner is told."""

Event: TypeAlias = (
    ModelRequested | LoadProgressed | ServingChanged | AttemptNews | Placing | ReplicaSaid | ControllerTookOver | ClockAdvanced
)
"""`ClockAdvanced` is that of `rankcore.events`: time has passed, and what is due is done."""
