"""Another version or restart token: replicas are replaced slot by slot, each newcomer inheriting its slot's rank (section 2.3).

The budget is computed from the state, so that neither a new update nor a restart of the controller can reset it: a running
replica is stopped only while at least N - max_unavailable would be left that are available (`rules/budget.py`). Who does not
serve, since it does not run yet or is unready (V16), goes first and at no cost, and so does who hangs (`rules/hanging.py`).
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from rankcore.book import slots
from rankcore.draft import Draft
from rankcore.rankset import RankSet
from rankcore.rules import budget, hanging, leaving, static
from rankcore.rules.bind import kept_rank_lacks_place, start_successor
from rankcore.rules.fill import PACK, has_room
from rankcore.state import Replica
from rankcore.values import DEPLOY_FAILED, REFILL

RULE = "2.3"
LOWEST_RANK = "lowest_rank"


def roll(draft: Draft) -> None:
    """Replace what is outdated (`slots.is_outdated`), as far as the budget allows."""
    if draft.status is DEPLOY_FAILED:
        return
    for rank in draft.rollout.unstarted:
        leaving.stop(draft, slots.holder_of(draft, rank), REFILL, RULE, "not running yet, and of an older generation")
    if draft.unready:
        _replace_at_no_cost(draft, draft.those(draft.unready), "it is unready, and costs nothing")
    if hung := hanging.hanging(draft):
        waited_s = hanging.patience_s(draft)
        _replace_at_no_cost(draft, hung, f"its user_config is not acknowledged after {waited_s:g} s, and it costs nothing")
    if len(draft.rollout.surging) < draft.spec.surge_max and not kept_rank_lacks_place(draft):
        _start_successors(draft)
    if budget.available(draft) > budget.left_at_least(draft):
        for rank in _in_order(draft):
            if budget.available(draft) <= budget.left_at_least(draft):
                break
            leaving.stop(draft, slots.holder_of(draft, rank), REFILL, *_why(draft, rank))
    obstacle = static.in_the_way(draft)
    if obstacle is not None:
        leaving.stop(draft, obstacle, REFILL, "S7", "it stands on a bundle that a vacant rank waits for")


def _replace_at_no_cost(draft: Draft, those: Iterable[Replica], it_costs_nothing: str) -> None:
    """Who is unready serves nobody, and who hangs is not available: they go first, and take nothing from the budget (V16)."""
    rollout, misfits, evicted = draft.rollout, draft.bundles.misfits, _left_to_eviction(draft)
    for holder in those:
        rank = holder.slot
        if rank is None or not slots.is_holder(draft, holder) or rank in evicted or slots.is_resting(draft, rank):
            continue
        if rank in draft.bundles.movable or (rank in rollout.running and rank not in misfits):
            rule, because = _why(draft, rank)
            leaving.stop(draft, holder, REFILL, rule, f"{because}; {it_costs_nothing}")


def _why(draft: Draft, rank: int) -> tuple[str, str]:
    if rank in draft.bundles.misfits:
        return "S7", "its rank belongs on other bundles"
    spec = draft.spec
    if slots.holder_of(draft, rank).version == spec.version:
        return "V10", f"to be restarted with token {spec.restart_token!r}"
    return RULE, f"to be updated to version {spec.version!r}"


def _start_successors(draft: Draft) -> None:
    for rank in _without_successor_first(draft, draft.rollout.running):
        if len(draft.rollout.surging) >= draft.spec.surge_max or not has_room(draft):
            return
        has_one, kept = draft.slots[rank].successor is not None, rank < draft.kept_below  # who is kept waits for its rank alone
        if not has_one and not kept and rank not in draft.evictions.ranks and not slots.is_resting(draft, rank):
            start_successor(draft, rank, draft.spec)


def _without_successor_first(draft: Draft, ranks: RankSet) -> Iterator[int]:
    """Successors are started in the spec's order: whoever lacks one is beyond them, but for those that were passed over."""
    surging = draft.rollout.surging
    if draft.spec.update_order == LOWEST_RANK:
        above = surging.highest() + 1
        yield from ranks.members_from(above)
        yield from takewhile(above.__gt__, ranks.members_from(but=surging))
    else:
        yield from ranks.descending(but=surging)


