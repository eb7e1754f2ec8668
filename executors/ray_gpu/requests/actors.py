"""Actors by their names, in the cluster that this process was connected to, and in no other.

Ray starts a cluster for whoever asks while there is none: a router that outlives its cluster by a moment must not ask.
"""

import asyncio
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
