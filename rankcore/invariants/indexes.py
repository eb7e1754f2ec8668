"""Every index recomputed the slow way from the replicas and the slots, and compared with the one in the state."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from rankcore.book.nodes import LOCAL, NODE, beliefs
from rankcore.book.replicas import outside_slot
from rankcore.book.slots import INITIALISABLE, RANKLESS, RUNNING, UNSTARTED, is_serving
from rankcore.invariants.availability import is_maturing
from rankcore.invariants.bundles import check_bundles
from rankcore.kernel import Violation
from rankcore.rankset import RankCounts, RankSet
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Replica
from rankcore.values import DeploymentStatus, Leaving, ReplicaState


def check_indexes(state: DeploymentState) -> Iterable[Violation]:
    """Compare every table that is derived with what it is derived from."""
    tables = state.tables
    replicas = [replica for _, replica in tables.replicas.items()]
    expected: dict[str, object] = {
        "available": sum(r.routed for r in replicas),
        "early": sum(r.routed and r.state not in RUNNING for r in replicas),
        "unready": _ids(r for r in replicas if r.state in RUNNING and r.unready is not None),
        "configuring": _ids(r for r in replicas if is_serving(r) and r.ready_at is None),
        "taken": _count([*(rank for r in replicas for rank in outside_slot(r)), *tables.slots]),
        "node_ranks": _node_ranks(state, replicas),
        **_by_holder(state),
    }
    found: dict[str, object] = {
        "available": tables.available,
        "early": tables.early,
        "unready": _by_age(tables.unready),
        "taken": _counter(tables.taken),
        "node_ranks": _counter(tables.node_ranks),
        "vacant": _set(tables.vacant),
        "unstarted": _set(tables.rollout.unstarted),
        "running": _set(tables.rollout.running),
        "requested": _set(tables.requested),
        "roomless": _set(tables.roomless),
        "surging": _set(tables.rollout.surging),
        "arrived": _set(tables.rollout.arrived),
        "placed": _by_age(tables.placed),
        "configuring": _by_age(tables.configuring),
    }
    for name, value in expected.items():
        if found[name] != value:
            yield Violation("index", f"{name} is {found[name]}, expected {value}")
    yield from _check_slots(state)
    yield from _check_nodes(state, replicas)
    yield from _check_waiting(state, replicas)
    yield from _check_timers(state, replicas)
    yield from check_bundles(state)


def _by_holder(state: DeploymentState) -> dict[str, object]:
    tables = state.tables
    unstarted: set[int] = set()
    running: set[int] = set()
    placed: dict[str, int] = {}
    requested: set[int] = set()
    roomless: set[int] = set()
    for rank, slot in tables.slots.items():
        if slot.holder is None or slot.holder not in tables.replicas:
            continue
        holder = tables.replicas[slot.holder]
        if holder.state in UNSTARTED or holder.state in RUNNING:
            if _is_outdated(state, rank, holder):
                (running if holder.state in RUNNING or holder.routed else unstarted).add(rank)
        if holder.state in INITIALISABLE:
            placed[holder.replica_id] = holder.birth
        if holder.state is ReplicaState.REQUESTED:
            requested.add(rank)
            if holder.no_room_since is not None:
                roomless.add(rank)
    surging = {rank: slot.successor for rank, slot in tables.slots.items() if slot.successor is not None}
    early = {rank: tables.replicas.get(replica_id) for rank, replica_id in surging.items()}
    return {
        "vacant": {rank for rank, slot in tables.slots.items() if slot.holder is None},
        "requested": requested,
        "roomless": roomless,
        "surging": set(surging),
        "arrived": {
            rank for rank, each in early.items() if each is not None and each.state in RANKLESS - {ReplicaState.REQUESTED}
        },
        "unstarted": unstarted,
        "running": running,
        "placed": placed,
    }


def _is_outdated(state: DeploymentState, rank: int, holder: Replica) -> bool:
    previous = state.previous
    if previous is None or rank >= state.spec.partition:
        return holder.generation != state.spec.generation
    return holder.state in RANKLESS and holder.generation != previous.generation


def _is_kept(state: DeploymentState, replica: Replica) -> bool:
    return state.previous is not None and replica.slot is not None and replica.slot < state.spec.partition


def _check_slots(state: DeploymentState) -> Iterable[Violation]:
    tables = state.tables
    for rank, slot in tables.slots.items():
        for role, replica_id in (("holder", slot.holder), ("successor", slot.successor)):
            if replica_id is None:
                continue
            replica = tables.replicas.get(replica_id)
            if replica is None or replica.slot != rank or replica.leaving is Leaving.RELEASE:
                yield Violation("index", f"slot {rank} names {replica_id} as its {role}, which says {replica}")
    for name, ranks, within in (
        ("ready", tables.ready, tables.vacant),
        ("stoppable", tables.rollout.stoppable, tables.rollout.surging),
        ("unwanted", tables.rollout.unwanted, tables.rollout.surging),
    ):
        if ranks.size and not set(ranks) <= set(within):
            yield Violation("index", f"{name} is {set(ranks)}, expected a part of {set(within)}")
    # A slot may wait for its bundles, which `check_bundles` looks at; without them it goes on once all have reported.
    if state.spec.static_placement is None and not tables.recovery.unreported:
        over = {rank for rank in tables.vacant if rank in tables.slots and tables.slots[rank].retry_at <= state.clock}
        if not over <= set(tables.ready):
            yield Violation("index", f"ready is {set(tables.ready)}, and the back-off of {over} is over")


def _check_waiting(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """Those who wait for something: a replica that is forgotten here would wait for ever."""
    tables, spec = state.tables, state.proven if state.status is DeploymentStatus.DEPLOY_FAILED else state.spec
    unslotted = [r for r in replicas if r.slot is None]
    known = [r for r in replicas if r.replica_id not in tables.recovery.unreported and r.told is not None]
    for name, found, expected in (
        (
            "losers",
            tables.recovery.losers,
            [r for r in unslotted if r.leaving is None and r.told is not None],
        ),
        (
            "prepared",
            tables.recovery.prepared,
            [r for r in unslotted if r.leaving is None and r.state is ReplicaState.PREPARED],
        ),
        ("owed", tables.recovery.owed, [r for r in unslotted if r.leaving is Leaving.REFILL]),
        (
            "stale_config",
            tables.rollout.stale_config,
            [
                r
                for r in replicas
                if spec is not None and r.state in RUNNING and _lacks_config(r, spec) and not _is_kept(state, r)
            ],
        ),
    ):
        if _by_age(found) != _ids(expected):
            yield Violation("index", f"{name} is {_by_age(found)}, expected {_ids(expected)}")
    for name, found, within in (
        ("misplaced", tables.recovery.misplaced, [r for r in known if r.state is not ReplicaState.DRAINING]),
        ("compaction_waits_for", tables.compaction_waits_for, [r for r in known if r.pending is not None]),
        ("disputed", tables.recovery.disputed, known),
        ("unreported", tables.recovery.unreported, [r for r in replicas if r.pending is not None]),
    ):
        if found and not set(found.items()) <= set(_ids(within).items()):
            yield Violation("index", f"{name} is {_by_age(found)}, expected a part of {_ids(within)}")


def _lacks_config(replica: Replica, wanted: DeploymentSpec) -> bool:
    return replica.version == wanted.version and replica.config_id != wanted.config_id


def _check_timers(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """The queues of timers hold what is still waited for, and nothing else: stale entries would pile up."""
    tables = state.tables
    awaited = {slot.successor for rank, slot in tables.slots.items() if rank not in tables.rollout.stoppable}
    begun = [
        r for r in replicas if r.state in (ReplicaState.STARTING, ReplicaState.PREPARING) or r.replica_id in tables.configuring
    ]
    waiting = [r for r in replicas if r.replica_id in awaited and r.state is ReplicaState.REQUESTED]
    up = [r for r in replicas if r.state is ReplicaState.PREPARED and not r.routed]
    timed = not tables.recovery.unreported  # reports come in any order
    raw = [r for r in up if timed and r.since + state.spec.min_ready_s > state.clock]
    unripe = [r for r in replicas if timed and is_maturing(state, r)]
    for name, queue, expected in (
        (
            "unacknowledged",
            tables.unacknowledged,
            {r.repeat_timer: (r.replica_id, r.sent_at) for r in replicas if r.is_repeated},
        ),
        ("starting", tables.starting, {r.start_timer: (r.replica_id, r.since) for r in begun}),
        ("maturing", tables.maturing, {r.ready_timer: (r.replica_id, r.ready_at) for r in unripe}),
        ("ripening", tables.ripening, {r.ready_timer: (r.replica_id, r.since) for r in raw}),
        ("patience", tables.patience, {r.start_timer: (r.replica_id, r.since) for r in waiting}),
    ):
        found = {number: (entry.replica_id, entry.at) for number, entry in queue.items.items()}
        if found != expected:
            yield Violation("index", f"{name} is {found}, expected {expected}")
        if queue.head != min(found, default=queue.tail):
            yield Violation("index", f"{name} begins at {queue.head}, and has {sorted(found)}")


def _check_nodes(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    tables = state.tables
    named = {number: node_id for node_id, node in tables.nodes.items() if (number := node.node_rank) is not None}
    known = dict(tables.node_of_rank.items())
    if named != known:
        yield Violation("index", f"node_of_rank is {dict(sorted(known.items()))}, expected {dict(sorted(named.items()))}")
    by_room: dict[int, set[int]] = {}
    on_node: dict[str | None, list[Replica]] = {}
    wanted_on: dict[str | None, list[Replica]] = {}
    for replica in replicas:
        on_node.setdefault(replica.node_id, []).append(replica)
        wanted_on.setdefault(replica.reserved_node_id, []).append(replica)
    for node_id, node in tables.nodes.items():
        here = on_node.get(node_id, [])
        expected = (
            _ids(here),
            sum(map(_stays, here)),
            max((replica.birth for replica in here if _stays(replica)), default=-1),
            _count(rank for r in here for rank in beliefs(r, LOCAL)),
            _ids(wanted_on.get(node_id, [])),
        )
        found = (_by_age(node.members), node.staying, node.newest, _counter(node.locals), _by_age(node.reserved))
        if found != expected:
            yield Violation("index", f"node {node_id} is {found}, expected {expected}")
        if node.node_rank is not None and not here:
            yield Violation("index", f"node {node_id} has node rank {node.node_rank} and no replica")
        if node.room:
            by_room.setdefault(node.room, set()).add(node.index)
    used = sorted((node.staying, -node.newest, node_id) for node_id, node in tables.nodes.items() if node.staying)
    if list(tables.nodes_by_staying) != used:
        yield Violation("index", f"nodes_by_staying is {list(tables.nodes_by_staying)}, expected {used}")
    if _sets(tables.nodes_by_room) != by_room:
        yield Violation("index", f"nodes_by_room is {_sets(tables.nodes_by_room)}, expected {by_room}")


def _node_ranks(state: DeploymentState, replicas: list[Replica]) -> dict[int, int]:
    own = {node_id: node.node_rank for node_id, node in state.nodes.items()}
    strays = (rank for r in replicas for rank in beliefs(r, NODE) if rank != own.get(r.node_id or ""))
    return _count([*(rank for rank in own.values() if rank is not None), *strays])


def _stays(replica: Replica) -> bool:
    return replica.node_id is not None and replica.state is not ReplicaState.DRAINING


def _ids(replicas: Iterable[Replica]) -> dict[str, int]:
    return _by_age({replica.replica_id: replica.birth for replica in replicas})


def _by_age(ids: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(ids.items(), key=itemgetter(1)))


def _set(members: RankSet) -> set[int]:
    return set(members) if members.size else set()


def _count(numbers: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for number in numbers:
        found[number] = found.get(number, 0) + 1
    return found


def _counter(counts: RankCounts) -> dict[int, int]:
    return {number: counts.count(number) for number in counts.taken} if counts.taken.size else {}


def _sets(sets: Mapping[Any, RankSet]) -> dict[Any, set[int]]:
    return {key: set(members) for key, members in sets.items()}
