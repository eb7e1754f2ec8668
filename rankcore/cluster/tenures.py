"""A worker is not a replica: a replica is a *tenure* of a worker, from the end of a load to the end of the offload.

What. The ranks of a deployment speak of replicas, the planner of workers. Where ranks ask for a replica, that is a *claim*: one
worker more is wanted HOT, whichever. A claim gets a worker when one is HOT, and not when its load begins: a controller
that comes back in the middle of a load finds a worker, and no replica that nobody would know anything of (amendment 2).

| command of ranks | becomes |
|---|---|
| `StartReplica` | a claim: a worker that is HOT without tenure, else one that loads for nobody, else WARM, else COLD |
| `StopReplica` | the worker is not wanted any more; the replica has stopped at the end of its offload, a claim at once |
| `KillReplica` | `KillWorker`, also while it leaves: what hangs holds memory that others wait for (amendment 3) |
| all others | go up, to the backend |

| news | becomes |
|---|---|
| the end of a load | the oldest claim gets the worker: `GiveTenure` up, `ReplicaPlaced` for the ranks |
| a failed load | `ReplicaStartFailed` of the oldest claim |
| the end of an offload | `ReplicaStopped`, then the planner |
| a worker lost | `ReplicaDied`, then the planner |
| final news of a replica whose worker lives | the ranks, and the worker is not wanted any more (amendment 4) |
| the planner makes a worker leave | `ReplicasLeave` of exactly that replica |

A copy to CPU memory has a time of its own, `load_timeout_s` behind the time for calls: who is killed when that for calls is
over would be COLD where it is to be WARM. Ranks know nothing of copies and repeat the kill, which comes to nothing until then.
The rank stays taken (R7).

When. Sideways goes what has *left the outbox*: nobody is displaced for a wish that no successor knows of (P2).

The balance (T10). Of each version as many workers are wanted HOT as there are claims and tenures on workers that serve. It is
brought about in one place, `_balance`, once the ranks have said all that they have to say: more are wanted, or the surplus is
let go: first who has no place, then who makes room, who loads, who is HOT without a tenure. A claim whose `StopReplica` is
still in the outbox is let go by nobody, and asked for again by nobody either: a deletion, or an eviction, has the planner give
up its worker before the record is saved. Memory that becomes free
waits for that too (`ClusterDraft.vacated`): of a replica that is replaced, its successor inherits the place before
anybody else is tried there, exactly where its slot is kept (amendment 28): then, and only then, there is a claim.

It ends: each round of `settle` handles what ranks have let go, and a round without that, without a vacancy and
without a change of what is wanted is the last. The worklist bounds them all.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from msgspec.structs import replace

from rankcore.cluster.commands import CarryOut, GiveTenure
from rankcore.cluster.draft import ClusterDraft, Vacancy
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.planner import PLANNER, kill, tenure_of
from rankcore.cluster.residency import WorkerId, deployment_of, model_id, model_of
from rankcore.cluster.state import Entry, Residency, Weights
from rankcore.commands import Command, KillReplica, StartReplica, StopReplica
from rankcore.events import ReplicaDied, ReplicaPlaced, ReplicaReported, ReplicaStopped
from rankcore.residency.events import DeployRequested, EvictRequested
from rankcore.residency.levels import Level, Phase
from rankcore.residency.spec import ModelSpec, Wanted
from rankcore.residency.state import ResidencyState, serial_of
from rankcore.values import ReplicaId

RELEASED_FIRST = (Phase.WAITING, Phase.RESERVING, Phase.LOADING, Phase.SERVING)


def go_on(draft: ClusterDraft) -> None:
    """Take what was let go sideways; once that is settled, who is wanted no longer, who inherits memory, who is wanted."""
    commands, draft.sideways = draft.sideways, []
    for deployment, command in commands:
        SIDEWAYS[type(command)](draft, deployment, command)
    leaving = {vacancy.deployment for vacancy in draft.vacated}
    _balance_all(draft, [each for each in draft.unbalanced if each not in leaving])  # who withdraws does so before
    if draft.worklist.is_settled:
        _bequeath(draft)
    _balance_all(draft, list(draft.unbalanced))


def _balance_all(draft: ClusterDraft, deployments: Sequence[DeploymentId]) -> None:
    if draft.worklist.is_settled:
        for deployment in deployments:
            del draft.unbalanced[deployment]
            _balance(draft, deployment)


def _of(draft: ClusterDraft, deployment: DeploymentId) -> tuple[Entry, Residency]:
    entry = draft.find(deployment)
    assert entry is not None, f"{deployment} has workers, and there is no such deployment"
    assert entry.residency is not None, f"{deployment} has workers, and no residency"
    return entry, entry.residency


def put(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, residency: Residency) -> None:
    """A deployment with other workers."""
    draft.put(deployment, replace(entry, residency=residency))
    draft.unbalanced[deployment] = None


def on_start(draft: ClusterDraft, deployment: DeploymentId, start: StartReplica) -> None:
    """Ranks ask for a replica; they do so again until it is placed."""
    entry, residency = _of(draft, deployment)
    if start.replica_id in residency.tenures or any(each.replica_id == start.replica_id for each in residency.claims):
        return
    draft.note(ClusterNoteKind.CLAIMED, "T10", deployment, f"{start.replica_id} of version {start.version}")
    versions = residency.versions if start.version in residency.versions else (*residency.versions, start.version)
    put(draft, deployment, entry, replace(residency, claims=(*residency.claims, start), versions=versions))


def on_stop(draft: ClusterDraft, deployment: DeploymentId, stop: StopReplica | KillReplica) -> None:
    """Ranks let a replica go: its worker leaves the GPUs, and one that has none yet has stopped."""
    entry, residency = _of(draft, deployment)
    worker_id = residency.tenures.get(stop.replica_id)
    if worker_id is None:
        claims = tuple(each for each in residency.claims if each.replica_id != stop.replica_id)
        put(draft, deployment, entry, replace(residency, claims=claims))
        draft.worklist.add(deployment, ReplicaStopped(replica_id=stop.replica_id, at=draft.clock))
    elif not draft.weights.placing:
        kill(draft, worker_id, f"nothing is placed, and {stop.replica_id} is to stop")
    elif is_serving(draft.weights.planner, worker_id):
        draft.worklist.add(PLANNER, release(entry, worker_id, draft.clock))


def on_kill(draft: ClusterDraft, deployment: DeploymentId, command: KillReplica) -> None:
    """Ranks have a replica killed: its worker ends, but for a copy that is in its time. They say so again until it has."""
    entry, residency = _of(draft, deployment)
    worker_id = residency.tenures.get(command.replica_id)
    if worker_id is None:
        on_stop(draft, deployment, command)
    elif draft.clock < (until := _copied_until(draft, entry, worker_id)):
        because = f"{command.replica_id} is to be killed, and its worker has until {until:g} s to copy its weights"
        draft.note(ClusterNoteKind.COMMANDS_HELD, "P4", deployment, because)
    else:
        kill(draft, worker_id, f"{command.replica_id} is killed")


def _copied_until(draft: ClusterDraft, entry: Entry, worker_id: WorkerId) -> float:
    """Until when a worker may finish its calls and copy its weights to CPU memory; in the past: it makes no copy."""
    record, spec = draft.weights.planner.replicas.get(worker_id), entry.spec.residency
    if record is None or record.phase is not Phase.LEAVING or not record.cpu_need_bytes or spec is None:
        return -math.inf
    if record.forgets or release(entry, worker_id, draft.clock).keep is Level.COLD:
        return -math.inf  # nobody keeps that copy
    return record.since + entry.ranks.spec.graceful_shutdown_timeout_s + spec.load_timeout_s


SIDEWAYS: dict[type[Command], Callable[[ClusterDraft, DeploymentId, Any], None]] = {
    StartReplica: on_start,
    StopReplica: on_stop,
    KillReplica: on_kill,
}
"""Commands of ranks that are not for the backend, where a deployment has residency."""


def reported(draft: ClusterDraft, residency: Residency, report: ReplicaReported) -> ReplicaReported:
    """What a replica says of itself after a restart. **Race:** it was sent off to leave the GPUs after it had said that."""
    record = draft.weights.planner.replicas.get(residency.tenures.get(report.replica_id, ""))
    leaves = record is not None and record.phase is Phase.LEAVING
    return attrs.evolve(report, draining=True) if leaves and not report.draining else report


def is_serving(planner: ResidencyState, worker_id: WorkerId) -> bool:
    """Whether a worker is HOT, and stays so as far as the planner knows."""
    record = planner.replicas.get(worker_id)
    return record is not None and record.phase is Phase.SERVING


def release(entry: Entry, worker_id: WorkerId, at: float) -> EvictRequested:
    """A worker is not wanted HOT any more; of another version than the deployment's nothing is kept."""
    version = model_id(entry.spec.deployment, entry.ranks.spec.version)
    keep = Level.WARM if worker_id.rpartition("#")[0] == version and not entry.deleting else Level.COLD
    return EvictRequested(replica_id=worker_id, keep=keep, at=at)


