"""The nodes of a scenario, and the network between them."""

from collections.abc import Mapping
from typing import Any

import attrs

from executors.simulator.fields import PERIOD_MIN_S, FieldProblem, Text, integer, name, number, optional
from executors.simulator.load.distributions import Constant, Distribution
from executors.simulator.scenario.weights import WEIGHT_GB_MAX, check_labels

NODES_MAX = 100_000
MEMORY_GB_MAX = 1e6
GPU_GB_MAX = 1e5
DEFAULT_LATENCY = Constant(value=0.001)
DEFAULT_REORDER = Constant(value=1.0)


@attrs.frozen(kw_only=True)
class NodeGroup:
    """Some equal nodes: `<name>-0`, `<name>-1`, ...; a group of one is called `<name>` unless `count` is given.

    Attributes:
        name: Of the group; names of nodes begin with it.
        count: How many nodes; None: one, called as the group is.
        gpus: GPUs of each node.
        memory_gb: Memory of each node; None: as much as anybody wants.
        gpu_type: What its GPUs are, such as H100: an engine has a table for it; None: no engine runs here.
        gpu_gb: Memory of each GPU that weights may be planned on, as the node says it; None: none is.
        really_gpu_gb: What is found when it is full, on a node that says too much; None: it says the truth.
        cpu_cache_gb: CPU memory in which weights that left the GPU may be kept.
        labels: For weights that want nodes with these.
    """

    name: str = attrs.field(validator=name)
    gpus: int = attrs.field(validator=integer(1, 1024))
    memory_gb: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=MEMORY_GB_MAX)))
    count: int | None = attrs.field(default=None, validator=optional(integer(1, NODES_MAX)))
    gpu_type: str | None = attrs.field(default=None, validator=optional(Text()))
    gpu_gb: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=GPU_GB_MAX)))
    really_gpu_gb: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=GPU_GB_MAX)))
    cpu_cache_gb: float = attrs.field(default=0.0, validator=number(least=0.0, most=WEIGHT_GB_MAX))
    labels: Mapping[str, Any] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        check_labels(("labels",), self.labels)
        if self.really_gpu_gb is not None and self.really_gpu_gb > (self.gpu_gb or 0.0):
            raise FieldProblem(("really_gpu_gb",), self.really_gpu_gb, f"at most gpu_gb, which is {self.gpu_gb or 0:g}")

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The names of its nodes."""
        return (self.name,) if self.count is None else tuple(f"{self.name}-{index}" for index in range(self.count))

    def holds(self, gpus: int, memory_gb: float) -> bool:
        """Whether an empty node of it has room for a replica."""
        return gpus <= self.gpus and (self.memory_gb is None or memory_gb <= self.memory_gb)


@attrs.frozen(kw_only=True)
class NetworkModel:
    """What happens to a message between controller, replicas and routers.

    News that must not be lost (an end of a replica or of a node, the newest world size) is sent again every `retry_s`
    until it has got there; of everything else each message may be lost, and the core repeats what it needs.

    Attributes:
        latency_s: How long a message takes.
        loss: Share of messages that do not arrive.
        duplication: Share of messages that arrive twice, the second time with a latency of its own.
        reorder: Share of messages that take `reorder_s` longer, so that later ones overtake them.
        reorder_s: How much longer these take.
        retry_s: How long until news that must not be lost is sent again.
        lease_s: A node that the controller cannot reach for so long stops its replicas and counts as lost.
    """

    latency_s: Distribution = DEFAULT_LATENCY
    loss: float = attrs.field(default=0.0, validator=number(least=0.0, most=0.99))
    duplication: float = attrs.field(default=0.0, validator=number(least=0.0, most=1.0))
    reorder: float = attrs.field(default=0.0, validator=number(least=0.0, most=1.0))
    reorder_s: Distribution = DEFAULT_REORDER
    retry_s: float = attrs.field(default=1.0, validator=number(least=PERIOD_MIN_S))
    lease_s: float = attrs.field(default=30.0, validator=number(above=0.0))


def megabytes(gigabytes: float) -> int:
    """In whole megabytes, so that what is taken and given back adds up exactly."""
    return round(gigabytes * 1000)
