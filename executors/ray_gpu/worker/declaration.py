"""What a user says of weights that may be COLD: the option `residency=` of `@deployment`."""

import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from rankcore.cluster.residency import ResidencySpec
from rankcore.errors import InvalidSpecError
from rankcore.residency.spec import GPUS_MAX

EXCLUDED = {
    "placement": "the planner of weights chooses the nodes",
    "_placement_info": "the planner of weights chooses the nodes",
    "max_surge": "a replacement takes the memory of its predecessor",
    "restart_token": "a replica is one stay of a process on GPUs; evict it to have another process",
    "spares": "a copy in CPU memory is what stands by",
}
"""Options that weights which may be COLD leave no room for, and why."""
EXCLUDED_OF_ACTORS = {
    "num_gpus": "Residency.gpus says of how many GPUs a replica takes a part",
    "accelerator_type": "Residency.node_labels says which nodes are meant",
    "label_selector": "Residency.node_labels says which nodes are meant",
}
"""Likewise, of `ray_actor_options`."""


def _absolute(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise InvalidDeploymentError(f"Residency.weights must be the path of a file or folder, got {path!r:.80}")
    return os.path.abspath(str(os.fspath(path)))


def _numbered(shards: object) -> object:
    """By numbers of GPUs, which are text in a JSON file."""
    if not isinstance(shards, Mapping):
        return shards
    return {int(key) if isinstance(key, str) and key.isdecimal() else key: size for key, size in shards.items()}


class _Sizes(NamedTuple):
    weight_bytes: int | None
    shard_bytes: tuple[tuple[int, int], ...]


@attrs.frozen
class MeasuredWeights:
    """Weights as they were found where the deployer runs.

    Attributes:
        spec: What the machine is told.
        declared: What a version says of the files (`WeightsFiles.declared`); "": nobody has looked at them.
        contents: What of that is compared where they are loaded; None: nothing is.
    """

    spec: ResidencySpec
    declared: str = ""
    contents: str | None = None


@attrs.frozen(kw_only=True)
class Residency:
    """The weights of a deployment, which are on GPUs only while a replica is wanted.

    Attributes:
        weights: A safetensors file, or a folder or an index of several, at the same path on every node. A relative path is
            taken from where the deployer runs. The user's object has them as the parameters of its attribute `module`, a torch
            module (best made on the device "meta"), or by name as its attribute `weights`.
        weight_bytes: What they take; None: the files are read where the deployer runs, and what is loaded has to have the
            same contents. Where it is given nobody looks at the files before they are loaded.
        shard_bytes: Likewise what the fullest GPU takes, `working_bytes` included, by the number of GPUs; None: as the files
            say that were read. Without `gpus` a replica is on the least of these numbers of GPUs that fits, and on no other.
        working_bytes, gpus, priority, dedicated, min_hot_s, wait_target_s, spread, node_labels, keep, load_timeout_s,
            wait_for_room_s, failed_for_s, idle_to_warm_s, idle_to_cold_s: As in `rankcore.cluster.residency.ResidencySpec`.
    """

    weights: str = attrs.field(converter=_absolute)
    weight_bytes: int | None = None
    working_bytes: int = 0
    gpus: int | None = None
    priority: int = 0
    dedicated: bool = False
    min_hot_s: float = 5.0
    spread: bool = False
    node_labels: Mapping[str, str] = attrs.Factory(dict)
    keep: Literal["WARM", "COLD"] = "WARM"
    load_timeout_s: float = 600.0
    wait_for_room_s: float = 60.0
    failed_for_s: float = 30.0
    idle_to_warm_s: float | None = None
    idle_to_cold_s: float | None = None
    shard_bytes: Mapping[int, int] | None = attrs.field(default=None, converter=_numbered)
    wait_target_s: float | None = None

    def measured(self) -> MeasuredWeights:
        """The same, with the size of the weights.

        Raises:
            InvalidDeploymentError: A field is not what it may be, or the weights cannot be read.
        """
        found: tuple[_Sizes, str, str | None] = (_Sizes(self.weight_bytes, ()), "", None)
        if self.weight_bytes is None:
            found = self._look_at_files()
        sizes, declared, contents = found
        shards = sizes.shard_bytes if self.shard_bytes is None else self.shard_bytes
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(Residency)}
        fields |= {"weight_bytes": sizes.weight_bytes, "shard_bytes": shards}
        try:
            return MeasuredWeights(ResidencySpec(**fields), declared, contents)
        except InvalidSpecError as error:
            name = error.field.replace("ResidencySpec.", "Residency.")
            raise InvalidDeploymentError(f"{name} must be {error.allowed}, got {error.found!r:.80}") from None

    def _look_at_files(self) -> "tuple[_Sizes, str, str | None]":
        from executors.torch_weights.contents import declared_in  # with torch, which others need not
        from executors.torch_weights.errors import WeightsFileError
        from executors.torch_weights.files import look_at
        from executors.torch_weights.layout import block_of, fullest_parts, split

        try:
            files = look_at(self.weights)
            declared = files.declared()
        except WeightsFileError as error:
            allowed = "weights that can be read here, or have weight_bytes"
            raise InvalidDeploymentError(f"Residency.weights must be {allowed}: {error}") from None
        # What may not be is refused when the spec is made.
        parts = self.gpus if type(self.gpus) is int and 0 < self.gpus <= GPUS_MAX else 1
        beside = self.working_bytes if type(self.working_bytes) is int and self.working_bytes > 0 else 0
        # Tensors are not cut: the fullest GPU says what all of them must have.
        weight_bytes = parts * max(block_of(group).nbytes for group in split(files.tensors, parts))
        shards = fullest_parts(files.tensors, beside) if self.gpus is None else ()
        return _Sizes(weight_bytes, shards), declared, declared_in(declared)


def residency_of(settings: Mapping[str, Any], name: str) -> Residency | None:
    """The option of a deployment, checked against its other options; None: its replicas have their weights for life.

    Raises:
        InvalidDeploymentError: It is no `Residency`, or another option cannot be had together with it, and why.
    """
    given = settings.get("residency")
    if given is None:
        return None
    if not isinstance(given, Residency):
        raise InvalidDeploymentError(f"residency of {name} must be a Residency, got {given!r:.80}")
    of_actors = settings.get("ray_actor_options") or {}
    for field, value, why in (
        *((option, settings.get(option), why) for option, why in EXCLUDED.items()),
        *((f"ray_actor_options[{option!r}]", of_actors.get(option), why) for option, why in EXCLUDED_OF_ACTORS.items()),
    ):
        if value:
            raise InvalidDeploymentError(f"{field} of {name} cannot be had with residency: {why}")
    return given
