"""Planned loss: nodes are cordoned or drained, replicas are to be replaced, each with its own rank (V14, V15).

**What.** An operator or a cloud says: nothing new on this node; this node is to be empty, by a deadline or when it suits; these
replicas anew. A crash has no such warning, so it leaves a rank without a replica until the next one is up; here the next
one has a place before the present one goes. Numbers as at the lines:

1. *Asked.* Each replica that has to go is entered (`EvictionTables.asked`): all that are on a drained node, and those named.
   One without a rank is killed and started elsewhere, since nothing is lost by that; one that starts goes once it runs.
2. *Successors.* Each evicted holder gets a successor in its slot, the same as an update with surge has (`bind`), so whatever
   holds for those holds here: it may fill another rank that is short of one, and the next is started then. Without a
   deadline max(1, max_surge) at a time wait; with one, all at once, since it comes whether there is room or not.
3. *Stopped.* A holder goes once its successor has a place, and only while more than N - max_unavailable are available: the one
   budget, of which evictions take their part before updates. Without a deadline none is stopped before, however long there is
   no room: a drain is no reason to serve with fewer.
4. *Deadline.* `graceful_shutdown_timeout_s` before it those that are left are stopped, outside the budget; at the deadline
   those that are still there are killed. Both are wake-ups: nothing else has to happen for that.
5. *Uncordoned.* A replica that was not told to stop may stay; its successor is not needed any more. Where an update is to
   replace it, its successor is one of the update's from then on: what is more than `max_surge` goes, who is least far first.

**Why it ends.** A replica that is asked to go is never asked for again, and its successor is started where it may stay: the
executor, or `pack_ranks`, passes over cordoned nodes. So each eviction ends one replica, and makes none to be evicted, but for
a start that a cordon has overtaken. With a deadline it ends then, whatever happens. Without one it waits for room alone: the
state says so, and an update passes over it (M10), because the room of a cordoned node is where nothing new goes. A replica
evicted by name, from a node that is open, leaves room where another may come: so an update that finds no other stops it like
the rest (`roll`), else neither would ever end. The eviction ends with it.

**What it costs.** O(E log E) in a step for E open evictions; nothing where there are none.

The races:

- *A replica comes up on a cordoned node*, its start was under way: it is taken, and evicted once it runs. On a drained one
  it has no rank yet, and is killed.
- *A controller crash* forgets all of this; the executor says again which nodes are cordoned, before or after the reports.
  A replica that reports from a drained node is asked to go, one from a cordoned node is not.
- *News of one node overtake each other*: of cordon, uncordon and drain the newest holds, and none of before the node's loss.
- *A static placement* has no other place for a rank: no replica goes before the deadline, and after that the bundle counts as
  lost, with the drain for a reason, until the node is uncordoned, the bundle is restored, or the rank is mapped elsewhere.
"""

from msgspec.structs import replace

from rankcore import checks
from rankcore.book import bundles, evictions, slots
from rankcore.book.nodes import node_of, store
from rankcore.commands import KillReplica
from rankcore.draft import NEVER, Draft
from rankcore.events import NodeCordoned, NodeDrainRequested, NodeUncordoned, ReplaceRequested
from rankcore.evictions import Drain, Eviction, deadline_of_both
from rankcore.notes import LATE, NoteKind
from rankcore.rules import budget, leaving, overlap, static
from rankcore.rules.bind import dismiss_surplus, kept_rank_lacks_place, start_successor
from rankcore.rules.fill import has_room
from rankcore.state import BundleNews, Node, Replica
from rankcore.values import DEPLOY_FAILED, DRAINING, FAILED, REFILL, NodeId

RULE = "V14"
DEADLINE = "V15"


def on_node_cordoned(draft: Draft, event: NodeCordoned) -> None:
    """Nothing new goes to this node; nobody there is touched."""
    node = _newest(draft, event)
    if node is not None:
        draft.note(NoteKind.NODE_CORDONED, RULE, because=event.node_id)
        _cordon(draft, event.node_id, replace(node, cordoned=True, cordon_at=event.at))


def on_node_drain_requested(draft: Draft, event: NodeDrainRequested) -> None:
    """Nothing new goes to this node, and who is there is evicted, by the deadline that holds of this one and one before."""
    node = _newest(draft, event)
    if node is None:
        return
    known, deadline_at = node.drain, deadline_of_both(node.drain, event)
    until = f", until {deadline_at:g} s" if deadline_at is not None else ""
    draft.note(NoteKind.NODE_DRAINED, RULE, because=f"{event.node_id}{until}: {event.reason}, {len(node.members)} replicas")
    since, final = (event.at, event.final) if known is None else (known.since, event.final or known.final)
    drain = Drain(deadline_at, event.reason, since, final)
    _cordon(draft, event.node_id, replace(node, cordoned=True, drain=drain, cordon_at=event.at))
    for member in draft.those(draft.nodes[event.node_id].members):
        _send_away(draft, member, drain)


