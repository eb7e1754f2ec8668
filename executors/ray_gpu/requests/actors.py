"""Actors by their names, in the cluster that this process was connected to, and in no other.

Ray starts a cluster for whoever asks while there is none: a router that outlives its cluster by a moment must not ask.
"""

import asyncio
from collections.abc import Collection
from typing import Any

import ray

from executors.ray_gpu.errors import NotRunningError


def connection() -> Any:
    """What stands for this process's connection to Ray; None: it has none."""
    return getattr(ray._private.worker.global_worker, "core_worker", None) if ray.is_initialized() else None


async def find_actor(name: str, namespace: str, cluster: Any) -> Any:
    """The handle of an actor.

    Args:
        cluster: The connection that it is asked of, as `connection` said.

    Raises:
        NotRunningError: That is not this process's connection any more.
        ValueError: There is no such actor.
    """
    return await asyncio.to_thread(_find, name, namespace, cluster)


def _find(name: str, namespace: str, cluster: Any) -> Any:
    if cluster is None or connection() is not cluster:
        raise NotRunningError("Ray was shut down")
    return ray.get_actor(name, namespace=namespace)


def worker_id() -> str:
    """What Ray calls this process; "": it is not connected."""
    connected = connection()
    return connected.get_worker_id().hex() if connected is not None else ""


def dead_among(worker_ids: Collection[str]) -> set[str]:
    """Of these processes those that Ray knows to have ended, or to be on a node that has. Blocks for some round trips.

    Ray learns of the end of a process from the raylet beside it, to which it holds a connection, or from the end of that; it
    took 50 ms after a SIGKILL. A process that Ray does not know (any more) may be alive.
    """
    from ray._raylet import WorkerID
    from ray.core.generated.gcs_pb2 import WorkerTableData

    store = ray._private.state.state._connect_and_get_accessor()
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    found = {each: store.get_worker_info(WorkerID(bytes.fromhex(each))) for each in worker_ids}
    known = {each: WorkerTableData.FromString(data) for each, data in found.items() if data is not None}
    return {each for each, data in known.items() if not data.is_alive or data.worker_address.node_id.hex() not in alive}
