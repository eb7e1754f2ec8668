"""Who is available, by the times in the state alone; and what may be taken for proven or healthy because of it (V7)."""

from collections.abc import Iterable
from itertools import chain, zip_longest

from rankcore.book.slots import RUNNING, is_serving
from rankcore.commands import StopReplica
from rankcore.draft import Step
from rankcore.kernel import Violation
from rankcore.state import DeploymentState, Replica, Slot, Tables
from rankcore.values import DRAINING


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
    """V7: a build is proven by who was ready on it in one slot for `min_ready_s`, and healthy when all are."""
    state = step.state
    proven, previous, known = state.proven, state.previous, before.previous
    if proven is not None and proven is not before.proven and (known is None or known.build != proven.build):
        those = [r for r in (*before.replicas.values(), *state.replicas.values()) if r.build == proven.build and r.told]
        ready = [r for r in those if r.unready is None and r.ready_at is not None]
        alone = any((r.ready_at or 0.0) + state.spec.min_ready_s <= state.clock for r in ready)
        sums = [slot.served_s for slot in _counted(before.tables) if slot.failed_build == proven.build]
        if not alone and max(sums, default=0.0) < state.spec.min_ready_s:
            yield Violation("V7", f"{proven.build} is proven, and nobody was ready on it for {state.spec.min_ready_s:g} s")
    if previous is not None and previous is not known:
        ripe = [r for r in state.replicas.values() if r.routed and not is_maturing(state, r)]
        if sum(r.version == previous.version for r in ripe) != state.world_size:
            yield Violation("V7", f"{previous.build} is taken for healthy, and {len(ripe)} of {state.world_size} are available")


def check_served(before: DeploymentState, step: Step) -> Iterable[Violation]:
    """V7: what slots were served for grows by who was told to go while it was ready, for as long as it was in its slot.

    Sums may change their ranks, so the largest of a build is compared with the largest that may be, and so on.
    """
    now: dict[object, list[float]] = {}
    for slot in _counted(step.state.tables):
        if slot.served_s:
            now.setdefault(slot.failed_build, []).append(slot.served_s)
    if not now:
        return
    may_be: dict[object, list[float]] = {build: [] for build in now}
    for slot in _counted(before.tables):
        holder = before.tables.replicas.get(slot.holder or "")
        told_to_go = holder is not None and _is_told_to_go(holder, step.state.tables.replicas.get(holder.replica_id))
        for build, sums in may_be.items():
            served_s = slot.served_s if slot.failed_build == build else 0.0
            if told_to_go and holder is not None and holder.build == build:
                served_s += step.state.clock - max(holder.ready_at or 0.0, slot.unplaced_at)
            sums.append(served_s)
    for build, sums in now.items():
        for served_s, most_s in zip_longest(sorted(sums, reverse=True), sorted(may_be[build], reverse=True), fillvalue=0.0):
            if served_s > most_s:
                yield Violation("V7", f"{build} was ready in one slot for {served_s:g} s, of {most_s:g} s that anybody was")


def _counted(tables: Tables) -> Iterable[Slot]:
    """All slots, those that were given up included."""
    return chain(tables.slots.values(), tables.former.values())


def _is_told_to_go(before: Replica, now: Replica | None) -> bool:
    """Whether it ran, was ready, and is told to stop."""
    well = before.state in RUNNING and before.unready is None and before.ready_at is not None
    return well and now is not None and now.state is DRAINING and type(now.pending) is StopReplica