def on_node_uncordoned(draft: Draft, event: NodeUncordoned) -> None:
    """Cordon and drain are over; who was told to stop still stops (5)."""
    node = _newest(draft, event)
    if node is None:
        return
    store(draft, event.node_id, node, replace(node, cordoned=False, drain=None, cordon_at=event.at))
    if not node.cordoned:
        draft.note(LATE, "2", because=f"NodeUncordoned of {event.node_id}, which is not cordoned")
        return
    draft.note(NoteKind.NODE_UNCORDONED, RULE, because=event.node_id)
    for member in draft.those(node.members):
        asked = draft.evictions.asked.get(member.replica_id)
        if asked is not None and asked.with_node:
            _let_stay(draft, member)
    dismiss_surplus(draft)
    static.refill_drained(draft, event.node_id, event.at)


def on_replace_requested(draft: Draft, event: ReplaceRequested) -> None:
    """Let a successor take the place of each of these, within the budget."""
    for index, replica_id in enumerate(event.replica_ids):
        checks.of_deployment(draft.spec.name, f"ReplaceRequested.replica_ids[{index}]", replica_id)
    for replica_id in dict.fromkeys(event.replica_ids):
        replica = draft.replicas.get(replica_id)
        if replica is None:
            draft.note(NoteKind.UNKNOWN_REPLICA, RULE, replica_id, "ReplaceRequested of a replica that is not in the book")
        elif replica.state in (DRAINING, FAILED):
            draft.note(LATE, RULE, replica_id, f"ReplaceRequested of a replica that is {replica.state} already")
        elif replica.state in slots.RANKLESS and not replica.routed:
            leaving.stop(draft, replica, REFILL, RULE, "to be replaced, and it has no rank yet")
        else:
            draft.note(NoteKind.EVICTION_ASKED, RULE, replica_id, "to be replaced, by name", rank=replica.slot)
            before = draft.evictions.asked.get(replica_id)
            since = before.since if before is not None else event.at
            evictions.ask(draft, replica, Eviction(since, event.deadline_at))
            overlap.send_away(draft, replica)
            _press(draft, draft.replicas[replica_id])


def _newest(draft: Draft, event: NodeCordoned | NodeUncordoned | NodeDrainRequested) -> Node | None:
    """The node, if this is the newest that is known of it."""
    known = draft.nodes.get(event.node_id)
    overtaken = event.at <= draft.evictions.forgotten_at if known is None else event.at <= known.lost_at
    if overtaken or (known is not None and event.at < known.cordon_at):
        draft.note(LATE, "2", because=f"{type(event).__name__} of {event.node_id}, of which there is later news")
        return None
    return node_of(draft, event.node_id)


def _cordon(draft: Draft, node_id: NodeId, node: Node) -> None:
    """Nothing new is to come to a node: what the core only wanted there is wanted elsewhere now."""
    store(draft, node_id, draft.nodes[node_id], node)
    for replica in draft.those(node.reserved):
        leaving.kill(draft, replica, RULE, f"nothing new is to come to node {node_id}")


def notice_placed(draft: Draft, replica: Replica) -> None:
    """A replica came up on a node where nothing new is to come: a cordon has overtaken its start."""
    node = draft.nodes[replica.node_id or ""]
    if node.drain is not None:
        _send_away(draft, replica, node.drain)
    elif not replica.bundles:
        evictions.ask(draft, replica, Eviction(draft.clock, with_node=True))


def notice_reported(draft: Draft, replica: Replica) -> None:
    """A replica was found on a node."""
    node = draft.nodes[replica.node_id or ""]
    if node.drain is not None:
        _send_away(draft, replica, node.drain)


def _send_away(draft: Draft, replica: Replica, drain: Drain) -> None:
    if replica.replica_id not in draft.evictions.asked:
        evictions.ask(draft, replica, Eviction(drain.since, with_node=True))  # 1
    if replica.state in slots.RANKLESS and not replica.bundles and not replica.routed:
        leaving.kill(draft, replica, RULE, f"it has no rank yet, and node {replica.node_id} is drained")  # 1
    else:
        overlap.send_away(draft, replica)
        _press(draft, draft.replicas[replica.replica_id])


def _let_stay(draft: Draft, replica: Replica) -> None:
    """A replica is asked to go no more."""
    evictions.forget(draft, replica)
    if replica.state in slots.RUNNING and replica.slot is not None and slots.is_holder(draft, replica):
        if draft.status is DEPLOY_FAILED or not slots.is_outdated(draft, replica.slot, replica):
            leaving.dismiss_successor(draft, replica.slot, "its predecessor may stay")
    elif replica.slot is not None and slots.is_successor(draft, replica):
        overlap.check_successor(draft, replica.slot)


def evict(draft: Draft) -> None:
    """Start successors for those that are to go, and let those go whose successor has a place."""
    if draft.spec.static_placement is not None:
        return _replace_in_place(draft)
    order = in_order(draft)
    _start_successors(draft, order)
    if draft.unready:
        order = _without_unready(draft, order)
    for holder in order:
        if budget.available(draft) <= budget.left_at_least(draft):
            break
        if holder.slot is not None and holder.slot in draft.rollout.arrived and holder.slot in draft.rollout.stoppable:
            because = f"to be replaced, and its successor has a place{_why(draft, holder)}"
            leaving.stop(draft, holder, REFILL, RULE, because)  # 3


