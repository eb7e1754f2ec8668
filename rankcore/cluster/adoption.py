"""What workers hold is learnt from them after a restart, never saved (T11).

What. A controller comes back, the processes went on: some HOT, some with a copy in CPU memory, some in the middle of a move.
The books of the last controller are gone with it, and a copy of them would be a second opinion about memory that only the
workers have. So each worker that was found is asked (`QueryWorker`), and says what it holds, which move was its newest, and
which replica it is.

1. A node is told to the planner only once every worker that was found there has reported or ended, and together with what they
   hold, in one step. So nothing is placed on memory that may be taken. Other nodes are not waited for.
2. A deployment is recovered only once each of its workers has reported or ended: its ranks are learnt from those that are a
   replica *and have a rank* (amendment 2); what has none is a worker like any other, and gets a new tenure. Until then
   requests about the deployment are refused, and news of its replicas is late: each is asked once its deployment is there.
3. A load that is under way is adopted with its move: its end counts, and the claim that comes next gets the worker. What only
   had a place is planned anew. A claim counts on a worker that is HOT or loads where its node is not told yet, and another
   one is asked for as soon as that worker reports something else, or has ended.
4. Who does not report in `SILENT_S` is killed, and again until it has ended: the books wait for that, not for the report.
5. News of a worker before its node is told may be older or newer than its report: it is asked again. **Race:** its node is
   told, and it is displaced, while its replica's report is on its way, which says nothing of that: the replica drains.
6. Workers of a deployment that there is not are killed. Those of one whose record cannot be read are left alone, and what they
   hold is booked as `dedicated`: it was wanted by somebody (amendment 31).
7. Unknown is not zero: for `UNKNOWN_S` no demand is taken for gone, and no worker that is HOT or loads is let go because no
   replica wants it (amendment 15).

It ends: each worker reports or is killed, and a kill is confirmed. It costs one question per worker.
"""

from collections.abc import Container, Mapping

import attrs
from msgspec.structs import replace

from rankcore import checks, core
from rankcore.cluster import demand, never, nodes, outbox, ranking, scaling, tenures
from rankcore.cluster.commands import QueryWorker
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.events import WorkerReported
from rankcore.cluster.names import DeploymentId, application_of
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.planner import PLANNER, kill, workers_on
from rankcore.cluster.records import Record
from rankcore.cluster.residency import WorkerId, deployment_of, model_id, version_of
from rankcore.cluster.state import Application, Entry, FoundWorker, Residency, Target
from rankcore.errors import InvalidEventError
from rankcore.events import NodeLost
from rankcore.frozen import EMPTY, PMap
from rankcore.residency.events import MemoryMeasured
from rankcore.residency.events import NodeJoined as NodeMemory
from rankcore.residency.events import NodeLost as MemoryLost
from rankcore.residency.reports import FoundReplica, NodeAdopted
from rankcore.residency.spec import ModelSpec
from rankcore.values import NodeId, ReplicaId

SILENT_S = 30.0
UNKNOWN_S = 10.0


def discover(
    draft: ClusterDraft,
    workers: Mapping[WorkerId, NodeId],
    adopted: Mapping[DeploymentId, Record],
    left_alone: Container[DeploymentId],
) -> None:
    """Ask every worker that was found what it holds."""
    if not isinstance(workers, Mapping):
        raise InvalidEventError("recover_cluster.workers", workers, "the nodes of workers, by their ids")
    for worker_id, node_id in sorted(workers.items()):
        checks.identifier(InvalidEventError, "recover_cluster.workers", worker_id)
        checks.identifier(InvalidEventError, f"recover_cluster.workers[{worker_id!r}]", node_id)
    found = EMPTY.mutate()
    for worker_id, node_id in sorted(workers.items()):
        found[worker_id] = FoundWorker(node_id)
        deployment = deployment_of(worker_id)
        record = adopted.get(deployment)
        is_wanted = record is not None and not record.deleted and record.applied.residency is not None
        if is_wanted or deployment in left_alone:
            draft.queries.append(QueryWorker(worker_id, draft.epoch))
        else:  # 6
            kill(draft, worker_id, "nobody knows its deployment")
    if any(record.applied.residency is not None for record in adopted.values()):  # 7
        judged_from = draft.clock + never.RECOVERING_S
        draft.weights = replace(draft.weights, unknown_until=draft.clock + UNKNOWN_S, judged_from=judged_from)
    weights = replace(draft.weights, found=found.finish())
    draft.weights = replace(weights, killed_at=draft.clock + SILENT_S if workers else None)


def reported(draft: ClusterDraft, event: WorkerReported) -> None:
    """A worker that was found says what it holds."""
    worker = FoundWorker(event.node_id, event)
    draft.weights = replace(draft.weights, found=draft.weights.found.set(event.worker_id, worker))
    draft.unbalanced[deployment_of(event.worker_id)] = None  # a claim may have counted on what it loaded
    _look(draft, event.worker_id, event.node_id)


