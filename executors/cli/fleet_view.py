"""What `rankcore where` shows: the memory of nodes, and where each model's replicas are."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from executors.ray_gpu.residency import FleetStanding, ModelStanding, ReplicaStanding

COLOURS = {"HOT": "green", "WARM": "yellow", "COLD": "blue"}
NODE_ID_SHOWN = 8
UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
NO_NODE = "no node is known yet: their memory is being measured"


def view(standing: "FleetStanding") -> RenderableType:
    """A whole fleet."""
    nodes = Table("node", "GPUs, free of all", "memory for copies, free of all", box=None, padding=(0, 2, 0, 0))
    for node in standing.nodes:
        gpus = ", ".join(f"{size(free)} of {size(capacity)}" for capacity, free in node.gpus) or "none"
        nodes.add_row(node.node_id[:NODE_ID_SHOWN], gpus, f"{size(node.cpu_free_bytes)} of {size(node.cpu_bytes)}")
    models = Table("model", "wanted", "replica", "level", "rank", "where", "", "why", box=None, padding=(0, 2, 0, 0))
    for model in standing.models:
        for cells in _rows(model):
            models.add_row(model.model, str(model.target), *cells)
    known: RenderableType = nodes if standing.nodes else Text(NO_NODE, style="yellow")
    return Group(known, Text(), models if standing.models else Text("no model is deployed"))


def _rows(model: "ModelStanding") -> Iterator[tuple[str | Text, ...]]:
    """A row for each replica, but one for all that are on disk and not wanted: there they are all the same."""
    on_disk = [each for each in model.replicas if _is_unused(each)]
    for replica in in_order(model.replicas):
        if len(on_disk) < 2 or not _is_unused(replica):
            yield _cells(replica)
    if len(on_disk) > 1:
        yield f"{len(on_disk)} of them", Text("COLD", style=COLOURS["COLD"]), "", "disk", "resting", ""
    if not model.replicas:
        yield "", "", "", "", "", model.waits_for


def _is_unused(replica: "ReplicaStanding") -> bool:
    return (replica.level, replica.phase) == ("COLD", "resting")


def in_order(replicas: "tuple[ReplicaStanding, ...]") -> "list[ReplicaStanding]":
    """The oldest first: ids end with a number, and #10 comes after #9."""
    return sorted(replicas, key=lambda each: (len(each.replica_id), each.replica_id))


def view_of_model(model: "ModelStanding") -> RenderableType:
    """One model, with the history of its replicas."""
    parts = [Text(f"{model.model}  wanted HOT: {model.target}", style="bold")]
    if model.waiting:
        parts.append(Text(f"{model.waiting} requests wait; {model.waits_for}", style="yellow"))
    for replica in in_order(model.replicas):
        name, level, rank, place, phase, why = _cells(replica)
        parts.append(Text.assemble(f"{name}  ", level, f"  rank {rank}" if rank else "", f"  {place}  {phase}"))
        parts.append(Text(f"  why: {why}"))
        parts += [Text(f"  displaced {each}") for each in replica.displaced]
        parts += [Text(f"  {each}", style="dim") for each in replica.history]
    if any(replica.displaced or replica.history for replica in model.replicas):
        parts.append(Text("times are seconds since the fleet was started", style="dim"))
    return Text("\n").join(parts)


def line_of(model: "ModelStanding", *, nodes: int) -> str:
    """How it stands, in one line: what a command has brought about so far.

    Args:
        nodes: How many are known.
    """
    wanted = f"{model.target} wanted HOT" if model.target else "none wanted HOT"
    states = Counter(_state(replica) for replica in model.replicas)
    now = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "on disk (COLD) until asked for"
    line = f"{model.model}: {wanted}; {now}"
    reasons = [each.because for each in in_order(model.replicas) if each.phase == "waiting"]
    if not reasons:
        return line
    return f"{line}: {reasons[0] if nodes else NO_NODE}"


def _state(replica: "ReplicaStanding") -> str:
    if replica.phase == "resting":
        return "in memory (WARM)" if replica.level == "WARM" else "on disk (COLD)"
    return "serving (HOT)" if replica.phase == "serving" else replica.phase


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
