"""What users want: `ModelSpec`, how much of it: `Wanted`, how the planner weighs things: `ResidencyPolicy`, and on what nodes
they count that are not there yet: `ExpectedShape`.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import attrs
from msgspec import Struct, field
from msgspec.structs import force_setattr

from rankcore import checks
from rankcore.errors import FieldError, InvalidSpecError
from rankcore.frozen import FrozenDict
from rankcore.values import NodeId

BYTES_MAX = 2**53
"""Of one size: integers up to here are exact in every JSON reader."""
GPUS_MAX = 1024
PRIORITY_MAX = 100
TURNS_MAX = 20


class ModelSpec(Struct, frozen=True, kw_only=True, gc=False):
    """What it takes to have one replica of a model HOT.

    On the GPUs a replica takes `weight_bytes + working_bytes`, in equal parts (rounded up) on each, or as much on each as
    `shard_bytes` says; in CPU memory a WARM copy takes `weight_bytes`.

    Attributes:
        model: Its name, without '#'; replica ids begin with it.
        weight_bytes: Of the weights, 1 to 2**53.
        working_bytes: Of activations and KV cache, per replica: on GPUs only.
        gpus: Of how many GPUs of one node it takes a part; None: of the fewest whose capacity suffices.
        priority: 0 to 100; nobody is displaced for a replica of lower priority, and a higher one costs more to displace.
        dedicated: Never displaced, and it may displace others that are younger than their minimum time.
        min_hot_s: For how long a replica stays once it is HOT, before it may be displaced.
        wait_target_s: Calls should not wait for longer until it is HOT, and others' turns are cut for that; None: for any time.
        place_target_s: Likewise until it has a place, or is first in line; None: for any time.
        spread: No two replicas of this model on the GPUs of one node.
        node_labels: What a node must have to be considered.
        keeps_copy: Whether a copy in CPU memory stays where the model leaves the GPUs.
        idle_to_warm_s: A replica that was not used for so long leaves the GPUs; None: never.
        idle_to_cold_s: A copy in CPU memory that was not used for so long is dropped; None: never.
        avoids: Nodes that will not do, whatever is free there.
        shard_bytes: (GPUs, what the fullest of so many takes, activations and KV cache included), the fewest first. It is on
            the least of these numbers that suffices on a node, and on no other. Empty: on any, in equal parts.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    model: str
    weight_bytes: int
    working_bytes: int = 0
    gpus: int | None = None
    priority: int = 0
    dedicated: bool = False
    min_hot_s: float = 0.0
    wait_target_s: float | None = None
    place_target_s: float | None = None
    spread: bool = False
    node_labels: Mapping[str, str] = field(default_factory=FrozenDict)
    keeps_copy: bool = True
    idle_to_warm_s: float | None = None
    idle_to_cold_s: float | None = None
    avoids: tuple[NodeId, ...] = ()
    shard_bytes: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        checks.identifier(InvalidSpecError, "ModelSpec.model", self.model)
        if "#" in self.model:
            raise InvalidSpecError("ModelSpec.model", self.model, "a name without '#', which separates replica ids")
        checks.count(InvalidSpecError, "ModelSpec.weight_bytes", self.weight_bytes, 1, BYTES_MAX)
        checks.count(InvalidSpecError, "ModelSpec.working_bytes", self.working_bytes, 0, BYTES_MAX)
        if self.gpus is not None:
            checks.count(InvalidSpecError, "ModelSpec.gpus", self.gpus, 1, GPUS_MAX)
        checks.count(InvalidSpecError, "ModelSpec.priority", self.priority, 0, PRIORITY_MAX)
        checks.flag(InvalidSpecError, "ModelSpec.dedicated", self.dedicated)
        checks.flag(InvalidSpecError, "ModelSpec.keeps_copy", self.keeps_copy)
        checks.seconds(InvalidSpecError, "ModelSpec.min_hot_s", self.min_hot_s)
        checks.flag(InvalidSpecError, "ModelSpec.spread", self.spread)
        for name in ("wait_target_s", "place_target_s", "idle_to_warm_s", "idle_to_cold_s"):
            if getattr(self, name) is not None:
                checks.seconds(InvalidSpecError, f"ModelSpec.{name}", getattr(self, name), above=0.0)
        for node_id in self.avoids:
            checks.identifier(InvalidSpecError, "ModelSpec.avoids", node_id)
        check_shards("ModelSpec", self.shard_bytes, self.gpus)
        force_setattr(self, "node_labels", frozen_labels(InvalidSpecError, "ModelSpec.node_labels", self.node_labels))

    @property
    def total_bytes(self) -> int:
        """What a replica takes on all its GPUs together, before rounding."""
        return self.weight_bytes + self.working_bytes

    @property
    def size_of(self) -> tuple[object, ...]:
        """All that says how large a replica is."""
        return self.weight_bytes, self.working_bytes, self.gpus, self.shard_bytes


class Wanted(Struct, frozen=True, kw_only=True, gc=False):
    """So many replicas of a model HOT.

    Attributes:
        replicas: In all, 0 to 100,000.
    """

    spec: ModelSpec
    replicas: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.spec, ModelSpec):
            raise InvalidSpecError("Wanted.spec", self.spec, "a ModelSpec")
        checks.count(InvalidSpecError, "Wanted.replicas", self.replicas, 0, checks.REPLICAS_MAX)


