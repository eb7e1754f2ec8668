"""What should happen in a cluster, as the machine tells an executor, in the order in which it is to happen.

`WakeAt` is that of `rankcore.commands`: the least of what all parts ask for.
"""

from enum import StrEnum
from typing import TypeAlias

import attrs
from msgspec import Struct

from rankcore import commands
from rankcore.autoscaling.policies import View
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.records import Record
from rankcore.cluster.residency import WorkerId
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.values import ReplicaId

WeightsMove: TypeAlias = LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu
"""How weights move."""


@attrs.frozen
class SaveRecord:
    """Put a record into the store; answer `RecordSaved` once it survives a crash. First in a step; repeated until answered.

    A record that says `deleted` is to be kept like any other: see `records`.
    """

    record: Record
    epoch: int


@attrs.frozen
class CarryOut:
    """A command about the ranks of one deployment. What it depends on has been saved: the machine holds it back until then."""

    deployment: DeploymentId
    command: commands.Command

    @property
    def epoch(self) -> int:
        """Of the controller that gave it."""
        return self.command.epoch


class Standing(StrEnum):
    """How a deployment stands for those who call it."""

    READY = "ready"
    """A replica takes calls."""
    LOADING = "loading"
    PROVISIONING = "provisioning"
    """It has a place, and waits until others have left it."""
    QUEUED = "queued"
    """It waits for a place."""
    UNAVAILABLE = "unavailable"
    """Nobody serves it, and nothing of it is on its way (Q11)."""


class Availability(Struct, frozen=True, gc=False):
    """How a deployment stands, and why.

    Attributes:
        behind: PROVISIONING: whose replicas have to leave first.
        percent: LOADING: how much has come; 100: it is HOT, and waits for its rank.
        retry_after_s: UNAVAILABLE: for how long nothing is tried again; None: until something else happens.
    """

    standing: Standing
    because: str = ""
    behind: tuple[DeploymentId, ...] = ()
    percent: int = 0
    retry_after_s: float | None = None


@attrs.frozen
class PublishAvailability:
    """Tell the processes that have calls waiting for a deployment how it stands; UNAVAILABLE is a router's `problem`."""

    deployment: DeploymentId
    availability: Availability
    epoch: int


@attrs.frozen
class AskPolicy:
    """Ask the user's scaling policy how many replicas a load calls for; answer `PolicyAnswered`.

    Attributes:
        ask: Number of the question; it goes into the answer.
        target_number: Of the target that the view shows; it goes into the answer.
        policy: Its name (`EntrySpec.policy`).
    """

    deployment: DeploymentId
    ask: int
    target_number: int
    policy: str
    view: View
    epoch: int


@attrs.frozen
class GiveTenure:
    """A worker that is HOT becomes a replica: the start of its tenure, which the machine takes for placed.

    Attributes:
        worker_id: Whose tenure it is, to which all further commands about this replica go.
        start: The tenure, with the id of the replica.
    """

    deployment: DeploymentId
    worker_id: WorkerId
    start: commands.StartReplica
    epoch: int


@attrs.frozen
class MoveWeights:
    """Move the weights of a worker; answer `MoveFinished` or `MoveFailed` with the same `move`.

    A move of a worker that is not there has failed. A load from disk begins the worker's process. Weights that are on disk
    alone need none: it ends with the move, untold.

    Attributes:
        tenure: The replica that the worker is; None: it is none. Where weights leave the GPUs it ends with the move.
        command: Which move, of `rankcore.residency.commands`.
    """

    deployment: DeploymentId
    tenure: ReplicaId | None
    command: WeightsMove
    epoch: int


@attrs.frozen
class KillWorker:
    """End a worker's process at once; answer `WorkerLost`.

    **Race:** it is sent since a worker does not load or leave in time, and meanwhile it has; it is to be another replica now,
    or loads again, perhaps in another process. So it is for one move: if that is over, or there is a newer one, or no process,
    then that was answered, and nothing is done nor answered.

    Attributes:
        move: The newest that it was given; None: whatever it is about, and `WorkerLost` also where there is none.
        is_over: Whether the answer to that is known: it is HOT, and is to end until it is given another one.
        because: What `WorkerLost` is to say; "": nothing is to be said.
    """

    deployment: DeploymentId
    worker_id: WorkerId
    move: int | None
    is_over: bool
    epoch: int
    because: str = ""

    def concerns(self, move: int, is_over: bool) -> bool:
        """Whether it is for a worker of which this is the newest move."""
        return self.move is None or move < self.move or (move == self.move and (self.is_over or not is_over))


@attrs.frozen
class QueryWorker:
    """Ask a worker what it holds; answer `WorkerReported`, or `WorkerLost`."""

    worker_id: WorkerId
    epoch: int


ForDeployment: TypeAlias = CarryOut | GiveTenure | MoveWeights | KillWorker
"""What a deployment's outbox holds back until its record is saved."""
ClusterCommand: TypeAlias = SaveRecord | ForDeployment | QueryWorker | PublishAvailability | AskPolicy | commands.WakeAt
