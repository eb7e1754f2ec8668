"""Too many slots: which are given up, and which replicas are stopped for it (R11, sections 2.3 and 2.5)."""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import attrgetter

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.notes import NoteKind
from rankcore.rules import evict, leaving, static
from rankcore.state import Replica
from rankcore.values import DRAINING, RELEASE, ReplicaState

RULE = "R11"


def shrink(draft: Draft) -> None:
    """Give up slots until there are no more than the target: first those for which nobody alive has to be stopped."""
    target = draft.spec.target_replicas
    if draft.spec.static_placement is not None:
        static.shrink(draft)
    if draft.vacant.size and draft.vacant.highest() >= target:
        for rank in draft.vacant.members_from(target):
            leaving.give_up_vacancy(draft, rank, "vacant, and beyond the world size")
    if len(draft.slots) + len(draft.recovery.losers) + len(draft.recovery.owed) > target:
        for give_up in (_vacant, _leaving_anyway, _named, _losers, _unstarted, _evicted, _by_policy):
            excess = _excess(draft)
            if excess <= 0:
                break
            give_up(draft, excess)
    if draft.spec.static_placement is None:
        _wait_below_target(draft)
    draft.named = ()


def _wait_below_target(draft: Draft) -> None:
    """Let who waits for a place beyond the world size wait for a rank below it for which nobody does (V18)."""
    target = draft.spec.target_replicas
    while (rank := draft.taken.lowest_free()) < target <= (before := draft.requested.highest()):
        waiting = replicas.move_slot(draft, slots.holder_of(draft, before), rank)
        draft.note(NoteKind.SLOT_CHANGED, "V18", waiting.replica_id, f"rank {before} is beyond the world size", rank=rank)


def _excess(draft: Draft) -> int:
    return len(draft.slots) + len(draft.recovery.losers) + len(draft.recovery.owed) - draft.spec.target_replicas


def _vacant(draft: Draft, excess: int) -> None:
    for rank, _ in zip(draft.vacant.descending(), range(excess), strict=False):
        leaving.give_up_vacancy(draft, rank, "vacant, and the target is lower")


def _leaving_anyway(draft: Draft, excess: int) -> None:
    unslotted = reversed(list(draft.those(draft.recovery.owed)))
    for replica in list(islice(chain(unslotted, _down(draft, frozenset({DRAINING}))), excess)):
        leaving.release(draft, replica, "it is leaving anyway, and the target is lower")


def _named(draft: Draft, excess: int) -> None:
    named = [replica for name in draft.named if (replica := draft.replicas.get(name)) is not None]
    _stop(draft, iter(dict.fromkeys(named)), excess, "named by the caller")


def _losers(draft: Draft, excess: int) -> None:
    losers = reversed(list(draft.those(draft.recovery.losers)))
    _stop(draft, losers, excess, "its rank is another's, and the target is lower")


def _unstarted(draft: Draft, excess: int) -> None:
    _stop(draft, _down(draft, slots.UNSTARTED), excess, "not running yet, and the target is lower")


def _evicted(draft: Draft, excess: int) -> None:
    _stop(draft, iter(evict.in_order(draft)), excess, "it is to be replaced, and the target is lower")


def _by_policy(draft: Draft, _: int) -> None:
    # A successor that is chosen goes too, but gives up no slot: only the count of slots says when it is enough.
    for victim in VICTIMS[draft.spec.victims](draft):
        if _excess(draft) <= 0:
            return
        _stop(draft, iter((victim,)), 1, f"chosen by the policy {draft.spec.victims!r}")


def _down(draft: Draft, states: frozenset[ReplicaState]) -> Iterator[Replica]:
    """Who holds a slot and is in one of these states, none of which runs, from the highest rank down: O(N) if any are there."""
    if len(draft.replicas) > draft.available - draft.early:
        yield from sorted(slots.holders(draft, states), key=attrgetter("slot"), reverse=True)


def _highest_rank(draft: Draft) -> Iterator[Replica]:
    for rank in draft.taken.taken.descending():
        slot = draft.slots.get(rank)
        holder = draft.replicas[slot.holder] if slot is not None and slot.holder is not None else None
        if holder is not None and holder.state in slots.RUNNING:
            yield holder


def _newest(draft: Draft) -> Iterator[Replica]:
    running = (replica for replica in draft.replicas.values() if replica.state in slots.RUNNING)
    return iter(sorted(running, key=attrgetter("birth"), reverse=True))


def _on_emptiest_node(draft: Draft) -> Iterator[Replica]:
    """The newest replica on the node that has the fewest, so that the node is soon free; then again: O(log N) each."""
    while draft.nodes_by_staying:
        _, newest, node_id = draft.nodes_by_staying.first()
        yield next(draft.replicas[each] for each, birth in draft.nodes[node_id].members.items() if birth == -newest)


VICTIMS: dict[str, Callable[[Draft], Iterator[Replica]]] = {
    "any": _on_emptiest_node,
    "highest_rank": _highest_rank,
    "newest": _newest,
}


def _stop(draft: Draft, victims: Iterator[Replica], excess: int, because: str) -> None:
    for each in victims:
        if excess <= 0:
            return
        # Stopping one may have stopped another: a holder takes its successor along.
        victim = draft.replicas[each.replica_id]
        if victim.state is DRAINING:
            continue
        excess -= not slots.is_successor(draft, victim)
        leaving.stop(draft, victim, RELEASE, RULE, because)
