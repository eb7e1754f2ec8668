"""Weights that are on GPUs only while they are wanted: what each deployment has, and what it takes to move them."""

from collections.abc import Mapping
from typing import Any

import attrs

from executors.simulator.fields import FieldProblem, choice, flag, integer, name, number, optional
from executors.simulator.load.distributions import Constant, Distribution
from rankcore.checks import SECONDS_MAX
from rankcore.residency.spec import BYTES_MAX, TURNS_MAX, ResidencyPolicy

GB = 10**9
_USUAL = ResidencyPolicy()
WEIGHT_GB_MAX = 9e6
"""Below 2**53 bytes, which is as much as the planner takes."""
KV_TOKENS_MAX = 10**9
GB_PER_S = number(above=0.0, most=1e6)
DEFAULT_COLD_START = Constant(value=5.0)
DEFAULT_WARM_START = Constant(value=0.5)
WARM, COLD = "WARM", "COLD"


@attrs.frozen(kw_only=True)
class ScenarioResidency:
    """The weights of a deployment: those of `ResidencySpec`, with sizes in GB of 10^9 bytes, and what they really take.

    Attributes:
        weight_gb: Of all weights together; None: `weight_sizes` knows.
        working_gb: What each replica needs beside them on the GPU, such as activations.
        kv_cache_tokens: And for so many tokens at once, with the bytes per token that `weight_sizes` knows.
        really_working_gb: What a replica turns out to need beside its weights; None: as it was said.
        gpus: Over how many GPUs of one node a replica is split; None: the fewest of the node that hold it.
        priority: A replica is never displaced for one of lower priority.
        dedicated: Never displaced, and may displace one younger than its minimum time.
        min_hot_s: Not displaced before it has been HOT for so long.
        wait_target_s: Its calls should not wait for longer until it is HOT, and others' turns are cut for that, down to half a
            load; None: 0.8 of `request_timeout_s`.
        spread: No two replicas of it on one node.
        node_labels: Only on nodes with these labels.
        keep: WARM: a copy stays in CPU memory where a replica leaves the GPUs, if there is room; COLD: none does.
        load_timeout_s: A load that has not ended for so long is broken off, and has failed. A copy to CPU memory has as long.
        wait_for_room_s: How long requests wait for a place, before they are turned away.
        failed_for_s: For how long after that nothing is tried for those who call.
        idle_to_warm_s: A replica unused for so long leaves the GPU; None: never.
        idle_to_cold_s: A copy in CPU memory unused for so long is dropped; None: never.
    """

    weight_gb: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=WEIGHT_GB_MAX)))
    working_gb: float = attrs.field(default=0.0, validator=number(least=0.0, most=WEIGHT_GB_MAX))
    kv_cache_tokens: int = attrs.field(default=0, validator=integer(0, KV_TOKENS_MAX))
    really_working_gb: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=WEIGHT_GB_MAX)))
    gpus: int | None = attrs.field(default=None, validator=optional(integer(1, 1024)))
    priority: int = attrs.field(default=0, validator=integer(0, 100))
    dedicated: bool = attrs.field(default=False, validator=flag)
    min_hot_s: float = attrs.field(default=5.0, validator=number(least=0.0))
    wait_target_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    spread: bool = attrs.field(default=False, validator=flag)
    node_labels: Mapping[str, Any] = attrs.Factory(dict)
    keep: str = attrs.field(default=WARM, validator=choice(WARM, COLD))
    load_timeout_s: float = attrs.field(default=600.0, validator=number(above=0.0))
    wait_for_room_s: float = attrs.field(default=60.0, validator=number(above=0.0))
    failed_for_s: float = attrs.field(default=30.0, validator=number(above=0.0))
    idle_to_warm_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    idle_to_cold_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    def __attrs_post_init__(self) -> None:
        check_labels(("node_labels",), self.node_labels)


