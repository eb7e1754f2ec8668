"""What `rankcore run` and `rankcore status` show: deployments, who has which rank where, and where weights are."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from executors.ray_gpu.overview import CordonedNode, DeploymentInfo, NodeMemoryStatus, ReplicaStatus, Status, WorkerStatus

COLOURS = {
    "HEALTHY": "green",
    "RUNNING": "green",
    "DEPLOY_FAILED": "bold red",
    "UNHEALTHY": "red",
    "DRAINING": "yellow",
    "DELETING": "yellow",
    "HOT": "green",
    "WARM": "yellow",
    "COLD": "blue",
}
UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
ROWS_MAX = 40
NODE_ID_SHOWN = 8
NODE_ID = re.compile(rf"\b([0-9a-f]{{{NODE_ID_SHOWN}}})[0-9a-f]{{48}}\b")
"""As Ray names nodes."""
IS_OF_RAY = re.compile(r"[0-9a-f]{16,}").fullmatch
SECONDS = re.compile(r"[0-9.]+( of [0-9.]+)? s\b")
TRACEBACK = "Traceback (most recent call last):"


def view(status: "Status") -> RenderableType:
    """Everything in a namespace."""
    head = f"namespace {status.namespace}, controller epoch {status.epoch}, pid {status.controller_pid}"
    head += f", revision {status.revision}" if status.revision else ""
    parts: list[RenderableType] = [Text(head, style="dim")]
    if status.journal is not None:
        parts.append(Text(f"journal {status.journal}", style="dim"))
    if status.journal_problem is not None:
        parts.append(Text(f"journal {status.journal_problem}", style="red"))
    if not status.deployments and not status.left_alone:
        parts.append(Text("nothing is deployed"))
    for application in status.applications.values():
        for info in application.deployments.values():
            parts += [_title(info), *_waiting(info), *_weights(info)]
            if info.replicas or not info.has_residency:
                parts.append(_table(info))
            if info.message:
                parts.append(Text(_short(info.message), style="red"))
    parts += [Text(each, style="dim") for each in outside(status)]
    for name, why in sorted(status.left_alone.items()):
        parts.append(Text(f"{name}  LEFT ALONE, its replicas go on: {why}", style="red"))
    for node in status.cordons:
        first, *others = lines_of_node(node)
        parts += [Text(first, style="yellow"), *(Text(each, style="dim") for each in others)]
    if status.memory:
        parts += [Text("memory for weights that may be COLD", style="dim"), _memory(status.memory)]
    return Group(*parts)


def outside(status: "Status") -> Iterator[str]:
    """What requests from outside reach, and where."""
    for prefix, application in sorted(status.routes.items()):
        yield f"route {prefix} -> {application}"
    for proxy in status.proxy_infos:
        also = f", gRPC {proxy.grpc_port}" if proxy.grpc_port is not None else ""
        stands = f"pid {proxy.pid}" if proxy.pid is not None else proxy.problem or "it is on its way"
        yield f"proxy {proxy.host}:{proxy.port}{also} on node {proxy.node_id[:NODE_ID_SHOWN]}, {stands}"


def without_times(line: str) -> str:
    """The same without how long something has lasted, which is no news."""
    return SECONDS.sub("", line)


def lasting(seconds: float) -> str:
    """A time for people: 45 s, 12 min, 3 h, 2 d."""
    for unit_s, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"


def summary(info: "DeploymentInfo") -> str:
    """One deployment in one line, for where there is no terminal."""
    running = sum(1 for each in info.replicas if each.state == "RUNNING")
    ranks = ", ".join(f"{rank}: {replica_id}" for rank, replica_id in info.ranks.items()) or "none yet"
    problem = f"; {_problem(info.message)}" if info.message else ""
    weights = f", weights {_levels(info)}" if info.has_residency else ""
    rollout = f", {_short(info.rollout)}" if info.rollout else ""
    return f"{info.name} {info.status}, {running} of {info.world_size} running{rollout}, ranks {ranks}{weights}{problem}"


def shown_of(node: "CordonedNode") -> str:
    """What a node is called in a table, and may be in a command: of Ray's ids the beginning."""
    return node.node_id[:NODE_ID_SHOWN] if IS_OF_RAY(node.node_id) else node.node_id


def lines_of_node(node: "CordonedNode") -> list[str]:
    """A node that is cordoned, drained or open, and what becomes of each replica there, in a line each."""
    by = ""
    if node.left_s == 0.0:
        by = ", its deadline is over"
    elif node.left_s is not None:
        at = (datetime.now() + timedelta(seconds=node.left_s)).strftime("%H:%M:%S")
        by = f" by {at}, in {node.left_s:.0f} s"
    is_said = {
        "open": "is open: new replicas may come",
        "cordoned": "is cordoned: no new replica comes there",
        "draining": f"is to be left{by}: {node.reason}",
    }
    there = f"{len(node.replicas) or 'no'} {'replica' if len(node.replicas) == 1 else 'replicas'} there"
    there += "; it is the head of the cluster, which stays" if node.is_head and node.state == "draining" else ""
    address = f" ({node.address})" if node.address else ""
    lines = [f"node {shown_of(node)}{address} {is_said[node.state]}; {there}"]
    for each in node.replicas[:ROWS_MAX]:
        lines.append(f"  {each.replica_id}, {'no rank' if each.rank is None else f'rank {each.rank}'}: {each.what}")
    if len(node.replicas) > ROWS_MAX:
        lines.append(f"  ... and {len(node.replicas) - ROWS_MAX} more")
    return lines


