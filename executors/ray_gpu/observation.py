"""What replicas say about themselves, asked directly and not through the controller: for tests, and for the curious."""

import time

import ray
from ray.exceptions import GetTimeoutError, RayError

from executors.deployment_ids import meant_by
from executors.ray_gpu import connection, names
from executors.ray_gpu.discovery import find_replicas
from executors.ray_gpu.errors import UnknownNameError, not_one
from executors.ray_gpu.messages import Report


def observe(deployment: str, *, namespace: str | None = None, timeout_s: float = 5.0) -> tuple[Report, ...]:
    """Ask every replica of a deployment what it believes, whatever the controller does.

    Args:
        deployment: Its id; the bare name will do where it is that of one only.
        timeout_s: For all answers together; who has not answered by then is left out, like one that is not up.

    Returns:
        A report each, in the order of their ids.

    Raises:
        NotRunningError: Ray cannot be reached.
        UnknownNameError: Several deployments have the name.
    """
    connection.connect(start=False)
    namespace = namespace or connection.default_namespace()
    asked = []
    there_are = find_replicas(namespace)
    found = meant_by(deployment, there_are)
    if len(found) > 1:
        raise UnknownNameError(not_one("deployment", deployment, found, there_are))
    for replica_id in [each for name in found for each in there_are[name]]:
        try:
            actor = ray.get_actor(names.actor_name(found[0], replica_id), namespace=namespace)
        except ValueError:
            continue  # it has ended since
        asked.append(actor.beliefs.remote())
    deadline = time.monotonic() + timeout_s
    reports: list[Report] = []
    for answer in asked:
        try:
            reports.append(ray.get(answer, timeout=max(0.01, deadline - time.monotonic())))
        except (GetTimeoutError, RayError):
            continue
    return tuple(reports)
