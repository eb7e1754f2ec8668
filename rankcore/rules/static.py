"""Static placement: bundles are lost and come back, replicas follow another mapping, nobody shares one (S2, S4, S5, S7)."""

from collections.abc import Iterator

from rankcore.book import bundles, replicas, slots
from rankcore.draft import Draft
from rankcore.events import BundleLost, BundleRestored
from rankcore.frozen import EMPTY
from rankcore.lifecycle import Milestone
from rankcore.notes import LATE, NoteKind
from rankcore.rankset import RankSet
from rankcore.rules import leaving
from rankcore.spec import DeploymentSpec
from rankcore.state import BundleNews, Replica
from rankcore.values import DRAINING, FAILED, REFILL, RELEASE, DeploymentStatus, NodeId


def on_bundle_lost(draft: Draft, event: BundleLost) -> None:
    """Strand the ranks that need these bundles, and end who stands on them."""
    if not _is_ours(draft, event):
        return
    news = BundleNews(lost=True, at=event.at, reason=event.reason)
    lost = [bundle for bundle in dict.fromkeys(event.bundles) if _lose(draft, bundle, news)]
    for bundle in lost:
        _strike(draft, bundle)


def on_bundle_restored(draft: Draft, event: BundleRestored) -> None:
    """Bundles are there again: what waited for nothing else is started on them."""
    if not _is_ours(draft, event):
        return
    for bundle in dict.fromkeys(event.bundles):
        known = draft.bundles.news.get(bundle)
        if known is not None and event.at < known.at:
            draft.note(LATE, "S5", because=f"BundleRestored of bundle {bundle}, of which there is later news")
            continue
        if known is not None and known.lost:
            draft.note(NoteKind.BUNDLE_RESTORED, "S5", because=f"bundle {bundle}", rank=_owner(draft, bundle))
        else:
            draft.note(LATE, "S5", because=f"BundleRestored of bundle {bundle}, which is there already")
        # Remembered even of a bundle that was never lost: the news of an earlier loss may still be under way.
        bundles.set_news(draft, bundle, BundleNews(lost=False, at=event.at))
        rank = _owner(draft, bundle)
        if rank is not None and rank not in draft.bundles.stranded:
            _revive(draft, rank, "its bundles are there again")


def refill_drained(draft: Draft, node_id: NodeId, at: float) -> None:
    """A node is drained no more: what was kept empty because of that may be used again."""
    kept = [bundle for bundle, news in draft.bundles.news.items() if news.drained_node_id == node_id]
    for bundle in sorted(kept):
        bundles.set_news(draft, bundle, BundleNews(lost=False, at=max(at, draft.bundles.news[bundle].at)))
        rank = _owner(draft, bundle)
        draft.note(NoteKind.BUNDLE_RESTORED, "S5", because=f"bundle {bundle}: node {node_id} is uncordoned", rank=rank)
        if rank is not None and rank not in draft.bundles.stranded:
            _revive(draft, rank, "its node is uncordoned")


def _is_ours(draft: Draft, event: BundleLost | BundleRestored) -> bool:
    if event.at < draft.bundles.since:
        because = f"{type(event).__name__} from before this group was named, when what is lost is told"
        draft.note(LATE, "S5", because=because)
        return False
    if event.group_id is None or event.group_id == draft.bundles.group_id:
        return True
    because = f"{type(event).__name__} of placement group {event.group_id!r}, which is not the one in use"
    draft.note(LATE, "S5", because=because)
    return False


def _owner(draft: Draft, bundle: int) -> int | None:
    static = draft.spec.static_placement
    return static.owner_of(bundle) if static is not None else None


def _lose(draft: Draft, bundle: int, news: BundleNews) -> bool:
    """Write down a loss, unless it is old news; of a loss and a return at the same moment the return is the later."""
    known = draft.bundles.news.get(bundle)
    if known is not None and news.at <= known.at:
        draft.note(LATE, "S5", because=f"bundle {bundle} is lost: known already, or it was restored since")
        return False
    because = f"bundle {bundle}" + (f": {news.reason}" if news.reason else "")
    draft.note(NoteKind.BUNDLE_LOST, "S5", because=because, rank=_owner(draft, bundle))
    bundles.set_news(draft, bundle, news)
    return True


