"""What `rankcore where` shows: the memory of nodes, and where each model's replicas are."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from executors.ray_gpu.residency import FleetStanding, ModelStanding, ReplicaStanding

COLOURS = {"HOT": "green", "WARM": "yellow", "COLD": "blue"}
NODE_ID_SHOWN = 8
UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def view(standing: "FleetStanding") -> RenderableType:
    """A whole fleet."""
    nodes = Table("node", "GPUs, free of bytes", "memory for copies", box=None, padding=(0, 2, 0, 0))
    for node in standing.nodes:
        gpus = ", ".join(f"{size(free)} of {size(capacity)}" for capacity, free in node.gpus) or "none"
        nodes.add_row(node.node_id[:NODE_ID_SHOWN], gpus, f"{size(node.cpu_free_bytes)} of {size(node.cpu_bytes)}")
    models = Table("model", "wanted", "replica", "level", "rank", "where", "", "why", box=None, padding=(0, 2, 0, 0))
    for model in standing.models:
        for replica in model.replicas:
            models.add_row(model.model, str(model.target), *_cells(replica))
        if not model.replicas:
            models.add_row(model.model, str(model.target), "", "", "", "", "", model.waits_for)
    return Group(nodes, Text(), models if standing.models else Text("no model is deployed"))


def view_of_model(model: "ModelStanding") -> RenderableType:
    """One model, with the history of its replicas."""
    parts: list[RenderableType] = [Text(f"{model.model}  wanted HOT: {model.target}", style="bold")]
    if model.waiting:
        parts.append(Text(f"{model.waiting} requests wait; {model.waits_for}", style="yellow"))
    for replica in model.replicas:
        name, level, rank, place, phase, why = _cells(replica)
        parts.append(Text.assemble(f"{name}  ", level, f"  rank {rank}" if rank else "", f"  {place}  {phase}"))
        parts.append(Text(f"  why: {why}"))
        parts += [Text(f"  displaced {each}") for each in replica.displaced]
        parts += [Text(f"  {each}", style="dim") for each in replica.history]
    return Group(*parts)


def _cells(replica: "ReplicaStanding") -> tuple[str, Text, str, str, str, str]:
    node = replica.node_id[:NODE_ID_SHOWN] if replica.node_id is not None else "disk"
    gpus = ", ".join(f"GPU {gpu}: {size(taken)}" for gpu, taken in zip(replica.gpus, replica.gpu_bytes, strict=False))
    place = " ".join(each for each in (node, gpus) if each)
    phase = replica.phase if replica.percent is None else f"{replica.phase} {replica.percent} %"
    level = Text(replica.level, style=COLOURS.get(replica.level, ""))
    rank = "" if replica.rank is None else str(replica.rank)
    return replica.replica_id, level, rank, place, phase, replica.because


def size(amount_bytes: int) -> str:
    """Bytes for people: 1.5 GB."""
    for unit, name in UNITS:
        if amount_bytes >= unit:
            return f"{amount_bytes / unit:.3g} {name}"
    return f"{amount_bytes} bytes"
