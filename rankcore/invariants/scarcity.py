"""Scarcity, found the slow way: which ranks lack a place, how many have one, and who would have to move (V18)."""

from collections.abc import Iterable, Iterator

from rankcore.book.slots import INITIALISABLE, roomless_since
from rankcore.kernel import Violation
from rankcore.state import DeploymentState, Replica
from rankcore.values import DELETED, DELETING, DEPLOY_FAILED, ReplicaState


def check_scarcity(state: DeploymentState) -> Iterable[Violation]:
    """Nobody is initialised, or goes on, with a higher rank than one that could be had and waits for a place."""
    if state.tables.recovery.unreported or state.status in (DELETING, DELETED):
        return
    if state.spec.placement is None:
        yield from _placed_above(state)
    rank = _lowest_lacking(state)
    due = _starved_at(state, rank)
    if rank is None or due is None or due > state.clock or state.tables.taken.count(rank) > 1:
        return
    for holder in _holders(state):
        free = holder.state is ReplicaState.RUNNING and holder.pending is None and not _takes_config_along(state, holder)
        if free and holder.slot is not None and holder.slot >= _places(state):
            yield Violation("V18", f"rank {rank} is starved since {due:g} s, and {holder.replica_id} keeps rank {holder.slot}")


def _takes_config_along(state: DeploymentState, holder: Replica) -> bool:
    """Whether to move it would cost a part of the budget: its own user_config is not known, and another is wanted (V1)."""
    tables = state.tables
    return holder.replica_id in tables.rollout.stale_config and holder.config_id not in tables.configs


def _placed_above(state: DeploymentState) -> Iterable[Violation]:
    holders = list(_holders(state))
    placed = [each for each in holders if each.state in INITIALISABLE]
    highest: dict[object, int] = {}  # of each generation: mostly nobody is above, and thousands may have no place
    for each in placed:
        highest[each.generation] = max(each.slot or 0, highest.get(each.generation, 0))
    for unplaced in [each for each in holders if each.state is ReplicaState.REQUESTED]:
        low = unplaced.slot or 0
        if state.tables.slots[low].retry_at > state.clock or highest.get(unplaced.generation, 0) <= low:
            continue
        for above in [each for each in placed if each.generation == unplaced.generation and (each.slot or 0) > low]:
            found = f"{above.replica_id} has a place and rank {above.slot}"
            yield Violation("V18", f"{unplaced.replica_id} has rank {low} and no place, and {found}")


def starved_at(state: DeploymentState) -> float | None:
    """When the lowest rank that lacks room is starved, while a higher one has a place; None: there is none."""
    return _starved_at(state, _lowest_lacking(state))


def _starved_at(state: DeploymentState, rank: int | None) -> float | None:
    after_s = state.spec.scarcity_after_s
    if rank is None or after_s is None or rank >= _places(state):
        return None
    slot = state.tables.slots[rank]
    return roomless_since(slot, state.replicas.get(slot.holder or "")) + after_s


def was_starved(before: DeploymentState, state: DeploymentState, was: int, now: int) -> bool:
    """Whether a replica had to move from one rank into another because that had lacked room for long enough.

    Its back-off is what this step has made of it: a retry ends it (V19). So is what is said of room in this very step.
    """
    slot, kept, after_s = before.tables.slots.get(now), state.tables.slots.get(now), state.spec.scarcity_after_s
    if after_s is None or state.spec.static_placement is not None or not now < _places(state) <= was:
        return False
    holder = state.replicas.get(slot.holder or "") if slot is not None else None
    vacant = slot is not None and slot.holder is None
    if slot is None or kept is None or not (vacant or (holder is not None and _finds_no_room(holder))):
        return after_s == 0.0  # it has come to lack room in this very step, and is starved at once or not yet
    found_none_at = holder.no_room_since if holder is not None else None
    return max(slot.unplaced_at, kept.retry_at, found_none_at or 0.0) + after_s <= state.clock


def _lowest_lacking(state: DeploymentState) -> int | None:
    """The lowest rank that waits for room, and for nothing else."""
    tables, spec = state.tables, state.spec
    if spec.static_placement is not None or tables.recovery.unreported or state.status in (DELETING, DELETED):
        return None
    if state.status is DEPLOY_FAILED and state.proven is None:
        return None
    if spec.placement is not None:
        return None if tables.nodes_by_room else min(tables.ready, default=None)
    if not any(_finds_no_room(each) for each in state.replicas.values()):
        return None
    return min(
        (each.slot for each in _holders(state) if _finds_no_room(each) and each.slot is not None),
        default=None,
    )


def _finds_no_room(holder: Replica) -> bool:
    return holder.state is ReplicaState.REQUESTED and holder.no_room_since is not None


def _places(state: DeploymentState) -> int:
    """How many of those who hold a rank have a place, or will have one."""
    return sum(not _finds_no_room(holder) for holder in _holders(state))


def _holders(state: DeploymentState) -> Iterator[Replica]:
    named = (slot.holder for slot in state.tables.slots.values() if slot.holder is not None)
    return (state.replicas[replica_id] for replica_id in named if replica_id in state.replicas)
