"""The machine: `deploy` and `recover` begin a deployment's state, `step` takes it from event to event.

All three are pure: they read nothing but their arguments and change nothing but what they return. Randomness, clocks and
effects are the executor's. The order of the rules within a step is that of section 2.5 of the design.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from rankcore import checks, kernel
from rankcore.book import bundles
from rankcore.draft import Draft, Step
from rankcore.errors import InvalidEventError, UnknownDeploymentError
from rankcore.events import (
    BundleLost,
    BundleRestored,
    ClockAdvanced,
    DeleteRequested,
    Event,
    NodeChanged,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicasLeave,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
    ReplicaUnready,
    RetryRequested,
    SpecChanged,
    StopRequested,
    TrialRequested,
)
from rankcore.notes import LATE, NoteKind
from rankcore.rules import evict, forget, machines, news, overlap, preempt, prepare, recovery, requests, retry, static, unready
from rankcore.rules.bind import await_kept_rank, bind
from rankcore.rules.compact import compact
from rankcore.rules.conclude import conclude, is_at_rest
from rankcore.rules.configure import configure
from rankcore.rules.endings import ended
from rankcore.rules.failures import withdraw
from rankcore.rules.fill import fill, on_trial_requested
from rankcore.rules.roll import roll
from rankcore.rules.scarcity import relieve
from rankcore.rules.shrink import shrink
from rankcore.rules.timeouts import expire
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Replica
from rankcore.values import DELETED, DELETING, DEPLOY_FAILED, DeploymentStatus, ReplicaId, age_key

EPOCH_MAX = 2**31 - 1
"""Revisions start at epoch << 32 and have to fit into 63 bits."""


def deploy(spec: DeploymentSpec, *, at: float = 0.0, epoch: int = 1, first_serial: int = 0, first_revision: int = 0) -> Step:
    """Begin a new deployment.

    Args:
        spec: What the user wants.
        at: Now, in seconds on the executor's clock.
        epoch: Of this controller; above that of every earlier one.
        first_serial: Above the serials in the ids of all replicas that deployments of this name had in this epoch.
        first_revision: Above all their revisions.

    Returns:
        The first step: its commands start the replicas.

    Raises:
        InvalidEventError: An argument is not what it may be.
    """
    _check_beginning("deploy", spec, at, epoch)
    draft = Draft.new(spec, DeploymentStatus.UPDATING, epoch, at)
    draft.next_serial, draft.revision = first_serial, max(draft.revision, first_revision)
    bundles.follow_spec(draft)
    draft.configs = draft.configs.set(spec.config_id, spec.user_config)
    requests.announce(draft, f"deployed with a target of {spec.target_replicas}")
    return _settle(draft)


def recover(
    spec: DeploymentSpec,
    replica_ids: Iterable[ReplicaId],
    *,
    at: float,
    epoch: int,
    previous: DeploymentSpec | None = None,
    deleting: bool = False,
    failed: bool = False,
) -> Step:
    """Take a deployment over after the controller was restarted (R10).

    Args:
        spec: The spec in force, from the checkpoint.
        replica_ids: Every replica that was found once the fence against the old controller was up (section 2.4).
        at: Now, in seconds on the executor's clock.
        epoch: Of this controller; above that of every earlier one.
        previous: The last spec that was ever healthy, from the checkpoint, for a rollback.
        deleting: Whether the deployment was being deleted.
        failed: Whether it was DEPLOY_FAILED. It stays so, unless a replica that was found is ready on the build of `spec`.

    Returns:
        The first step: its commands ask every replica what it believes. No rank is given out until all have answered or ended.

    Raises:
        InvalidEventError: An argument is not what it may be, or an id occurs twice.
        UnknownDeploymentError: An id, or `previous`, is of another deployment.
    """
    _check_beginning("recover", spec, at, epoch)
    found = _check_discovered(spec, replica_ids, epoch)
    if previous is not None and not isinstance(previous, DeploymentSpec):
        raise InvalidEventError("recover.previous", previous, "a DeploymentSpec or None")
    if previous is not None and previous.name != spec.name:
        raise UnknownDeploymentError("recover.previous.name", previous.name, f"{spec.name!r}")
    checks.flag(InvalidEventError, "recover.deleting", deleting)
    checks.flag(InvalidEventError, "recover.failed", failed)
    draft = Draft.new(spec, _status_found(deleting, failed), epoch, at)
    bundles.follow_spec(draft)
    # Whatever was healthy once is proven. The version that was asked for last proves itself again by a report.
    draft.previous = draft.proven = previous
    for known in (previous, spec):
        if known is not None:
            draft.configs = draft.configs.set(known.config_id, known.user_config)
    requests.announce(draft, f"recovered with a target of {spec.target_replicas}")
    draft.note(NoteKind.RECOVERY_STARTED, "R10", because=f"{len(found)} replicas were found")
    if draft.status is DEPLOY_FAILED:
        because = f"version {spec.version!r} failed before the restart, and is not tried again"
        draft.note(NoteKind.DEPLOY_FAILED, "2.3", because=because)
    draft.recovery = replace(draft.recovery, repaired=deleting, routes_complete=False)
    for replica_id in found:
        recovery.discover(draft, replica_id)
    if deleting:
        requests.delete(draft)
    elif found:
        due = at + spec.health_check_timeout_s
        draft.recovery = replace(draft.recovery, reports_due_at=due)
        draft.wake(due)
    return _settle(draft)


def step(state: DeploymentState, event: Event) -> Step:
    """One event, applied to one state.

    Args:
        state: Any state that `deploy`, `recover` or `step` returned. It stays valid.
        event: What happened. Late, repeated and overtaken news is expected, and leaves a note.

    Returns:
        The next state, the commands to carry out, in order, and the notes that say why.

    Raises:
        InvalidEventError: The event is none, or the state is none. Nothing is changed.
        UnknownDeploymentError: The event speaks of another deployment. Nothing is changed.
    """
    handler = kernel.handler_of(_HANDLERS, event, "one of the classes in rankcore.events")
    if not isinstance(state, DeploymentState):
        raise InvalidEventError("state", state, "a DeploymentState")
    draft = Draft.open(state)
    at = event.at
    if at > draft.clock:
        draft.clock = at
    handler(draft, event)
    if draft.idle and (draft.wake_at is None or draft.clock < draft.wake_at):
        return _unchanged(state, draft)
    return _settle(draft)


def _unchanged(state: DeploymentState, draft: Draft) -> Step:
    """The rules have been applied to this state until it asked for nothing more, and nothing new is due."""
    if draft.clock != state.clock:
        state = DeploymentState(state.spec, state.status, state.epoch, draft.clock, state.tables)
    return tuple.__new__(kernel.Step, (state, (), tuple(draft.notes)))


def _settle(draft: Draft) -> Step:
    """Apply the rules in their order until the state asks for nothing more: those that there is anything to do for."""
    if draft.wake_at is not None and draft.clock >= draft.wake_at:
        expire(draft)
    departed = draft.evictions.departed
    if departed.items and departed.first().at + draft.spec.node_memory_s <= draft.clock:
        forget.forget(draft)
    at_rest = False
    status = draft.status
    if status is not DELETING and status is not DELETED and not draft.recovery.unreported:
        if not draft.recovery.repaired:
            recovery.repair(draft)
        beyond = draft.taken.taken.highest() >= draft.spec.target_replicas
        if beyond or draft.recovery.losers or draft.recovery.owed or draft.named:
            shrink(draft)
        if draft.recovery.prepared:
            prepare.employ_found(draft)
        if draft.rollout.surging.size:
            overlap.let_go(draft)
        if draft.early and draft.status is DEPLOY_FAILED:
            withdraw(draft)
        short = draft.requested.size or draft.ready.size or len(draft.slots) < draft.spec.target_replicas
        if short and (draft.rollout.surging.size or draft.placed):
            bind(draft)
        if draft.to_prepare:
            prepare.prepare(draft)
        if draft.recheck:
            static.recheck(draft)
        fill(draft)
        if draft.recheck:
            static.recheck(draft)
        if draft.recovery.misplaced:
            recovery.align(draft)
        if draft.evictions.ranks.size:
            evict.evict(draft)
        if draft.rollout.unstarted.size or draft.rollout.running.size or draft.bundles.misfits.size:
            roll(draft)
        if draft.rollout.stale_config:
            configure(draft)
        at_rest = is_at_rest(draft)
        if at_rest or draft.spec.compaction == "immediate":
            compact(draft, at_rest)
        if draft.roomless.size or (draft.spec.placement is not None and (draft.requested.size or draft.waiting)):
            relieve(draft)
        if draft.recheck:
            static.recheck(draft)
        if draft.rollout.surging.size and draft.kept_below:
            await_kept_rank(draft)
    conclude(draft, at_rest)
    return draft.close()


def _status_found(deleting: bool, failed: bool) -> DeploymentStatus:
    if deleting:
        return DELETING
    return DEPLOY_FAILED if failed else DeploymentStatus.RECOVERING


def _check_beginning(what: str, spec: object, at: object, epoch: object) -> None:
    if not isinstance(spec, DeploymentSpec):
        raise InvalidEventError(f"{what}.spec", spec, "a DeploymentSpec")
    checks.seconds(InvalidEventError, f"{what}.at", at)
    checks.count(InvalidEventError, f"{what}.epoch", epoch, 1, EPOCH_MAX)


def _check_discovered(spec: DeploymentSpec, replica_ids: Iterable[ReplicaId], epoch: int) -> list[ReplicaId]:
    if isinstance(replica_ids, str) or not isinstance(replica_ids, Iterable):
        raise InvalidEventError("recover.replica_ids", replica_ids, "a collection of replica ids")
    found = list(replica_ids)
    seen: set[ReplicaId] = set()
    for index, replica_id in enumerate(found):
        field = f"recover.replica_ids[{index}]"
        checks.identifier(InvalidEventError, field, replica_id)
        checks.of_deployment(spec.name, field, replica_id)
        if age_key(replica_id)[0] >= epoch:
            raise InvalidEventError(field, replica_id, f"an id of an epoch before {epoch}: epochs only grow")
        if replica_id in seen:
            raise InvalidEventError(field, replica_id, "an id that occurs once")
        seen.add(replica_id)
    return sorted(found, key=age_key)


Handler = Callable[[Draft, Any], None]


def _about_live(then: Callable[[Draft, Any, Replica], None]) -> Handler:
    """News that only a live replica can have caused: a stranger is killed."""

    def handle(draft: Draft, event: Any) -> None:
        replica = draft.replicas.get(event.replica_id)
        if replica is not None:
            then(draft, event, replica)
        else:
            checks.of_deployment(draft.spec.name, f"{type(event).__name__}.replica_id", event.replica_id)
            news.stranger(draft, event, event.replica_id)

    return handle


def _about_end(reason: Callable[[Any], str]) -> Handler:
    """Final news of one replica."""

    def handle(draft: Draft, event: Any) -> None:
        replica = draft.replicas.get(event.replica_id)
        if replica is not None:
            ended(draft, replica, reason(event))
        else:
            checks.of_deployment(draft.spec.name, f"{type(event).__name__}.replica_id", event.replica_id)
            draft.note(LATE, "2", event.replica_id, f"{type(event).__name__} of a replica that is gone")
            draft.idle = True

    return handle


def _on_clock_advanced(draft: Draft, _event: ClockAdvanced) -> None:
    """The clock is advanced by every event, and what is due is done after every event."""
    draft.idle = True


_HANDLERS: dict[type[object], Handler] = {
    SpecChanged: requests.on_spec_changed,
    ReplicaPlaced: _about_live(news.on_placed),
    ReplicaPrepared: _about_live(prepare.on_prepared),
    ReplicaReady: _about_live(news.on_ready),
    ReplicaStartFailed: _about_end(lambda event: f"start failed: {event.reason}"),
    ReplicaDied: _about_end(lambda event: f"died: {event.reason}"),
    ReplicaStopped: _about_end(lambda _: "stopped"),
    ReplicaReconfigured: _about_live(news.on_reconfigured),
    ReplicaReconfigureFailed: _about_live(news.on_reconfigure_failed),
    ReplicaReported: _about_live(recovery.on_reported),
    ReplicaMissing: _about_end(lambda _: "not to be found"),
    ReplicaUnhealthy: _about_live(news.on_unhealthy),
    ReplicaUnready: _about_live(unready.on_unready),
    ReplicaPending: _about_live(news.on_pending),
    NodeChanged: machines.on_node_changed,
    NodeLost: machines.on_node_lost,
    BundleLost: static.on_bundle_lost,
    BundleRestored: static.on_bundle_restored,
    ClockAdvanced: _on_clock_advanced,
    StopRequested: requests.on_stop_requested,
    NodeCordoned: evict.on_node_cordoned,
    NodeUncordoned: evict.on_node_uncordoned,
    NodeDrainRequested: evict.on_node_drain_requested,
    ReplaceRequested: evict.on_replace_requested,
    ReplicasLeave: preempt.on_replicas_leave,
    RetryRequested: retry.on_retry_requested,
    TrialRequested: on_trial_requested,
    DeleteRequested: requests.on_delete_requested,
}
