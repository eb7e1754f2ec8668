"""Calls that wait where there is no replica: the first one is asked for, and given up where nobody waits any more (P3, D7).

Any number of processes reports what waits there (`rankcore.routing.demand` adds it up). Demand only raises the target from
0 to 1: one replica, once, while none is wanted; more is the autoscaler's (amendment 11). It is saved lazily, and a successor
hears it again.

A target that demand has raised falls again where the demand is gone and the replica has no place, or has one whose last
holder has just left: it would be loaded for nobody (amendment 29). What loads goes on: most of that is paid for.

1. Who waits for a place for `wait_for_room_s` is told that there is none, and demand counts again after `failed_for_s`. What no
   node could ever hold is told so at once, asked for or not, and counts again as soon as one could (`never`).
2. A load that has not ended after `load_timeout_s` is broken off by ending its worker.
3. For a while after a recovery nobody is taken for gone (`Weights.unknown_until`, amendment 15).
4. Who waits where loads have failed for good is told so. Demand after `failed_for_s` has one replica tried again
   (`TrialRequested`): where it is ready the deployment goes on, else those who wait by then are told again.
5. When loads have failed is not saved: clocks of two controllers are not compared. A successor takes them to have failed when
   it began, so one that is restarted over and over tries none. What it finds HOT or loading is for the next who calls.
"""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rankcore.cluster import never, targets
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.events import LoadReported
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.planner import PLANNER, kill
from rankcore.cluster.records import Cause
from rankcore.cluster.residency import ResidencySpec, deployment_of, model_id
from rankcore.cluster.state import Entry, Residency
from rankcore.cluster.tenures import to_be_adopted
from rankcore.events import TrialRequested
from rankcore.residency.events import ReplicaUsed
from rankcore.residency.levels import Phase
from rankcore.residency.state import Resident
from rankcore.routing.demand import COUNTS_S, DemandReport, demand_for, hear, waiting_in
from rankcore.state import DeploymentState
from rankcore.values import DEPLOY_FAILED

Records: TypeAlias = tuple[Resident, ...]
LOOK_EVERY_S = COUNTS_S / 2


class LookAtDemand(Struct, frozen=True, gc=False):
    """For a deployment with residency: it is time to look who waits for it, and for what it waits itself."""


def on_load_reported(draft: ClusterDraft, event: LoadReported) -> None:
    """Who waits for deployments with residency, as this process says now; or a replica, on how many calls it works (D8)."""
    waiting: dict[DeploymentId, int] = {}
    for deployment, load in sorted(event.entries.items()):
        entry = draft.find(deployment)
        if entry is None or entry.residency is None:
            continue
        if not event.reporter.startswith(f"{deployment}#"):
            waiting[deployment] = load.waiting
            continue
        record = draft.weights.planner.replicas.get(entry.residency.tenures.get(event.reporter, ""))
        if record is not None and (load.in_flight or record.in_flight):  # nothing once more is no use
            draft.worklist.add(PLANNER, ReplicaUsed(replica_id=record.replica_id, in_flight=load.in_flight, at=draft.clock))
    if waiting:
        demands = hear(draft.weights.demands, event.reporter, event.incarnation, DemandReport(event.seq, waiting), draft.clock)
        draft.weights = replace(draft.weights, demands=demands)
        for deployment in waiting:
            draft.worklist.add(deployment, LookAtDemand())


