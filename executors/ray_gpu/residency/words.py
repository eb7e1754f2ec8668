"""What the controller, the replicas and the callers of a fleet say to each other: plain frozen records, and calls as bytes."""

from typing import Any

import attrs
from ray import cloudpickle

from executors.ray_gpu.errors import RemoteError, RemoteTraceback
from rankcore.dispatching import ServingSpec
from rankcore.dispatching.events import RankNews
from rankcore.residency import ModelSpec
from rankcore.values import ReplicaId


@attrs.frozen
class Declared:
    """A model that is to be deployed.

    Attributes:
        packed: As `pack_model` made it.
        spec: For the planner, but for the version.
        serving: How its requests are served.
        replicas: How many are wanted HOT.
    """

    packed: bytes
    spec: ModelSpec
    serving: ServingSpec
    replicas: int


@attrs.frozen
class SaidOfRank:
    """What a replica answers to what it was told of its rank.

    Attributes:
        news: For the machine of ranks.
        ends: It was told to end, and is to be ended.
    """

    news: tuple[RankNews, ...] = ()
    ends: bool = False

    def __add__(self, more: "SaidOfRank") -> "SaidOfRank":
        return SaidOfRank(self.news + more.news, self.ends or more.ends)


@attrs.frozen
class Told:
    """What a replica's process was told by earlier controllers.

    Attributes:
        begun: The requests that it has begun.
        move: The newest move of weights; 0: none.
        seat: Where it believes a rank; None: nowhere.
    """

    begun: frozenset[str]
    move: int
    seat: ReplicaId | None = None


@attrs.frozen
class Answer:
    """What became of one attempt of a request.

    Attributes:
        value: What user code returned, as `pack` made it; None: it raised, or was cancelled.
        error: What it raised, likewise; None: it has not.
        refused: It was not begun, since the weights are not HOT.
        cut_off: It was begun and broken off, since its replica had to leave the GPU.
        poisoned: The process can use its GPU no more.
    """

    value: bytes | None = None
    error: bytes | None = None
    reason: str = ""
    refused: bool = False
    cut_off: bool = False
    poisoned: bool = False


@attrs.frozen
class ReplicaStanding:
    """One replica, for people.

    Attributes:
        rank: Of those of its model that are HOT; None: it has none.
        because: Why it is where it is.
        displaced: Whom it has displaced, in words.
        history: The newest decisions about it, the oldest first.
    """

    replica_id: str
    level: str
    phase: str
    node_id: str | None
    gpus: tuple[int, ...]
    gpu_bytes: tuple[int, ...]
    cpu_bytes: int
    in_flight: int
    percent: int | None
    rank: int | None
    because: str
    displaced: tuple[str, ...]
    history: tuple[str, ...]


@attrs.frozen
class ModelStanding:
    """One model, for people.

    Attributes:
        target: How many of its replicas are wanted HOT.
        waiting: How many requests wait for it.
        waits_for: What they were told last; "": nobody waits.
    """

    model: str
    target: int
    waiting: int
    waits_for: str
    replicas: tuple[ReplicaStanding, ...]


@attrs.frozen
class NodeStanding:
    """One node's memory: of each GPU its capacity and what is free, and the same of the room for WARM copies."""

    node_id: str
    gpus: tuple[tuple[int, int], ...]
    cpu_bytes: int
    cpu_free_bytes: int


@attrs.frozen
class FleetStanding:
    """All of a fleet, for people.

    Attributes:
        controller_pid: The process that says so; None: it is not known.
    """

    nodes: tuple[NodeStanding, ...]
    models: tuple[ModelStanding, ...]
    controller_pid: int | None = None


def cut_off(replica_id: str) -> str:
    """Why a request came to nothing that ran for longer than its replica may take to leave."""
    return f"replica {replica_id} left the GPU before the request was done (drain_timeout_s); it may have had its effect"


def pack(value: Any) -> bytes:
    """Anything as bytes; classes and functions of `__main__` go by value."""
    return bytes(cloudpickle.dumps(value))


def unpack(packed: bytes) -> Any:
    """What `pack` was given."""
    return cloudpickle.loads(packed)


def pack_error(error: Exception, traceback: str) -> bytes:
    """An exception of user code with its traceback in words, which go alone where it cannot be pickled."""
    try:
        return pack((error, traceback))
    except Exception:
        return pack((RemoteError(f"{type(error).__name__}: {error}\n\n{traceback}"), traceback))


def unpack_error(packed: bytes) -> Exception:
    """The exception, with the remote traceback as its cause."""
    try:
        error, traceback = unpack(packed)
    except Exception as problem:
        return RemoteError(f"user code raised something that cannot be unpickled here: {problem}")
    error.__cause__ = RemoteTraceback(traceback)
    return error if isinstance(error, Exception) else RemoteError(str(error))
