"""News of workers: moves that end, processes that are lost. Which replica it means is known by its tenure; see `tenures`."""

from msgspec.structs import replace

from rankcore.cluster import adoption, demand, refusals, tenures
from rankcore.cluster.draft import ClusterDraft, Vacancy
from rankcore.cluster.events import MoveFailed, MoveFinished, MoveProgressed, WorkerLost, WorkerReported
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.planner import PLANNER, is_moving, kill
from rankcore.cluster.residency import WorkerId, deployment_of, model_id
from rankcore.cluster.state import Weights
from rankcore.events import ReplicaStartFailed, ReplicaStopped
from rankcore.residency.events import LoadFailed, LoadFinished, OffloadFailed, OffloadFinished, ReplicaLost, UsageReported
from rankcore.residency.levels import Phase
from rankcore.residency.state import Resident


def on_move_progressed(draft: ClusterDraft, event: MoveProgressed) -> None:
    """So much of a load has come."""
    record = draft.weights.planner.replicas.get(event.worker_id)
    if record is None or record.phase is not Phase.LOADING or record.move != event.move:
        _late(draft, event)
        return
    draft.weights = replace(draft.weights, progress=draft.weights.progress.set(event.worker_id, event.share))
    _touch(draft, deployment_of(event.worker_id))


def on_move_finished(draft: ClusterDraft, event: MoveFinished) -> None:
    """A worker is HOT, or what it held is free."""
    record = _answered(draft, event)
    if record is None:
        return
    worker_id, move, at = event.worker_id, event.move, draft.clock
    deployment = deployment_of(worker_id)
    draft.unbalanced[deployment] = None
    _touch(draft, deployment)
    if record.phase is Phase.LOADING:
        draft.weights = _without_progress(draft, worker_id)
        draft.worklist.add(PLANNER, LoadFinished(replica_id=worker_id, move=move, at=at))
        return
    _has_left(draft, record, OffloadFinished(replica_id=worker_id, move=move, at=at))


def on_move_failed(draft: ClusterDraft, event: MoveFailed) -> None:
    """A load has failed, or of what was to leave nothing is left."""
    record = _answered(draft, event)
    if record is None:
        return
    worker_id, move, at = event.worker_id, event.move, draft.clock
    _touch(draft, deployment_of(worker_id))
    if record.phase is Phase.LOADING:
        draft.weights = _without_progress(draft, worker_id)
        draft.worklist.add(PLANNER, LoadFailed(replica_id=worker_id, move=move, reason=event.reason, at=at))
        if event.wrong_weights and record.node_id is not None:
            refusals.refuse(draft, record.model, record.node_id)
        _load_failed(draft, worker_id, event.reason)
        return
    _has_left(draft, record, OffloadFailed(replica_id=worker_id, move=move, reason=event.reason, at=at))


def on_worker_lost(draft: ClusterDraft, event: WorkerLost) -> None:
    """A process has ended, and with it the replica that it was."""
    worker_id, at = event.worker_id, draft.clock
    if worker_id in draft.weights.found:
        adoption.ended(draft, worker_id)
        return
    record = draft.weights.planner.replicas.get(worker_id)
    if record is None or event.node_id not in (None, node_of(record)):
        _late(draft, event)
        return
    draft.weights = _without_progress(draft, worker_id)
    deployment = deployment_of(worker_id)
    _touch(draft, deployment)
    because = event.reason or "its worker has ended"
    lost = ReplicaLost(replica_id=worker_id, reason=because, at=at)
    if record.phase is Phase.LOADING:
        draft.worklist.add(PLANNER, lost)
        _load_failed(draft, worker_id, because)
        return
    tenures.end_with(draft, worker_id, because)
    draft.vacated.append(Vacancy(deployment, lost))
    draft.unbalanced[deployment] = None


