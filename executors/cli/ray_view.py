"""What `rankcore run` and `rankcore status` show: deployments, and who has which rank where."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus, Status

COLOURS = {
    "HEALTHY": "green",
    "RUNNING": "green",
    "DEPLOY_FAILED": "bold red",
    "UNHEALTHY": "red",
    "DRAINING": "yellow",
    "DELETING": "yellow",
}
ROWS_MAX = 40
NODE_ID_SHOWN = 8


def view(status: "Status") -> RenderableType:
    """Everything in a namespace."""
    head = f"namespace {status.namespace}, controller epoch {status.epoch}, pid {status.controller_pid}"
    parts: list[RenderableType] = [Text(head, style="dim")]
    if status.journal is not None:
        parts.append(Text(f"journal {status.journal}", style="dim"))
    if not status.deployments and not status.left_alone:
        parts.append(Text("nothing is deployed"))
    for application in status.applications.values():
        for info in application.deployments.values():
            parts += [_title(info), _table(info)]
            if info.message:
                parts.append(Text(info.message, style="red"))
    for name, why in sorted(status.left_alone.items()):
        parts.append(Text(f"{name}  LEFT ALONE, its replicas go on: {why}", style="red"))
    return Group(*parts)


def summary(info: "DeploymentInfo") -> str:
    """One deployment in one line, for where there is no terminal."""
    running = sum(1 for each in info.replicas if each.state == "RUNNING")
    ranks = ", ".join(f"{rank}: {replica_id}" for rank, replica_id in info.ranks.items()) or "none yet"
    problem = f"; {info.message.splitlines()[0]}" if info.message else ""
    return f"{info.name} {info.status}, {running} of {info.world_size} running, ranks {ranks}{problem}"


def _title(info: "DeploymentInfo") -> Text:
    title = Text(f"{info.name}  ", style="bold")
    title.append(str(info.status), style=COLOURS.get(str(info.status), "cyan"))
    spares = f", {info.spares} spare" if info.spares else ""
    title.append(f"  world size {info.world_size}, version {info.version}{spares}", style="dim")
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