def spec_of(draft: ClusterDraft, entry: Entry, version: str) -> ModelSpec:
    """What the planner is told of a version."""
    deployment, residency = entry.spec.deployment, entry.spec.residency
    assert residency is not None, f"{deployment} has no residency"
    spec = model_of(residency, deployment, version, timeout_s=entry.spec.request_timeout_s, dedicated=bool(entry.frozen))
    avoids = draft.weights.refused.get(spec.model, ())
    return replace(spec, avoids=avoids) if avoids else spec


def dedicate(draft: ClusterDraft, entry: Entry) -> None:
    """Nobody is displaced of a deployment about which nothing is decided any more (P6)."""
    planner = draft.weights.planner
    for version in entry.residency.versions if entry.residency is not None else ():
        spec = spec_of(draft, entry, version)
        if spec.model in planner.models:
            wanted = Wanted(spec=spec, replicas=planner.target(spec.model))
            draft.worklist.add(PLANNER, DeployRequested(wanted=(wanted,), at=draft.clock))


def _bequeath(draft: ClusterDraft) -> None:
    """Memory that becomes free goes to a claim of its deployment that has nobody yet."""
    vacated, draft.vacated = draft.vacated, []
    promised: dict[str, int] = {}
    for vacancy in vacated:
        heir = _heir(draft, vacancy, promised)
        if heir is not None:
            promised[heir.model] = promised.get(heir.model, 0) + 1
        draft.worklist.add(PLANNER, replace(vacancy.news, heir=heir))
        draft.unbalanced[vacancy.deployment] = None


