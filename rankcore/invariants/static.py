"""The promises of a static placement, S1 to S8, on states and on steps."""

from collections.abc import Iterable

from rankcore.commands import Command, ReconfigureReplica, StartReplica
from rankcore.invariants.availability import is_maturing
from rankcore.kernel import Violation
from rankcore.state import DeploymentState, Replica
from rankcore.values import DeploymentStatus, ReplicaState, age_key


def check_static(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """Promises about one state; `replicas`: the live ones, the oldest first."""
    yield from _as_many_as_ranks(state)
    yield from _on_their_bundles(state, replicas)
    yield from _alone(state, replicas)
    yield from _failed(state, replicas)


def _as_many_as_ranks(state: DeploymentState) -> Iterable[Violation]:
    static = state.spec.static_placement
    if static is not None and state.world_size != len(static):
        yield Violation("S1", f"the world size is {state.world_size}, and {len(static)} ranks have bundles")


def _on_their_bundles(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """S2: whoever stands elsewhere is about to be replaced, which keeps a deployment from being healthy."""
    if state.status is not DeploymentStatus.HEALTHY:
        return
    for replica in replicas:
        wanted = state.spec.place_of(replica.slot) if replica.slot is not None else None
        if replica.place != wanted:
            found = f"{replica.replica_id}, of rank {replica.slot}, is on {replica.place}"
            yield Violation("S2", f"HEALTHY, and {found}, expected {wanted}")


def _alone(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """S4: what a recovery found on one bundle is older than this epoch; nobody is started there."""
    users: dict[tuple[str | None, int], list[Replica]] = {}
    for replica in replicas:
        if replica.state is not ReplicaState.FAILED:
            for bundle in replica.bundles:
                users.setdefault((replica.group_id, bundle), []).append(replica)
    for (_, bundle), sharing in sorted(users.items(), key=lambda entry: entry[0][1]):
        started_here = any(age_key(each.replica_id)[0] == state.epoch for each in sharing)
        if len(sharing) > 1 and started_here:
            yield Violation("S4", f"bundle {bundle} is used by {[each.replica_id for each in sharing]}")


def _failed(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """S5: nobody stays on a lost bundle, and FAILED is who waits for one, with nothing of a live replica left."""
    stranded = state.failed_ranks
    for replica in replicas:
        if replica.state is ReplicaState.FAILED:
            if replica.slot not in stranded:
                yield Violation("S5", f"{replica.replica_id} is FAILED, and no bundle of rank {replica.slot} is lost")
            if replica.told is not None or replica.pending is not None or replica.node_id is not None:
                yield Violation("S5", f"{replica.replica_id} is FAILED, and still {replica}")
        elif replica.state is not ReplicaState.DRAINING and replica.group_id == state.tables.bundles.group_id:
            lost = [bundle for bundle in replica.bundles if _is_lost(state, bundle)]
            if lost:
                yield Violation("S5", f"{replica.replica_id} is {replica.state} on the lost bundles {lost}")
    if stranded and state.status is DeploymentStatus.HEALTHY:
        yield Violation("S5", f"HEALTHY while ranks {list(stranded)} have lost bundles")


def _is_lost(state: DeploymentState, bundle: int) -> bool:
    news = state.tables.bundles.news.get(bundle)
    return news is not None and news.lost


def check_static_commands(before: DeploymentState, state: DeploymentState, fresh: Iterable[Command]) -> Iterable[Violation]:
    """Promises about what a step asks for, repeats left out."""
    was_static = before.spec.static_placement is not None and state.spec.static_placement is not None
    for command in fresh:
        if type(command) is StartReplica:
            wanted = state.spec.place_of(command.rank)
            if (command.group_id, command.bundles) != wanted:
                yield Violation("S2", f"{command} is not for {wanted}")
            lost = [bundle for bundle in command.bundles if _is_lost(state, bundle)]
            if lost:
                yield Violation("S5", f"{command} on the lost bundles {lost}")
        elif type(command) is ReconfigureReplica and was_static and not is_repairing(before):
            # S6: no rank changes while its replica lives, but for what a recovery found twice (R10).
            old = before.replicas.get(command.replica_id)
            if old is not None and old.told is not None and old.told != command.rank:
                yield Violation("S6", f"{command.replica_id} is moved from {old.told} to {command.rank}")


def is_repairing(before: DeploymentState) -> bool:
    """Whether a recovery has not yet dealt with all that it found."""
    tables = before.tables
    return bool(
        tables.recovery.unreported or tables.recovery.losers or tables.recovery.misplaced or not tables.recovery.repaired
    )


def check_failed(before: DeploymentState, state: DeploymentState) -> Iterable[Violation]:
    """S5: who ends in a slot that waits for a lost bundle is FAILED, and not forgotten."""
    if not state.tables.bundles.stranded.size:
        return
    for replica_id, old in before.replicas.items():
        if replica_id in state.replicas or old.slot not in state.failed_ranks or old.state is ReplicaState.FAILED:
            continue
        if old.slot is not None and old.place != state.spec.place_of(old.slot) and is_repairing(before):
            continue  # a recovery looks at everybody once: it waited for bundles on which it did not stand
        slot = state.tables.slots.get(old.slot) if old.slot is not None else None
        if slot is not None and slot.holder is None and before.holder_of(old.slot or 0) == replica_id:
            yield Violation("S5", f"{replica_id} ended in the stranded rank {old.slot}, and is not FAILED")


def asked_to_make_way(before: DeploymentState, state: DeploymentState, old: Replica) -> bool:
    """S7: whether it belonged elsewhere, and stood on a bundle of a vacant rank: then no budget can be kept.

    It can be where another is to come up to stay: that is waited for.
    """
    static = state.spec.static_placement
    taken = state.replicas.get(old.replica_id, old).slot if old.slot is None else old.slot  # a duplicate's loser takes one back
    if static is None or taken is None or old.place == state.spec.place_of(taken) or _is_one_to_be_back(state):
        return False
    for rank in {*state.kept_ranks, *before.kept_ranks}:
        group_id, wanted = state.spec.place_of(rank)
        if group_id == old.group_id and set(wanted) & set(old.bundles):
            return True
    return False


def _is_one_to_be_back(state: DeploymentState) -> bool:
    """Whether somebody has not been ready for long enough yet, or rests where its own bundles are free."""
    if any(is_maturing(state, replica) for replica in state.replicas.values()):
        return True
    resting = (rank for rank in state.kept_ranks if state.tables.slots[rank].retry_at > state.clock)
    return any(all(_is_free(state, bundle) for bundle in state.spec.place_of(rank)[1]) for rank in resting)


def _is_free(state: DeploymentState, bundle: int) -> bool:
    return not _is_lost(state, bundle) and not state.tables.bundles.users.get(bundle)
