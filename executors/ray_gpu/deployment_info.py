"""How a deployment on Ray stands, as `status()` says it: who has which rank, and what each one, and all of it, waits for."""

from executors.ray_gpu.cluster import ClusterOnRay
from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus, WorkerStatus
from executors.ray_gpu.process import STARTS, Process
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.room import demands, obstacle
from executors.ray_gpu.world import NodeInfo, World
from rankcore import ReplicaState
from rankcore.cluster.names import application_of
from rankcore.progress import progress_of
from rankcore.routing.demand import demand_for
from rankcore.values import age_key
from rankcore.waits import replica_in_words


def info_of(
    found: RayDeployment,
    cluster: ClusterOnRay,
    world: World,
    nodes: dict[str, NodeInfo],
    workers: tuple[WorkerStatus, ...] = (),
    waiting_calls: int = 0,
) -> DeploymentInfo:
    """How a deployment stands.

    Args:
        nodes: Those that are alive, to say what it waits for; none: it waits for none.
        workers: Where its weights are, if they may be COLD.
        waiting_calls: How many calls wait for a replica, as those that call have said.
    """
    entry = found.entry
    state = entry.ranks
    options = found.actor_options(state.spec.version)
    no_room = obstacle(nodes, demands(options), world.cordoned, options.get("label_selector")) if nodes else ""
    problem = (found.executor.group_news.obstacle or no_room) if nodes else ""
    replicas = replicas_of(found, (problem or STARTS) if nodes else "", world.now())
    # Where ranks steer placement nobody is started before there is room.
    unplaced = problem if state.spec.placement is not None and len(replicas) < state.world_size else ""
    said = [each.message for each in replicas if each.message and each.pid is None]
    waiting = next((each for each in said if each != STARTS), next(iter(said), unplaced))
    known = state.message
    if known and waiting and not state.failed_ranks:  # which ranks have no place, and why the cluster has none
        known = f"{known} ({waiting})"
    unsaved = cluster.backend.unsaved.get(found.deployment, "")
    standing = found.status()
    conditions = entry.conditions if entry.outbox.is_open else ()  # a save that is under way is nothing to speak of
    return DeploymentInfo(
        name=found.deployment,
        status=state.status,
        message=entry.frozen or unsaved or entry.message(known) or waiting or "; ".join(conditions),
        world_size=state.world_size,
        version=state.spec.version,
        class_name=found.extras.class_name,
        app_name=application_of(found.deployment),
        replicas=replicas,
        spares=found.executor.spares.ready,
        has_residency=entry.residency is not None,
        workers=workers,
        waiting=max(waiting_calls, demand_for(cluster.state.weights.demands, found.deployment, world.now())),
        standing=standing[1] if standing is not None else None,
        rollout=str(progress_of(state, world.now())),
        status_for_s=max(0.0, world.now() - found.status_since),
    )


def replicas_of(found: RayDeployment, waiting_for: str, now: float) -> tuple[ReplicaStatus, ...]:
    """How each replica is, those that are not up yet with what they wait for, those that are unready with why."""
    replicas: list[ReplicaStatus] = []
    for replica_id, replica in sorted(found.entry.ranks.replicas.items(), key=lambda item: age_key(item[0])):
        id_on_ray = found.replica_on_ray(replica_id)
        process = found.executor.processes.get(id_on_ray)
        endpoint = process.endpoint if process is not None else None
        waits = "it has not reported yet" if replica.state is ReplicaState.RECOVERING else waiting_for
        if waiting_for and isinstance(process, Process) and process.room.no_room is False:
            waits = STARTS
        replicas.append(
            ReplicaStatus(
                replica_id=id_on_ray,
                state=replica.state,
                rank=replica.rank,
                node_id=replica.node_id,
                pid=endpoint.pid if endpoint is not None else None,
                version=replica.version,
                message=waits if process is not None and endpoint is None else replica_in_words(replica, now),
            )
        )
    return tuple(sorted(replicas, key=lambda each: each.rank.rank if each.rank is not None else 2**31))
