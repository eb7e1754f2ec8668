"""Planned loss: nobody outlives a deadline, successors have places first, and nothing new goes to a cordoned node."""

from collections.abc import Iterable

from rankcore.book.slots import RUNNING
from rankcore.commands import Command, KillReplica, StartReplica, StopReplica
from rankcore.draft import Step
from rankcore.events import Event, StopRequested
from rankcore.invariants.availability import hangs
from rankcore.kernel import Violation
from rankcore.state import DeploymentState, Replica
from rankcore.values import DEPLOY_FAILED, DRAINING, FAILED, REFILL


def deadline_of(state: DeploymentState, replica: Replica) -> float | None:
    """When a replica is to be gone, by what its node and itself are asked."""
    asked = state.tables.evictions.asked.get(replica.replica_id)
    node = state.nodes.get(replica.node_id) if replica.node_id is not None else None
    if asked is None and (node is None or node.drain is None):
        return None
    drained = node.drain.deadline_at if node is not None and node.drain is not None else None
    times = [each for each in (asked.deadline_at if asked is not None else None, drained) if each is not None]
    return min(times, default=None)


def is_overdue(state: DeploymentState, replica: Replica) -> bool:
    """Whether it is stopped outside the budget, because it would not be gone by its deadline."""
    deadline_at = deadline_of(state, replica)
    return deadline_at is not None and deadline_at - state.spec.graceful_shutdown_timeout_s <= state.clock


def deadlines(state: DeploymentState, replica: Replica) -> Iterable[float]:
    """When a replica has to be looked at because of its deadline."""
    deadline_at = deadline_of(state, replica)
    if deadline_at is not None and type(replica.pending) is not KillReplica:
        yield deadline_at if replica.state is DRAINING else deadline_at - state.spec.graceful_shutdown_timeout_s


def check_evictions(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """V15, V14 and the index; `replicas`: the live ones, the oldest first."""
    tables = state.tables
    asked = tables.evictions.asked
    for replica in replicas:
        node = state.nodes.get(replica.node_id) if replica.node_id is not None else None
        drained = node is not None and node.drain is not None
        if not drained and replica.replica_id not in asked:
            continue
        deadline_at = deadline_of(state, replica)
        if deadline_at is not None and deadline_at <= state.clock and type(replica.pending) is not KillReplica:
            yield Violation("V15", f"{replica.replica_id} is {replica.state}, and its deadline was {deadline_at:g} s")
        elif replica.state is not DRAINING and is_overdue(state, replica):
            yield Violation("V15", f"{replica.replica_id} is {replica.state}, and its deadline is {deadline_at:g} s")
        if drained and replica.replica_id not in asked:
            yield Violation("V14", f"{replica.replica_id} is on {replica.node_id}, which is drained, and is not asked to go")
    expected = set()
    for rank, slot in tables.slots.items():
        holder = tables.replicas.get(slot.holder) if slot.holder is not None else None
        if holder is not None and holder.replica_id in asked and holder.state not in (DRAINING, FAILED):
            expected.add(rank)
        if slot.successor is not None and holder is not None and holder.state is not DRAINING and not state.unreported:
            outdated = holder.generation != state.spec.generation and rank >= state.kept_below
            if rank not in expected and not outdated and rank not in tables.rollout.unwanted:
                yield Violation("V14", f"{slot.successor} is to succeed {holder.replica_id}, which is to stay")
    if set(tables.evictions.ranks) != expected:
        yield Violation("index", f"evictions.ranks is {set(tables.evictions.ranks)}, expected {expected}")
    if not set(asked) <= set(tables.replicas):
        yield Violation("index", f"evictions.asked has {set(asked) - set(tables.replicas)}, who are gone")


def check_pool(state: DeploymentState) -> Iterable[Violation]:
    """2.3: no more than `max_surge`, but for those who are needed, succeed holders that are neither evicted nor told to go."""
    tables = state.tables
    if not tables.rollout.surging.size or state.unreported:
        return
    waiting = []
    for rank, slot in tables.slots.items():
        holder = tables.replicas.get(slot.holder) if slot.holder is not None and slot.successor is not None else None
        if holder is not None and holder.state is not DRAINING and holder.replica_id not in tables.evictions.asked:
            if rank not in tables.rollout.unwanted:
                waiting.append(slot.successor)
    allowed = state.spec.surge_max if state.status is not DEPLOY_FAILED else 0
    if len(waiting) > allowed:
        yield Violation("2.3", f"{waiting} were started early for an update, and {allowed} may be: it is {state.status}")


def check_stops(before: DeploymentState, event: Event, step: Step, fresh: list[Command]) -> Iterable[Violation]:
    """V14: without a deadline, a serving replica goes to be replaced elsewhere only once its successor has a place.

    Or, on a node where another may come, for an update, where its successor finds none.
    """
    state = step.state
    if isinstance(event, StopRequested) or state.spec.static_placement is not None:
        return
    for command in fresh:
        if type(command) is not StopReplica:
            continue
        old, new = before.replicas.get(command.replica_id), state.replicas.get(command.replica_id)
        if old is None or new is None or old.state not in RUNNING or new.leaving is not REFILL:
            continue
        evicted = command.replica_id in state.tables.evictions.asked and not is_overdue(state, new)
        if evicted and new.slot not in set(state.tables.rollout.arrived) and not _goes_with_update(state, old, new):
            yield Violation("V14", f"{command.replica_id} is stopped, and nobody has a place to succeed it")


def _goes_with_update(state: DeploymentState, old: Replica, replica: Replica) -> bool:
    slot = state.tables.slots.get(replica.slot) if replica.slot is not None else None
    if slot is None or replica.slot is None or replica.slot < state.kept_below or replica.generation == state.spec.generation:
        return False
    # Who does not serve goes first, whether its successor has a place or not (V16), and so does who hangs.
    serves = replica.unready is None and not hangs(state, old)
    waits = serves and slot.successor is not None and replica.slot not in set(state.tables.rollout.stoppable)
    return not waits and not state.nodes[replica.node_id or ""].cordoned


def check_starts(state: DeploymentState, fresh: list[Command]) -> Iterable[Violation]:
    """V14: nothing new goes to a cordoned node, where the core chooses it."""
    for command in fresh:
        if type(command) is StartReplica and command.node_id is not None and state.nodes[command.node_id].cordoned:
            yield Violation("V14", f"{command.replica_id} is to be started on {command.node_id}, which is cordoned")
