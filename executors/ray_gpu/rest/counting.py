"""What the live page asks of a cluster besides the controller: replicas what they have counted, Ray which nodes there are."""

import asyncio
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from executors.ray_gpu.overview import Status
from executors.ray_gpu.requests.under_way import replica_actors
from executors.ray_gpu.world import NodeInfo, live_nodes

ANSWER_S = 2.0
"""So long all replicas together may take; who takes longer is looked at the next time."""


class CountsOfReplicas:
    """Keeps the handles of the replicas that it has asked before."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}

    async def __call__(self, status: Status) -> dict[str, dict[str, Any]]:
        """What they have counted, by their ids; those that do not answer soon are left out."""
        there = {each: actor_name for _, each, actor_name in replica_actors(status.deployments.values())}
        new = {each: actor_name for each, actor_name in there.items() if each not in self._actors}
        self._actors = {each: actor for each, actor in self._actors.items() if each in there}
        if new:
            self._actors |= await asyncio.to_thread(_found, new, status.namespace)
        asking = {each: asyncio.ensure_future(_ask(actor)) for each, actor in self._actors.items()}
        if not asking:
            return {}
        _, late = await asyncio.wait(asking.values(), timeout=ANSWER_S)
        for each in late:
            each.cancel()
        answers = {each: task.result() for each, task in asking.items() if task not in late}
        return {each: counted for each, counted in answers.items() if counted is not None}


def _found(wanted: Mapping[str, str], namespace: str) -> dict[str, Any]:
    found = {}
    for each, name in wanted.items():
        try:
            actor = ray.get_actor(name, namespace=namespace)
        except (ValueError, RayError):  # gone by now
            continue
        found[each] = actor
    return found


async def _ask(actor: Any) -> dict[str, Any] | None:
    if not hasattr(actor, "counted"):  # one of an older release
        return None
    try:
        found: dict[str, Any] | None = await actor.counted.remote()
    except RayError:
        return None
    return found


async def nodes() -> Mapping[str, NodeInfo]:
    """Those that are alive, by id."""
    return await asyncio.to_thread(live_nodes)
