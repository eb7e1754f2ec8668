"""What a fleet asks for: the commands of its routers and of its planner as they are, and a word to those who wait.

`TellReplica` hands a replica what the machine of ranks has for it.

To be carried out in this order. Complete, Fail, Reject, Expire and Forget are *final* (`FINAL`): each request gets exactly
one of them (D1).
"""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
)
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.routing import RequestId
from rankcore.routing.commands import FINAL, Complete, Dispatch, Expire, Fail, Forget, Reject, Retry, StopAttempt, WakeAt
from rankcore.values import ReplicaId

__all__ = ["FINAL", "Command", "Move", "RankCommand", "Status", "StatusKind", "TellCaller", "TellReplica"]


class StatusKind(StrEnum):
    """What a request waits for."""

    PROVISIONING = "provisioning"
    """Its model is to be loaded and cannot be yet: it has no place, or its place is not free, or a load has failed."""
    LOADING = "loading"
    """Its model is being loaded."""
    QUEUED = "queued"
    """Its model is there, and all its replicas have as much to do as they may."""
    READY = "ready"
    """It waits no longer: a replica has it."""


class Status(Struct, frozen=True, gc=False):
    """What is told to a caller whose request waits.

    Attributes:
        kind: What it waits for.
        model: Whose requests wait so.
        behind: The replicas that have to leave first, sorted.
        percent: Of a load: how much of it is done, rounded down to a step of `DispatchPolicy.progress_percent`.
        seconds_left: Of a load: how long it takes from now on, by measured bytes/s; None: nothing was measured yet.
        because: In words.
    """

    kind: StatusKind
    model: str
    behind: tuple[ReplicaId, ...] = ()
    percent: int | None = None
    seconds_left: float | None = None
    because: str = ""


class TellCaller(Struct, frozen=True, gc=False):
    """Tell a caller how its request stands.

    Attributes:
        revision: Grows with whatever is told to this request: a lower one that comes later is old (D5).
    """

    request_id: RequestId
    revision: int
    status: Status


RankCommand: TypeAlias = StartReplica | InitializeReplica | ReconfigureReplica | QueryReplica | KillReplica | AnnounceWorldSize
"""What a replica is told about its rank. The `replica_id` in it names its seat: who has another seat is not meant."""


class TellReplica(Struct, frozen=True, gc=False):
    """Tell a replica that is HOT something about its rank (D12). It may come late, twice or after a newer one.

    But it is for the process that is HOT now: never for a later one, nor for this one after it has left the GPU.
    `StartReplica` gives it a seat. `KillReplica` has its process ended, which is answered by the planner's `ReplicaLost`.
    `AnnounceWorldSize` is state, not a message: the newest is delivered for as long as the replica is HOT.

    Attributes:
        replica_id: The planner's.
        command: As the machine of ranks made it; its answers come back in `ReplicaSaid`.
    """

    replica_id: ReplicaId
    command: RankCommand


Move: TypeAlias = LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu
"""What the planner has a node do with weights; each is answered by an event that carries its `move`."""

Command: TypeAlias = (
    Dispatch | Retry | StopAttempt | Complete | Fail | Reject | Expire | Forget | Move | TellCaller | TellReplica | WakeAt
)
