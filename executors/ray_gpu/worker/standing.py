"""Where the weights of deployments with residency are, for people: read from the machine's state."""

from executors.ray_gpu.overview import NodeMemoryStatus, WorkerStatus
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import deployment_of
from rankcore.cluster.state import ClusterState
from rankcore.residency.levels import Phase


def workers_of(state: ClusterState) -> dict[DeploymentId, tuple[WorkerStatus, ...]]:
    """What each deployment has, the oldest first."""
    replica_ids = {
        worker_id: replica_id
        for entry in state.deployments.values()
        if entry.residency is not None
        for replica_id, worker_id in entry.residency.tenures.items()
    }
    found: dict[DeploymentId, list[WorkerStatus]] = {}
    for worker_id, record in sorted(state.weights.planner.replicas.items(), key=lambda item: (len(item[0]), item[0])):
        loads = record.phase is Phase.LOADING
        status = WorkerStatus(
            worker_id=worker_id,
            level=str(record.level),
            phase=str(record.phase),
            node_id=record.node_id or record.copy_node_id,
            gpus=record.gpus,
            gpu_bytes=record.gpu_bytes,
            cpu_bytes=record.cpu_bytes,
            percent=int(100 * state.weights.progress.get(worker_id, 0.0)) if loads else None,
            replica_id=replica_ids.get(worker_id),
            version=record.model.partition("@")[2],
            because=record.because,
        )
        found.setdefault(deployment_of(worker_id), []).append(status)
    return {deployment: tuple(each) for deployment, each in found.items()}


def memory_of(state: ClusterState) -> tuple[NodeMemoryStatus, ...]:
    """What each node has for weights, and what of it is free."""
    return tuple(
        NodeMemoryStatus(
            node_id=node_id,
            gpus=tuple((gpu.capacity_bytes, gpu.free_bytes) for gpu in node.gpus),
            cpu_bytes=node.cpu_capacity_bytes,
            cpu_free_bytes=node.cpu_free_bytes,
        )
        for node_id, node in sorted(state.weights.planner.nodes.items())
    )
