"""The GPU nodes of a residency scenario, and what it takes to move weights between disk, CPU and GPU."""

from collections.abc import Mapping
from typing import Any

import attrs

from executors.simulator.fields import PERIOD_MIN_S, FieldProblem, integer, name, number, optional
from executors.simulator.load.distributions import Constant, Distribution
from executors.simulator.scenario.hardware import DEFAULT_LATENCY, NODES_MAX
from executors.simulator.scenario.residency.models import GB, MODEL_GB_MAX, check_labels

GPU_GB_MAX = 1e5
GB_PER_S = number(above=0.0, most=1e6)
DEFAULT_COLD_START = Constant(value=5.0)
DEFAULT_WARM_START = Constant(value=0.5)


@attrs.frozen(kw_only=True)
class GpuNodes:
    """Some equal nodes: `<name>-0`, `<name>-1`, ...; a group of one is called `<name>` unless `count` is given.

    Attributes:
        name: Of the group; names of nodes begin with it.
        count: How many nodes; None: one, called as the group is.
        gpus: GPUs of each node.
        gpu_gb: Memory of each GPU, as the node says it.
        really_gpu_gb: What is found when it is full, on a node that says too much; None: it says the truth.
        cpu_cache_gb: CPU memory in which weights that left the GPU may be kept.
        labels: For models that want nodes with these.
    """

    name: str = attrs.field(validator=name)
    count: int | None = attrs.field(default=None, validator=optional(integer(1, NODES_MAX)))
    gpus: int = attrs.field(validator=integer(1, 1024))
    gpu_gb: float = attrs.field(validator=number(above=0.0, most=GPU_GB_MAX))
    really_gpu_gb: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=GPU_GB_MAX)))
    cpu_cache_gb: float = attrs.field(default=0.0, validator=number(least=0.0, most=MODEL_GB_MAX))
    labels: Mapping[str, Any] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        check_labels(("labels",), self.labels)
        if self.really_gpu_gb is not None and self.really_gpu_gb > self.gpu_gb:
            raise FieldProblem(("really_gpu_gb",), self.really_gpu_gb, f"at most gpu_gb, which is {self.gpu_gb:g}")


@attrs.frozen(kw_only=True)
class NodeList:
    """Nodes of a CSV file that has a row for each, such as the Alibaba GPU node list.

    Attributes:
        file: Relative to the scenario file.
        take: How many nodes of which type: the first ones of the list.
        gpu_gb: Memory of one GPU of each type, which such lists do not have.
        cpu_cache_share: How much of a node's main memory may keep weights that left the GPU.
        name_column: Names of nodes.
        type_column: Type of the GPUs.
        gpus_column: How many GPUs.
        memory_mib_column: Main memory, in MiB.
    """

    file: str = attrs.field(validator=name)
    take: Mapping[str, Any] = attrs.field()
    gpu_gb: Mapping[str, Any] = attrs.field()
    cpu_cache_share: float = attrs.field(default=0.5, validator=number(least=0.0, most=1.0))
    name_column: str = attrs.field(default="sn", validator=name)
    type_column: str = attrs.field(default="model", validator=name)
    gpus_column: str = attrs.field(default="gpu", validator=name)
    memory_mib_column: str = attrs.field(default="memory_mib", validator=name)

    def __attrs_post_init__(self) -> None:
        _check_table(("take",), self.take, integer(1, NODES_MAX))
        _check_table(("gpu_gb",), self.gpu_gb, number(above=0.0, most=GPU_GB_MAX))
        for kind in self.take:
            if kind not in self.gpu_gb:
                raise FieldProblem(("gpu_gb",), self.gpu_gb, f"the memory of a GPU of type {kind} too, in GB: {kind}: 32")


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
class ModelNetwork:
    """The way between the controller and each node: lasting connections, on which nothing overtakes what was sent before it.

    Attributes:
        latency_s: How long a command or news takes.
        loss: Share of tries that do not arrive; each is made again.
        retry_s: How long until then.
    """

    latency_s: Distribution = DEFAULT_LATENCY
    loss: float = attrs.field(default=0.0, validator=number(least=0.0, most=0.99))
    retry_s: float = attrs.field(default=1.0, validator=number(least=PERIOD_MIN_S))


@attrs.frozen(kw_only=True)
class NodeShape:
    """One node, in bytes.

    Attributes:
        gpu_bytes: Of each GPU, as the node says it.
        really_gpu_bytes: Of each, as it is.
    """

    node_id: str
    kind: str
    gpu_bytes: tuple[int, ...]
    really_gpu_bytes: tuple[int, ...]
    cpu_bytes: int
    labels: Mapping[str, str] = attrs.Factory(dict)


def shapes_of(groups: tuple[GpuNodes, ...]) -> tuple[NodeShape, ...]:
    """The nodes of groups that are written out."""
    return tuple(_shape(group, node_id) for group in groups for node_id in _names(group))


def _names(group: GpuNodes) -> tuple[str, ...]:
    return (group.name,) if group.count is None else tuple(f"{group.name}-{index}" for index in range(group.count))


def _shape(group: GpuNodes, node_id: str) -> NodeShape:
    really_gb = group.gpu_gb if group.really_gpu_gb is None else group.really_gpu_gb
    return NodeShape(
        node_id=node_id,
        kind=group.name,
        gpu_bytes=(round(group.gpu_gb * GB),) * group.gpus,
        really_gpu_bytes=(round(really_gb * GB),) * group.gpus,
        cpu_bytes=round(group.cpu_cache_gb * GB),
        labels=dict(group.labels),
    )


def _check_table(keys: tuple[str, ...], table: object, check: Any) -> None:
    if not isinstance(table, Mapping) or not table:
        raise FieldProblem(keys, table, "a mapping of types of GPUs to numbers, such as {V100M32: 4}")
    for kind, value in table.items():
        if not isinstance(kind, str):
            raise FieldProblem(keys, kind, "a type of GPUs, in quotes where it looks like a number")
        if not check.accepts(value):
            raise FieldProblem((*keys, kind), value, check.allowed)
