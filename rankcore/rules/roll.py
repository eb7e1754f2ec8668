"""Another version: replicas are replaced slot by slot, each newcomer inheriting its slot's rank (section 2.3).

The budget is computed from the state, so that neither a new update nor a restart of the controller can reset it: a running
replica is stopped only while at least N - max_unavailable would be left.
"""

from collections.abc import Iterator

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.notes import RANK_INHERITED
from rankcore.rankset import RankSet
from rankcore.rules import leaving, static
from rankcore.rules.fill import has_room, start
from rankcore.values import DEPLOY_FAILED, DRAINING, REFILL

RULE = "2.3"


def roll(draft: Draft) -> None:
    """Replace what runs another version than the spec's, as far as the budget allows."""
    rollout = draft.rollout
    if draft.status is DEPLOY_FAILED:
        return
    for version in sorted(rollout.unstarted):
        for rank in rollout.unstarted[version]:
            leaving.stop(draft, slots.holder_of(draft, rank), REFILL, RULE, "not running yet, and of an older version")
    outdated = sorted(rollout.running)
    if len(draft.rollout.surging) < draft.spec.max_surge:
        _start_successors(draft, outdated)
    left_at_least = draft.spec.target_replicas - draft.spec.unavailable_max
    if draft.available > left_at_least:
        for rank in _in_order(draft, outdated):
            if draft.available <= left_at_least:
                break
            leaving.stop(draft, slots.holder_of(draft, rank), REFILL, *_why(draft, rank))
    obstacle = static.in_the_way(draft)
    if obstacle is not None:
        leaving.stop(draft, obstacle, REFILL, "S7", "it stands on a bundle that a vacant rank waits for")


def _why(draft: Draft, rank: int) -> tuple[str, str]:
    if rank in draft.bundles.misfits:
        return "S7", "its rank belongs on other bundles"
    return RULE, f"to be updated to version {draft.spec.version!r}"


def _start_successors(draft: Draft, outdated: list[str]) -> None:
    for version in outdated:
        for rank in _without_successor_first(draft, draft.rollout.running[version]):
            if len(draft.rollout.surging) >= draft.spec.max_surge or not has_room(draft):
                return
            slot = draft.slots[rank]
            if slot.successor is None and not slots.is_resting(draft, rank):
                successor = start(draft, rank, draft.spec)
                slots.set_successor(draft, rank, successor)
                replicas.change(draft, successor, start_timer=replicas.arm_start_timer(draft, successor.replica_id))
                draft.note(RANK_INHERITED, RULE, successor.replica_id, f"after {slot.holder}", rank=rank)


def _without_successor_first(draft: Draft, ranks: RankSet) -> Iterator[int]:
    """Successors are started in ascending order, so whoever lacks one is above them, but for those that were passed over."""
    above = draft.rollout.surging.highest() + 1
    yield from ranks.members_from(above)
    yield from (rank for rank in ranks if rank < above)


def _in_order(draft: Draft, outdated: list[str]) -> Iterator[int]:
    """First those whose successor waits; then those without one, from the other end, so that the surge can go before.

    Whoever is to move to other bundles moves when those are free, and takes a new version along.
    """
    misfits = draft.bundles.misfits
    yield from (rank for rank in draft.rollout.stoppable if slots.holder_of(draft, rank).state is not DRAINING)
    yield from (rank for rank in draft.bundles.movable if not slots.is_resting(draft, rank))
    for version in outdated:
        ranks = draft.rollout.running.get(version)
        if ranks is not None:
            order = ranks.descending() if draft.spec.max_surge else iter(ranks)
            for rank in order:
                waits = rank in draft.rollout.surging or rank in misfits
                if not waits and not slots.is_resting(draft, rank):
                    yield rank
    beginner = static.next_of_ring(draft)
    if beginner is not None:
        yield beginner
