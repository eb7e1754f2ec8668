"""What users want: another spec, certain replicas stopped, the deployment deleted."""

from operator import attrgetter

import attrs
from msgspec.structs import replace

from rankcore import checks
from rankcore.commands import AnnounceWorldSize
from rankcore.draft import Draft
from rankcore.errors import UnknownDeploymentError
from rankcore.events import DeleteRequested, SpecChanged, StopRequested
from rankcore.frozen import EMPTY
from rankcore.lifecycle import Milestone
from rankcore.notes import LATE, SPEC_APPLIED, WORLD_SIZE_CHANGED, NoteKind
from rankcore.rules import evict, leaving, prepare, recovery, static
from rankcore.rules.bind import dismiss_surplus
from rankcore.rules.configure import change_build, change_config
from rankcore.rules.prove import follow_min_ready
from rankcore.rules.timeouts import next_due
from rankcore.spec import DeploymentSpec
from rankcore.values import DELETED, DELETING, DEPLOY_FAILED, DRAINING, FAILED, REFILL, RELEASE, DeploymentStatus

WISHES = tuple(field.name for field in attrs.fields(DeploymentSpec) if field.init)
_wished = attrgetter(*WISHES)
_waits = attrgetter("repeat_period_s", "start_timeout_s", "surge_patience_s", "graceful_shutdown_timeout_s")
"""Time-outs counted from when something was sent, or back from a deadline: with another length it falls due at another time."""
_rolled = attrgetter("build", "restart_token", "partition")
"""What replicas are replaced, or reconfigured, for."""
GOING = (DELETING, DELETED)


def on_spec_changed(draft: Draft, event: SpecChanged) -> None:
    """Take over another spec, unless it is older than the one in force."""
    old, new = draft.spec, event.spec
    if new.name != old.name:
        raise UnknownDeploymentError("SpecChanged.spec.name", new.name, f"{old.name!r}, the deployment of this state")
    for index, replica_id in enumerate(event.stop_first):
        checks.of_deployment(old.name, f"SpecChanged.stop_first[{index}]", replica_id)
    if draft.status in GOING or event.at < draft.spec_at:
        draft.note(LATE, "2.3", because=f"SpecChanged at {event.at:g} s while {draft.status}")
        return
    draft.spec_at = event.at
    if new == old:
        draft.note(LATE, "2.3", because="SpecChanged to the spec that is in force already")
        return
    changed = _difference(old, new)
    draft.progressed = changed != ["target_replicas"]
    draft.note(SPEC_APPLIED, "2.3", because=f"changed: {', '.join(changed)}")
    if _rolled(new) != _rolled(old):
        change_build(draft, new)
        if new.build != old.build:
            _update(draft, f"version {new.version!r}, user_config {new.config_id}")
        elif draft.status is not DEPLOY_FAILED and _is_anybody_behind(
            draft
        ):  # what failed is given up, however it is restarted
            _update(draft, f"restart token {new.restart_token!r}, from rank {new.partition} on")
    draft.spec = new
    if new.placement != old.placement and (new.static_placement or old.static_placement):
        failed = draft.status is DEPLOY_FAILED
        static.change_placement(draft, old)
        if failed:  # elsewhere it is tried again
            change_config(draft, new)
    if new.min_ready_s != old.min_ready_s:
        follow_min_ready(draft)
    if new.hand_over != old.hand_over:
        prepare.look_at_all(draft)
    if new.surge_max < old.surge_max:
        dismiss_surplus(draft)
    if new.graceful_shutdown_timeout_s > old.graceful_shutdown_timeout_s:
        evict.enforce(draft)  # the last call may be over by now
    if _waits(new) != _waits(old):
        draft.wake(next_due(draft))
    if new.target_replicas != old.target_replicas:
        _resize(draft, old.target_replicas, event)


def _is_anybody_behind(draft: Draft) -> bool:
    rollout = draft.rollout
    return bool(rollout.running.size or rollout.unstarted.size or rollout.stale_config)


def _update(draft: Draft, because: str) -> None:
    if draft.status is not DeploymentStatus.RECOVERING:
        draft.reach(Milestone.VERSION_CHANGED, because)


def _difference(old: DeploymentSpec, new: DeploymentSpec) -> list[str]:
    each = zip(WISHES, _wished(old), _wished(new), strict=True)
    return [name for name, was, now in each if was is not now and was != now]


def _resize(draft: Draft, before: int, event: SpecChanged) -> None:
    after = draft.spec.target_replicas
    announce(draft, f"target {before} -> {after}")
    if draft.status is not DeploymentStatus.RECOVERING:
        milestone = Milestone.TARGET_RAISED if after > before else Milestone.TARGET_LOWERED
        draft.reach(milestone, f"target {before} -> {after}")
    draft.named = event.stop_first if after < before else ()


def announce(draft: Draft, because: str) -> None:
    """Tell every replica, present and to come, the world size (R9)."""
    world_size = draft.spec.target_replicas
    draft.commands.append(AnnounceWorldSize(world_size, draft.next_revision(), draft.epoch))
    draft.note(WORLD_SIZE_CHANGED, "R9", because=because)


def on_stop_requested(draft: Draft, event: StopRequested) -> None:
    """Stop the named replicas; each is replaced with its own rank (R11)."""
    for index, replica_id in enumerate(event.replica_ids):
        checks.of_deployment(draft.spec.name, f"StopRequested.replica_ids[{index}]", replica_id)
    for replica_id in event.replica_ids:
        replica = draft.replicas.get(replica_id)
        if replica is None:
            draft.note(NoteKind.UNKNOWN_REPLICA, "R11", replica_id, "StopRequested of a replica that is not in the book")
        elif replica.state in (DRAINING, FAILED):
            draft.note(LATE, "R11", replica_id, f"StopRequested of a replica that is {replica.state} already")
        else:
            leaving.stop(draft, replica, REFILL, "R11", "stopped by name, to be replaced")


def on_delete_requested(draft: Draft, event: DeleteRequested) -> None:
    """Begin to take the deployment down; nothing brings it back."""
    if draft.status in GOING:
        draft.note(LATE, "2.3", because=f"DeleteRequested while {draft.status}")
        return
    draft.reach(Milestone.DELETE_REQUESTED, "asked for")
    delete(draft)


def delete(draft: Draft) -> None:
    """Give up every slot and stop every replica; the target stays as it is (section 2.3)."""
    draft.recovery = replace(draft.recovery, unreported=EMPTY, reports_due_at=None)
    draft.former = EMPTY  # no rank comes back
    for rank in draft.vacant:
        leaving.give_up_vacancy(draft, rank, "the deployment is deleted")
    for replica_id in [each.replica_id for each in sorted(draft.replicas.values(), key=attrgetter("birth"))]:
        replica = draft.replicas[replica_id]
        if replica.state is FAILED:
            static.give_up_failed(draft, replica, "the deployment is deleted")
        elif replica.state is not DRAINING:
            leaving.stop(draft, replica, RELEASE, "2.3", "the deployment is deleted")
        elif replica.leaving is REFILL:
            leaving.release(draft, replica, "the deployment is deleted")
    if not draft.recovery.repaired:
        recovery.mark_disputed(draft)
        draft.recovery = replace(draft.recovery, repaired=True)