@attrs.frozen(kw_only=True)
class WeightSizes:
    """Sizes of weights, in a CSV file, by the names of deployments. Without any deployment, there is one for each row.

    Attributes:
        file: Relative to the scenario file.
        name_column: Names of deployments.
        weight_gb_column: What the weights of each take, in GB.
        kv_cache_column: Bytes of each token in the KV cache; None: nobody asks for `kv_cache_tokens`.
    """

    file: str = attrs.field(validator=name)
    name_column: str = attrs.field(default="model", validator=name)
    weight_gb_column: str = attrs.field(default="weight_gb", validator=name)
    kv_cache_column: str | None = attrs.field(default="kv_cache_bytes_per_token", validator=optional(name))


@attrs.frozen(kw_only=True)
class Size:
    """What a replica takes, in bytes: both, of which only the weights may be in CPU memory."""

    weight_bytes: int
    working_bytes: int
    really_working_bytes: int


@attrs.frozen(kw_only=True)
class Loading:
    """How weights move. Each link of a node is shared evenly by all that goes over it at the same time.

    Attributes:
        disk_gb_per_s: Disk to CPU, of one node; a load of a COLD replica takes this link and the next at once.
        to_gpu_gb_per_s: CPU to GPU, of one node.
        to_cpu_gb_per_s: GPU to CPU, of one node, for replicas that become WARM.
        cold_start_s: Before the first byte of a COLD replica moves: its process, its libraries.
        warm_start_s: The same of a WARM one.
        failure: Share of loads that fail, somewhere on their way.
    """

    disk_gb_per_s: float = attrs.field(default=2.0, validator=GB_PER_S)
    to_gpu_gb_per_s: float = attrs.field(default=12.0, validator=GB_PER_S)
    to_cpu_gb_per_s: float = attrs.field(default=12.0, validator=GB_PER_S)
    cold_start_s: Distribution = DEFAULT_COLD_START
    warm_start_s: Distribution = DEFAULT_WARM_START
    failure: float = attrs.field(default=0.0, validator=number(least=0.0, most=0.99))


@attrs.frozen(kw_only=True)
class DisplacementRule:
    """Which replicas leave the GPUs for others, and when: the planner's own rule unless another one is to be compared with it.

    Attributes:
        in_flight_cost_bytes: What a request in flight on a replica adds to what it holds: of all that could make room those go
            that weigh least, times one more than their priority.
        recent_use_s: A use within this time adds to that ...
        recent_cost_bytes: ... up to so much, linearly less as time goes by.
        turn_factor: A replica with calls stays for so many times as long as its load took, and for `min_hot_s` at least.
        aging_s: Who has waited for so long stands in line as if its priority were one higher.
        reserves: Whether the first in line has a reservation; without one whoever fits first goes first.
    """

    in_flight_cost_bytes: int = attrs.field(default=_USUAL.in_flight_cost_bytes, validator=integer(0, BYTES_MAX))
    recent_use_s: float = attrs.field(default=_USUAL.recent_use_s, validator=number(above=0.0, most=SECONDS_MAX))
    recent_cost_bytes: int = attrs.field(default=_USUAL.recent_cost_bytes, validator=integer(0, BYTES_MAX))
    turn_factor: float = attrs.field(default=_USUAL.turn_factor, validator=number(least=0.0, most=TURNS_MAX))
    aging_s: float = attrs.field(default=_USUAL.aging_s, validator=number(above=0.0, most=SECONDS_MAX))
    reserves: bool = attrs.field(default=_USUAL.reserves, validator=flag)

    @property
    def policy(self) -> ResidencyPolicy:
        """What the planner goes by."""
        return ResidencyPolicy(**attrs.asdict(self))


def check_labels(keys: tuple[str | int, ...], labels: object) -> None:
    """Raise `FieldProblem` for what are no labels."""
    if not isinstance(labels, Mapping):
        raise FieldProblem(keys, labels, "a mapping of names to texts")
    for label, text in labels.items():
        if not name.accepts(label):
            raise FieldProblem((*keys, str(label)), label, name.allowed_instead_of(label))
        if not name.accepts(text):
            raise FieldProblem((*keys, label), text, name.allowed_instead_of(text))