def _without_unready(draft: Draft, order: list[Replica]) -> list[Replica]:
    """Who serves nobody goes as the others do, but costs nothing (V16). Returns the others."""
    for holder in order:
        rank, rollout = holder.slot, draft.rollout
        if holder.unready is not None and rank is not None and rank in rollout.arrived and rank in rollout.stoppable:
            because = f"to be replaced, and its successor has a place; it is unready, and costs nothing{_why(draft, holder)}"
            leaving.stop(draft, holder, REFILL, RULE, because)
    return [holder for holder in order if holder.unready is None]


def in_order(draft: Draft) -> list[Replica]:
    """Who serves and is to go: the earliest deadline first, then who was asked first, then the lowest rank."""
    asked = draft.evictions.asked

    def claim(holder: Replica) -> tuple[float, float, int]:
        deadline_at = evictions.deadline_of(draft, holder)
        return NEVER if deadline_at is None else deadline_at, asked[holder.replica_id].since, holder.slot or 0

    holders = (slots.holder_of(draft, rank) for rank in draft.evictions.ranks)
    return sorted((holder for holder in holders if holder.state in slots.RUNNING), key=claim)


def _start_successors(draft: Draft, order: list[Replica]) -> None:
    none_above = draft.recipe is None or kept_rank_lacks_place(draft)  # nothing works, or a rank below comes first
    waiting = sum(_waits_for_long(draft, rank) for rank in draft.rollout.surging)
    allowed = max(1, draft.spec.surge_max)
    for holder in order:
        rank = holder.slot
        assert rank is not None, f"{holder.replica_id} is to be replaced, and holds no slot"
        hurried = evictions.deadline_of(draft, holder) is not None
        if draft.slots[rank].successor is not None or not (hurried or waiting < allowed):
            continue
        if none_above and rank >= draft.kept_below:
            continue
        if has_room(draft) and not slots.is_resting(draft, rank):
            start_successor(draft, rank, draft.recipe_of(rank))  # 2
            waiting += not hurried


def _waits_for_long(draft: Draft, rank: int) -> bool:
    """Whether a slot's successor was started for an eviction that has time."""
    holder = slots.holder_of(draft, rank)
    return holder.replica_id in draft.evictions.asked and evictions.deadline_of(draft, holder) is None


def _replace_in_place(draft: Draft) -> None:
    """A rank has no other bundles: a replica may be replaced on its own, if those are not on a node that is drained."""
    for holder in in_order(draft):
        if budget.available(draft) <= budget.left_at_least(draft):
            break
        if draft.nodes[holder.node_id or ""].drain is None:
            leaving.stop(draft, holder, REFILL, RULE, "to be replaced, on the bundles of its rank")


def _why(draft: Draft, replica: Replica) -> str:
    node = draft.nodes.get(replica.node_id) if replica.node_id is not None else None
    drain = node.drain if node is not None else None
    return f": node {replica.node_id} is drained ({drain.reason})" if drain is not None else ""


def enforce(draft: Draft) -> None:
    """Do what deadlines ask for by now."""
    for replica_id in sorted(draft.evictions.asked):
        _press(draft, draft.replicas[replica_id])


def _press(draft: Draft, replica: Replica) -> None:
    """Stop a replica whose deadline is near, and end one whose deadline is over (4)."""
    deadline_at = evictions.deadline_of(draft, replica)
    if deadline_at is None:
        return
    if draft.clock < evictions.last_call(draft, deadline_at):
        return draft.wake(evictions.due_of(draft, replica))
    if type(replica.pending) is not KillReplica:
        if deadline_at <= draft.clock:
            leaving.kill(draft, replica, DEADLINE, f"its deadline is over{_why(draft, replica)}")
        elif replica.state is not DRAINING:
            leaving.stop(draft, replica, REFILL, DEADLINE, f"its deadline is near{_why(draft, replica)}")
    _keep_empty(draft, replica)
    draft.wake(evictions.due_of(draft, draft.replicas[replica.replica_id]))


def _keep_empty(draft: Draft, replica: Replica) -> None:
    """Where a rank has one place alone, and that is on a drained node, nothing is started there."""
    drain = draft.nodes[replica.node_id or ""].drain if replica.node_id is not None else None
    if drain is None or not replica.bundles or replica.group_id != draft.bundles.group_id:
        return
    bundle = replica.bundles[0]
    if not bundles.is_lost(draft, bundle):
        because = f"node {replica.node_id} is drained ({drain.reason})"
        bundles.set_news(draft, bundle, BundleNews(True, draft.clock, because, replica.node_id))
        draft.note(NoteKind.BUNDLE_LOST, DEADLINE, because=f"bundle {bundle}: {because}", rank=replica.slot)
