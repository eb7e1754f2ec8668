"""What users want: applications so, a deployment larger or smaller, some of it gone. All of a request is taken, or nothing."""

from collections.abc import Iterable

import attrs
from msgspec.structs import replace

from rankcore import core
from rankcore.cluster import nodes, outbox, ranking, scaling, targets
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.events import ApplyRequested, ChangeRequested, DeletionRequested, DeploymentRetryRequested, ScaleRequested
from rankcore.cluster.names import DeploymentId, application_of, owner_of
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.planner import PLANNER
from rankcore.cluster.records import Cause, Record
from rankcore.cluster.residency import model_id
from rankcore.cluster.spec import ApplicationSpec, EntrySpec, check_number
from rankcore.cluster.state import Application, Entry, Residency
from rankcore.errors import InvalidEventError, InvalidSpecError, UnknownDeploymentError
from rankcore.events import DeleteRequested, ReplaceRequested, ReplicasLeave, SpecChanged, StopRequested
from rankcore.residency.events import EvictRequested
from rankcore.residency.levels import Level
from rankcore.values import DRAINING, ReplicaId


def on_apply(draft: ClusterDraft, event: ApplyRequested) -> None:
    """Bring the applications to what is wanted; the same again changes nothing (amendment 30)."""
    names = [each.name for each in event.applications]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidSpecError(f"ApplyRequested.applications[{index}].name", name, "a name that occurs once")
    others = [name for name in sorted(draft.applications) if name not in names]
    _check_prefixes(draft, event.applications, () if event.prune else others)
    for application in event.applications:
        _apply(draft, application)
    if event.prune:
        for name in others:
            _delete_all(draft, draft.applications[name].deployments)


def _check_prefixes(draft: ClusterDraft, wanted: tuple[ApplicationSpec, ...], others: Iterable[str]) -> None:
    """Two applications on one prefix would answer each other's requests."""
    taken = {draft.applications[name].route_prefix: name for name in others}
    for index, application in enumerate(wanted):
        prefix = application.route_prefix
        if prefix is not None and prefix in taken:
            field = f"ApplyRequested.applications[{index}].route_prefix"
            raise InvalidSpecError(field, prefix, f"one that application {taken[prefix]!r} does not have")
        taken[prefix] = application.name


def _apply(draft: ClusterDraft, application: ApplicationSpec) -> None:
    wanted = [each.deployment for each in application.deployments]
    before = draft.applications.get(application.name)
    if before is not None:
        _delete_all(draft, [each for each in before.deployments if each not in wanted])
    for spec in application.deployments:
        is_ingress = spec.deployment == application.ingress
        prefix = application.route_prefix if is_ingress else None
        if spec.deployment in draft.state.left_alone:
            allowed = "a deployment whose record can be read: remove the record and end its replicas first"
            raise InvalidEventError("ApplyRequested.applications", spec.deployment, allowed)
        _check_recovered(draft, "ApplyRequested.applications", spec.deployment)
        entry = draft.find(spec.deployment)
        if entry is None:
            begin(draft, spec, prefix, is_ingress)
        else:
            check_changeable(entry, "ApplyRequested.applications")
            _change(draft, entry, _restarted_as_before(entry, spec), prefix, is_ingress)
    going = () if before is None else tuple(each for each in before.deployments if each not in wanted)
    kept = Application(tuple(sorted((*wanted, *going))), application.ingress, application.route_prefix)
    draft.applications = draft.applications.set(application.name, kept)


def _restarted_as_before(entry: Entry, spec: EntrySpec) -> EntrySpec:
    """A spec that names no restart token keeps the one that there is: a file that is applied again restarts nothing (V10)."""
    token = entry.spec.ranks.restart_token
    if spec.ranks.restart_token or not token:
        return spec
    return attrs.evolve(spec, ranks=attrs.evolve(spec.ranks, restart_token=token))


def _check_recovered(draft: ClusterDraft, field: str, deployment: DeploymentId) -> None:
    if deployment in draft.weights.recovering:
        raise InvalidEventError(field, deployment, "a deployment whose workers have all reported: try again")


def begin(draft: ClusterDraft, spec: EntrySpec, prefix: str | None, is_ingress: bool) -> None:
    """A deployment begins: its record first."""
    deployment, target = spec.deployment, targets.first(spec)
    ranks_spec = targets.in_force(spec, target)
    step = core.deploy(
        ranks_spec,
        at=draft.clock,
        epoch=draft.epoch,
        first_serial=draft.state.first_serial,
        first_revision=draft.state.first_revision,
    )
    record = Record(
        deployment=deployment,
        number=draft.next_number(),
        applied=spec,
        spec=ranks_spec,
        route_prefix=prefix,
        is_ingress=is_ingress,
    )
    entry = Entry(
        spec,
        step.state,
        target,
        outbox.begin(record, draft.clock),
        scaling.follow_spec(None, spec, draft.clock),
        prefix,
        is_ingress,
        residency=None if spec.residency is None else Residency(),
    )
    draft.note(ClusterNoteKind.APPLIED, "P2", deployment, f"new, with a target of {target.replicas}")
    draft.put(deployment, ranking.take(draft, deployment, entry, step))
    nodes.follow_spec(draft, deployment, ranks_spec)


