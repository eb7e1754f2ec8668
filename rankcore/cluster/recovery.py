"""A controller comes back, or a cluster begins.

What. The store has records, the world has replicas; ranks, places and loads are nowhere but in the replicas (R10). The
successor adopts, of each deployment, the record with the greatest number, and asks every replica what it believes.

1. Its epoch is above that of every earlier controller, and the fence is up: replicas obey nobody else any more. So all that
   can still come of an earlier controller is a put that is on its way to the store.
2. What is adopted is saved again, under this epoch, before anything depends on it: everything waits for that in the outbox. A
   late put of an earlier epoch has a smaller number, whenever it lands, so no later controller prefers it. Without this, a
   controller could act on a record that its own successor does not adopt.
3. Replicas of a deployment that has no record, or whose record says that it is deleted, are killed. Those of a deployment
   whose newest record cannot be read are left as they are: it was wanted by somebody.
4. Records are of one deployment each, so of a prefix that moved from one application to another the newer record may have
   landed and the older one's change not. Of two that have a prefix the newer keeps it: it was written once the other had none.
5. A deployment whose replicas cannot be adopted because of a bug is left as it is too, and all others are recovered (P6). So is
   one that has a replica of this epoch or a later one, which no earlier controller can have started.

It ends when all replicas have reported or their time is up, each deployment for itself. It costs one read of the store, and a
put and one question per deployment and replica.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from rankcore import checks
from rankcore.cluster import adoption
from rankcore.cluster.commands import CarryOut
from rankcore.cluster.draft import ClusterDraft, RankStep
from rankcore.cluster.names import DeploymentId, application_of, owner_of
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.records import EPOCH_BITS, Record, newest
from rankcore.cluster.residency import WorkerId
from rankcore.cluster.state import Application, ClusterState, ClusterStep, Weights
from rankcore.cluster.step import finish
from rankcore.commands import KillReplica
from rankcore.core import EPOCH_MAX
from rankcore.errors import InvalidEventError
from rankcore.frozen import FrozenDict
from rankcore.residency.spec import ResidencyPolicy
from rankcore.residency.state import open_residency
from rankcore.values import NodeId, ReplicaId, age_key

NO_WORKERS: Mapping[WorkerId, NodeId] = FrozenDict()

T = TypeVar("T")


def recover_cluster(
    records: Iterable[Record],
    replica_ids: Iterable[ReplicaId],
    *,
    at: float,
    epoch: int,
    unreadable: Iterable[DeploymentId] = (),
    workers: Mapping[WorkerId, NodeId] = NO_WORKERS,
    placing: bool = True,
    policy: ResidencyPolicy | None = None,
    trace: list[RankStep] | None = None,
) -> ClusterStep:
    """Take a cluster over after the controller was restarted; without records, begin a new one.

    Args:
        records: All that the store has, in any order, of one deployment perhaps several: the greatest number counts.
        replica_ids: Every replica that was found once the fence against the old controller was up (section 2.4).
        at: Now, in seconds on the executor's clock.
        epoch: Of this controller; above that of every earlier one.
        unreadable: Deployments whose newest record cannot be read: they and their replicas are left alone.
        workers: Every worker that was found then, and on which node: those of deployments with residency (`adoption`).
        placing: Whether weights are placed at all (`planner.may_place`).
        policy: How the planner of weights weighs displacement; None: as usual.
        trace: Becomes the steps that the ranks of single deployments took.

    Returns:
        The first step: its commands save the records under the new epoch, and kill the replicas of unknown deployments; then
        ask every replica what it believes, once its deployment's record is saved.

    Raises:
        InvalidEventError: An argument is not what it may be, or an id occurs twice.
    """
    checks.seconds(InvalidEventError, "recover_cluster.at", at)
    checks.count(InvalidEventError, "recover_cluster.epoch", epoch, 1, EPOCH_MAX)
    adopted = _adopted(records, epoch)
    found = _by_owner(replica_ids)
    left_alone = dict.fromkeys(sorted(_ids("recover_cluster.unreadable", unreadable)))
    checks.flag(InvalidEventError, "recover_cluster.placing", placing)
    weights = Weights(open_residency(policy, at=at, epoch=epoch), placing=placing)
    state = ClusterState(epoch, at, revision=epoch << EPOCH_BITS, weights=weights)
    draft = ClusterDraft(state, at, {})
    for deployment, replicas in found.items():
        odd = [each for each in replicas if age_key(each)[0] >= epoch]
        if odd:  # 5
            draft.note(ClusterNoteKind.LEFT_ALONE, "P6", deployment, f"{odd[0]} is not of an epoch before {epoch}")
            left_alone[deployment] = None
    adoption.discover(draft, workers, adopted, left_alone)
    for deployment, record in adopted.items():
        if deployment in left_alone or record.deleted:
            continue
        if not adoption.is_known(draft, deployment) and record.applied.residency is not None:
            draft.weights = replace(draft.weights, recovering=draft.weights.recovering.set(deployment, record))
            continue
        try:
            adoption.adopt(draft, record, found.get(deployment, []))  # 2
        except Exception as error:  # 5
            draft.note(ClusterNoteKind.LEFT_ALONE, "P6", deployment, f"{type(error).__name__}: {error}")
            left_alone[deployment] = None
    for deployment, strangers in found.items():
        if deployment in left_alone:
            draft.note(ClusterNoteKind.LEFT_ALONE, "P2", deployment, f"{len(strangers)} replicas")
        elif deployment not in draft.entries and deployment not in draft.weights.recovering:
            draft.note(ClusterNoteKind.UNKNOWN, "2", deployment, f"{len(strangers)} replicas were found")  # 3
            kills = [CarryOut(deployment, KillReplica(each, epoch)) for each in strangers]
            draft.released.setdefault(deployment, []).extend(kills)
    _settle_prefixes(draft, adopted)
    _list_applications(draft)
    finish(draft)
    if trace is not None:
        trace[:] = draft.traced
    step = draft.close()
    return step._replace(state=replace(step.state, left_alone=tuple(sorted(left_alone))))


def _several(field: str, found: Iterable[T], what: str) -> tuple[T, ...]:
    if isinstance(found, str) or not isinstance(found, Iterable):  # of a string, each letter would be one
        raise InvalidEventError(field, found, f"{what}, as a list or another iterable, and not a single one")
    return tuple(found)


def _ids(field: str, ids: Iterable[str]) -> tuple[str, ...]:
    known = _several(field, ids, "ids")
    for index, each in enumerate(known):
        checks.identifier(InvalidEventError, f"{field}[{index}]", each)
    return known


def _adopted(records: Iterable[Record], epoch: int) -> dict[DeploymentId, Record]:
    known = _several("recover_cluster.records", records, "records")
    for index, record in enumerate(known):
        if not isinstance(record, Record):
            raise InvalidEventError(f"recover_cluster.records[{index}]", record, "a Record")
        if record.epoch >= epoch:
            raise InvalidEventError(f"recover_cluster.records[{index}].number", record.number, f"of an epoch before {epoch}")
    return newest(known)


def _by_owner(replica_ids: Iterable[ReplicaId]) -> dict[DeploymentId, list[ReplicaId]]:
    found: dict[DeploymentId, list[ReplicaId]] = {}
    seen: set[ReplicaId] = set()
    for index, replica_id in enumerate(_several("recover_cluster.replica_ids", replica_ids, "ids")):
        field = f"recover_cluster.replica_ids[{index}]"
        checks.identifier(InvalidEventError, field, replica_id)
        deployment = owner_of(field, replica_id)
        if replica_id in seen:
            raise InvalidEventError(field, replica_id, "an id that occurs once")
        seen.add(replica_id)
        found.setdefault(deployment, []).append(replica_id)
    return dict(sorted(found.items()))


def _settle_prefixes(draft: ClusterDraft, adopted: dict[DeploymentId, Record]) -> None:
    owners: dict[str, DeploymentId] = {}
    for deployment in sorted(draft.entries, key=lambda each: -adopted[each].number):
        entry = draft.entries[deployment]
        if entry.route_prefix is None:
            continue
        owner = owners.setdefault(entry.route_prefix, deployment)
        if owner != deployment:  # 4
            draft.note(ClusterNoteKind.LATE, "P2", deployment, f"{entry.route_prefix} is of {owner} by a newer record")
            draft.entries[deployment] = replace(entry, route_prefix=None)


def _list_applications(draft: ClusterDraft) -> None:
    members: dict[str, list[DeploymentId]] = {}
    for deployment in sorted(draft.entries):
        members.setdefault(application_of(deployment), []).append(deployment)
    for name, deployments in members.items():
        ingress = [each for each in deployments if draft.entries[each].is_ingress and not draft.entries[each].deleting]
        first = ingress[0] if ingress else None
        prefix = draft.entries[first].route_prefix if first is not None else None
        draft.applications = draft.applications.set(name, Application(tuple(deployments), first, prefix))