def has_news(draft: ClusterDraft, worker_id: WorkerId) -> None:
    """What a found worker has said, or will say first, may not be so any more (5)."""
    weights = draft.weights
    found = weights.found.set(worker_id, FoundWorker(weights.found[worker_id].node_id))
    killed_at = draft.clock + SILENT_S if weights.killed_at is None else weights.killed_at
    draft.weights = replace(weights, found=found, killed_at=killed_at)
    draft.queries.append(QueryWorker(worker_id, draft.epoch))


def ended(draft: ClusterDraft, worker_id: WorkerId) -> None:
    """A worker that was found holds nothing any more."""
    worker = draft.weights.found[worker_id]
    draft.weights = replace(draft.weights, found=draft.weights.found.delete(worker_id))
    tenures.end_with(draft, worker_id)
    draft.unbalanced[deployment_of(worker_id)] = None  # a claim may have counted on it
    _look(draft, worker_id, worker.node_id)


def on_node_joined(draft: ClusterDraft, node_id: NodeId) -> None:
    """A node has memory that may be planned, or other memory than before."""
    offer = draft.nodes.get(node_id)
    if offer is None or offer.memory is None:
        return
    if node_id in draft.weights.planner.nodes:
        draft.worklist.add(PLANNER, offer.memory)
    else:
        open_node(draft, node_id)


def on_node_lost(draft: ClusterDraft, event: NodeLost) -> None:
    """A node is gone, with every worker there."""
    for worker_id, worker in sorted(draft.weights.found.items()):
        if worker.node_id == event.node_id:
            ended(draft, worker_id)
    if event.node_id in draft.weights.planner.nodes:
        for worker_id in workers_on(draft.weights.planner, event.node_id):
            draft.unbalanced[deployment_of(worker_id)] = None
        draft.worklist.add(PLANNER, MemoryLost(node_id=event.node_id, at=event.at))


def on_memory_measured(draft: ClusterDraft, event: MemoryMeasured) -> None:
    """The GPUs of a node hold more or less than it said."""
    offer = draft.nodes.get(event.node_id)
    if offer is None or offer.memory is None:
        draft.note(ClusterNoteKind.LATE, "T1", because=f"MemoryMeasured of {event.node_id}, which nobody knows")
        return
    draft.nodes = draft.nodes.set(event.node_id, replace(offer, memory=replace(offer.memory, gpu_bytes=event.gpu_bytes)))
    if event.node_id in draft.weights.planner.nodes:
        draft.worklist.add(PLANNER, event)
        draft.renewed[event.node_id] = None


def kill_silent(draft: ClusterDraft) -> None:
    """Who has not reported in time is killed (4)."""
    silent = sorted(each for each, worker in draft.weights.found.items() if worker.report is None)
    for worker_id in silent:
        if deployment_of(worker_id) not in draft.state.left_alone:
            kill(draft, worker_id, f"it has not reported for {SILENT_S:g} s")
    draft.weights = replace(draft.weights, killed_at=draft.clock + SILENT_S if silent else None)


def _look(draft: ClusterDraft, worker_id: WorkerId, node_id: NodeId) -> None:
    deployment, waiting = deployment_of(worker_id), {node_id}
    if deployment in draft.weights.recovering and is_known(draft, deployment):
        _adopt_late(draft, deployment)  # for which each node waited that has a worker of it
        waiting |= {worker.node_id for each, worker in draft.weights.found.items() if deployment_of(each) == deployment}
    for each in sorted(waiting):
        open_node(draft, each)


def adopt(draft: ClusterDraft, record: Record, replica_ids: list[ReplicaId]) -> None:
    """Take a deployment over, with the replicas that were found of it; what is adopted is saved again."""
    at, residency = draft.clock, None
    step = core.recover(
        record.spec,
        replica_ids,
        at=at,
        epoch=draft.epoch,
        previous=record.previous,
        deleting=record.deleting,
        failed=record.failed,
    )
    if record.applied.residency is not None:
        previous = (record.previous.version,) if record.previous is not None else ()
        versions = versions_of(draft, record.deployment, (record.spec.version, record.applied.ranks.version, *previous))
        residency = Residency(tenures=PMap(tenures_of(draft, record.deployment)), versions=versions)
        failed_until = demand.after_restart(draft, record.applied.residency, step.state, residency)
        residency = replace(residency, failed_until=failed_until)
        draft.unbalanced[record.deployment] = None
    copied = attrs.evolve(record, number=draft.next_number())
    entry = Entry(
        record.applied,
        step.state,
        Target(record.spec.target_replicas, record.cause),
        outbox.begin(copied, at),
        None if record.deleting else scaling.follow_spec(None, record.applied, at),
        record.route_prefix,
        record.is_ingress,
        record.trouble,
        record.deleting,
        residency=residency,
    )
    draft.note(ClusterNoteKind.ADOPTED, "R10", record.deployment, f"record {record.number}, saved again as {copied.number}")
    taken = ranking.take(draft, record.deployment, entry, step)
    draft.put(record.deployment, replace(taken, trouble=record.trouble))  # why it failed, and not that it had failed
    nodes.follow_spec(draft, record.deployment, record.spec)


