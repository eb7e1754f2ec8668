"""A model as its user declares it: code, a file of weights, what it needs, and how its requests are served."""

import os
from collections.abc import Mapping
from math import inf
from typing import Any

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.torch_weights.files import WeightsFiles, look_at
from executors.torch_weights.layout import block_of, split
from rankcore.autoscaling import AutoscalingSpec
from rankcore.dispatching import RankSpec, ServingSpec
from rankcore.residency import ModelSpec
from rankcore.residency.spec import GPUS_MAX
from rankcore.routing import RoutingSpec


def _absolute(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidDeploymentError(f"Model.weights must be the path of a file or folder, got {path!r:.80}")
    return os.path.abspath(str(os.fspath(path)))


@attrs.frozen(kw_only=True, eq=False)
class Model:
    """One model of a fleet.

    Attributes:
        name: Of the model: what requests ask for.
        code: A class. An instance is made in each process that serves the model; its attribute `module`, a torch module
            (best made on the device "meta"), has the weights as its parameters whenever the replica is HOT. One without
            `module` gets the tensors by name as its attribute `weights`.
        weights: A safetensors file, or a folder or an index of several, at the same path on every node. A relative path is
            taken from where the process that declares the model runs, and is absolute from then on: replicas run elsewhere.
        user_config: JSON-like data for the `reconfigure(self, user_config, rank)` of `code`, which is called before the first
            request, when another user_config is deployed, and when the rank changes; None: it is not called.
        args: For `code`.
        kwargs: Likewise.
        working_bytes: What a replica needs on its GPUs beside the weights.
        gpus: Over how many GPUs its weights are split; None: the fewest that suffice.
        priority: 0 to 100; no replica is displaced for one of lower priority.
        dedicated: It is never displaced.
        min_hot_s: How long a replica has its place at least, once it is HOT.
        spread: No two replicas on one node.
        node_labels: What the node must have.
        max_ongoing_requests: In flight on one replica at most.
        max_queued_requests: Waiting at most; the further ones are turned away.
        request_timeout_s: After this long a request has failed; None: never.
        idempotent: A request whose replica was lost is done again on another one.
        load_timeout_s: A load of which nothing arrives for so long has failed, and its process is ended; `code` is made in this
            time too.
        autoscaling: How the number of HOT replicas follows the load; None: it does not.
    """

    name: str
    code: type
    weights: str = attrs.field(converter=_absolute)
    user_config: Any = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = attrs.Factory(dict)
    working_bytes: int = 0
    gpus: int | None = None
    priority: int = 0
    dedicated: bool = False
    min_hot_s: float = 0.0
    spread: bool = False
    node_labels: Mapping[str, str] = attrs.Factory(dict)
    max_ongoing_requests: int = 1
    max_queued_requests: int = 1_000_000
    request_timeout_s: float | None = None
    idempotent: bool = False
    load_timeout_s: float = 600.0
    autoscaling: AutoscalingSpec | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.code, type):
            raise InvalidDeploymentError(f"Model.code of {self.name!r} must be a class, got {self.code!r}")
        for field, value, kind, allowed in (
            ("args", self.args, (tuple, list), "a tuple"),
            ("kwargs", self.kwargs, Mapping, "a mapping of names to values"),
            ("node_labels", self.node_labels, Mapping, "a mapping of label names to values"),
        ):
            if not isinstance(value, kind):
                raise InvalidDeploymentError(f"Model.{field} of {self.name!r} must be {allowed}, got {value!r:.80}")
        timeout_s: object = self.load_timeout_s
        if type(timeout_s) not in (int, float) or not 0.0 < self.load_timeout_s < inf:
            allowed = "a number of seconds above 0"
            raise InvalidDeploymentError(f"Model.load_timeout_s of {self.name!r} must be {allowed}, got {timeout_s!r}")

    def spec(self, files: WeightsFiles | None = None) -> ModelSpec:
        """What the planner has to know of it.

        Args:
            files: Its weights, where they have been looked at.

        Raises:
            WeightsFileError: The weights cannot be read, or are not what they may be.
            InvalidSpecError: A field is not what it may be.
        """
        tensors = (files or look_at(self.weights)).tensors
        # What it may not be is refused below.
        parts = self.gpus if type(self.gpus) is int and 0 < self.gpus <= GPUS_MAX else 1
        # Tensors are not cut: the fullest GPU says what all of them must have.
        fullest = max(block_of(group).nbytes for group in split(tensors, parts))
        return ModelSpec(
            model=self.name,
            weight_bytes=fullest * parts,
            working_bytes=self.working_bytes,
            gpus=self.gpus,
            priority=self.priority,
            dedicated=self.dedicated,
            min_hot_s=self.min_hot_s,
            spread=self.spread,
            node_labels=dict(self.node_labels),
        )

    def serving(self) -> ServingSpec:
        """How its requests are served.

        Raises:
            InvalidSpecError: A field is not what it may be.
        """
        routing = RoutingSpec(
            name=self.name,
            max_ongoing_requests=self.max_ongoing_requests,
            max_queued_requests=self.max_queued_requests,
            request_timeout_s=self.request_timeout_s,
            idempotent=self.idempotent,
        )
        ranks = RankSpec(user_config=self.user_config, start_timeout_s=self.load_timeout_s)
        return ServingSpec(routing=routing, autoscaling=self.autoscaling, ranks=ranks)
