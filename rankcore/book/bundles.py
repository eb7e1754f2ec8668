"""Bundles of a static placement: who stands on which, which are lost, and which slots that concerns."""

from operator import attrgetter

from msgspec.structs import replace

from rankcore.draft import Draft
from rankcore.frozen import EMPTY
from rankcore.rankset import RankSet
from rankcore.state import BundleNews, BundleTables, Replica
from rankcore.values import DRAINING, FAILED


def occupy(draft: Draft, replica: Replica) -> None:
    """A replica stands on its bundles from now on, until it has ended."""
    if replica.group_id == draft.bundles.group_id:
        users = draft.bundles.users
        for bundle in replica.bundles:
            users = users.set(bundle, users.get(bundle, EMPTY).set(replica.replica_id, replica.birth))
        draft.bundles = replace(draft.bundles, users=users)
        recheck_owners(draft, replica)


def vacate(draft: Draft, replica: Replica) -> None:
    """It has ended: its bundles are free for whom they belong to."""
    if replica.group_id == draft.bundles.group_id:
        users = draft.bundles.users
        for bundle in replica.bundles:
            rest = users[bundle].delete(replica.replica_id)
            users = users.set(bundle, rest) if rest else users.delete(bundle)
        draft.bundles = replace(draft.bundles, users=users)
        recheck_owners(draft, replica)


def recheck_owners(draft: Draft, replica: Replica) -> None:
    """Look again at the ranks that its bundles belong to."""
    draft.recheck.extend(owners_where(draft, replica))


def owners_where(draft: Draft, replica: Replica) -> list[int]:
    """The ranks that the bundles which a replica stands on belong to."""
    static = draft.spec.static_placement
    if static is None or replica.group_id != static.identity:
        return []
    return [owner for bundle in replica.bundles if (owner := static.owner_of(bundle)) is not None]


def fits(draft: Draft, rank: int, holder: Replica) -> bool:
    """Whether a slot's holder stands where the spec wants it (S2)."""
    return holder.place == draft.spec.place_of(rank)


def notice_misfit(draft: Draft, rank: int, holder: Replica) -> None:
    """Remember a slot whose holder stays and stands elsewhere than the spec says."""
    if holder.state is not DRAINING and not fits(draft, rank, holder):
        draft.bundles = replace(draft.bundles, misfits=draft.bundles.misfits.add(rank))
        draft.recheck.append(rank)


def forget_misfit(draft: Draft, rank: int) -> None:
    """Its holder leaves, or is gone."""
    known = draft.bundles
    draft.bundles = replace(known, misfits=known.misfits.discard(rank), movable=known.movable.discard(rank))


def set_movable(draft: Draft, rank: int, movable: bool) -> None:
    """Note whether a misfit could be replaced at once."""
    known = draft.bundles.movable
    draft.bundles = replace(draft.bundles, movable=known.add(rank) if movable else known.discard(rank))


def set_news(draft: Draft, bundle: int, news: BundleNews) -> None:
    """Write down the newest of a bundle, and which rank that strands or frees."""
    draft.bundles = replace(draft.bundles, news=draft.bundles.news.set(bundle, news))
    static = draft.spec.static_placement
    rank = static.owner_of(bundle) if static is not None else None
    if static is not None and rank is not None:
        stranded = draft.bundles.stranded
        missed = any(is_lost(draft, each) for each in static.bundles[rank])
        draft.bundles = replace(draft.bundles, stranded=stranded.add(rank) if missed else stranded.discard(rank))
        draft.recheck.append(rank)


def is_lost(draft: Draft, bundle: int) -> bool:
    """Whether a bundle is gone, by the newest that is known."""
    news = draft.bundles.news.get(bundle)
    return news is not None and news.lost


def obstacle(draft: Draft, rank: int) -> str | None:
    """What keeps a rank from being started on its bundles, in words; None: nothing does (S4, S5)."""
    if draft.spec.static_placement is None:
        return None
    for bundle in draft.spec.place_of(rank)[1]:
        if is_lost(draft, bundle):
            return f"bundle {bundle} is lost"
        for user in draft.those(draft.bundles.users.get(bundle, EMPTY)):
            if user.slot != rank:
                return f"{user.replica_id} still has bundle {bundle}"
    return None


def follow_spec(draft: Draft) -> None:
    """Make all tables anew for the spec in force: O(N). What is known of a group lasts until another is named."""
    static = draft.spec.static_placement
    if static is not None and static.identity != draft.bundles.group_id:
        draft.bundles = BundleTables(group_id=static.identity, since=draft.spec_at)
        for replica in sorted(draft.replicas.values(), key=attrgetter("birth")):
            if replica.state is not FAILED:
                occupy(draft, replica)
    stranded = RankSet()
    if static is not None:
        lost = [bundle for bundle, news in draft.bundles.news.items() if news.lost]
        stranded = RankSet.of(rank for bundle in lost if (rank := static.owner_of(bundle)) is not None)
    draft.bundles = replace(draft.bundles, stranded=stranded, misfits=RankSet(), movable=RankSet())
    for rank in sorted(draft.slots):
        holder_id = draft.slots[rank].holder
        if holder_id is None:
            draft.recheck.append(rank)
        elif draft.replicas[holder_id].state is not FAILED:
            notice_misfit(draft, rank, draft.replicas[holder_id])
