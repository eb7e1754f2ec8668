"""Recovery: a controller came back; the replicas report their ranks, then duplicates and gaps are repaired (R10).

**What.** Ranks are never checkpointed. A checkpoint would be a second opinion: a crash between a command and its checkpoint,
or the other way round, leaves the two different, and then the replica is right, since it is the one that acts on its rank. So
the replicas are asked. The steps:

1. The executor has raised its fence before it looked, so no process that it has not found can come up any more. `discover`
   enters each that was found, and queries it under the new epoch; a replica adopts the epoch before it answers, and obeys no
   older one.
2. Reports come in any order (`on_reported`). Each seats its replica at the rank that it believes (`_claim`). Until the last
   has reported or ended, nothing is given out and nobody is chosen to be stopped: `core` skips the rules while `unreported`
   holds any.
3. Then once, before anything shrinks or is filled, `repair`: losers whose rank has become free take it back, each node gets
   one node rank, and replicas of a node get local ranks of their own.
4. What could not be repaired by one message is `misplaced`: `align` looks at it in each later step, until nobody is left. It
   comes before anything is stopped or sent for an update: whose user_config is not known is told the wanted one with its ranks,
   which takes a part of the budget (V1). So that waits until the budget has one left, unless another node has that rank (R3).

**Why it ends.** Every report is either given or replaced by an end: who is silent for `health_check_timeout_s` is killed, and
a kill is confirmed. After `repair` each move is one message to one replica, and leads to a number that nobody believes; what
is acknowledged never moves again. Only nodes can wait for each other, in a ring of node ranks: when no move is under way, and
somebody is still misplaced that does not wait for the budget, its node takes a rank that nobody believes, for which nobody can
wait: the ring is broken. Who waits for the budget does so for others to become available, and no node waits for it: the rank
that it believes is no node's. But it may itself wait for a ring, in which a newcomer waits for its node rank: so rings are
broken whoever waits for the budget.

**What it costs.** A query and a report for each replica; O(N) in the step that repairs, O(log N) in all others.

The races, and what stands against each:

- *A report for the last epoch* was under way when that controller died. It may be older than a command that the replica has
  obeyed since: `STALE_EPOCH`, it counts for nothing.
- *Two report one rank*: the last controller died between a move and its acknowledgement, or two controllers have met. The one
  that is not draining keeps it, else the older. The other has no rank in the book until it has taken over another one, and the
  shared rank is `disputed` until then: it is given to no third (R3).
- *A reporter dies while others are outstanding.* Its rank is kept for its replacement (R6), unless another one reports it too.
- *A draining replica* is not taken for a running one. It keeps what it believes until it has stopped, and is told to stop in
  this epoch too, since the last controller's stop may have been lost.
- *A replica that reports no rank* was found before its first command arrived. What else may be on its way to it is fenced off,
  so it is killed, and its slot starts afresh once that is confirmed. One that says that it is prepared is at rest, and may be
  of use (`rules/prepare.py`, 6).
- *How long one has been ready* it says itself, by its own clock (`ready_for_s`): what was available stays so. Reports come in
  any order: who is not ready for `min_ready_s` yet is queued once all have come, and until then nobody is chosen.
- *A report says "ready" twice*, or says so after a move was commanded: the second is late, or stands for the lost
  `ReplicaReady`.
- *The node was lost* before the report, by the clock: the report overtakes nothing, its replica has ended.
"""

from msgspec.structs import replace

from rankcore.book import bundles, nodes, readiness, replicas, slots
from rankcore.commands import KillReplica, QueryReplica, ReconfigureReplica, StopReplica
from rankcore.draft import Draft
from rankcore.events import ReplicaReported
from rankcore.frozen import PMap
from rankcore.lifecycle import REPLICA_MOVES, Report
from rankcore.notes import RANK_MOVED, REPORT_ADOPTED, NoteKind
from rankcore.rules import budget, evict, leaving, overlap, prepare, static, unready
from rankcore.rules.configure import notice_config, takes_config_along
from rankcore.rules.endings import ended
from rankcore.rules.failures import withdraw
from rankcore.rules.messages import reconfigure
from rankcore.rules.news import become_ready
from rankcore.rules.prove import follow_min_ready, prove
from rankcore.rules.unready import late
from rankcore.state import Node, Replica, without
from rankcore.values import DEPLOY_FAILED, DRAINING, RELEASE, STARTING, NodeId, ReplicaId, ReplicaRank, ReplicaState

GAPS_SHOWN = 8
MOVING = frozenset({ReconfigureReplica, StopReplica, KillReplica})


