"""Weights that may be COLD: what a user says of them, and what the planner of weights is told of it.

The planner knows a version of a deployment as a model of its own, since the weights of two versions are two things. Its record
is a worker: a process that holds weights, on GPUs or in CPU memory, whether a replica lives in it or not.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from rankcore import checks
from rankcore.cluster.names import DeploymentId
from rankcore.codec_plans import since
from rankcore.errors import FieldError, InvalidSpecError
from rankcore.frozen import FrozenDict
from rankcore.residency.levels import Level
from rankcore.residency.spec import BYTES_MAX, GPUS_MAX, PRIORITY_MAX, ModelSpec, check_shards, frozen_labels

WorkerId: TypeAlias = str
"""`application/deployment@version#epoch.number`."""
NO_LABELS: Mapping[str, str] = FrozenDict()
TARGET_OF_TIMEOUT = 0.8
"""Of how long calls wait before they are given up, what they should wait at most for weights."""


def _labels(value: object) -> object:
    return frozen_labels(InvalidSpecError, "ResidencySpec.node_labels", value)


def _shards(value: object) -> object:
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else value


@attrs.frozen(kw_only=True)
class ResidencySpec:
    """The weights of a deployment, which are on GPUs only while a replica is wanted.

    Attributes:
        weight_bytes: Of the weights, 1 to 2**53.
        weights: Where the executor finds them; "": its user code knows.
        working_bytes: Of activations and KV cache, per replica: on GPUs only.
        gpus: Of how many GPUs of one node a replica takes a part; None: of the fewest whose capacity suffices.
        priority: 0 to 100; nobody is displaced for a deployment of lower priority, and a higher one costs more to displace.
        dedicated: Never displaced, and it may displace others that are younger than their minimum time.
        min_hot_s: For how long a replica stays once it is HOT, before it may be displaced.
        wait_target_s: Calls should not wait for longer until it is HOT, and others' turns are cut for that, down to half a
            load; None: 0.8 of the `request_timeout_s` of its calls.
        spread: No two replicas on the GPUs of one node.
        node_labels: What a node must have to be considered.
        keep: WARM: a copy stays in CPU memory where a replica leaves the GPUs; COLD: none does.
        load_timeout_s: A load that has not ended for so long is broken off, and has failed. A copy to CPU memory has as long.
        wait_for_room_s: Without a place for so long, those who wait are told that it is UNAVAILABLE.
        failed_for_s: For how long after that, or after its loads have failed for good, nothing is tried for those who call.
        idle_to_warm_s: A replica that was not used for so long leaves the GPUs; None: never.
        idle_to_cold_s: A copy in CPU memory that was not used for so long is dropped; None: never.
        shard_bytes: Where parts are uneven: what the fullest GPU takes, `working_bytes` included, by the number of GPUs.
            It is on the least of these numbers that fits, and on no other. Empty: on any, in equal parts.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    weight_bytes: int
    weights: str = ""
    working_bytes: int = 0
    gpus: int | None = None
    priority: int = 0
    dedicated: bool = False
    min_hot_s: float = 5.0
    spread: bool = False
    node_labels: Mapping[str, str] = attrs.field(default=NO_LABELS, converter=_labels)
    keep: Literal["WARM", "COLD"] = "WARM"
    load_timeout_s: float = 600.0
    wait_for_room_s: float = 60.0
    failed_for_s: float = 30.0
    idle_to_warm_s: float | None = None
    idle_to_cold_s: float | None = None
    shard_bytes: tuple[tuple[int, int], ...] = attrs.field(default=(), converter=_shards, metadata=since(5, 5))
    wait_target_s: float | None = attrs.field(default=None, metadata=since(5, 6))

    def __attrs_post_init__(self) -> None:
        checks.count(InvalidSpecError, "ResidencySpec.weight_bytes", self.weight_bytes, 1, BYTES_MAX)
        checks.text(InvalidSpecError, "ResidencySpec.weights", self.weights)
        checks.count(InvalidSpecError, "ResidencySpec.working_bytes", self.working_bytes, 0, BYTES_MAX)
        if self.gpus is not None:
            checks.count(InvalidSpecError, "ResidencySpec.gpus", self.gpus, 1, GPUS_MAX)
        checks.count(InvalidSpecError, "ResidencySpec.priority", self.priority, 0, PRIORITY_MAX)
        checks.flag(InvalidSpecError, "ResidencySpec.dedicated", self.dedicated)
        checks.flag(InvalidSpecError, "ResidencySpec.spread", self.spread)
        checks.seconds(InvalidSpecError, "ResidencySpec.min_hot_s", self.min_hot_s)
        if self.keep not in ("WARM", "COLD"):
            raise InvalidSpecError("ResidencySpec.keep", self.keep, "'WARM' or 'COLD'")
        for name in ("load_timeout_s", "wait_for_room_s", "failed_for_s"):
            checks.seconds(InvalidSpecError, f"ResidencySpec.{name}", getattr(self, name), above=0.0)
        for name in ("wait_target_s", "idle_to_warm_s", "idle_to_cold_s"):
            if getattr(self, name) is not None:
                checks.seconds(InvalidSpecError, f"ResidencySpec.{name}", getattr(self, name), above=0.0)
        check_shards("ResidencySpec", self.shard_bytes, self.gpus)


def model_id(deployment: DeploymentId, version: str) -> str:
    """What the planner calls a version of a deployment."""
    return f"{deployment}@{version.replace('%', '%25').replace('#', '%23')}"


def deployment_of(worker_id: WorkerId) -> DeploymentId:
    """Of which deployment a worker, or a model of the planner, is: no name has '@'."""
    return worker_id.partition("@")[0]


def version_of(model: str) -> str:
    """Of which version of a deployment a model of the planner is."""
    return model.partition("@")[2].replace("%23", "#").replace("%25", "%")


def target_of(timeout_s: float | None) -> float | None:
    """How long calls should wait at most that are given up after so long; None: for any time."""
    return None if timeout_s is None else TARGET_OF_TIMEOUT * timeout_s


def model_of(
    spec: ResidencySpec, deployment: DeploymentId, version: str, *, timeout_s: float | None, dedicated: bool = False
) -> ModelSpec:
    """What the planner is told of a version of a deployment whose calls are given up after so long."""
    return ModelSpec(
        model=model_id(deployment, version),
        weight_bytes=spec.weight_bytes,
        working_bytes=spec.working_bytes,
        gpus=spec.gpus,
        priority=spec.priority,
        dedicated=spec.dedicated or dedicated,
        min_hot_s=spec.min_hot_s,
        wait_target_s=spec.wait_target_s if spec.wait_target_s is not None else target_of(timeout_s),
        place_target_s=spec.wait_for_room_s,
        spread=spec.spread,
        node_labels=spec.node_labels,
        keeps_copy=spec.keep == Level.WARM,
        idle_to_warm_s=spec.idle_to_warm_s,
        idle_to_cold_s=spec.idle_to_cold_s,
        shard_bytes=spec.shard_bytes,
    )


def check_plannable(spec: ResidencySpec, deployment: DeploymentId, version: str, error: type[FieldError]) -> None:
    """Raise unless the planner can name the workers of a version."""
    longest = f"{model_id(deployment, version)}#{'9' * 10}.{'9' * 10}"
    if len(longest) > checks.NAME_LENGTH_MAX:
        raise error("EntrySpec.ranks.version", version, "a shorter one: ids of workers have name and version in them")