def line(info: "DeploymentInfo") -> str:
    """How one deployment stands, for who watches it."""
    problem = f"; {_problem(info.message)}" if info.message else ""
    stands = _short(info.rollout) or f"{info.world_size} of {info.world_size} available"
    return f"{info.name}  {info.status}  {stands}{problem}"


def _short(text: str) -> str:
    """With the ids of nodes as tables show them."""
    return NODE_ID.sub(r"\1", text)


def _problem(message: str) -> str:
    """What is wrong, in a line: of a traceback the error that ends it."""
    first, *others = _short(message).splitlines()
    if not first.endswith(TRACEBACK):
        return first
    error = next((each for each in others if each and not each.startswith(" ")), "")
    return f"{first.removesuffix(TRACEBACK)}{error}"


def _levels(info: "DeploymentInfo") -> str:
    """Where its weights are, in words: HOT, WARM, LOADING 40 %; on disk alone they are COLD."""
    found = Counter(_state(each) for each in info.workers)
    return ", ".join(f"{count} {state}" for state, count in sorted(found.items())) or "COLD"


def _state(worker: "WorkerStatus") -> str:
    if worker.percent is not None:
        return f"LOADING {worker.percent} %"
    return worker.level if worker.phase in ("resting", "serving") else f"{worker.level}, {worker.phase}"


def _waiting(info: "DeploymentInfo") -> list[RenderableType]:
    if not info.waiting:
        return []
    waits = "1 call waits" if info.waiting == 1 else f"{info.waiting} calls wait"
    return [Text(f"{waits}: {info.standing or 'QUEUED'}", style="yellow")]


def _weights(info: "DeploymentInfo") -> list[RenderableType]:
    """Whether calls are refused, and where its weights are."""
    if not info.has_residency:
        return []
    parts: list[RenderableType] = []
    if not info.waiting and info.standing is not None and info.standing.state == "UNAVAILABLE":
        parts.append(Text(f"calls are refused: {info.standing.because}", style="red"))
    if not info.workers:
        return [*parts, Text("weights COLD: on disk until a call asks for them", style=COLOURS["COLD"])]
    table = Table("weights", "node", "on GPUs", "in memory", "replica", "why", box=None, padding=(0, 2, 0, 0))
    for worker in info.workers[:ROWS_MAX]:
        gpus = ", ".join(f"{gpu}: {size(taken)}" for gpu, taken in zip(worker.gpus, worker.gpu_bytes, strict=False))
        table.add_row(
            Text(_state(worker), style=COLOURS.get(worker.level, "")),
            (worker.node_id or "-")[:NODE_ID_SHOWN],
            gpus or "-",
            size(worker.cpu_bytes) if worker.cpu_bytes else "-",
            worker.replica_id or "-",
            Text(worker.because, style="dim"),
        )
    if len(info.workers) > ROWS_MAX:
        table.add_row(f"... and {len(info.workers) - ROWS_MAX} more")
    return [*parts, table]


def _memory(nodes: "tuple[NodeMemoryStatus, ...]") -> Table:
    table = Table("node", "GPUs, free of all", "memory for copies, free of all", box=None, padding=(0, 2, 0, 0))
    for node in nodes:
        gpus = ", ".join(f"{size(free)} of {size(capacity)}" for capacity, free in node.gpus) or "none"
        table.add_row(node.node_id[:NODE_ID_SHOWN], gpus, f"{size(node.cpu_free_bytes)} of {size(node.cpu_bytes)}")
    return table


def size(amount_bytes: int) -> str:
    """Bytes for people: 1.5 GB."""
    for unit, name in UNITS:
        if amount_bytes >= unit:
            return f"{amount_bytes / unit:.3g} {name}"
    return f"{amount_bytes} bytes"


def _title(info: "DeploymentInfo") -> Text:
    title = Text(f"{info.name}  ", style="bold")
    title.append(str(info.status), style=COLOURS.get(str(info.status), "cyan"))
    if info.status != "HEALTHY":
        title.append(f" for {lasting(info.status_for_s)}", style="dim")
    spares = f", {info.spares} spare" if info.spares else ""
    title.append(f"  world size {info.world_size}, version {info.version}{spares}", style="dim")
    if info.rollout:
        title.append(f"  {_short(info.rollout)}", style="yellow")
    return title


def _table(info: "DeploymentInfo") -> Table:
    table = Table("rank", "node rank", "local rank", "state", "replica", "node", "pid", "", box=None, padding=(0, 2, 0, 0))
    for replica in info.replicas[:ROWS_MAX]:
        table.add_row(*_cells(replica))
    if len(info.replicas) > ROWS_MAX:
        table.add_row("", "", "", f"... and {len(info.replicas) - ROWS_MAX} more")
    return table


def _cells(replica: "ReplicaStatus") -> tuple[Text, ...]:
    rank = replica.rank
    numbers = ("-", "-", "-") if rank is None else (str(rank.rank), str(rank.node_rank), str(rank.local_rank))
    return (
        *(Text(number) for number in numbers),
        Text(str(replica.state), style=COLOURS.get(str(replica.state), "cyan")),
        Text(replica.replica_id),
        Text((replica.node_id or "-")[:NODE_ID_SHOWN]),
        Text(str(replica.pid or "-")),
        Text(replica.message, style="dim"),
    )
