"""Another version: replicas are replaced slot by slot, each newcomer inheriting its slot's rank (section 2.3).

The budget is computed from the state, so that neither a new update nor a restart of the controller can reset it: a running
replica is stopped only while at least N - max_unavailable would be left.
"""

from collections.abc import Iterator

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.frozen import PMap
from rankcore.notes import RANK_INHERITED
from rankcore.rankset import RankSet
from rankcore.rules import leaving, static
from rankcore.rules.fill import start
from rankcore.rules.placement import has_room
from rankcore.rules.status import is_resting
from rankcore.values import DEPLOY_FAILED, REFILL

RULE = "2.3"


def roll(draft: Draft) -> None:
    """Replace what runs another version than the spec's, as far as the budget allows."""
    if draft.recheck:
        static.recheck(draft)
    if draft.status is DEPLOY_FAILED:
        return
    misfits, current, unstarted, running = draft.bundles.misfits, draft.spec.version, draft.unstarted, draft.running
    if not misfits.size and len(unstarted) == (current in unstarted) and len(running) == (current in running):
        return
    for version in _outdated(draft, draft.unstarted):
        for rank in draft.unstarted[version]:
            leaving.stop(draft, slots.holder_of(draft, rank), REFILL, RULE, "not running yet, and of an older version")
    outdated = _outdated(draft, draft.running)
    if not (outdated or misfits.size):
        return
    if len(draft.surging) < draft.spec.max_surge:
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


def _outdated(draft: Draft, by_version: PMap[str, RankSet]) -> list[str]:
    """The other versions among these; there are none unless an update is under way."""
    return sorted(version for version, _ in by_version.items() if version != draft.spec.version)


def _start_successors(draft: Draft, outdated: list[str]) -> None:
    for version in outdated:
        for rank in _without_successor_first(draft, draft.running[version]):
            if len(draft.surging) >= draft.spec.max_surge or not has_room(draft):
                return
            slot = draft.slots[rank]
            if slot.successor is None and not is_resting(draft, rank):
                successor = start(draft, rank, draft.spec)
                slots.set_successor(draft, rank, successor)
                replicas.update(draft, successor, start_timer=replicas.arm_start_timer(draft, successor.replica_id))
                draft.note(RANK_INHERITED, RULE, successor.replica_id, f"after {slot.holder}", rank=rank)


def _without_successor_first(draft: Draft, ranks: RankSet) -> Iterator[int]:
    """Successors are started in ascending order, so whoever lacks one is above them, but for those that were passed over."""
    above = draft.surging.highest() + 1
    yield from ranks.members_from(above)
    yield from (rank for rank in ranks if rank < above)


def _in_order(draft: Draft, outdated: list[str]) -> Iterator[int]:
    """First those whose successor waits; then those without one, from the other end, so that the surge can go before.

    Whoever is to move to other bundles moves when those are free, and takes a new version along.
    """
    misfits = draft.bundles.misfits
    yield from (rank for rank in draft.stoppable if rank not in draft.leaving)
    yield from (rank for rank in draft.bundles.movable if not is_resting(draft, rank))
    for version in outdated:
        ranks = draft.running.get(version)
        if ranks is not None:
            order = ranks.descending() if draft.spec.max_surge else iter(ranks)
            for rank in order:
                waits = rank in draft.surging or rank in draft.leaving or rank in misfits
                if not waits and not is_resting(draft, rank):
                    yield rank
    beginner = static.next_of_ring(draft)
    if beginner is not None:
        yield beginner