def on_look(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, _: LookAtDemand) -> None:
    """See who waits, and who has waited for too long."""
    residency = entry.residency
    assert residency is not None, f"{deployment} has no residency"
    if entry.deleting or not draft.weights.placing:
        return
    _break_off(draft, entry, residency)
    if residency.unfit:
        if residency.failed_until <= draft.clock:  # who waits is heard of again
            draft.put(deployment, replace(entry, residency=replace(residency, failed_until=0.0, unfit="")))
        return
    if _is_overdue(draft, entry, residency):  # 1
        _give_up(draft, deployment, entry, residency, "")
    elif is_gone(draft, entry):
        if entry.target.cause is Cause.DEMAND and entry.target.replicas and _may_withdraw(draft, entry, residency, ()):
            _withdraw(draft, deployment, entry, "nobody waits for it any more")
    elif residency.failed_until <= draft.clock:  # 4
        unfit = never.why(draft.weights, draft.clock, deployment, entry, residency)
        if unfit and not _has_any(draft, deployment, residency):
            return _give_up(draft, deployment, entry, residency, unfit)
        if not entry.target.replicas:
            targets.write(draft, deployment, entry, 1, Cause.DEMAND)
        if is_given_up(entry.ranks) and not entry.ranks.replicas:
            waiting = waiting_in(draft.weights.demands, deployment, draft.clock)
            because = f"{sum(waiting.values())} calls wait for it, in {', '.join(waiting)}"
            draft.note(ClusterNoteKind.TRIED_AGAIN, "D7", deployment, because)
            draft.worklist.add(deployment, TrialRequested(at=draft.clock))


def on_look_at_fit(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, _: never.LookAtFit) -> None:
    """See whether any node could hold it, now that it waits for room or that nodes have changed."""
    residency = entry.residency
    assert residency is not None, f"{deployment} has no residency"
    if entry.deleting:
        return
    unfit = never.why(draft.weights, draft.clock, deployment, entry, residency)
    if residency.unfit and not unfit:
        draft.note(ClusterNoteKind.MAY_FIT, "T18", deployment, "a node could hold it, or is yet to join")
        draft.put(deployment, replace(entry, residency=replace(residency, failed_until=0.0, unfit="")))
    elif unfit and residency.failed_until <= draft.clock and not _has_any(draft, deployment, residency):
        _give_up(draft, deployment, entry, residency, unfit)


def _give_up(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, residency: Residency, unfit: str) -> None:
    """Who calls is told that there is no place for it, and nothing is tried for a while."""
    assert entry.spec.residency is not None, f"{deployment} has no residency"
    if unfit:
        draft.note(ClusterNoteKind.CANT_EVER, "T18", deployment, unfit)
    until = draft.clock + entry.spec.residency.failed_for_s
    entry = replace(entry, residency=replace(residency, failed_until=until, unfit=unfit, unplaced_since=None))
    draft.put(deployment, entry)
    if entry.target.cause is Cause.DEMAND and entry.target.replicas:
        _withdraw(draft, deployment, entry, unfit or "there was no place for it")


def _has_any(draft: ClusterDraft, deployment: DeploymentId, residency: Residency) -> bool:
    """Whether a replica of it is HOT, or has a place."""
    return bool(residency.tenures) or any(each.phase is not Phase.WAITING for each in _wanted(draft, deployment, residency))


def is_given_up(ranks: DeploymentState) -> bool:
    """Whether loads have failed for good, and nothing that works is known."""
    return ranks.status is DEPLOY_FAILED and ranks.proven is None


def after_failure(draft: ClusterDraft, entry: Entry, residency: Residency, before: DeploymentState) -> Entry:
    """Nothing is tried for those who call for a while after the last replica of what has failed for good is gone (4)."""
    ranks, spec = entry.ranks, entry.spec.residency
    if spec is None or not before.replicas or ranks.replicas:
        return entry
    if not is_given_up(ranks) or not ranks.spec.target_replicas:
        return entry
    return replace(entry, residency=replace(residency, failed_until=draft.clock + spec.failed_for_s))


def after_restart(draft: ClusterDraft, spec: ResidencySpec, ranks: DeploymentState, residency: Residency) -> float:
    """Until when nothing is tried for those who call a deployment that is adopted (5)."""
    found = residency.tenures or to_be_adopted(draft.weights, residency, model_id(ranks.spec.name, ranks.spec.version))
    return draft.clock + spec.failed_for_s if is_given_up(ranks) and not found else residency.failed_until


def is_gone(draft: ClusterDraft, entry: Entry) -> bool:
    """Whether nobody waits, as far as is known; for a while after a recovery it is not (3)."""
    return not demand_for(draft.weights.demands, entry.spec.deployment, draft.clock)


