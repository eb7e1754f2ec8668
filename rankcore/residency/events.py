"""What a planner of residency is told: one frozen class each, in the past tense, built with keyword arguments.

`at` says when it happened, in seconds on the executor's clock. An answer to a command carries the command's `move`; one
with another move is late: it changes nothing and leaves a note, as does any other news that is no longer so.

Every class raises `InvalidEventError` when it is built with something its field does not allow.
"""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import force_setattr

from rankcore import checks
from rankcore.errors import InvalidEventError
from rankcore.events import ClockAdvanced
from rankcore.frozen import FrozenDict
from rankcore.residency.levels import Level
from rankcore.residency.spec import BYTES_MAX, GPUS_MAX, ModelSpec, Wanted, frozen_labels
from rankcore.values import NodeId, ReplicaId


class NodeJoined(Struct, frozen=True, kw_only=True, gc=False):
    """A node is there; told again: its capacities or labels have changed.

    Attributes:
        gpu_bytes: What each of its GPUs can hold, by number; may be empty.
        cpu_bytes: The budget for WARM copies in its CPU memory.
        labels: What models may ask for with `ModelSpec.node_labels`.
    """

    node_id: NodeId
    gpu_bytes: tuple[int, ...]
    cpu_bytes: int = 0
    labels: Mapping[str, str] = field(default_factory=FrozenDict)
    at: float

    def __post_init__(self) -> None:
        _identifier(self, "node_id", self.node_id)
        _sizes(self, "gpu_bytes", self.gpu_bytes)
        checks.count(InvalidEventError, _path(self, "cpu_bytes"), self.cpu_bytes, 0, BYTES_MAX)
        force_setattr(self, "labels", frozen_labels(InvalidEventError, _path(self, "labels"), self.labels))
        _moment(self, self.at)


class NodeLost(Struct, frozen=True, kw_only=True, gc=False):
    """Final: a node is gone, with all that was on its GPUs and in its CPU memory."""

    node_id: NodeId
    at: float

    def __post_init__(self) -> None:
        _identifier(self, "node_id", self.node_id)
        _moment(self, self.at)


class MemoryMeasured(Struct, frozen=True, kw_only=True, gc=False):
    """What the GPUs of a node can really hold.

    Where less fits than is held there, the cheapest replicas leave and are planned again (T1).
    """

    node_id: NodeId
    gpu_bytes: tuple[int, ...]
    at: float

    def __post_init__(self) -> None:
        _identifier(self, "node_id", self.node_id)
        _sizes(self, "gpu_bytes", self.gpu_bytes)
        _moment(self, self.at)


class DeployRequested(Struct, frozen=True, kw_only=True, gc=False):
    """At least so many of some models are wanted HOT: one request, whose models never displace each other (T4).

    A model that is known gets this spec; what is on GPUs stays as it is. Who is wanted no longer is named: `EvictRequested`.
    """

    wanted: tuple[Wanted, ...]
    at: float

    def __post_init__(self) -> None:
        if not isinstance(self.wanted, tuple):
            raise InvalidEventError(_path(self, "wanted"), self.wanted, "a tuple of Wanted")
        seen = set()
        for index, wanted in enumerate(self.wanted):
            if not isinstance(wanted, Wanted):
                raise InvalidEventError(_path(self, f"wanted[{index}]"), wanted, "a Wanted")
            if wanted.spec.model in seen:
                raise InvalidEventError(_path(self, f"wanted[{index}].spec.model"), wanted.spec.model, "named once")
            seen.add(wanted.spec.model)
        _moment(self, self.at)


class EvictRequested(Struct, frozen=True, kw_only=True, gc=False):
    """All replicas of a model, or one replica, are to be off the GPUs. The target falls with it.

    Attributes:
        model: All its replicas; None: `replica_id` says which.
        replica_id: This one; None: `model` says which.
        keep: WARM: a copy stays in CPU memory where the budget allows; COLD: no copy stays.
    """

    model: str | None = None
    replica_id: ReplicaId | None = None
    keep: Level = Level.WARM
    at: float

    def __post_init__(self) -> None:
        if (self.model is None) == (self.replica_id is None):
            raise InvalidEventError(_path(self, "model"), self.model, "given, or replica_id, and not both")
        name = "replica_id" if self.model is None else "model"
        _identifier(self, name, getattr(self, name))
        if type(self.keep) not in (Level, str) or self.keep not in (Level.WARM, Level.COLD):
            raise InvalidEventError(_path(self, "keep"), self.keep, "Level.WARM or Level.COLD")
        force_setattr(self, "keep", Level(self.keep))
        _moment(self, self.at)