def _change(draft: ClusterDraft, entry: Entry, spec: EntrySpec, prefix: str | None, is_ingress: bool) -> None:
    deployment = spec.deployment
    if (spec.residency is None) is not (entry.spec.residency is None):
        allowed = "as it was, with or without: delete the deployment first"
        raise InvalidEventError("ApplyRequested.applications", f"{deployment}: residency", allowed)
    same_routes = (entry.route_prefix, entry.is_ingress) == (prefix, is_ingress)
    is_served = entry.ranks.spec.build == entry.spec.ranks.build
    if spec == entry.spec and same_routes and is_served:
        draft.note(ClusterNoteKind.UNCHANGED, "P2", deployment, "applied before")
        return
    target = targets.applied(entry, spec)
    scaler = scaling.follow_spec(entry.scaler, spec, draft.clock)
    draft.note(ClusterNoteKind.APPLIED, "P2", deployment, f"changed, with a target of {target.replicas}")
    residency = None if entry.residency is None else replace(entry.residency, failed_until=0.0, unfit="")  # it is tried (D7)
    changed = replace(
        entry, spec=spec, target=target, scaler=scaler, route_prefix=prefix, is_ingress=is_ingress, residency=residency
    )
    draft.put(deployment, changed)
    if residency is not None:
        draft.unbalanced[deployment] = None  # of a version that is replaced no copy stays
    ranks_spec = targets.in_force(spec, target)
    nodes.follow_spec(draft, deployment, ranks_spec)
    if ranks_spec != entry.ranks.spec:
        draft.worklist.add(deployment, SpecChanged(spec=ranks_spec, at=draft.clock))


def check_changeable(entry: Entry, field: str) -> None:
    """Raise `InvalidEventError` for a deployment that is on its way out, or frozen."""
    if entry.deleting:
        raise InvalidEventError(field, entry.spec.deployment, "a deployment that is not being deleted: wait until it is gone")
    if entry.frozen:
        allowed = f"a deployment that is not frozen: restart the controller, or delete it ({entry.frozen})"
        raise InvalidEventError(field, entry.spec.deployment, allowed)


def on_change(draft: ClusterDraft, event: ChangeRequested) -> None:
    """Another spec of one deployment."""
    entry = known(draft, "ChangeRequested.spec", event.spec.deployment)
    check_changeable(entry, "ChangeRequested.spec")
    _change(draft, entry, event.spec, entry.route_prefix, entry.is_ingress)


def on_retry(draft: ClusterDraft, event: DeploymentRetryRequested) -> None:
    """What failed in one deployment is tried again now."""
    entry = known(draft, "DeploymentRetryRequested.deployment", event.deployment)
    check_changeable(entry, "DeploymentRetryRequested.deployment")
    draft.worklist.add(event.deployment, attrs.evolve(event.for_ranks(), at=draft.clock))


def on_scale(draft: ClusterDraft, event: ScaleRequested) -> None:
    """Another number of replicas, by hand."""
    entry = known(draft, "ScaleRequested.deployment", event.deployment)
    check_changeable(entry, "ScaleRequested.deployment")
    for index, replica_id in enumerate(event.stop_first):
        if owner_of(f"ScaleRequested.stop_first[{index}]", replica_id) != event.deployment:
            field = f"ScaleRequested.stop_first[{index}]"
            raise UnknownDeploymentError(field, replica_id, f"an id of deployment {event.deployment!r}")
    if entry.scaler is not None:
        allowed = "left to the autoscaler: min_replicas and max_replicas bound the number of replicas"
        raise InvalidEventError("ScaleRequested.target_replicas", event.target_replicas, allowed)
    check_number(event.target_replicas)
    attrs.evolve(entry.ranks.spec, target_replicas=event.target_replicas)  # raises for one that cannot be had
    if event.target_replicas == entry.target.replicas:
        draft.note(ClusterNoteKind.UNCHANGED, "R9", event.deployment, f"the target is {event.target_replicas} already")
        return
    targets.write(draft, event.deployment, entry, event.target_replicas, Cause.USER, *event.stop_first)