def before_vacancy(draft: ClusterDraft, newcomer: Resident, leaver: str) -> None:
    """Memory that a replica waits for is about to be free: nobody is loaded for whom nobody waits (amendment 29)."""
    entry = draft.find(deployment_of(newcomer.replica_id))
    if entry is None or entry.residency is None or entry.frozen or entry.target.cause is not Cause.DEMAND:
        return
    if entry.target.replicas and is_gone(draft, entry) and _may_withdraw(draft, entry, entry.residency, (leaver,)):
        _withdraw(draft, entry.spec.deployment, entry, "nobody waits for it any more")


def _withdraw(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, because: str) -> None:
    draft.note(ClusterNoteKind.WITHDRAWN, "D7", deployment, because)
    targets.write(draft, deployment, entry, 0, Cause.DEMAND)


def _may_withdraw(draft: ClusterDraft, entry: Entry, residency: Residency, leaver: tuple[str, ...]) -> bool:
    """Whether no replica of it is HOT or loads, nor will without a further event; `leaver` is about to leave."""
    if draft.weights.unknown_until is not None or residency.tenures:
        return False
    wanted = _wanted(draft, entry.spec.deployment, residency)
    return all(each.phase is Phase.WAITING or _has_displaced_nobody(draft, each, leaver) for each in wanted)


def _has_displaced_nobody(draft: ClusterDraft, record: Resident, leaver: tuple[str, ...]) -> bool:
    """Whether nobody leaves for it but one who is about to be gone: it is first in line, or is about to be loaded."""
    replicas = draft.weights.planner.replicas
    left = [each for each in record.waits_for if replicas[each].makes_room_for == record.replica_id]
    return record.phase is Phase.RESERVING and set(left) <= set(leaver)


def _wanted(draft: ClusterDraft, deployment: DeploymentId, residency: Residency) -> Records:
    planner = draft.weights.planner
    models = [model_id(deployment, each) for each in residency.versions]
    return tuple(planner.replicas[each] for model in models for each in planner.wanted_replicas(model))


def _is_overdue(draft: ClusterDraft, entry: Entry, residency: Residency) -> bool:
    assert entry.spec.residency is not None, f"{entry.spec.deployment} has no residency"
    since = residency.unplaced_since
    return since is not None and draft.clock >= since + entry.spec.residency.wait_for_room_s


def _break_off(draft: ClusterDraft, entry: Entry, residency: Residency) -> None:
    assert entry.spec.residency is not None, f"{entry.spec.deployment} has no residency"
    for record in _wanted(draft, entry.spec.deployment, residency):
        if record.phase is Phase.LOADING and draft.clock >= record.since + entry.spec.residency.load_timeout_s:  # 2
            kill(draft, record.replica_id, f"its load has not ended for {entry.spec.residency.load_timeout_s:g} s")


def follow(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, residency: Residency) -> Residency:
    """Since when it has had no place, and when to look again."""
    spec = entry.spec.residency
    assert spec is not None, f"{deployment} has no residency"
    wanted = _wanted(draft, deployment, residency)
    unplaced = any(each.phase is Phase.WAITING for each in wanted) and not residency.tenures
    since = residency.unplaced_since if residency.unplaced_since is not None else draft.clock
    due = []
    if not entry.deleting and not entry.frozen and draft.weights.placing:
        if unplaced and residency.failed_until <= draft.clock:
            due.append(max(since + spec.wait_for_room_s, draft.clock + 0.001))
        if residency.failed_until > draft.clock:
            due.append(residency.failed_until)
        loading = [each.since + spec.load_timeout_s for each in wanted if each.phase is Phase.LOADING]
        due += [each if each > draft.clock else draft.clock + LOOK_EVERY_S for each in loading]
        if entry.target.cause is Cause.DEMAND and entry.target.replicas and not residency.tenures:
            due.append(draft.clock + LOOK_EVERY_S)
    look_at = min(due, default=None)
    if residency.look_at is not None and look_at is not None and draft.clock < residency.look_at < look_at:
        look_at = residency.look_at
    unplaced_since = since if unplaced and residency.failed_until <= draft.clock else None
    if (unplaced_since, look_at) == (residency.unplaced_since, residency.look_at):
        return residency
    return replace(residency, unplaced_since=unplaced_since, look_at=look_at)