def _ordered(draft: Draft, ranks: RankSet, but: RankSet | None = None, *, from_the_other_end: bool = False) -> Iterator[int]:
    """In the order in which the spec wants ranks to be updated (V11), but for those of another set."""
    ascending = (draft.spec.update_order == LOWEST_RANK) is not from_the_other_end
    return ranks.members_from(but=but) if ascending else ranks.descending(but)


def _left_to_eviction(draft: Draft) -> set[int]:
    """Ranks whose holder is evicted, and not to be stopped for the update.

    The room of a cordoned node would be lost, since nothing new is to come there (M10). Who is to go by name alone leaves room
    where another may come: so it is updated as the others are, once a successor was waited for in vain. It would wait for ever.
    """
    rollout, ranks = draft.rollout, draft.evictions.ranks
    if not ranks:
        return set()
    in_vain = any(rank not in rollout.arrived for rank in rollout.stoppable)
    no_room = in_vain or not has_room(draft) or kept_rank_lacks_place(draft)
    named = (rank for rank in ranks if rank in rollout.running and not _is_on_cordoned_node(draft, rank))
    return set(ranks) - {rank for rank in named if no_room or rank in rollout.surging}


def _room_elsewhere(draft: Draft) -> int:
    """For how many who leave a cordoned node there is room, beside those that have left one, and who waits for a start."""
    room = sum(size * nodes.size for size, nodes in draft.nodes_by_room.items())
    return room - draft.vacant.size - sum(len(node.members) - node.staying for node in draft.nodes.values() if node.cordoned)


def _is_on_cordoned_node(draft: Draft, rank: int) -> bool:
    return draft.nodes[slots.holder_of(draft, rank).node_id or ""].cordoned


def _in_order(draft: Draft) -> Iterator[int]:
    """First those whose successor waits; then those without one, from the other end, so that the surge can go before.

    Where successors are prepared first, the others go only if there is no room for any (V4).

    Whoever is to move to other bundles moves when those are free, and takes a new generation along. Who is evicted is passed
    over, as long as it is for its successor to bring the new generation; who only gives bundles back, as long as it has one.
    Where the core packs ranks, so is whoever could come back nowhere: its node is cordoned, and no other has room.
    """
    misfits, evicted = draft.bundles.misfits, _left_to_eviction(draft)
    for rank in _ordered(draft, draft.rollout.stoppable.common(draft.rollout.running)):  # the others drain, or are evicted
        if rank not in evicted:
            yield rank
    static_ranks = draft.spec.static_placement is not None  # they have no other place to be evicted to
    for rank in draft.bundles.movable:
        has_to_wait = rank in evicted or rank in draft.rollout.surging
        if not slots.is_resting(draft, rank) and (static_ranks or not has_to_wait):
            yield rank
    hands_over = draft.spec.hand_over != "none" and not draft.rollout.full and has_room(draft)
    rest = RankSet() if hands_over and not kept_rank_lacks_place(draft) else draft.rollout.running
    elsewhere: int | None = None
    packs = draft.spec.placement == PACK
    for rank in _ordered(draft, rest, draft.rollout.surging, from_the_other_end=bool(draft.spec.surge_max)):
        waits = rank in misfits or rank in evicted
        if waits or slots.is_resting(draft, rank):
            continue
        if packs and _is_on_cordoned_node(draft, rank):  # what it leaves is lost: it takes room elsewhere
            elsewhere = _room_elsewhere(draft) if elsewhere is None else elsewhere - 1
            if elsewhere <= 0:
                continue
        yield rank
    beginner = static.next_of_ring(draft)
    if beginner is not None:
        yield beginner