def _heir(draft: ClusterDraft, vacancy: Vacancy, promised: dict[str, int]) -> ModelSpec | None:
    entry = draft.find(vacancy.deployment)
    if entry is None or entry.residency is None or entry.frozen:
        return None
    planner = draft.weights.planner
    for version in entry.residency.versions:
        model = model_id(vacancy.deployment, version)
        leaver = planner.replicas.get(vacancy.news.replica_id)
        leaves = leaver is not None and leaver.model == model and leaver.phase is Phase.SERVING
        needed = _needed(entry.residency, planner, model, version, stopping(entry))
        if needed > planner.target(model) - leaves + promised.get(model, 0):
            return spec_of(draft, entry, version)
    return None


def stopping(entry: Entry) -> frozenset[ReplicaId]:
    """Replicas that are let go once the record that waits in front of that is saved."""
    held = (each.command.command for each in entry.outbox.held if isinstance(each.command, CarryOut))
    return frozenset(each.replica_id for each in held if isinstance(each, StopReplica | KillReplica))


def _needed(
    residency: Residency, planner: ResidencyState, model: str, version: str, but_for: frozenset[ReplicaId] = frozenset()
) -> int:
    workers = residency.tenures.values()
    held = sum(each.rpartition("#")[0] == model and is_serving(planner, each) for each in workers)
    return held + sum(each.version == version and each.replica_id not in but_for for each in residency.claims)


def _balance(draft: ClusterDraft, deployment: DeploymentId) -> None:
    """As many workers are wanted HOT as there are replicas that have one or wait for one (T10)."""
    entry = draft.find(deployment)
    if entry is None or entry.residency is None or entry.frozen or not draft.weights.placing:
        return
    lost = [each for each, worker_id in entry.residency.tenures.items() if not _is_known(draft, worker_id)]
    if lost:
        tenures = entry.residency.tenures.mutate()
        for replica_id in lost:
            del tenures[replica_id]
        entry = replace(entry, residency=replace(entry.residency, tenures=tenures.finish()))
        draft.put(deployment, entry)
    assert entry.residency is not None, "it was there"
    for version in entry.residency.versions:
        entry = _give_tenures(draft, deployment, entry, version)
    assert entry.residency is not None, "it was there"
    for version in entry.residency.versions:
        _balance_version(draft, deployment, entry, entry.residency, version)
    kept = tuple(
        each for each in entry.residency.versions if _is_of_use(draft, entry.residency, model_id(deployment, each), each)
    )
    if kept != entry.residency.versions:
        draft.put(deployment, replace(entry, residency=replace(entry.residency, versions=kept)))


def _is_known(draft: ClusterDraft, worker_id: WorkerId) -> bool:
    return worker_id in draft.weights.planner.replicas or worker_id in draft.weights.found


def _is_of_use(draft: ClusterDraft, residency: Residency, model: str, version: str) -> bool:
    if model in draft.weights.planner.models or any(each.version == version for each in residency.claims):
        return True
    return any(each.rpartition("#")[0] == model for each in draft.weights.found)