class ResidencyPolicy(Struct, frozen=True, kw_only=True, gc=False):
    """How displacement is weighed, and how long a drain may take.

    Attributes:
        in_flight_cost_bytes: What a request in flight on a victim adds to its cost.
        recent_use_s: A use within this time adds to the cost of a victim ...
        recent_cost_bytes: ... up to so much, linearly less as time goes by.
        drain_timeout_s: How long a replica that leaves may finish what it has in flight.
        warm_eviction: Which copies go where CPU memory does not hold all: "saving", those that save least (T17); "smallest".
        reuse_horizon_s: A replica that was used so long ago is taken to be wanted again in time one time in two.
        turn_factor: A replica with calls stays for so many times as long as its load took, 0 to 20.
        aging_s: Who has waited for so long stands in line as if its priority were one higher; twice, two; and so on.
        reserves: Whether the first in line has a reservation (T12, T13); without one whoever fits first goes first.
        disk_bytes_per_s, host_bytes_per_s: How fast weights come from disk, and from CPU memory, before any have.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    in_flight_cost_bytes: int = 10 * 10**9
    recent_use_s: float = 300.0
    recent_cost_bytes: int = 50 * 10**9
    drain_timeout_s: float = 20.0
    warm_eviction: Literal["saving", "smallest"] = "saving"
    reuse_horizon_s: float = 300.0
    turn_factor: float = 6.0
    aging_s: float = 60.0
    reserves: bool = True
    disk_bytes_per_s: int = 2 * 10**9
    host_bytes_per_s: int = 20 * 10**9

    def __post_init__(self) -> None:
        for name, least in (
            ("in_flight_cost_bytes", 0),
            ("recent_cost_bytes", 0),
            ("disk_bytes_per_s", 1),
            ("host_bytes_per_s", 1),
        ):
            checks.count(InvalidSpecError, f"ResidencyPolicy.{name}", getattr(self, name), least, BYTES_MAX)
        for name in ("recent_use_s", "aging_s"):
            checks.seconds(InvalidSpecError, f"ResidencyPolicy.{name}", getattr(self, name), above=0.0)
        checks.seconds(InvalidSpecError, "ResidencyPolicy.drain_timeout_s", self.drain_timeout_s)
        checks.flag(InvalidSpecError, "ResidencyPolicy.reserves", self.reserves)
        checks.seconds(InvalidSpecError, "ResidencyPolicy.reuse_horizon_s", self.reuse_horizon_s, above=0.0)
        if self.warm_eviction not in ("saving", "smallest"):
            raise InvalidSpecError("ResidencyPolicy.warm_eviction", self.warm_eviction, "'saving' or 'smallest'")
        if not checks.is_number(self.turn_factor) or not 0 <= self.turn_factor <= TURNS_MAX:
            raise InvalidSpecError("ResidencyPolicy.turn_factor", self.turn_factor, f"a number, 0 to {TURNS_MAX}")


def check_shards(owner: str, shards: object, gpus: object) -> None:
    """Raise `InvalidSpecError` unless parts are of different numbers of GPUs, the fewest first, and may be chosen from."""
    name, allowed = f"{owner}.shard_bytes", "pairs of a number of GPUs and its bytes, the fewest GPUs first, each once"
    if not isinstance(shards, tuple) or not all(isinstance(each, tuple) and len(each) == 2 for each in shards):
        raise InvalidSpecError(name, shards, allowed)
    for degree, size in shards:
        checks.count(InvalidSpecError, f"{name} GPUs", degree, 1, GPUS_MAX)
        checks.count(InvalidSpecError, f"{name}[{degree}]", size, 1, BYTES_MAX)
    if any(one >= other for (one, _), (other, _) in pairwise(shards)):
        raise InvalidSpecError(name, shards, allowed)
    if shards and gpus is not None:
        raise InvalidSpecError(name, shards, f"empty where gpus is given: it is {gpus}")


def frozen_labels(error: type[FieldError], name: str, labels: object) -> FrozenDict:
    """Check labels, and make them a mapping that cannot change."""
    if not isinstance(labels, Mapping):
        raise error(name, labels, "a mapping of label names to values")
    for key, value in labels.items():
        checks.identifier(error, f"{name} name", key)
        checks.text(error, f"{name}[{key!r}]", value)
    return FrozenDict(labels)


def _sizes(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _labels(value: object) -> object:
    return frozen_labels(InvalidSpecError, "ExpectedShape.labels", value)


@attrs.frozen(kw_only=True)
class ExpectedShape:
    """A node that may appear once somebody waits for it.

    Attributes:
        gpu_bytes: What each of its GPUs will hold.
        labels: What models may ask for.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    gpu_bytes: tuple[int, ...] = attrs.field(converter=_sizes)
    labels: Mapping[str, str] = attrs.field(default=FrozenDict(), converter=_labels)

    def __attrs_post_init__(self) -> None:
        sizes: object = self.gpu_bytes
        if not isinstance(sizes, tuple) or not 1 <= len(sizes) <= GPUS_MAX:
            raise InvalidSpecError("ExpectedShape.gpu_bytes", sizes, f"1 to {GPUS_MAX} numbers of bytes, one for each GPU")
        for index, size in enumerate(sizes):
            checks.count(InvalidSpecError, f"ExpectedShape.gpu_bytes[{index}]", size, 1, BYTES_MAX)
