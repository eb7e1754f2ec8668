"""What replicas print, read where they run: the files that Ray keeps for each worker process.

A small actor on the replica's node reads them, so that neither a dashboard nor another port is needed. It ends with who asks.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.deployment_ids import meant_by
from executors.log_lines import LogLine, tail
from executors.ray_gpu.errors import NotRunningError, UnknownNameError, not_one
from executors.ray_gpu.inspecting import running_status
from executors.ray_gpu.journal_place import session_folder
from executors.ray_gpu.overview import ReplicaStatus, Status

LOOK_EVERY_S = 0.5
START_S = 60.0
MARKS = (":job_id:", ":actor_name:", ":task_name:")
"""What Ray itself writes between the lines."""


def replica_logs(name: str, *, lines: int = 100, follow: bool = False, namespace: str | None = None) -> Iterator[LogLine]:
    """The last lines that replicas have printed, replica by replica, and then what they print.

    Args:
        name: Of an application, a deployment, a rank of one (`app/deployment#3`) or a replica (`app/deployment#1.0`).
        lines: So many of each file.
        follow: Whether to go on with what comes, for ever; replicas that come later are among it.

    Raises:
        UnknownNameError: Nothing is called so, or several deployments are.
        NotRunningError: Nothing runs, or a node cannot be asked.
    """
    readers: dict[str, Any] = {}
    ends: dict[str, dict[str, int]] = {}
    while True:
        some = False
        for replica in replicas_of(running_status(namespace), name):
            if replica.node_id is None or replica.pid is None:
                continue
            if replica.node_id not in readers:
                readers[replica.node_id] = _reader(replica.node_id)
            begun = ends.get(replica.replica_id)
            found = _asked(readers[replica.node_id], replica.node_id, replica.pid, lines, begun)
            ends[replica.replica_id] = {path: end for path, _, end in found}
            rank = replica.rank.rank if replica.rank is not None else None
            for path, texts, _ in found:
                some = some or bool(texts)
                yield from (LogLine(replica.replica_id, rank, path.rpartition(".")[2], each) for each in texts)
        if not follow:
            return
        if not some:
            time.sleep(LOOK_EVERY_S)


def replicas_of(status: Status, name: str) -> tuple[ReplicaStatus, ...]:
    """Those that a name means.

    Raises:
        UnknownNameError: There are none.
    """
    base, mark, which = name.partition("#")
    found = [each for each, info in status.deployments.items() if info.app_name == base and not mark]
    found = found or meant_by(base, status.deployments)
    if len({status.deployments[each].app_name for each in found}) != 1 or (mark and len(found) != 1):
        raise UnknownNameError(not_one("application or deployment", base, found, status.deployments))
    there = [each for deployment in found for each in status.deployments[deployment].replicas]
    if not mark:
        return tuple(there)
    meant = [
        each
        for each in there
        if each.replica_id.rpartition("#")[2] == which or (each.rank is not None and str(each.rank.rank) == which)
    ]
    if not meant:
        ranks = ", ".join(str(each.rank.rank) for each in there if each.rank is not None)
        raise UnknownNameError(f"{found[0]} has no rank or replica {which!r}; it has ranks {ranks or '(none yet)'}")
    return tuple(meant)


def _reader(node_id: str) -> Any:
    here: Any = ray.remote(num_cpus=0, max_concurrency=1)(LogReader)
    return here.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)).remote()


def _asked(reader: Any, node_id: str, pid: int, lines: int, begun: dict[str, int] | None) -> list[tuple[str, list[str], int]]:
    try:
        found: list[tuple[str, list[str], int]] = ray.get(reader.read.remote(pid, lines, begun), timeout=START_S)
    except (RayError, TimeoutError) as error:
        why = str(error).partition("\n")[0]
        raise NotRunningError(f"node {node_id[:8]} cannot be asked for its files, perhaps since it is drained: {why}") from None
    return found


class LogReader:
    """Reads files of Ray's session on its node."""

    def read(self, pid: int, lines: int, begun: dict[str, int] | None) -> list[tuple[str, list[str], int]]:
        """Whole lines of each file of a process: its name, the lines, and where they end.

        Args:
            lines: The last so many, of files that are new.
            begun: Where the lines ended that were read before; None: none was.
        """
        folder = Path(session_folder()) / "logs"
        found = []
        for path in sorted((*folder.glob(f"worker-*-{pid}.out"), *folder.glob(f"worker-*-{pid}.err"))):
            texts, end = tail(path, lines, (begun or {}).get(path.name))
            found.append((path.name, [each for each in texts if not each.startswith(MARKS)], end))
        return found
