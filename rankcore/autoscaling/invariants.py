"""The promises A1 to A10, checked on states and on decisions. O(sources): for tests, audits and the simulator."""

from itertools import pairwise

from rankcore.autoscaling.core import ELAPSED_SLACK_S, Decision
from rankcore.autoscaling.load import IN_FLIGHT, QUEUED
from rankcore.autoscaling.reports import Metrics
from rankcore.autoscaling.spec import AutoscalingSpec
from rankcore.autoscaling.state import AutoscalerState, Direction
from rankcore.kernel import Violation


def check(state: AutoscalerState) -> list[Violation]:
    """What does not hold of a state; empty when all is well."""
    found: list[Violation] = []
    for (_, source_id), series in state.load.series.items():
        if any(later.at <= earlier.at for earlier, later in pairwise(series.samples)):
            found.append(Violation("A2", f"samples of {source_id} are out of order: {series.samples}"))
        if series.samples[-1].at > state.at:
            found.append(Violation("A2", f"a sample of {source_id} is from {series.samples[-1].at}, which is still to come"))
        if series.ended and series.value:
            found.append(Violation("A6", f"{source_id} has ended and counts for {series.value}"))
        if not series.ended and series.reported_at + state.spec.stale_after_s < state.at:
            found.append(Violation("A6", f"the report of {source_id} from {series.reported_at} is too old and still counts"))
    if (state.load.since is None) == state.load.fresh:
        found.append(Violation("A10", f"listening since {state.load.since}, and recent reports: {state.load.fresh}"))
    if state.wish is not None and state.wish.since > state.at:
        found.append(Violation("A3", f"something has been wanted since {state.wish.since}, which is still to come"))
    return sorted(found, key=str)


def check_decision(before: AutoscalerState, metrics: Metrics, decision: Decision) -> list[Violation]:
    """What does not hold of one decision of `autoscale(before, metrics, at)`; empty when all is well."""
    found = check(decision.state)
    state, target = decision.state, decision.target
    if target is None:
        return found + _idle_where_it_must_act(state, metrics)
    spec, old = state.spec, metrics.target_replicas
    if target == old:
        found.append(Violation("A1", f"a decision for {target} replicas, which is the target already"))
    if not decision.notes or decision.notes[-1].wanted != target:
        found.append(Violation("A10", f"the last note does not tell of the target {target}: {decision.notes[-1:]}"))
    if target < old and spec.max_rank_moves is not None and metrics.stops_move_ranks:
        if metrics.rank_moves + old - target > spec.max_rank_moves:
            text = f"{metrics.rank_moves} ranks move already, and {old - target} more replicas stop"
            found.append(Violation("A9", text))
    if spec.within_bounds(old) != old:
        return found + _wrong_way(spec, old, target)
    if spec.within_bounds(target) != target:
        found.append(Violation("A1", f"{target} replicas are outside of {spec.min_replicas} to {spec.max_replicas}"))
    if old == 0:
        return found if state.load.now(QUEUED) else [*found, Violation("A5", "a start from zero, though nothing waits")]
    return found + _without_grounds(before, metrics, state, target)


def _idle_where_it_must_act(state: AutoscalerState, metrics: Metrics) -> list[Violation]:
    spec, old = state.spec, metrics.target_replicas
    if old < spec.min_replicas:
        return [Violation("A1", f"{old} replicas stay, below the minimum of {spec.min_replicas}")]
    if old == 0 and state.load.now(QUEUED):
        return [Violation("A5", "requests wait for a deployment without replicas, and none is started")]
    return []


def _wrong_way(spec: AutoscalingSpec, old: int, target: int) -> list[Violation]:
    """Outside of the bounds, a target goes towards them and no further."""
    nearest = spec.within_bounds(old)
    if min(old, nearest) <= target <= max(old, nearest):
        return []
    return [Violation("A1", f"from {old}, outside of the bounds, to {target} rather than towards {nearest}")]


def _without_grounds(before: AutoscalerState, metrics: Metrics, state: AutoscalerState, target: int) -> list[Violation]:
    """A change that follows the load, and what it must not do."""
    spec, old, found = state.spec, metrics.target_replicas, []
    if not metrics.running:
        found.append(Violation("A5", f"from {old} to {target}, though no replica runs yet"))
    since = state.load.since
    if since is None:
        found.append(Violation("A6", f"from {old} to {target} without any report that counts"))
    elif state.at < since + spec.metrics_interval_s:
        found.append(Violation("A10", f"from {old} to {target} before everybody could report"))
    up = target > old
    delay_s = spec.upscale_delay_s if up else spec.downscale_delay_from(old)
    wish = (
        before.wish if before.wish is not None and before.wish.direction is (Direction.UP if up else Direction.DOWN) else None
    )
    waited_s = state.at - wish.since if wish is not None else 0.0
    if waited_s + ELAPSED_SLACK_S < delay_s:
        found.append(Violation("A3", f"from {old} to {target} after {waited_s:g} s, where the delay is {delay_s:g} s"))
    if up:
        return found
    if old > 1 and target == 0:
        found.append(Violation("A3", f"from {old} to 0 in one step"))
    if target == 0 and state.load.now(QUEUED) + state.load.now(IN_FLIGHT) > 0:
        found.append(Violation("A5", "the last replica is let go while requests wait or are in flight"))
    silent = [each for each in metrics.running if (series := state.load.series.get((IN_FLIGHT, each))) is None or series.ended]
    if silent:
        found.append(Violation("A6", f"from {old} to {target}, though nothing is known of {', '.join(sorted(silent))}"))
    floor = before.experience.floor
    far_since = wish.far_since if wish is not None and wish.far_since is not None else state.at
    if target < min(floor, old) and state.at - far_since + ELAPSED_SLACK_S < delay_s:
        found.append(Violation("A7", f"from {old} to {target} again, where a downscale from {floor} was taken back"))
    return found
