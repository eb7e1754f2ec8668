"""Overlap: a successor takes requests before it has its rank, so that the routes never hold fewer than N - U (V3).

**What.** With `hand_over="prepared"` (`rules/prepare.py`) a successor is up, and serves nobody, until its predecessor has
ended: the routes lose a place for drain + adoption. With "overlap" it serves from then on, without a rank, and its predecessor
goes after that. So an update that adds one can do with a budget of 0. Numbers as at the lines:

1. *Published.* A replica whose user code is up without a rank enters the routes in that step, and is available once it has been
   there for `min_ready_s`: it counts for the budget as whoever runs does. A rank it has none: no request for a rank, and no
   broadcast, goes to it.
2. *Adopted.* Its predecessor goes, off the routes and stopped in one step, while more than N - U are available; when that has
   ended it is told the rank. It stays on the routes meanwhile, and available: no more happens to it than that it is told a
   number. When it is ready it is published once more, now with its rank.
3. *One budget.* Whoever is available and serves without a rank counts for N - U, so no rule may end it, or take it off the
   routes, that may not end one that runs (`budget.is_needed`). An outdated one that adopts is rolled as one that runs is.
4. *Another user_config* has it prepared anew only while more than N - max(1, U) are available, as one that runs is told
   another. Else it adopts with its own, and gets the other in its turn: both at once would put its readiness in doubt (M7).
5. *Unwanted.* A successor whose generation is not wanted any more, whose predecessor may stay, or whose node is drained, goes
   at once if it is not needed, and else waits until it is not: nobody goes for it, and nobody succeeds beside it.
   So does one that is being told its rank when its build is given up (`failures.withdraw`).
6. *Employed.* Meanwhile a rank that lacks somebody takes it, whatever generation is wanted there: it adopts with its own build,
   and is replaced as any holder is (M5). Without that, where it has the last place, who is wanted would wait for that place,
   and it for who is wanted. Below the partition nobody takes another generation: both wait there, and the state says so. One
   whose slot is beyond a lowered target gives that up where it may have no other, and serves on until a newcomer is up.

**Why no request is lost.** Routers take a predecessor off before it is told to stop, and it finishes what it has. Whoever is
routed is stopped with time to finish as well, also where one without a rank is killed otherwise (a drained node).

**Why it ends.** 5 waits for somebody else to become available. Each of the N ranks has a holder that comes up, which makes it
not needed; or lacks a place, which 6 gives it; or rests after failures, which ends. With U = 0 and no room for one more nobody
is stopped: the update waits for room, and is said to be stalled. That is what was asked for.

**A proof it is none** to be ready without a rank: a build is proven by one that runs. What fails when it is told its rank has
failed in its slot, as a start has, and the budget holds the update back with all others in service.

**What it costs.** A look at each unwanted successor in a step: there are none where nobody changes his mind.
"""

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from rankcore.book import readiness, replicas, slots
from rankcore.draft import Draft
from rankcore.rankset import RankSet
from rankcore.rules import budget, leaving, messages
from rankcore.spec import DeploymentSpec
from rankcore.state import Replica
from rankcore.values import DEPLOY_FAILED, PLACED, PREPARED, PREPARING, REFILL, REQUESTED, ReplicaRank

RULE = "V3"
WAYS = (REQUESTED, PLACED, PREPARING, PREPARED)
"""How far a successor is, from the beginning to the end."""


def is_wanted(draft: Draft) -> bool:
    """Whether who is prepared takes requests."""
    return draft.spec.hand_over == "overlap"


def publish(draft: Draft, replica: Replica, prepared_for_s: float = 0.0) -> Replica:
    """A replica whose user code is up takes requests from now on, before it runs (1). Returns its new record."""
    routed = replicas.write(draft, replace(replica, **readiness.begin_early(draft, replica, prepared_for_s)))
    replicas.begin_to_serve(draft, routed)
    return routed


