"""The controller crashes and comes back, in one move; a replica may have become confused meanwhile."""

from msgspec.structs import replace

from rankcore.commands import StartReplica
from rankcore.core import recover
from rankcore.draft import Step
from rankcore.replica.replica import ReplicaHalf
from rankcore.testing.model.machines import introduced
from rankcore.testing.model.world import RankWorld, about, clashes, given, next_instant
from rankcore.values import DeploymentStatus

GOING = (DeploymentStatus.DELETING, DeploymentStatus.DELETED)


def restarted(world: RankWorld) -> tuple[RankWorld, Step]:
    """The controller has crashed and come back: the fence is up, and it asks everybody who lives."""
    state = world.state
    world, at = next_instant(world)
    result = recover(
        state.spec,
        [replica.replica_id for replica in world.replicas],
        at=at,
        epoch=state.epoch + 1,
        previous=state.previous,
        deleting=state.status in GOING,
        failed=state.status is DeploymentStatus.DEPLOY_FAILED,
    )
    live = {replica.replica_id for replica in world.replicas}
    left = tuple(each for each in world.commands if not isinstance(each, StartReplica) and about(each) in live)
    return introduced(given(replace(world, commands=left), result)), result


def confused(world: RankWorld, victim: ReplicaHalf, other: ReplicaHalf) -> RankWorld:
    """While no controller is up, a replica somehow believes another's global rank: what a recovery has to repair (R10)."""
    assert victim.rank is not None, f"{victim.replica_id} believes nothing that could be confused"
    assert other.rank is not None, f"{other.replica_id} believes nothing that could be taken for it"
    rank = type(victim.rank)(other.rank.rank, victim.rank.node_rank, victim.rank.local_rank)
    changed = replace(victim, rank=rank)
    after = replace(world, replicas=tuple(changed if each is victim else each for each in world.replicas))
    clashing = (each.replica_id for each in after.replicas if clashes(after, each))
    return replace(after, excused=world.excused.union(clashing))
