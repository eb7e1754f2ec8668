"""Keeps from Ray the GPUs that a planner gives out: were they free for Ray, it would put a pinned replica on top of a model.

Per node there is a placement group with one bundle of k GPUs, on that node and no other, and an actor on it that only says
which GPUs those are: the planner gets their numbers and no others.

1. **The group owns the GPUs, not the actor.** It is detached and outlives actor, job and controller, and Ray keeps the same
   GPUs for it as long as node and group are there. **Race:** an actor that owned them by itself is killed; before another is
   placed, Ray gives GPU 0, with a model on it, to a pinned replica, and the new actor gets GPU 2.
2. The group is found by its name, which has the node's id. Of several, which controllers that overlapped have made, the one
   with the lowest id counts, and the others are removed: both agree on that.
3. **Only a lost node, or an operator who removes the group, changes the numbers.** Then workers may be on GPUs that are Ray's
   by now: those are ended, and seen to their end, before the planner is told of the node (`misplaced`). **Race:** told first,
   it would count their bytes on GPUs that it does not have, or place the next model beside a pinned replica.
4. A node without GPUs that are free, or of which none are to be planned, has no group.

It costs one process per node that has planned GPUs, and nothing per model.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import attrs
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.messages import WATCH_S
from executors.ray_gpu.placement_groups import GONE, GroupState, group_of
from executors.ray_gpu.room import NODE_ID
from executors.ray_gpu.worker.messages import WorkerReport
from executors.ray_gpu.worker.options import ALL_GPUS
from executors.ray_gpu.world import NodeInfo
from rankcore.values import NodeId

PLANNED_GPUS = "planned_gpus"
"""Label of a node: how many of its GPUs are planned; without it, all that are free when the node is first looked at."""
GPU = "GPU"
VISIBLE = "CUDA_VISIBLE_DEVICES"


@attrs.frozen
class HeldGpus:
    """The GPUs of a node that are planned.

    Attributes:
        group_id: Of the placement group that owns them.
        gpus: Their numbers, as torch counts in a process that sees all that the node has.
        holder: The actor that says so. When it is gone the same GPUs are still held: `hold` starts it again.
    """

    node_id: NodeId
    group_id: str
    gpus: tuple[int, ...]
    holder: Any


class GpuHolder:
    """Reads which GPUs its bundle has."""

    def gpus(self) -> tuple[int, ...]:
        """Their numbers, as torch counts them here."""
        return ordinals(ray.get_gpu_ids(), os.environ.get(VISIBLE))

    async def watch(self) -> None:
        """Returns after a while: that this call fails is how the controller learns of this process's end."""
        import asyncio

        await asyncio.sleep(WATCH_S)


def ordinals(gpu_ids: Iterable[Any], visible: str | None) -> tuple[int, ...]:
    """What torch calls the GPUs that Ray calls so, where the node was started with some of the machine's GPUs only.

    Args:
        gpu_ids: Numbers, or names where `visible` has names.
        visible: The `CUDA_VISIBLE_DEVICES` of the node; None: it has all.
    """
    if visible is None:
        return tuple(sorted(int(each) for each in gpu_ids))
    places = [each.strip() for each in visible.split(",")]
    return tuple(sorted(places.index(str(each)) for each in gpu_ids))


def planned_gpus(node: NodeInfo) -> int:
    """How many GPUs of a node are to be planned.

    Raises:
        InvalidDeploymentError: Its label says nothing that can be understood.
    """
    said = node.labels.get(PLANNED_GPUS)
    total = int(node.total.get(GPU, 0))
    if said is None:
        return int(node.free.get(GPU, 0))
    if not said.isdecimal() or int(said) > total:
        raise InvalidDeploymentError(f"label {PLANNED_GPUS} of node {node.node_id} must be 0 to {total}, got {said!r:.80}")
    return int(said)


def hold(namespace: str, node: NodeInfo, timeout_s: float) -> HeldGpus | None:
    """Have a node's planned GPUs held, by the group that there is or a new one; None: there are none. Blocks for round trips.

    Raises:
        InvalidDeploymentError: As for `planned_gpus`.
        TimeoutError: Ray has not given them: others have them now. The group stays, and gets them when they are free.
        RayError: The node is lost, say.
    """
    group_id = _group(namespace, node.node_id)
    if group_id is None:
        number = planned_gpus(node)
        if number == 0:
            return None
        placement_group(
            [{GPU: number}],
            strategy="STRICT_PACK",
            name=group_name(namespace, node.node_id),
            lifetime="detached",
            bundle_label_selector=[{NODE_ID: node.node_id}],
        )
        group_id = _group(namespace, node.node_id)
        assert group_id is not None, "it was made just now"
    if not group_of(group_id).wait(timeout_s):
        raise TimeoutError(f"the GPUs of node {node.node_id} that are to be planned are not free after {timeout_s:g} s")
    number = int(placement_group_table(group_of(group_id))["bundles"][0][GPU])
    actor_class: Any = ray.remote(GpuHolder)
    holder = actor_class.options(
        name=group_name(namespace, node.node_id),
        namespace=namespace,
        get_if_exists=True,
        lifetime="detached",
        max_restarts=0,
        num_cpus=0,
        num_gpus=number,
        runtime_env=ALL_GPUS,
        scheduling_strategy=PlacementGroupSchedulingStrategy(group_of(group_id), placement_group_bundle_index=0),
    ).remote()
    gpus: tuple[int, ...] = ray.get(holder.gpus.remote(), timeout=timeout_s)
    return HeldGpus(node.node_id, group_id, gpus, holder)


def give_back(namespace: str, node_id: NodeId) -> None:
    """Let Ray have the GPUs of a node again; or forget a node that is lost. Blocks for some round trips."""
    with suppress(ValueError):  # there is none
        ray.kill(ray.get_actor(group_name(namespace, node_id), namespace=namespace))
    for group_id in _groups(namespace, node_id):
        remove_placement_group(group_of(group_id))


def give_all_back(namespace: str) -> None:
    """Let Ray have the GPUs of all nodes again. Blocks for some round trips."""
    prefix = group_name(namespace, "")
    table: dict[str, dict[str, Any]] = placement_group_table()
    for node_id in {each["name"].removeprefix(prefix) for each in table.values() if each["name"].startswith(prefix)}:
        give_back(namespace, node_id)


def misplaced(held: HeldGpus | None, node_id: NodeId, workers: Mapping[str, WorkerReport]) -> tuple[str, ...]:
    """The workers of a node that have weights on GPUs that are not held there, or are about to: end them first (3)."""
    gpus = frozenset(() if held is None else held.gpus)
    return tuple(
        worker_id
        for worker_id, report in sorted(workers.items())
        if report.node_id == node_id
        and not gpus.issuperset((*report.gpus, *(report.granted.gpus if report.granted is not None else ())))
    )


def group_name(namespace: str, node_id: NodeId) -> str:
    """Of a node's placement group, and of the actor on it."""
    return f"rankcore-gpus:{namespace}:{node_id}"


def _group(namespace: str, node_id: NodeId) -> str | None:
    """The one that counts; others are removed (2)."""
    found = _groups(namespace, node_id)
    for each in found[1:]:
        remove_placement_group(group_of(each))
    return found[0] if found else None


def _groups(namespace: str, node_id: NodeId) -> list[str]:
    name = group_name(namespace, node_id)
    table: dict[str, dict[str, Any]] = placement_group_table()
    return sorted(
        group_id for group_id, each in table.items() if each["name"] == name and GroupState(each["state"]) not in GONE
    )