def discover(draft: Draft, replica_id: ReplicaId) -> Replica:
    """Enter a replica that was found alive, and ask it what it believes."""
    command = QueryReplica(replica_id, draft.epoch)
    replica = Replica(
        replica_id,
        draft.next_birth,
        ReplicaState.RECOVERING,
        "",
        pending=command,
        sent_at=draft.clock,
        repeat_timer=replicas.give(draft, replica_id, command),
        since=draft.clock,
    )
    replicas.add(draft, replica)
    draft.recovery = replace(draft.recovery, unreported=draft.recovery.unreported.set(replica.replica_id, replica.birth))
    return replica


def on_reported(draft: Draft, event: ReplicaReported, replica: Replica) -> None:
    """Learn what a discovered replica believes; a report for another epoch, or a second one, is late."""
    if event.epoch != draft.epoch:
        draft.note(NoteKind.STALE_EPOCH, "2.4", replica.replica_id, f"a report for epoch {event.epoch}")
    elif replica.replica_id in draft.recovery.unreported:
        _adopt(draft, event, replica)
        found = draft.replicas.get(event.replica_id)
        if found is not None and found.node_id is not None:
            evict.notice_reported(draft, found)
    elif replica.state is STARTING and event.ready and type(replica.pending) is not ReconfigureReplica:
        become_ready(draft, replica, event.at, event.unready)
    else:
        late(draft, event, replica)


def _adopt(draft: Draft, event: ReplicaReported, replica: Replica) -> None:
    draft.recovery = replace(draft.recovery, unreported=without(draft.recovery.unreported, replica.replica_id))
    replica = replicas.write(draft, replace(replica, bundles=event.bundles, group_id=event.group_id, seen_at=event.at))
    if replica.bundles:
        bundles.occupy(draft, replica)
    node = draft.nodes.get(event.node_id)
    if node is not None and event.at <= node.lost_at:
        static.lose_with_node(draft, replica, event.node_id, node.lost_at)
        return ended(draft, replica, f"node {event.node_id} was lost", node_lost=True)
    leaving_already = replica.state is DRAINING
    state = REPLICA_MOVES[replica.state, _report(event)]
    there = replace(replica, node_id=event.node_id, version=event.version, restart_token=event.restart_token)
    if event.rank is None and state is ReplicaState.PREPARED:
        return prepare.find(draft, replace(there, config_id=event.config_id), event.ready_for_s or 0.0)
    if event.rank is None:
        known = replicas.write(draft, there)
        nodes.join(draft, known)
        if not leaving_already:
            leaving.kill(draft, known, "2.3", "it reports no rank: it was never initialised")
        return
    goes = RELEASE if state is DRAINING and not leaving_already else replica.leaving
    if goes is RELEASE:
        draft.recovery = replace(draft.recovery, owed=without(draft.recovery.owed, replica.replica_id))
    known = replace(
        there,
        state=state,
        config_id=event.config_id,
        since=replica.since if leaving_already else draft.clock,
        told=event.rank,
        rank=event.rank,
        slot=event.rank.rank if goes is RELEASE else None,
        leaving=goes,
        **unready.newest_of(replica, event.at, event.unready),
    )
    replicas.write(draft, known)
    if state is ReplicaState.RUNNING:
        known = replace(
            known, pending=None, routed=known.unready is None, **readiness.begin(draft, known, event.ready_for_s or 0.0)
        )
        replicas.answered(draft, known)
        replicas.begin_to_run(draft, replica, known)
    elif state is STARTING and event.prepared and overlap.is_wanted(draft):  # it took requests before it was told this rank
        routed = overlap.publish(draft, known, event.ready_for_s or 0.0)
        known = replicas.write(draft, replace(routed, since=draft.clock))  # its start time-out runs anew
    nodes.join(draft, known)
    replicas.believe(draft, replica, known)
    draft.note(REPORT_ADOPTED, "R10", known.replica_id, f"{state} on {event.node_id}", after=event.rank)
    if goes is not RELEASE:
        known = _claim(draft, known, event.rank.rank)
    _go_on(draft, known, leaving_already)


def _report(event: ReplicaReported) -> Report:
    if event.draining:
        return Report.SAYS_DRAINING
    if event.prepared and event.rank is None:
        return Report.SAYS_PREPARED
    return Report.SAYS_READY if event.ready else Report.SAYS_STARTING


def _go_on(draft: Draft, replica: Replica, leaving_already: bool) -> None:
    if replica.state is ReplicaState.RUNNING:
        prove(draft, replica)
        notice_config(draft, replica)
    elif replica.state is STARTING:
        replica = replicas.write(draft, replace(replica, start_timer=replicas.arm_start_timer(draft, replica.replica_id)))
    elif not leaving_already:
        leaving.stop_again(draft, replica)
    static.strike_adopted(draft, replica)