def on_deletion(draft: ClusterDraft, event: DeletionRequested) -> None:
    """Some of it is to go; what is going already goes on."""
    for name in event.applications:
        if name not in draft.applications:
            raise UnknownDeploymentError("DeletionRequested.applications", name, _one_of(sorted(draft.applications)))
        _delete_all(draft, draft.applications[name].deployments)
    for deployment in event.deployments:
        known(draft, "DeletionRequested.deployments", deployment)
        _delete_all(draft, (deployment,))


def _delete_all(draft: ClusterDraft, deployments: Iterable[DeploymentId]) -> None:
    for deployment in deployments:
        entry = draft.find(deployment)
        assert entry is not None, f"{deployment} is of an application, and there is no such deployment"
        if entry.deleting and not entry.frozen:
            draft.note(ClusterNoteKind.LATE, "2.3", deployment, "it is being deleted already")
            continue
        draft.note(ClusterNoteKind.DELETION_BEGUN, "P2", deployment, "asked for")
        thawed = draft.broken.get(deployment, "")
        draft.put(deployment, replace(entry, deleting=True, frozen=thawed, scaler=None, route_prefix=None))
        draft.worklist.add(deployment, DeleteRequested(at=draft.clock))
        _give_up_prefix(draft, deployment)
        _evict(draft, replace(entry, deleting=True), Level.COLD)


def _give_up_prefix(draft: ClusterDraft, deployment: DeploymentId) -> None:
    """The path of an ingress that goes is free at once: another application may have it while calls end here."""
    name = application_of(deployment)
    application = draft.applications[name]
    if application.ingress == deployment:
        draft.applications = draft.applications.set(name, replace(application, ingress=None, route_prefix=None))


def on_evict(draft: ClusterDraft, event: EvictRequested) -> None:
    """Replicas leave the GPUs for good: one, or all of a deployment. The target falls with them."""
    name = "model" if event.model is not None else "replica_id"
    field, what = f"EvictRequested.{name}", event.model or event.replica_id or ""
    deployment = what if event.model is not None else owner_of(field, what)
    entry = known(draft, field, deployment)
    if entry.residency is None:
        raise InvalidEventError(field, what, "of a deployment with residency")
    check_changeable(entry, field)
    if event.model is None:
        draft.worklist.add(deployment, ReplicasLeave(replica_ids=(what,), at=draft.clock))
        worker_id = entry.residency.tenures.get(what)
        if worker_id is not None:
            draft.worklist.add(PLANNER, EvictRequested(replica_id=worker_id, keep=event.keep, at=draft.clock))
        return
    live = tuple(sorted(each for each, replica in entry.ranks.replicas.items() if replica.state is not DRAINING))
    draft.worklist.add(deployment, ReplicasLeave(replica_ids=live, at=draft.clock))
    _evict(draft, entry, event.keep)


def _evict(draft: ClusterDraft, entry: Entry, keep: Level) -> None:
    """Its workers are HOT no longer, and where nothing is to be kept its copies go too."""
    for version in entry.residency.versions if entry.residency is not None else ():
        model = model_id(entry.spec.deployment, version)
        if model in draft.weights.planner.models:
            draft.worklist.add(PLANNER, EvictRequested(model=model, keep=keep, at=draft.clock))


def on_named(draft: ClusterDraft, event: StopRequested | ReplicasLeave | ReplaceRequested) -> None:
    """Replicas are to go by name, to be replaced or for good: handed on to the deployments that they are of."""
    field = f"{type(event).__name__}.replica_ids"
    owners: dict[DeploymentId, list[ReplicaId]] = {}
    for index, replica_id in enumerate(event.replica_ids):
        deployment = owner_of(f"{field}[{index}]", replica_id)
        entry = known(draft, f"{field}[{index}]", deployment)
        if isinstance(event, ReplaceRequested) and entry.residency is not None:
            raise InvalidEventError(f"{field}[{index}]", replica_id, "of a deployment whose weights are never COLD")
        owners.setdefault(deployment, []).append(replica_id)
    for deployment, replica_ids in sorted(owners.items()):
        draft.worklist.add(deployment, attrs.evolve(event, replica_ids=tuple(replica_ids)))


def known(draft: ClusterDraft, field: str, deployment: DeploymentId) -> Entry:
    """The deployment of this id.

    Raises:
        UnknownDeploymentError: There is none; the text lists what may have been meant.
    """
    _check_recovered(draft, field, deployment)
    entry = draft.find(deployment)
    if entry is None:
        meant = draft.state.find(deployment) or tuple(sorted(draft.state.deployments))
        raise UnknownDeploymentError(field, deployment, _one_of(meant))
    return entry


def _one_of(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "")
    return f"one of {shown}" if listed else "of something that there is; there is nothing"