def _strike(draft: Draft, bundle: int) -> None:
    """End whoever stands on a lost bundle, once it is certain to be gone (S4, S5)."""
    for replica in draft.those(draft.bundles.users.get(bundle, EMPTY)):
        if replica.state is not DRAINING:
            leaving.kill(draft, replica, "S5", f"its bundle {bundle} is lost")


def strike_adopted(draft: Draft, replica: Replica) -> None:
    """The same, for a replica that is heard of only after its bundle was lost."""
    if replica.group_id != draft.bundles.group_id or replica.state is DRAINING:
        return
    lost = next((bundle for bundle in replica.bundles if bundles.is_lost(draft, bundle)), None)
    if lost is not None:
        leaving.kill(draft, replica, "S5", f"its bundle {lost} is lost")


def lose_with_node(draft: Draft, replica: Replica, node_id: NodeId, at: float) -> None:
    """A node is gone, and so is the bundle on it that a replica ran on. Of others there only the executor knows.

    What is certain is that the bundle was there when the replica was heard of. If it has come back since, it may be anywhere,
    so the loss has the date of that word: any news of a return counts for more, in whichever order the two arrive.
    """
    if replica.bundles and replica.group_id == draft.bundles.group_id and at >= draft.bundles.since:
        news = BundleNews(lost=True, at=max(replica.seen_at, draft.bundles.since), reason=f"node {node_id} was lost")
        _lose(draft, replica.bundles[0], news)


def fail(draft: Draft, replica: Replica, rank: int) -> None:
    """A replica has ended, and its bundles are not all there: its slot waits (S5)."""
    replicas.fail(draft, replica, rank)
    draft.note(NoteKind.REPLICA_FAILED, "S5", replica.replica_id, bundles.obstacle(draft, rank) or "", rank=rank)


def _revive(draft: Draft, rank: int, because: str) -> None:
    """The slot of a FAILED replica may be filled again."""
    slot = draft.slots.get(rank)
    holder = draft.replicas[slot.holder] if slot is not None and slot.holder is not None else None
    if holder is not None and holder.state is FAILED:
        draft.note(NoteKind.FAILURE_OVER, "S5", holder.replica_id, because, rank=rank)
        slots.unseat(draft, rank, holder)
        replicas.forget_failed(draft, holder)


def give_up_failed(draft: Draft, failed: Replica, because: str) -> None:
    """Keep the rank of a FAILED replica no longer."""
    assert failed.slot is not None, f"{failed.replica_id} is FAILED for no rank"
    draft.note(NoteKind.SLOT_GIVEN_UP, "S5", failed.replica_id, because, rank=failed.slot)
    slots.close_slot(draft, failed.slot)
    replicas.forget_failed(draft, failed)


def change_placement(draft: Draft, old: DeploymentSpec) -> None:
    """Follow a spec that places replicas elsewhere (S7). A start that failed elsewhere counts no longer."""
    failed = draft.bundles.stranded
    for rank in draft.rollout.surging:
        leaving.end_successor(draft, rank, "a static placement begins")
    for rank in sorted(rank for rank, slot in draft.slots.items() if slot.failures):
        if old.place_of(rank) != draft.spec.place_of(rank):
            slots.forget_counts(draft, rank)
    draft.former = EMPTY
    follow(draft, failed)
    if draft.status is not DeploymentStatus.RECOVERING:
        draft.reach(Milestone.PLACEMENT_CHANGED, "replicas belong elsewhere")


def follow(draft: Draft, maybe_failed: RankSet) -> None:
    """Look at everybody anew: after another mapping, or a recovery."""
    bundles.follow_spec(draft)
    for rank in maybe_failed:
        slot = draft.slots.get(rank)
        if slot is None or slot.holder is None:
            continue
        if rank not in draft.bundles.stranded or not bundles.fits(draft, rank, draft.replicas[slot.holder]):
            _revive(draft, rank, "another placement is in force")


def shrink(draft: Draft) -> None:
    """Give up the ranks that the placement has no bundles for, and the losers of duplicates, which cannot be moved (S1, S6)."""
    target = draft.spec.target_replicas
    if draft.taken.taken.highest() >= target:
        for rank in list(draft.taken.taken.members_from(target)):
            _give_up(draft, rank)
    if not draft.recovery.losers:
        return
    for loser in draft.those(draft.recovery.losers):
        because = "its rank is another's, and a static placement moves nobody"
        leaving.stop(draft, loser, RELEASE, "S8", because)