def _claim(draft: Draft, replica: Replica, rank: int) -> Replica:
    """Seat a reporter at its rank. Of two that report one rank, the one that stays keeps it, else the older (section 2.4)."""
    slot = draft.slots.get(rank)
    enter = slots.open_held if slot is None else slots.seat
    if slot is not None and slot.holder is not None:
        holder = draft.replicas[slot.holder]
        draft.note(NoteKind.DUPLICATE_FOUND, "R10", replica.replica_id, f"{holder.replica_id} reports it too", rank=rank)
        if _keeps(holder, replica):
            return _lose(draft, replica)
        slots.unseat(draft, rank, holder)
        if (loser := _lose(draft, holder)).state is ReplicaState.RUNNING:
            notice_config(draft, loser)  # it may come above the partition
    replica = replicas.assign(draft, replica, slot=rank)
    draft.recovery = replace(draft.recovery, owed=without(draft.recovery.owed, replica.replica_id))
    enter(draft, rank, replica)
    return replica


def _keeps(holder: Replica, other: Replica) -> bool:
    def order(replica: Replica) -> tuple[bool, int]:
        return replica.state is DRAINING, replica.birth

    return order(holder) < order(other)


def _lose(draft: Draft, replica: Replica) -> Replica:
    if replica.state is DRAINING:
        draft.recovery = replace(draft.recovery, owed=without(draft.recovery.owed, replica.replica_id))
        return replicas.assign(draft, replica, slot=None, leaving=RELEASE)
    draft.recovery = replace(draft.recovery, losers=draft.recovery.losers.set(replica.replica_id, replica.birth))
    return replicas.assign(draft, replica, slot=None, rank=None)


def repair(draft: Draft) -> None:
    """Once all have reported: losers whose rank went free take it back; nodes agree on their node and local ranks."""
    draft.recovery = replace(draft.recovery, repaired=True, reports_due_at=None)
    if draft.spec.min_ready_s:
        follow_min_ready(draft)
    for loser in draft.those(draft.recovery.losers):
        _take_back(draft, loser)
    speakers = []
    for index in sorted(draft.node_ids):
        node_id = draft.node_ids[index]
        spoken = _speaker(draft, draft.nodes[node_id])
        if spoken is not None:
            speakers.append((spoken.state is DRAINING, spoken.birth, node_id, spoken))
    disputed = []
    for draining, _, node_id, speaker in sorted(speakers, key=lambda entry: entry[:2]):
        assert speaker.told is not None, f"{speaker.replica_id} speaks for its node, and knows no rank"
        node_rank = speaker.told.node_rank
        if node_rank not in draft.node_of_rank:
            nodes.set_node_rank(draft, node_id, node_rank)
            _agree(draft, node_id, node_rank)
        elif not draining:
            disputed.append(node_id)
    for node_id in disputed:
        node_rank = draft.node_ranks.lowest_free()
        nodes.set_node_rank(draft, node_id, node_rank)
        _agree(draft, node_id, node_rank)
    draft.touched = PMap({node_id: index for index, node_id in draft.node_ids.items()})
    mark_disputed(draft)
    static.follow(draft, draft.bundles.stranded)
    if draft.status is DEPLOY_FAILED:
        withdraw(draft)
    _explain(draft)


def mark_disputed(draft: Draft) -> None:
    """Remember who still shares a number with another: those who are to move, and those who leave (R3)."""
    for replica in draft.replicas.values():  # in any order: it is a set that they are added to
        if replica.told is None or replica.node_id is None:
            continue
        goes = replica.state is DRAINING
        unsure = replica.rank is None or replica.believed or replica.replica_id in draft.recovery.misplaced
        if unsure or (goes and _shares(draft, replica.told, replica.node_id)):
            draft.recovery = replace(draft.recovery, disputed=draft.recovery.disputed.set(replica.replica_id, replica.birth))


def _shares(draft: Draft, told: ReplicaRank, node_id: NodeId) -> bool:
    node = draft.nodes[node_id]
    counted_once = draft.taken.count(told.rank) == 1 and node.locals.count(told.local_rank) == 1
    return not counted_once or draft.node_of_rank.get(told.node_rank) != node_id


def _take_back(draft: Draft, loser: Replica) -> None:
    assert loser.told is not None, f"{loser.replica_id} lost a rank that it never reported"
    rank = loser.told.rank
    slot = draft.slots.get(rank)
    if slot is not None and slot.holder is None:
        draft.recovery = replace(draft.recovery, losers=without(draft.recovery.losers, loser.replica_id))
        seated = replicas.assign(draft, loser, slot=rank, rank=loser.told)
        slots.seat(draft, rank, seated)


def _speaker(draft: Draft, node: Node) -> Replica | None:
    """The oldest replica on a node that says anything of its ranks; one that stays before one that leaves."""
    members = draft.those(node.members)
    speakers = [replica for replica in members if replica.told is not None]
    return min(speakers, key=lambda replica: replica.state is DRAINING, default=None)