def _adopt_late(draft: ClusterDraft, deployment: DeploymentId) -> None:
    """All workers of a deployment have reported or ended."""
    record = draft.weights.recovering[deployment]
    draft.weights = replace(draft.weights, recovering=draft.weights.recovering.delete(deployment))
    name = application_of(deployment)
    others = draft.applications.get(name, Application(()))
    prefix = record.route_prefix
    if any(each.route_prefix == prefix for each in draft.applications.values()):
        record = attrs.evolve(record, route_prefix=None)
    adopt(draft, record, sorted(tenures_of(draft, deployment)))
    known = replace(others, deployments=tuple(sorted((*others.deployments, deployment))))
    if record.is_ingress and not record.deleting:
        known = replace(known, ingress=deployment, route_prefix=record.route_prefix)
    draft.applications = draft.applications.set(name, known)


def is_known(draft: ClusterDraft, deployment: DeploymentId) -> bool:
    """Whether each worker of a deployment that was found has reported (2)."""
    found = draft.weights.found.items()
    return all(worker.report is not None for each, worker in found if deployment_of(each) == deployment)


def tenures_of(draft: ClusterDraft, deployment: DeploymentId) -> dict[ReplicaId, WorkerId]:
    """The replicas that the workers of a deployment say they are."""
    mine = [worker.report for each, worker in sorted(draft.weights.found.items()) if deployment_of(each) == deployment]
    reports = [each for each in mine if each is not None and each.gpus]
    return {each.tenure: each.worker_id for each in reports if each.tenure is not None}


def versions_of(draft: ClusterDraft, deployment: DeploymentId, known: tuple[str, ...]) -> tuple[str, ...]:
    """The versions that workers of a deployment have: these first, then those that were given up or never healthy."""
    models = {each.rpartition("#")[0] for each in draft.weights.found if deployment_of(each) == deployment}
    found = dict.fromkeys((*known, *map(version_of, sorted(models))))
    return tuple(each for each in found if model_id(deployment, each) in models)


def open_node(draft: ClusterDraft, node_id: NodeId) -> None:
    """Tell the planner of a node, if all that was found there is known (1)."""
    offer = draft.nodes.get(node_id)
    if offer is None or offer.memory is None or node_id in draft.weights.planner.nodes or not draft.weights.placing:
        return
    here = {each: worker for each, worker in draft.weights.found.items() if worker.node_id == node_id}
    if any(worker.report is None or deployment_of(each) in draft.weights.recovering for each, worker in here.items()):
        return
    found = draft.weights.found.mutate()
    for worker_id in here:
        del found[worker_id]
        draft.unbalanced[deployment_of(worker_id)] = None
    draft.weights = replace(draft.weights, found=found.finish())
    reports = [each.report for _, each in sorted(here.items()) if each.report is not None]
    draft.note(ClusterNoteKind.NODE_OPENED, "T11", because=f"{node_id}, with {len(reports)} workers that were found")
    memory = _fitting(offer.memory, reports)
    replicas = tuple(_replica(draft, each) for each in reports)
    draft.worklist.add(PLANNER, NodeAdopted(joined=memory, found=replicas, at=draft.clock))
    draft.renewed[node_id] = None


def _fitting(memory: NodeMemory, reports: list[WorkerReported]) -> NodeMemory:
    """With a GPU of no bytes for each that workers are on and the node does not speak of: they leave it."""
    most = max((gpu for each in reports for gpu in each.gpus), default=-1)
    missing = max(0, most + 1 - len(memory.gpu_bytes))
    return replace(memory, gpu_bytes=(*memory.gpu_bytes, *(0,) * missing)) if missing else memory


def _replica(draft: ClusterDraft, report: WorkerReported) -> FoundReplica:
    return FoundReplica(
        replica_id=report.worker_id,
        spec=_spec_of(draft, report),
        phase=report.phase,
        gpus=report.gpus,
        gpu_bytes=report.gpu_bytes,
        cpu_bytes=report.cpu_bytes,
        move=report.move,
    )


def _spec_of(draft: ClusterDraft, report: WorkerReported) -> ModelSpec:
    model = report.worker_id.rpartition("#")[0]
    deployment = deployment_of(report.worker_id)
    entry = draft.find(deployment)
    if entry is not None and entry.spec.residency is not None:
        return replace(tenures.spec_of(draft, entry, entry.ranks.spec.version), model=model)
    held = sum(report.gpu_bytes) or report.cpu_bytes  # 6
    return ModelSpec(model=model, weight_bytes=max(1, held), dedicated=True)
