"""What a planner of residency knows: a value that never changes. Old states stay valid: keep them, fork them, compare them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
from msgspec import Struct

from rankcore import checks
from rankcore.errors import InvalidSpecError
from rankcore.frozen import EMPTY, FrozenDict, PMap
from rankcore.residency.levels import Level, Phase
from rankcore.residency.spec import ModelSpec, ResidencyPolicy
from rankcore.values import NodeId, ReplicaId

if TYPE_CHECKING:
    from rankcore.residency.index import Index

EPOCH_BITS = 32
"""The numbers of a planner that begins with an epoch are above `epoch << 32`, and are written `epoch.number`: what an earlier
planner has named is never named again."""


def serial_of(replica_id: ReplicaId) -> int:
    """The number in the id of a record, which begins with its model: ids of one model in the order in which they were made."""
    epoch, separator, serial = replica_id[replica_id.rindex("#") + 1 :].partition(".")
    return (int(epoch) << EPOCH_BITS) + int(serial) if separator else int(epoch)


def replica_id_of(model: str, serial: int) -> ReplicaId:
    """The id with a number."""
    epoch = serial >> EPOCH_BITS
    return f"{model}#{epoch}.{serial - (epoch << EPOCH_BITS)}" if epoch else f"{model}#{serial}"


class Gpu(Struct, frozen=True, gc=False):
    """The books of one GPU: `free_bytes` and what records hold are its capacity, always (T1).

    Attributes:
        capacity_bytes: What it can hold; while more is held than was measured, what is held.
        free_bytes: Nobody's.
        excess_bytes: How much of the capacity turned out not to be there. What leaves next is not free, but ends this.
    """

    capacity_bytes: int
    free_bytes: int
    excess_bytes: int = 0

    @property
    def real_bytes(self) -> int:
        """What it can hold as far as is known."""
        return self.capacity_bytes - self.excess_bytes


class ResidencyNode(Struct, frozen=True, kw_only=True, gc=False):
    """One node.

    Attributes:
        gpus: By number.
        cpu_capacity_bytes: The budget for WARM copies; while more is held than the budget, what is held.
        cpu_free_bytes: Nobody's.
        cpu_excess_bytes: As `Gpu.excess_bytes`.
        labels: What models may ask for.
        joined_at: When it was first told.
        from_disk, from_cpu: How weights have come so far that came alone: seconds, and bytes; older loads count for less.
        shared_at: When a load last began beside another one.
    """

    node_id: NodeId
    gpus: tuple[Gpu, ...]
    cpu_capacity_bytes: int
    cpu_free_bytes: int
    cpu_excess_bytes: int = 0
    labels: Mapping[str, str] = FrozenDict()
    joined_at: float = 0.0
    from_disk: tuple[float, float] | None = None
    from_cpu: tuple[float, float] | None = None
    shared_at: float = -1.0


class Resident(Struct, frozen=True, kw_only=True, gc=False):
    """The record of one replica: there is exactly one, whatever its level (T2).

    Attributes:
        model: Which model it is a replica of.
        level: Where its weights are now. LEAVING is HOT to the end; LOADING is not HOT yet.
        phase: What is going on with it.
        node_id: Where its place on GPUs is, or else its copy in CPU memory; None: nowhere, it is COLD.
        gpus: The numbers of its GPUs on the node, ascending; empty: it has no place.
        gpu_bytes: What it holds on each of them, which is less than `need_bytes` while it is RESERVING.
        need_bytes: What it is to hold on each of them.
        copy_node_id: Where it holds CPU bytes: its node, or while a copy elsewhere is being dropped, that one.
        cpu_bytes: What it holds there: a copy, or the room for the one that is being made.
        cpu_need_bytes: What the copy that is being made will take.
        since: When its phase last changed.
        hot_since: When it last became HOT; None: it is not.
        last_used: When it last began or ended a request; becoming HOT counts as one.
        in_flight: How many requests it has in flight.
        move: Of the newest command about it; answers carry it.
        waits_for: Who has to give up bytes before its own command can follow: those that it displaces, or, while LEAVING, the
            copies that are dropped for its own.
        makes_room_for: Whom it leaves, or drops its copy, for; None: nobody.
        dropping: Its copy is being dropped: `DropFromCpu` was commanded.
        forgets: No copy of it is to stay once it has left the GPUs.
        used_bytes: The most that it reported to take on each of its GPUs; empty: nothing yet (T8).
        size_bytes: What it turned out to take in all, where that is more than its spec says; 0: it is not.
        turn_s: How long it stays HOT, if it has calls and nobody is first in line to shorten that (T13).
        load_s: How long its load is likely to take if it is alone, by what was known when it began; or took, if that was less.
        due_at: It has been promised to be HOT by then; None: nothing was promised.
        hot_by: While it loads, when that was likely to be over, by what was known and loaded on its node when it began.
        because: Why it is where it is, in words.
    """

    replica_id: ReplicaId
    model: str
    level: Level = Level.COLD
    phase: Phase = Phase.RESTING
    node_id: NodeId | None = None
    gpus: tuple[int, ...] = ()
    gpu_bytes: tuple[int, ...] = ()
    need_bytes: tuple[int, ...] = ()
    copy_node_id: NodeId | None = None
    cpu_bytes: int = 0
    cpu_need_bytes: int = 0
    since: float = 0.0
    hot_since: float | None = None
    last_used: float = 0.0
    in_flight: int = 0
    move: int = 0
    waits_for: tuple[ReplicaId, ...] = ()
    makes_room_for: ReplicaId | None = None
    dropping: bool = False
    forgets: bool = False
    used_bytes: tuple[int, ...] = ()
    size_bytes: int = 0
    turn_s: float = 0.0
    load_s: float = 0.0
    due_at: float | None = None
    hot_by: float = 0.0
    because: str = ""

    @property
    def held_bytes(self) -> int:
        """On all its GPUs together."""
        return sum(self.gpu_bytes)


class Reservation(Struct, frozen=True, gc=False):
    """Who is first in line: it is RESERVING, and its victims serve on until all may leave (T12).

    Attributes:
        since: When it began to wait.
        heirs: Who has gone ahead of it to the place of who it succeeds.
        begins_by: When its victims have to begin to leave, for all in line to have a place and be HOT in time; None: whenever
            they do. It may only become earlier.
    """

    replica_id: ReplicaId
    since: float
    heirs: tuple[ReplicaId, ...] = ()
    begins_by: float | None = None


@attrs.frozen(kw_only=True)
class ResidencyState:
    """A planner at one moment. Equal to another exactly if both go on alike.

    Attributes:
        policy: How displacement is weighed.
        nodes: Every node, by id.
        replicas: Every replica's record, by id.
        models: The newest spec of every model that has a record, by name.
        asked: The number of the newest request for each model: models of one request never displace each other (T4).
        clock: The largest `at` so far.
        serial: Of the next replica id.
        moves: Of the next command.
        requests: Of the next request.
        head: The reservation of who is first in line; None: nobody has one.
        broken_off: When a load of a model was last broken off for others, by model; not once it has been HOT since (T16).
        waking: When `WakeAt` asked to be woken; None: it did not, or that is past.
        index: Derived from the rest: who is where, room by size, what falls due when.
    """

    policy: ResidencyPolicy
    nodes: PMap[NodeId, ResidencyNode] = EMPTY
    replicas: PMap[ReplicaId, Resident] = EMPTY
    models: PMap[str, ModelSpec] = EMPTY
    asked: PMap[str, int] = EMPTY
    clock: float = 0.0
    serial: int = 0
    moves: int = 1
    requests: int = 1
    head: Reservation | None = None
    broken_off: PMap[str, float] = EMPTY
    waking: float | None = None
    index: "Index" = attrs.field(init=False, eq=False, repr=False)

    @index.default
    def _derive(self) -> "Index":
        from rankcore.residency.derive import derive_index

        return derive_index(self)

    @classmethod
    def of(cls, index: "Index", **fields: object) -> "ResidencyState":
        """For the ledger, which has kept the index: a state with all its fields."""
        state = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(state, name, value)
        object.__setattr__(state, "index", index)
        return state

    def target(self, model: str) -> int:
        """How many replicas of a model are wanted HOT; 0 for an unknown one."""
        return len(self.index.roster.groups.get((model, "wanted"), ()))

    def hot_replicas(self, model: str) -> tuple[ReplicaId, ...]:
        """Those of a model that serve, the oldest id first."""
        return tuple(replica_id_of(model, serial) for serial in self.index.roster.groups.get((model, "serving"), ()))

    def warm_replicas(self, model: str) -> tuple[ReplicaId, ...]:
        """Those of a model that nobody wants HOT and that have a copy in CPU memory, the oldest id first."""
        return tuple(replica_id_of(model, serial) for serial in self.index.roster.groups.get((model, "warm"), ()))

    def wanted_replicas(self, model: str) -> tuple[ReplicaId, ...]:
        """Those of a model that are HOT or to be so, the oldest id first: as many as its target."""
        return tuple(replica_id_of(model, serial) for serial in self.index.roster.groups.get((model, "wanted"), ()))


def open_residency(policy: ResidencyPolicy | None = None, *, at: float = 0.0, epoch: int = 0) -> ResidencyState:
    """A planner that knows no node yet.

    Args:
        policy: How displacement is weighed; None: as usual.
        at: Now.
        epoch: Of the controller whose planner it is, from which ids and moves count.

    Raises:
        InvalidSpecError: The policy is none, or `at` is no time.
    """
    checks.seconds(InvalidSpecError, "open_residency.at", at)
    if policy is not None and not isinstance(policy, ResidencyPolicy):
        raise InvalidSpecError("open_residency.policy", policy, "a ResidencyPolicy")
    first = epoch << EPOCH_BITS
    return ResidencyState(policy=policy or ResidencyPolicy(), clock=at, serial=first, moves=first + 1)