def to_be_adopted(weights: Weights, residency: Residency, model: str) -> int:
    """Workers that were found HOT or loading, and are no replica: once their node is known they are to be had.

    Who has had news since its report, and is asked again, counts as one of them until it says otherwise.
    """
    taken = set(residency.tenures.values())
    mine = [found for each, found in weights.found.items() if each.rpartition("#")[0] == model and each not in taken]
    return sum(each.report is None or each.report.phase in (Phase.LOADING, Phase.SERVING) for each in mine)


def _give_tenures(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, version: str) -> Entry:
    """The oldest claims get the workers that are HOT and are no replica."""
    residency, planner = entry.residency, draft.weights.planner
    assert residency is not None, f"{deployment} has no residency"
    taken = set(residency.tenures.values())
    free = [each for each in planner.hot_replicas(model_id(deployment, version)) if each not in taken]
    for start, worker_id in zip([each for each in residency.claims if each.version == version], free, strict=False):
        node_id = planner.replicas[worker_id].node_id
        assert node_id is not None, f"{worker_id} is HOT nowhere"
        draft.note(ClusterNoteKind.TENURE_GIVEN, "P4", deployment, f"{worker_id} is {start.replica_id}")
        residency = replace(
            residency,
            tenures=residency.tenures.set(start.replica_id, worker_id),
            claims=tuple(each for each in residency.claims if each is not start),
        )
        entry = replace(entry, residency=residency)
        draft.put(deployment, entry)
        draft.carry_out(deployment, [GiveTenure(deployment, worker_id, start, draft.epoch)])
        draft.worklist.add(deployment, ReplicaPlaced(replica_id=start.replica_id, node_id=node_id, at=draft.clock))
    return entry


def _balance_version(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, residency: Residency, version: str) -> None:
    planner, model = draft.weights.planner, model_id(deployment, version)
    needed, wanted = _needed(residency, planner, model, version), planner.target(model)
    lacking = _needed(residency, planner, model, version, stopping(entry)) - to_be_adopted(draft.weights, residency, model)
    if lacking > wanted:
        asked = Wanted(spec=spec_of(draft, entry, version), replicas=lacking)
        draft.worklist.add(PLANNER, DeployRequested(wanted=(asked,), at=draft.clock))
    elif needed < wanted:
        for worker_id in surplus(planner, residency, model)[: wanted - needed]:
            if draft.weights.unknown_until is None or planner.replicas[worker_id].phase in RELEASED_FIRST[:2]:
                draft.worklist.add(PLANNER, release(entry, worker_id, draft.clock))
    elif not wanted and (version != entry.ranks.spec.version or entry.deleting) and model in planner.models:
        if planner.warm_replicas(model):
            draft.worklist.add(PLANNER, EvictRequested(model=model, keep=Level.COLD, at=draft.clock))


def surplus(planner: ResidencyState, residency: Residency, model: str) -> Sequence[WorkerId]:
    """Workers that are wanted HOT and are no replica, in the order in which they are let go."""
    taken = set(residency.tenures.values())
    spare = [planner.replicas[each] for each in planner.wanted_replicas(model) if each not in taken]
    return [
        each.replica_id
        for each in sorted(spare, key=lambda each: (RELEASED_FIRST.index(each.phase), -serial_of(each.replica_id)))
    ]


def end_tenure(draft: ClusterDraft, worker_id: WorkerId) -> ReplicaId | None:
    """A worker is no replica any more; returns which it was."""
    tenure = tenure_of(draft, worker_id)
    if tenure is None:
        return None
    deployment = deployment_of(worker_id)
    entry = draft.find(deployment)
    assert entry is not None, f"{tenure} is of no deployment"
    assert entry.residency is not None, f"{tenure} is of a deployment without residency"
    draft.note(ClusterNoteKind.TENURE_ENDED, "P4", deployment, f"{worker_id} was {tenure}")
    left = replace(entry.residency, tenures=entry.residency.tenures.delete(tenure))
    put(draft, deployment, entry, left)
    return tenure


def end_with(draft: ClusterDraft, worker_id: WorkerId, because: str = "its worker has ended") -> None:
    """The replica that a worker was has ended with it."""
    tenure = end_tenure(draft, worker_id)
    if tenure is not None:
        news = ReplicaDied(replica_id=tenure, reason=because, at=draft.clock)
        draft.worklist.add(deployment_of(worker_id), news)


def on_final_news(draft: ClusterDraft, entry: Entry, residency: Residency, replica_id: ReplicaId) -> None:
    """A replica has ended, and its worker lives: it is not wanted any more, unless it leaves already (amendment 4)."""
    worker_id = residency.tenures.get(replica_id)
    if worker_id is not None:
        end_tenure(draft, worker_id)
        if is_serving(draft.weights.planner, worker_id):
            draft.worklist.add(PLANNER, release(entry, worker_id, draft.clock))