def keeps_config(draft: Draft, replica: Replica) -> bool:
    """Whether it may not be prepared anew, with another user_config, now (4)."""
    return replica.routed and budget.is_available(draft, replica) and not budget.may_send_config(draft)


def check_successor(draft: Draft, rank: int) -> None:
    """Somebody succeeds the holder of a slot only while that is to be replaced by what it is."""
    successor_id, holder = draft.slots[rank].successor, slots.holder_of(draft, rank)
    assert successor_id is not None, f"rank {rank} is indexed as surging, and has no successor"
    successor, rollout = draft.replicas[successor_id], draft.rollout
    updates = draft.status is not DEPLOY_FAILED  # else nothing is updated, and successors are for evictions alone
    wanted = (updates and slots.is_outdated(draft, rank, holder)) or rank in draft.evictions.ranks
    if not successor.is_of(draft.recipe_of(rank)) or not wanted or has_to_go(draft, successor):
        leaving.dismiss_successor(draft, rank, "its generation is no longer wanted here")
    elif rank in rollout.unwanted:
        draft.rollout = replace(rollout, unwanted=rollout.unwanted.discard(rank), stoppable=rollout.stoppable.add(rank))


def has_to_go(draft: Draft, replica: Replica) -> bool:
    """Whether it is to be replaced itself: its node is drained, or it was named."""
    asked = draft.evictions.asked.get(replica.replica_id)
    return asked is not None and (not asked.with_node or draft.nodes[replica.node_id or ""].drain is not None)


def send_away(draft: Draft, replica: Replica) -> None:
    """Whoever takes requests without a rank is to be replaced: it goes as soon as it is not needed (5)."""
    if replica.routed and replica.slot is not None and slots.is_successor(draft, replica):
        leaving.dismiss_successor(draft, replica.slot, "to be replaced, and it has no rank yet")


def let_go(draft: Draft) -> None:
    """Stop those who are not wanted, and not needed any more (5)."""
    for rank in draft.rollout.unwanted:
        if not budget.is_needed(draft, draft.replicas[draft.slots[rank].successor or ""]):
            leaving.end_successor(draft, rank, "it is not wanted here, and not needed any more")


def donor(draft: Draft, early: RankSet, rank: int) -> int | None:
    """The rank whose successor may fill this one: who is up or comes up serves sooner than who has a place, or waits for one.

    Those who are unwanted come last, and fill any rank above the partition.
    """
    below, unwanted = draft.kept_below, draft.rollout.unwanted
    wanted = [each for each in early.descending() if each not in unwanted and (each < below) is (rank < below)]
    if wanted:
        return max(wanted, key=partial(progress, draft))
    others = () if rank < below else unwanted.descending()
    return next((each for each in others if each in early), None)


def progress(draft: Draft, rank: int) -> int:
    """How far the successor of a rank is."""
    return WAYS.index(draft.replicas[draft.slots[rank].successor or ""].state)


def any_unfilled(draft: Draft, ranks: Iterable[int]) -> int | None:
    """The first of these ranks that one of another generation may fill where it is needed (6)."""
    return next((rank for rank in ranks if rank >= draft.kept_below), None)


def adopts_all_the_same(draft: Draft, holder: Replica) -> bool:
    """Whether a slot's holder gets its rank though its generation is not wanted there: it is needed (6). Else it is stopped."""
    if budget.is_needed(draft, holder):
        return True
    if holder.routed:
        leaving.stop(draft, holder, REFILL, RULE, "its generation is not wanted, and it is not needed any more")
    return False


def initialize(draft: Draft, holder: Replica, rank: ReplicaRank, recipe: DeploymentSpec) -> None:
    """Tell a slot's holder its first ranks. Below the partition it is no longer outdated with that."""
    messages.initialize(draft, holder, rank, recipe)
    if draft.spec.partition and rank.rank < draft.kept_below and slots.is_outdated(draft, rank.rank, holder):
        slots.note_outdated(draft, RankSet.discard, rank.rank, holder)