def _agree(draft: Draft, node_id: NodeId, node_rank: int) -> None:
    """Give each replica on a node its node rank, and a local rank of its own; the older keeps what it has."""
    node = draft.nodes[node_id]
    leavers = (each for each in draft.those(node.members) if each.state is DRAINING)
    claimed = {leaver.told.local_rank for leaver in leavers if leaver.told is not None}
    # Stays as it is while this node's replicas move: each counts both here and in all.
    only_here = nodes.believed_only_here(draft, node_id, node_rank)
    for replica in draft.those(node.members):
        if replica.told is None or replica.state is DRAINING or replica.replica_id in draft.recovery.losers:
            continue
        local_rank = replica.told.local_rank
        if local_rank in claimed:
            local_rank = draft.nodes[node_id].locals.lowest_free()
        claimed.add(local_rank)
        told_node_rank, is_told_anyway = replica.told.node_rank, local_rank != replica.told.local_rank
        if told_node_rank != node_rank and only_here and (is_told_anyway or not _waits_for_budget(draft, replica)):
            told_node_rank = node_rank
            draft.recovery = replace(draft.recovery, misplaced=without(draft.recovery.misplaced, replica.replica_id))
        elif told_node_rank != node_rank:
            draft.recovery = replace(draft.recovery, misplaced=draft.recovery.misplaced.set(replica.replica_id, replica.birth))
        _move(draft, replica, ReplicaRank(replica.told.rank, told_node_rank, local_rank))


def _move(draft: Draft, replica: Replica, rank: ReplicaRank) -> None:
    if rank != replica.told:
        reconfigure(draft, replica, rank, replica.config_id)
        because = "replicas of its node, or with its node or local rank, report otherwise"
        draft.note(RANK_MOVED, "R10", replica.replica_id, because, before=replica.told, after=rank)


def align(draft: Draft) -> None:
    """Give its node's rank to a replica that reported another, as soon as nobody elsewhere believes it (R3)."""
    while True:
        for_budget = _follow_their_nodes(draft)
        stuck = next((each for each in draft.those(draft.recovery.misplaced) if each.replica_id not in for_budget), None)
        waiting = (*draft.those(draft.recovery.misplaced), *draft.those(draft.recovery.disputed))
        if stuck is None or any(type(each.pending) in MOVING for each in waiting):
            return
        # Nodes wait for each other: one of them takes a rank that nobody believes.
        assert stuck.node_id is not None, f"{stuck.replica_id} is misplaced, and on no node"
        node_rank = draft.node_ranks.lowest_free()
        nodes.set_node_rank(draft, stuck.node_id, node_rank)
        _agree(draft, stuck.node_id, node_rank)


def _follow_their_nodes(draft: Draft) -> set[ReplicaId]:
    """Move those whose node's rank nobody elsewhere believes any more. Returns which of them wait for the budget instead."""
    waiting_nodes: set[NodeId] = set()
    for_budget: set[ReplicaId] = set()
    for replica in draft.those(draft.recovery.misplaced):
        told, node_id = replica.told, replica.node_id
        assert told is not None, f"{replica.replica_id} is misplaced, and knows no rank"
        assert node_id is not None, f"{replica.replica_id} is misplaced, and on no node"
        if type(replica.pending) is ReconfigureReplica or node_id in waiting_nodes:
            continue
        node_rank = draft.nodes[node_id].node_rank
        if node_rank is None or not nodes.believed_only_here(draft, node_id, node_rank):
            waiting_nodes.add(node_id)
        elif _waits_for_budget(draft, replica):
            for_budget.add(replica.replica_id)
        else:
            draft.recovery = replace(draft.recovery, misplaced=without(draft.recovery.misplaced, replica.replica_id))
            _move(draft, replica, ReplicaRank(told.rank, node_rank, told.local_rank))
    return for_budget


def _waits_for_budget(draft: Draft, replica: Replica) -> bool:
    """Whether its move waits: it brings a user_config, for which no budget is left, and what it believes is no node's rank."""
    if not draft.rollout.stale_config or not takes_config_along(draft, replica):
        return False
    if draft.spec.config_rollout == "at_once" or budget.may_send_config(draft) or not budget.is_available(draft, replica):
        return False
    assert replica.told is not None, f"{replica.replica_id} is to be told another node rank, and knows none"
    return replica.told.node_rank not in draft.node_of_rank


def _explain(draft: Draft) -> None:
    highest = draft.taken.taken.highest()
    gaps = [rank for rank, _ in zip(draft.taken.taken.free_below(highest), range(GAPS_SHOWN), strict=False)]
    found = f"{len(draft.replicas)} live replicas, {len(draft.slots)} ranks, {len(draft.recovery.losers)} duplicates to move"
    because = found + (f", free again: {', '.join(map(str, gaps))}" if gaps else ", no gaps")
    draft.note(NoteKind.RECOVERY_COMPLETE, "R10", because=because)
