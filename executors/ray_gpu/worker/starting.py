"""Starts the actor of a worker on its node."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu import names
from executors.ray_gpu.worker.options import environment_of

if TYPE_CHECKING:
    from executors.ray_gpu.worker.places import Places

AT_A_TIME = 1_000_000
"""Calls from other nodes are actor calls, and must not keep the controller's own from the worker, which Ray would queue."""


def start_worker(
    namespace: str,
    deployment: str,
    worker_id: str,
    version: str,
    epoch: int,
    weights: str,
    expected: str | None,
    places: "Places",
    actor_options: Mapping[str, Any],
) -> Any:
    """The actor; Ray raises where there is one of that name. For the arguments see `WorkerActor`.

    Args:
        actor_options: The deployment's, for Ray; GPUs are none of them.
    """
    from executors.ray_gpu.worker.actor import WorkerActor  # with torch, which a controller without such deployments needs not

    options = {"num_cpus": 0, **actor_options}
    options["runtime_env"] = environment_of(places.options, options.pop("runtime_env", None) or {})
    actor_class: Any = ray.remote(WorkerActor)
    return actor_class.options(
        name=names.worker_name(worker_id),
        namespace=namespace,
        lifetime="detached",
        max_restarts=0,
        max_concurrency=AT_A_TIME,
        scheduling_strategy=NodeAffinitySchedulingStrategy(places.node_id, soft=False),
        **options,
    ).remote(namespace, deployment, worker_id, version, epoch, weights, expected, places)
