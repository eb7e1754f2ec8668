"""What a step has come to for the whole deployment: its status, its routes, and when to look again."""

from msgspec.structs import replace

from rankcore.book import routes
from rankcore.commands import PublishRoutes, WakeAt
from rankcore.draft import NEVER, Draft
from rankcore.frozen import PMap
from rankcore.lifecycle import Milestone
from rankcore.rules import stall
from rankcore.values import DELETED, DELETING, DEPLOY_FAILED, HEALTHY, RECOVERING, ReplicaId


def is_at_rest(draft: Draft) -> bool:
    """Whether exactly N serve and run the current generation, no slot kept, and an eviction, if any, waits for room.

    What was given up is not waited for: who serves then runs what was healthy last, for as long as it takes to mend it.
    """
    target, rollout = draft.spec.target_replicas, draft.rollout
    if draft.available != target or len(draft.slots) != target or len(draft.replicas) - rollout.surging.size != target:
        return False
    if draft.early:
        return False
    if draft.evictions.ranks.size and (rollout.arrived.size or rollout.stoppable.size != rollout.surging.size):
        return False
    rolling = rollout.running.size and draft.status is not DEPLOY_FAILED
    return not draft.bundles.misfits.size and not rolling and not draft.vacant.size


def _is_on_trial(draft: Draft) -> bool:
    """Whether a user_config is not acknowledged, or not all have been ready for long enough on another build than before."""
    if draft.configuring or draft.rollout.stale_config:
        return True
    return bool(draft.maturing.items) and draft.previous is not None and draft.previous.build != draft.spec.build


def conclude(draft: Draft, at_rest: bool) -> None:
    """Close the step: status, routes, wake-up."""
    unsettled = draft.evictions.ranks.size or draft.rollout.surging.size or draft.rollout.running.size
    _conclude_status(draft, at_rest and not unsettled)
    stall.watch(draft)
    if draft.routes_added or draft.routes_removed or not draft.recovery.routes_complete:
        _publish_routes(draft)
    if draft.wake_by < NEVER:
        _ask_to_be_woken(draft)


def _conclude_status(draft: Draft, settled: bool) -> None:
    status = draft.status
    if status is DELETING:
        if not draft.replicas:
            draft.reach(Milestone.REPLICAS_GONE, "the last replica has stopped")
    elif not draft.recovery.unreported and status is not DELETED:
        if settled and not _is_on_trial(draft):
            _settle(draft)
        elif draft.bundles.stranded.size:
            count = draft.bundles.stranded.size
            draft.reach(Milestone.BUNDLE_MISSED, f"{count} {'rank has' if count == 1 else 'ranks have'} lost bundles")
        elif status is HEALTHY:
            draft.reach(Milestone.UNSETTLED, f"a replica is {'unready' if draft.unready else 'missing or leaving'}")
        elif status is RECOVERING:
            _leave_recovery(draft)


def _settle(draft: Draft) -> None:
    if draft.status is not HEALTHY:
        draft.reach(Milestone.SETTLED, "all replicas run the current version")
    spec, proven = draft.spec, draft.proven
    if draft.previous is not spec and draft.status is HEALTHY:
        if proven is not None and proven.build == spec.build and not draft.maturing.items and not draft.kept_below:
            draft.previous = spec
        kept = (spec, proven, draft.previous)
        draft.configs = PMap({each.config_id: each.user_config for each in kept if each is not None})


def _leave_recovery(draft: Draft) -> None:
    if draft.rollout.running.size or draft.rollout.unstarted.size or _is_on_trial(draft):
        draft.reach(Milestone.VERSION_CHANGED, "an update was under way")
    elif draft.bundles.misfits.size:
        draft.reach(Milestone.PLACEMENT_CHANGED, "a change of placement was under way")
    elif len(draft.replicas) - draft.rollout.surging.size > draft.spec.target_replicas:
        draft.reach(Milestone.TARGET_LOWERED, "more replicas were found than the target")
    else:
        found = "fewer replicas were found than the target" if not draft.unready else "not all that were found are ready"
        draft.reach(Milestone.UNSETTLED, found)


def _publish_routes(draft: Draft) -> None:
    recovery = draft.recovery
    if recovery.unreported:
        return
    if not recovery.routes_complete:
        draft.recovery = replace(recovery, routes_complete=True)
        added = routes.routed(draft.replicas)
        removed: tuple[ReplicaId, ...] = ()
    else:
        added = routes.oldest_first(draft.routes_added) if draft.routes_added else ()
        removed = routes.oldest_first(draft.routes_removed) if draft.routes_removed else ()
    draft.commands.append(PublishRoutes(added, removed, draft.next_revision(), draft.epoch))


def _ask_to_be_woken(draft: Draft) -> None:
    due = draft.wake_by
    if draft.wake_at is None or due < draft.wake_at:
        draft.wake_at = due
        draft.commands.append(WakeAt(due, draft.epoch))
