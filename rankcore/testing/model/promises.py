"""What has to hold in a model world: in every one of them, and where nothing is left to do."""

from collections.abc import Iterable

from rankcore.invariants import Violation, check, check_step
from rankcore.testing.model.moves import Told
from rankcore.testing.model.replica import ModelReplica
from rankcore.testing.model.world import World
from rankcore.values import DeploymentStatus

REST = (DeploymentStatus.HEALTHY, DeploymentStatus.DEPLOY_FAILED, DeploymentStatus.DELETED)


def broken_by(before: World, after: World, steps: Iterable[Told]) -> list[Violation]:
    """Which promises a move has broken. Looks only at what the move has changed."""
    found: list[Violation] = []
    for each in steps:
        if each.event is not None:
            found += check_step(each.before, each.event, each.result)
        found += check(each.result.state)
    if after.state is not before.state:
        found += _told_the_world_size(after)
    if after.replicas is not before.replicas:
        found += _believed_once(after.replicas)
    return found


def _believed_once(replicas: tuple[ModelReplica, ...]) -> Iterable[Violation]:
    """R3, asked of the replicas and not of the book."""
    ranks: dict[object, ModelReplica] = {}
    for replica in replicas:
        rank = replica.rank
        if rank is None or replica.excused:
            continue
        at_level = (
            (f"rank {rank.rank}", "replica_id"),
            (f"local rank {rank.local_rank} on node {replica.node_id}", "replica_id"),
            (f"node rank {rank.node_rank}", "node_id"),
        )
        for what, owner in at_level:
            other = ranks.setdefault(what, replica)
            if getattr(other, owner) != getattr(replica, owner):
                yield Violation("R3", f"{other.replica_id} and {replica.replica_id} both believe to have {what}")


def _told_the_world_size(world: World) -> Iterable[Violation]:
    """R9: what everybody is told last is the target, and nothing newer says otherwise."""
    announced, target = world.announced, world.state.world_size
    if (announced.epoch, announced.world_size) != (world.state.epoch, target):
        yield Violation("R9", f"the newest announcement is {announced}, and the target {target}")
    for command in world.commands:
        newer = getattr(command, "revision", -1) > announced.revision
        if newer and getattr(command, "world_size", target) != target:
            yield Violation("R9", f"{command} is newer than {announced}")


def unsettled(world: World) -> list[Violation]:
    """What is wrong with a world in which, without another fault, nothing will happen any more (liveness)."""
    state, found = world.state, []
    if state.status not in REST:
        found.append(Violation("liveness", f"nothing is left to do, and the deployment is {state.status}"))
    if state.status is DeploymentStatus.DELETED:
        left = [replica.replica_id for replica in world.replicas]
        return [*found, Violation("liveness", f"DELETED, and {left} live on")] if left else found
    for replica in world.replicas:
        if replica.rank != state.rank_of(replica.replica_id):
            booked = state.rank_of(replica.replica_id)
            found.append(Violation("liveness", f"{replica.replica_id} believes {replica.rank}, the book says {booked}"))
    if state.status is DeploymentStatus.HEALTHY:
        found += _contiguous(world)
    return found


def _contiguous(world: World) -> Iterable[Violation]:
    """R1, asked of the replicas, with the version and the user_config that are wanted."""
    spec = world.state.spec
    ranks = sorted(replica.rank.rank for replica in world.replicas if replica.rank is not None)
    if ranks != list(range(spec.target_replicas)):
        yield Violation("R1", f"HEALTHY with nothing left to do, and the ranks are {ranks} of {spec.target_replicas}")
    builds = {(replica.version, replica.config_id) for replica in world.replicas}
    if builds - {spec.build}:
        yield Violation("liveness", f"HEALTHY with nothing left to do, and {sorted(map(str, builds))} run")