class ReplicaUsed(Struct, frozen=True, kw_only=True, gc=False):
    """A replica has begun or ended requests.

    Attributes:
        in_flight: How many it has now.
    """

    replica_id: ReplicaId
    in_flight: int
    at: float

    def __post_init__(self) -> None:
        _identifier(self, "replica_id", self.replica_id)
        checks.count(InvalidEventError, _path(self, "in_flight"), self.in_flight, 0)
        _moment(self, self.at)


class UsageReported(Struct, frozen=True, kw_only=True, gc=False):
    """What a replica really takes on each of its GPUs, in their order (T8)."""

    replica_id: ReplicaId
    gpu_bytes: tuple[int, ...]
    at: float

    def __post_init__(self) -> None:
        _identifier(self, "replica_id", self.replica_id)
        _sizes(self, "gpu_bytes", self.gpu_bytes)
        _moment(self, self.at)


class LoadFinished(Struct, frozen=True, kw_only=True, gc=False):
    """A replica is HOT; of a WARM one: its copy in CPU memory is given up."""

    replica_id: ReplicaId
    move: int
    at: float

    def __post_init__(self) -> None:
        _answer(self, self.replica_id, self.move, self.at)


class LoadFailed(Struct, frozen=True, kw_only=True, gc=False):
    """A replica could not be loaded: it is off the GPUs again, and a WARM copy is still there."""

    replica_id: ReplicaId
    move: int
    reason: str = ""
    at: float

    def __post_init__(self) -> None:
        _answer(self, self.replica_id, self.move, self.at)
        checks.text(InvalidEventError, _path(self, "reason"), self.reason)


class OffloadFinished(Struct, frozen=True, kw_only=True, gc=False):
    """`OffloadToCpu`, `UnloadFromGpu` or `DropFromCpu` was carried out: the bytes are free.

    Attributes:
        heir: Who is wanted HOT in its place, before anybody else is tried there; None: nobody is.
    """

    replica_id: ReplicaId
    move: int
    at: float
    heir: ModelSpec | None = None

    def __post_init__(self) -> None:
        _answer(self, self.replica_id, self.move, self.at)


class OffloadFailed(Struct, frozen=True, kw_only=True, gc=False):
    """Likewise, and nothing is left of the replica but its file: it is COLD."""

    replica_id: ReplicaId
    move: int
    reason: str = ""
    at: float
    heir: ModelSpec | None = None

    def __post_init__(self) -> None:
        _answer(self, self.replica_id, self.move, self.at)
        checks.text(InvalidEventError, _path(self, "reason"), self.reason)


class ReplicaLost(Struct, frozen=True, kw_only=True, gc=False):
    """Final: a replica's process has ended without having been asked to, and with it what it held."""

    replica_id: ReplicaId
    reason: str = ""
    at: float
    heir: ModelSpec | None = None

    def __post_init__(self) -> None:
        _identifier(self, "replica_id", self.replica_id)
        checks.text(InvalidEventError, _path(self, "reason"), self.reason)
        _moment(self, self.at)


Event: TypeAlias = (
    NodeJoined
    | NodeLost
    | MemoryMeasured
    | DeployRequested
    | EvictRequested
    | ReplicaUsed
    | UsageReported
    | LoadFinished
    | LoadFailed
    | OffloadFinished
    | OffloadFailed
    | ReplicaLost
    | ClockAdvanced
)
"""`ClockAdvanced` is that of `rankcore.events`: time has passed, and what is due is done."""


def _path(event: object, field: str) -> str:
    return f"{type(event).__name__}.{field}"


def _identifier(event: object, field: str, value: object) -> None:
    checks.identifier(InvalidEventError, _path(event, field), value)


def _moment(event: object, at: object) -> None:
    checks.seconds(InvalidEventError, _path(event, "at"), at)


def _sizes(event: object, field: str, sizes: object) -> None:
    check_sizes(_path(event, field), sizes)


def check_sizes(path: str, sizes: object) -> None:
    """Raise `InvalidEventError` unless these are numbers of bytes, one for each of some GPUs."""
    if not isinstance(sizes, tuple) or len(sizes) > GPUS_MAX:
        raise InvalidEventError(path, sizes, f"a tuple of at most {GPUS_MAX} numbers of bytes")
    for index, size in enumerate(sizes):
        checks.count(InvalidEventError, f"{path}[{index}]", size, 0, BYTES_MAX)


def _answer(event: object, replica_id: object, move: object, at: object) -> None:
    _identifier(event, "replica_id", replica_id)
    checks.count(InvalidEventError, _path(event, "move"), move, 0, checks.REVISION_MAX)
    _moment(event, at)
