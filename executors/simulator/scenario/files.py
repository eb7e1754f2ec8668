"""What stands in the files that a scenario with residency names: sizes of weights, and lists of nodes."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from executors.simulator.fields import FieldProblem, FileProblem, Missing, shown
from executors.simulator.load.csvfile import TraceError, number_of, read_cells, refuse
from executors.simulator.scenario.entries import entries_of
from executors.simulator.scenario.gpu_nodes import NodeList, NodeShape, shapes_of
from executors.simulator.scenario.hardware import NODES_MAX
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.weights import GB, WEIGHT_GB_MAX, ScenarioResidency, Size, WeightSizes

MIB = 2**20
NAMES_MAX = 10_000
KV_BYTES_MAX = 1e12


@attrs.frozen
class SizesRow:
    """A row of a file: its weights in GB, and bytes per token of its KV cache; None: the file does not say."""

    weight_gb: float
    kv_cache_bytes: float | None


def with_files(scenario: Scenario, folder: Path) -> Scenario:
    """The same scenario with what its files say read into it, and all of it checked; files are relative to `folder`.

    Raises:
        FieldProblem: With the key path.
    """
    if not scenario.needs_files:
        return scenario
    listed = {} if scenario.weight_sizes is None else _read(("weight_sizes", "file"), scenario.weight_sizes, folder)
    shapes = shapes_of(scenario.nodes)
    if not scenario.nodes and scenario.node_list is None:
        raise FieldProblem(("nodes",), [], "at least one group of nodes, or node_list")
    if scenario.node_list is not None:
        shapes += _take(scenario.node_list, folder)
    sizes = {
        each.spec.name: _size(("deployments", index, "residency"), each.spec.name, each.residency, listed)
        for index, each in enumerate(scenario.deployments)
        if each.residency is not None
    }
    found = attrs.evolve(scenario, shapes=shapes, sizes=sizes)
    entries_of(found)
    return found


def listed_names(sizes: WeightSizes, folder: Path) -> list[str]:
    """Who has a size in a file, in its order.

    Raises:
        FieldProblem: The file cannot be used.
    """
    return list(_read(("weight_sizes", "file"), sizes, folder))


def read_sizes(sizes: WeightSizes, folder: Path) -> dict[str, SizesRow]:
    """The sizes of a file, in its order.

    Raises:
        TraceError: With the file and the line.
    """
    path, found = folder / sizes.file, dict[str, SizesRow]()
    kv_column = [] if sizes.kv_cache_column is None else [sizes.kv_cache_column]
    for line, (name, weight_text, *kv_text) in read_cells(path, [sizes.name_column, sizes.weight_gb_column, *kv_column]):
        weight_gb = number_of(path, line, sizes.weight_gb_column, weight_text, 1 / GB, WEIGHT_GB_MAX)
        kv = number_of(path, line, kv_column[0], kv_text[0], 0.0, KV_BYTES_MAX) if kv_text else None
        if name in found:
            refuse(path, line, f"{sizes.name_column}: expected each name once, found {shown(name)} again")
        found[name] = SizesRow(weight_gb, kv)
        if len(found) > NAMES_MAX:
            refuse(path, line, f"expected at most {NAMES_MAX} deployments, found more")
    return found


def read_nodes(nodes: NodeList, folder: Path) -> tuple[NodeShape, ...]:
    """As many of each type as are to be taken, in the order of the list.

    Raises:
        TraceError: With the file and the line.
    """
    path, left = folder / nodes.file, dict(nodes.take)
    columns = (nodes.name_column, nodes.type_column, nodes.gpus_column, nodes.memory_mib_column)
    found: list[NodeShape] = []
    for line, (node_id, kind, gpus_text, memory_text) in read_cells(path, columns):
        if left.get(kind, 0) > 0:
            gpus = round(number_of(path, line, nodes.gpus_column, gpus_text, 1, 1024))
            memory_mib = number_of(path, line, nodes.memory_mib_column, memory_text, 0.0, 1e12)
            gpu_bytes = (round(nodes.gpu_gb[kind] * GB),) * gpus
            cpu_bytes = min(round(memory_mib * MIB * nodes.cpu_cache_share), round(WEIGHT_GB_MAX * GB))
            found.append(
                NodeShape(node_id=node_id, kind=kind, gpu_bytes=gpu_bytes, really_gpu_bytes=gpu_bytes, cpu_bytes=cpu_bytes)
            )
            left[kind] -= 1
        if len(found) > NODES_MAX:
            refuse(path, line, f"expected at most {NODES_MAX} nodes, found more")
    for kind, missing in left.items():
        if missing:
            there = nodes.take[kind] - missing
            raise TraceError(f"{path}: expected {nodes.take[kind]} nodes of type {shown(kind)}, found {there}: take fewer")
    return tuple(found)


def _read(keys: tuple[str, ...], sizes: WeightSizes, folder: Path) -> dict[str, SizesRow]:
    try:
        return read_sizes(sizes, folder)
    except TraceError as error:
        raise FileProblem(keys, sizes.file, str(error)) from None


def _take(nodes: NodeList, folder: Path) -> tuple[NodeShape, ...]:
    try:
        return read_nodes(nodes, folder)
    except TraceError as error:
        raise FileProblem(("node_list", "file"), nodes.file, str(error)) from None


def _size(keys: tuple[str | int, ...], name: str, needs: ScenarioResidency, listed: Mapping[str, SizesRow]) -> Size:
    row = listed.get(name.rpartition("/")[2])
    weight_gb = needs.weight_gb if needs.weight_gb is not None else row.weight_gb if row is not None else None
    if weight_gb is None:
        where = "weight_sizes has no such name" if listed else "there is no weight_sizes to look it up in"
        raise FieldProblem((*keys, "weight_gb"), Missing(), f"the size of {shown(name)} in GB, as {where}")
    cache_bytes = 0.0
    if needs.kv_cache_tokens:
        if row is None or row.kv_cache_bytes is None:
            allowed = f"0, as weight_sizes does not say how many bytes a token of {shown(name)} takes; or say working_gb"
            raise FieldProblem((*keys, "kv_cache_tokens"), needs.kv_cache_tokens, allowed)
        cache_bytes = needs.kv_cache_tokens * row.kv_cache_bytes
    working_bytes = round(needs.working_gb * GB + cache_bytes)
    really_gb = needs.really_working_gb
    return Size(
        weight_bytes=round(weight_gb * GB),
        working_bytes=working_bytes,
        really_working_bytes=working_bytes if really_gb is None else round(really_gb * GB),
    )