def _give_up(draft: Draft, rank: int) -> None:
    slot, because = draft.slots.get(rank), "the static placement has no bundles for its rank"
    if slot is None:
        return  # believed by somebody who leaves, and kept by nobody
    if slot.holder is None:
        return leaving.give_up_vacancy(draft, rank, because)
    holder = draft.replicas[slot.holder]
    if holder.state is DRAINING:
        leaving.release(draft, holder, because)
    else:
        leaving.stop(draft, holder, RELEASE, "S7", because)


def recheck(draft: Draft) -> None:
    """Look again at ranks around which something has changed: may they be started, or moved? Ask while nobody is unreported."""
    for rank in sorted(set(draft.recheck)):
        slot = draft.slots.get(rank)
        if slot is None:
            continue
        clear = bundles.obstacle(draft, rank) is None
        if rank in draft.bundles.misfits:
            holder = slots.holder_of(draft, rank)
            if holder.state in slots.UNSTARTED and not holder.routed:
                leaving.stop(draft, holder, REFILL, "S7", "not running yet, and on other bundles than its rank's")
            else:
                bundles.set_movable(draft, rank, clear)
        elif slot.holder is None and clear and not slots.is_resting(draft, rank):
            draft.ready = draft.ready.add(rank)
    draft.recheck.clear()


def holds_back(draft: Draft, rank: int) -> bool:
    """Whether a vacant slot has to wait for its bundles. It is looked at again when something changes about them."""
    because = bundles.obstacle(draft, rank)
    if because is None:
        return False
    draft.ready = draft.ready.discard(rank)
    draft.note(NoteKind.WAITING, "S4", because=because, rank=rank)
    return True


def in_the_way(draft: Draft) -> Replica | None:
    """Who is to move and stands on a bundle that a vacant slot waits for, while nothing that is under way can free it.

    Where bundles change hands in a ring, no budget can be kept: the slot that was vacated first would wait for ever. One more
    than it allows goes at a time: who has not come up to stay yet, on bundles that are free, is waited for.
    """
    if not draft.bundles.misfits.size or not draft.vacant.size or _is_under_way(draft) or len(draft.maturing):
        return None
    if any(slots.is_resting(draft, rank) and bundles.obstacle(draft, rank) is None for rank in draft.vacant):
        return None
    for rank in draft.vacant:
        if rank in draft.bundles.stranded:
            continue
        for user in _users(draft, rank):
            if _is_to_move(draft, user):
                return user
    return None


def next_of_ring(draft: Draft) -> int | None:
    """The lowest rank that is to move, where each waits for another to move: somebody has to begin."""
    if draft.bundles.movable.size or not draft.bundles.misfits.size or _is_under_way(draft):
        return None
    held_up = _held_up(draft)
    return next((rank for rank in draft.bundles.misfits if rank not in held_up and not slots.is_resting(draft, rank)), None)


def _is_under_way(draft: Draft) -> bool:
    """Whether a slot's holder starts or leaves."""
    return bool(slots.holders(draft, slots.UNSTARTED | {DRAINING}))


def _held_up(draft: Draft) -> set[int]:
    """Those to move that cannot, whoever begins: their place is lost, or taken by one who stays, drains, or is held up too."""
    held_up: set[int] = set()
    for rank in draft.bundles.misfits:
        if rank in draft.bundles.stranded or not all(_is_to_move(draft, user) for user in _users(draft, rank)):
            held_up.add(rank)
    waiting = list(held_up)
    while waiting:
        holder = slots.holder_of(draft, waiting.pop())
        for owner in bundles.owners_where(draft, holder):
            if owner in draft.bundles.misfits and owner not in held_up:
                held_up.add(owner)
                waiting.append(owner)
    return held_up


def _users(draft: Draft, rank: int) -> Iterator[Replica]:
    """Who stands on the bundles of a rank now."""
    for bundle in draft.spec.place_of(rank)[1]:
        yield from draft.those(draft.bundles.users.get(bundle, EMPTY))


def _is_to_move(draft: Draft, user: Replica) -> bool:
    return user.slot is not None and user.slot in draft.bundles.misfits and slots.is_holder(draft, user)
