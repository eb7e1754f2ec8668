"""Promises about one state."""

from collections.abc import Iterable
from operator import attrgetter

from rankcore.invariants.evictions import check_evictions, check_pool
from rankcore.invariants.hand_over import check_rankless
from rankcore.invariants.indexes import check_indexes
from rankcore.invariants.overlap import check_given_up, check_routed, check_unwanted
from rankcore.invariants.scarcity import check_scarcity
from rankcore.invariants.stall import check_stall
from rankcore.invariants.static import check_static
from rankcore.invariants.waking import check_waking
from rankcore.kernel import Violation
from rankcore.state import DeploymentState, Replica
from rankcore.values import DeploymentStatus, ReplicaState, age_key

RUNNING = (ReplicaState.RUNNING, ReplicaState.RECONFIGURING)
AT_REST = (ReplicaState.RUNNING, ReplicaState.PLACED, ReplicaState.PREPARED, ReplicaState.FAILED)


def check(state: DeploymentState) -> list[Violation]:
    """Check a state against the promises.

    Returns:
        What is broken; empty when all promises hold.
    """
    replicas = live(state)
    return [
        *_contiguous(state, replicas),
        *_one_rank_each(state, replicas),
        *check_rankless(replicas),
        *check_routed(replicas),
        *check_unwanted(state),
        *check_given_up(state),
        *_repeated(replicas),
        *_unique(state, replicas),
        *_statuses(state, replicas),
        *check_static(state, replicas),
        *check_scarcity(state),
        *check_evictions(state, replicas),
        *check_pool(state),
        *check_stall(state, replicas),
        *check_waking(state),
        *check_indexes(state),
    ]


def live(state: DeploymentState) -> list[Replica]:
    """The live replicas, the oldest first."""
    return sorted(state.replicas.values(), key=attrgetter("birth"))


def _contiguous(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    if state.status is not DeploymentStatus.HEALTHY or any(r.pending is not None or r.rank is None for r in replicas):
        return
    ranks = [r.rank for r in replicas if r.rank is not None]
    _expected = list(range(state.world_size))
    found = sorted(rank.rank for rank in ranks)
    if found != _expected:
        yield Violation("R1", f"ranks are {found}, expected 0..{state.world_size - 1}")
    if state.spec.static_placement is not None:
        return  # a bundle that comes back on another node leaves gaps in the node and local ranks, and nobody is moved (S6)
    by_node: dict[str, list[int]] = {}
    node_ranks: dict[str, set[int]] = {}
    for replica, rank in zip(replicas, ranks, strict=True):
        by_node.setdefault(str(replica.node_id), []).append(rank.local_rank)
        node_ranks.setdefault(str(replica.node_id), set()).add(rank.node_rank)
    for node_id, locals_ in sorted(by_node.items()):
        if sorted(locals_) != list(range(len(locals_))):
            yield Violation("R1", f"local ranks on {node_id} are {sorted(locals_)}, expected 0..{len(locals_) - 1}")
    found = sorted(rank for ranks_of_node in node_ranks.values() for rank in ranks_of_node)
    if found != list(range(len(by_node))):
        yield Violation("R1", f"node ranks are {found}, expected 0..{len(by_node) - 1}, one a node")


def _one_rank_each(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    for replica in replicas:
        if replica.state in RUNNING and replica.told is None:
            yield Violation("R2", f"{replica.replica_id} is {replica.state} and was never told a rank")
        if replica.state in RUNNING and replica.rank is None and replica.replica_id not in state.tables.recovery.disputed:
            if not state.unreported:
                yield Violation("R2", f"{replica.replica_id} is {replica.state} and has no rank in the book")


def _repeated(replicas: list[Replica]) -> Iterable[Violation]:
    """2.4: what waits for an answer has something that is repeated until the answer comes."""
    for replica in replicas:
        if replica.state not in AT_REST and replica.pending is None:
            yield Violation("2.4", f"{replica.replica_id} is {replica.state} with nothing to be repeated")
        elif replica.pending is not None and not replica.is_repeated and replica.waiting is None:
            yield Violation("2.4", f"{replica.replica_id} is {replica.state}, and what it was told is not repeated")


def _unique(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """R3, on what replicas may believe by the book. While reports are outstanding, duplicates are being gathered."""
    if state.unreported:
        return
    globals_: dict[int, set[str]] = {}
    locals_: dict[tuple[str, int], set[str]] = {}
    nodes: dict[int, set[str]] = {}
    for replica in replicas:
        if replica.told is None or replica.replica_id in state.tables.recovery.disputed:
            continue
        for rank in (replica.told, *replica.believed):
            globals_.setdefault(rank.rank, set()).add(replica.replica_id)
            locals_.setdefault((str(replica.node_id), rank.local_rank), set()).add(replica.replica_id)
            nodes.setdefault(rank.node_rank, set()).add(str(replica.node_id))
    for number, holders in sorted(globals_.items()):
        if len(holders) > 1:
            yield Violation("R3", f"rank {number} is held or believed by {sorted(holders, key=age_key)}")
    for (node_id, number), holders in sorted(locals_.items()):
        if len(holders) > 1:
            yield Violation("R3", f"local rank {number} on {node_id} is held or believed by {sorted(holders, key=age_key)}")
    for number, holders in sorted(nodes.items()):
        if len(holders) > 1:
            yield Violation("R3", f"node rank {number} is held or believed on the nodes {sorted(holders)}")


def _is_kept(state: DeploymentState, replica: Replica) -> bool:
    return replica.slot is not None and replica.slot < state.kept_below


def _statuses(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    if state.status is DeploymentStatus.HEALTHY:
        reached = [r for r in replicas if not _is_kept(state, r)]
        odd = [r.replica_id for r in replicas if r.state not in RUNNING]
        odd += [r.replica_id for r in reached if r.generation != state.spec.generation and r.replica_id not in odd]
        owing = [r.replica_id for r in replicas if r.ready_at is None or (r in reached and r.config_id != state.spec.config_id)]
        if state.tables.unready:
            yield Violation("V16", f"HEALTHY, and {sorted(state.tables.unready)} are unready")
        if owing:
            yield Violation("V6", f"HEALTHY, and {owing} have not acknowledged the user_config")
        if odd or len(replicas) != state.world_size or state.kept_ranks:
            found = f"{len(replicas)} replicas, not running the current generation: {odd}, kept ranks: {state.kept_ranks}"
            yield Violation("2.3", f"HEALTHY with a target of {state.world_size}, and {found}")
    if state.status is DeploymentStatus.DELETED and replicas:
        yield Violation("2.3", f"DELETED with {len(replicas)} live replicas")
    if state.status is DeploymentStatus.RECOVERING and not state.unreported:
        yield Violation("R10", "RECOVERING with no report outstanding")
