"""The models of a scenario: how large each is, what it may do to others, and where its requests come from."""

from collections.abc import Mapping
from typing import Any

import attrs

from executors.simulator.fields import FieldProblem, Text, flag, integer, name, number, optional
from executors.simulator.scenario.requests import Requests
from rankcore.autoscaling import AutoscalingSpec
from rankcore.checks import COUNT_MAX, SECONDS_MAX

GB = 10**9
MODEL_GB_MAX = 9e6
"""Below 2**53 bytes, which is as much as the planner takes."""
KV_TOKENS_MAX = 10**9
MODELS_MAX = 10_000
REPLICAS_MAX = 1000
MODEL_NAME = Text("model name", "#")
"""Ids of replicas are the name of their model, # and a number."""


@attrs.frozen(kw_only=True)
class EveryModel:
    """What holds for every model that says nothing else.

    Attributes:
        weight_gb: Of all weights together; None: `model_sizes` knows.
        working_gb: What each replica needs beside them on the GPU, such as activations.
        kv_cache_tokens: And for so many tokens at once, with the bytes per token that `model_sizes` knows.
        really_working_gb: What a replica turns out to need beside its weights; None: as it was said.
        gpus: Over how many GPUs of one node a replica is split; None: the fewest of the node that hold it.
        priority: A replica is never displaced for one of lower priority.
        dedicated: Never displaced, and may displace one younger than its minimum time.
        min_hot_s: Not displaced before it has been HOT for so long.
        spread: No two replicas of it on one node.
        node_labels: Only on nodes with these labels.
        replicas: How many are wanted as the run begins; with 0, one is loaded when the first request comes.
        autoscaling: How the number of HOT replicas follows the load; None: it does not.
        max_ongoing_requests: How many requests a replica works on at once.
        max_queued_requests: How many may wait; more are turned away.
        request_timeout_s: How long after its arrival a request that is not done is given up; None: never.
        requests: Where its requests come from; None: its share of `traffic`, if there is any.
    """

    weight_gb: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=MODEL_GB_MAX)))
    working_gb: float = attrs.field(default=0.0, validator=number(least=0.0, most=MODEL_GB_MAX))
    kv_cache_tokens: int = attrs.field(default=0, validator=integer(0, KV_TOKENS_MAX))
    really_working_gb: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=MODEL_GB_MAX)))
    gpus: int | None = attrs.field(default=None, validator=optional(integer(1, 1024)))
    priority: int = attrs.field(default=0, validator=integer(0, 100))
    dedicated: bool = attrs.field(default=False, validator=flag)
    min_hot_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    spread: bool = attrs.field(default=False, validator=flag)
    node_labels: Mapping[str, Any] = attrs.Factory(dict)
    replicas: int = attrs.field(default=0, validator=integer(0, REPLICAS_MAX))
    autoscaling: AutoscalingSpec | None = None
    max_ongoing_requests: int = attrs.field(default=8, validator=integer(1, 100_000))
    max_queued_requests: int = attrs.field(default=1_000_000, validator=integer(0, COUNT_MAX))
    request_timeout_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=SECONDS_MAX)))
    requests: Requests | None = None

    def __attrs_post_init__(self) -> None:
        check_labels(("node_labels",), self.node_labels)


@attrs.frozen(kw_only=True)
class Model(EveryModel):
    """One model. What it does not say, `every_model` says."""

    name: str = attrs.field(validator=MODEL_NAME)


@attrs.frozen(kw_only=True)
class ModelSizes:
    """Sizes of models, in a CSV file. Without `models`, these are the models, in the order of the file.

    Attributes:
        file: Relative to the scenario file.
        model_column: Names of models.
        weight_gb_column: What the weights of each take, in GB.
        kv_cache_column: Bytes of each token in the KV cache; None: nobody asks for `kv_cache_tokens`.
    """

    file: str = attrs.field(validator=name)
    model_column: str = attrs.field(default="model", validator=name)
    weight_gb_column: str = attrs.field(default="weight_gb", validator=name)
    kv_cache_column: str | None = attrs.field(default="kv_cache_bytes_per_token", validator=optional(name))


@attrs.frozen(kw_only=True)
class Size:
    """What a model takes, in bytes: each replica both, of which only the weights may be in CPU memory."""

    weight_bytes: int
    working_bytes: int
    really_working_bytes: int


def check_labels(keys: tuple[str | int, ...], labels: object) -> None:
    """Raise `FieldProblem` for what are no labels."""
    if not isinstance(labels, Mapping):
        raise FieldProblem(keys, labels, "a mapping of names to texts")
    for label, text in labels.items():
        if not name.accepts(label):
            raise FieldProblem((*keys, str(label)), label, name.allowed_instead_of(label))
        if not name.accepts(text):
            raise FieldProblem((*keys, label), text, name.allowed_instead_of(text))
