"""GPU nodes out of a list of real ones, and what each node of a scenario has for weights."""

from collections.abc import Mapping
from typing import Any

import attrs

from executors.simulator.fields import FieldProblem, integer, name, number
from executors.simulator.scenario.hardware import GPU_GB_MAX, NODES_MAX, NodeGroup
from executors.simulator.scenario.weights import GB


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


def shapes_of(groups: tuple[NodeGroup, ...]) -> tuple[NodeShape, ...]:
    """The nodes of groups that are written out."""
    return tuple(_shape(group, node_id) for group in groups for node_id in group.node_ids)


def _shape(group: NodeGroup, node_id: str) -> NodeShape:
    gpu_gb = group.gpu_gb or 0.0
    really_gb = gpu_gb if group.really_gpu_gb is None else group.really_gpu_gb
    gpus = group.gpus if gpu_gb else 0
    return NodeShape(
        node_id=node_id,
        kind=group.name,
        gpu_bytes=(round(gpu_gb * GB),) * gpus,
        really_gpu_bytes=(round(really_gb * GB),) * gpus,
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
