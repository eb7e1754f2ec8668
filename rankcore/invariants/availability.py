"""Who is available, by the times in the state alone; and what may be taken for proven or healthy because of it (V7)."""

from collections.abc import Iterable

from rankcore.book.slots import is_serving
from rankcore.draft import Step
from rankcore.kernel import Violation
from rankcore.state import DeploymentState, Replica


def is_maturing(state: DeploymentState, replica: Replica) -> bool:
    """Whether a replica serves, and has not been ready on its build for `min_ready_s`."""
    ready_at = replica.ready_at
    return replica.routed and ready_at is not None and ready_at + state.spec.min_ready_s > state.clock


def available(state: DeploymentState) -> int:
    """How many replicas serve, are not maturing, and owe no acknowledgement of a user_config, where that counts."""
    counts = _counts_owing(state)
    ripe = [r for r in state.replicas.values() if r.routed and not is_maturing(state, r)]
    return sum(replica.ready_at is not None or not counts for replica in ripe)


def hangs_at(state: DeploymentState, replica: Replica) -> float | None:
    """When one who owes the acknowledgement of a user_config has done so for too long; None: it owes none, or may."""
    if not is_serving(replica) or replica.ready_at is not None or not _counts_owing(state):
        return None
    return replica.since + (state.spec.min_ready_s + state.spec.health_check_timeout_s)


def hangs(state: DeploymentState, old: Replica) -> bool:
    """Whether one, as it was before the step to this state, has hung in `reconfigure`: its end costs nothing."""
    hung_at = hangs_at(state, old)
    return hung_at is not None and hung_at <= state.clock


def _counts_owing(state: DeploymentState) -> bool:
    return state.spec.config_rollout == "rolling" or state.spec.min_ready_s > 0.0


def check_proofs(before: DeploymentState, step: Step) -> Iterable[Violation]:
    """V7: a build is proven by a replica that was ready on it for `min_ready_s`, and healthy when all are."""
    state = step.state
    proven, previous, known = state.proven, state.previous, before.previous
    if proven is not None and proven is not before.proven and (known is None or known.build != proven.build):
        those = [r for r in (*before.replicas.values(), *state.replicas.values()) if r.build == proven.build and r.told]
        ready = [r for r in those if r.unready is None and r.ready_at is not None]
        if not any((r.ready_at or 0.0) + state.spec.min_ready_s <= state.clock for r in ready):
            yield Violation("V7", f"{proven.build} is proven, and nobody was ready on it for {state.spec.min_ready_s:g} s")
    if previous is not None and previous is not known:
        ripe = [r for r in state.replicas.values() if r.routed and not is_maturing(state, r)]
        if sum(r.version == previous.version for r in ripe) != state.world_size:
            yield Violation("V7", f"{previous.build} is taken for healthy, and {len(ripe)} of {state.world_size} are available")