def on_usage_reported(draft: ClusterDraft, event: UsageReported) -> None:
    """A worker takes more on its GPUs than it said; who is not in the books yet says so when it is asked."""
    if event.replica_id in draft.weights.planner.replicas:
        draft.worklist.add(PLANNER, event)
    else:
        draft.note(ClusterNoteKind.LATE, "T8", deployment_of(event.replica_id), f"UsageReported of {event.replica_id}")


def on_worker_reported(draft: ClusterDraft, event: WorkerReported) -> None:
    """What a worker holds that was found; of another one, whether its newest move is over."""
    worker_id = event.worker_id
    record = draft.weights.planner.replicas.get(worker_id)
    if event.epoch != draft.epoch:
        _late(draft, event)
    elif worker_id in draft.weights.found:
        adoption.reported(draft, event)
    elif record is None or deployment_of(worker_id) not in draft.state.deployments:
        kill(draft, worker_id, "nobody knows it")
    elif record.move == event.move and (record.phase, event.phase) in OVER:
        on_move_finished(draft, MoveFinished(worker_id=worker_id, move=event.move, at=event.at))
    else:
        _late(draft, event)


OVER = {(Phase.LOADING, Phase.SERVING), (Phase.LEAVING, Phase.RESTING)}
"""What a report says that stands for the lost answer to a move."""


def node_of(record: Resident) -> str | None:
    """Where the process of a worker runs; None: it has none."""
    return record.copy_node_id if record.phase in (Phase.WAITING, Phase.RESERVING) else record.node_id


def _has_left(draft: ClusterDraft, record: Resident, news: OffloadFinished | OffloadFailed) -> None:
    deployment = deployment_of(record.replica_id)
    tenure = tenures.end_tenure(draft, record.replica_id) if record.phase is Phase.LEAVING else None
    if tenure is not None:
        draft.worklist.add(deployment, ReplicaStopped(replica_id=tenure, at=draft.clock))
    draft.vacated.append(Vacancy(deployment, news))
    newcomer = draft.weights.planner.replicas.get(record.makes_room_for or "")
    if newcomer is not None:
        demand.before_vacancy(draft, newcomer, record.replica_id)


def _load_failed(draft: ClusterDraft, worker_id: WorkerId, because: str) -> None:
    """The oldest claim of its version has failed to start: its slot backs off (amendment 4)."""
    deployment, model = deployment_of(worker_id), worker_id.rpartition("#")[0]
    draft.unbalanced[deployment] = None
    entry = draft.find(deployment)
    if entry is None or entry.residency is None:
        return
    residency = entry.residency
    failed = next((each for each in residency.claims if model_id(deployment, each.version) == model), None)
    if failed is not None:
        claims = tuple(each for each in residency.claims if each is not failed)
        tenures.put(draft, deployment, entry, replace(residency, claims=claims))
        reason = f"load: {because}"
        draft.worklist.add(deployment, ReplicaStartFailed(replica_id=failed.replica_id, reason=reason, at=draft.clock))


def _answered(draft: ClusterDraft, event: MoveFinished | MoveFailed) -> Resident | None:
    """The worker whose newest move this answers."""
    worker_id = event.worker_id
    if worker_id in draft.weights.found:
        adoption.has_news(draft, worker_id)
        return None
    record = draft.weights.planner.replicas.get(worker_id)
    if record is None or not is_moving(record) or record.move != event.move:
        _late(draft, event)
        return None
    return record


def _without_progress(draft: ClusterDraft, worker_id: WorkerId) -> Weights:
    weights = draft.weights
    return replace(weights, progress=weights.progress.delete(worker_id)) if worker_id in weights.progress else weights


def _touch(draft: ClusterDraft, deployment: DeploymentId) -> None:
    entry = draft.find(deployment)
    if entry is not None:
        draft.put(deployment, entry)


def _late(draft: ClusterDraft, event: MoveProgressed | MoveFinished | MoveFailed | WorkerLost | WorkerReported) -> None:
    because = f"{type(event).__name__} of {event.worker_id}"
    draft.note(ClusterNoteKind.LATE, "T2", deployment_of(event.worker_id), because)
