"""Which replicas there are in a cluster, whoever started them: found by the names of their actors."""

from collections import defaultdict
from contextlib import suppress
from typing import Any

import ray

from executors.ray_gpu import deployment_actors, names, own_groups, traces
from executors.ray_gpu.checkpoint import Checkpoint
from executors.ray_gpu.reaping import locate
from executors.ray_gpu.worker.gpu_holder import give_all_back
from rankcore.cluster.residency import WorkerId
from rankcore.values import NodeId, ReplicaId


def find_replicas(namespace: str) -> dict[str, list[ReplicaId]]:
    """The replicas that exist, also those that are not up yet, by deployment. Blocks for a round trip."""
    found: dict[str, list[ReplicaId]] = defaultdict(list)
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == namespace:
            replica = names.replica_of(actor["name"])
            if replica is not None:
                found[replica[0]].append(replica[1])
    return {name: sorted(ids) for name, ids in sorted(found.items())}


def find_workers(namespace: str) -> dict[WorkerId, tuple[NodeId, Any]]:
    """The nodes and actors of the workers that exist. Blocks for a round trip for each.

    One that has no process yet is none: it is of a controller that the fence keeps out, and ends when it begins.
    """
    found = {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        worker_id = names.worker_of(actor["name"]) if actor["namespace"] == namespace else None
        if worker_id is not None:
            with suppress(ValueError):  # gone by itself
                handle = ray.get_actor(actor["name"], namespace=namespace)
                if (place := locate(handle)) is not None:
                    found[worker_id] = place[0], handle
    return dict(sorted(found.items()))


def forget_all(namespace: str) -> None:
    """End every replica and forget every deployment, when there is no controller to do it. Blocks for some round trips."""
    checkpoint = Checkpoint(namespace)
    epoch = checkpoint.raise_fence()  # what the last controller was about to create does not come up any more
    for found in checkpoint.records(epoch):
        checkpoint.forget(found.id_on_ray)
        checkpoint.forget_record(found.id_on_ray)
    checkpoint.put_proxies(None)
    checkpoint.forget_memory()
    traces.keep(namespace, None)
    checkpoint.forget_deployed()
    checkpoint.forget_maintenance()
    end_proxies(namespace)
    for _, worker in find_workers(namespace).values():
        ray.kill(worker)
    give_all_back(namespace)
    for name, replica_ids in find_replicas(namespace).items():
        for replica_id in replica_ids:
            kill_replica(namespace, name, replica_id)
    own_groups.sweep(namespace, {})
    deployment_actors.sweep(namespace, {})


def end_proxies(namespace: str) -> None:
    """End the proxies, when there is no controller to do it. Blocks for some round trips."""
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == namespace and actor["name"].startswith(names.proxy_name("")):
            with suppress(ValueError):  # gone by itself
                ray.kill(ray.get_actor(actor["name"], namespace=namespace))


def kill_replica(namespace: str, deployment: str, replica_id: ReplicaId) -> None:
    """End a replica that no deployment wants. Blocks for a round trip."""
    try:
        ray.kill(ray.get_actor(names.actor_name(deployment, replica_id), namespace=namespace))
    except ValueError:
        return  # gone by itself
