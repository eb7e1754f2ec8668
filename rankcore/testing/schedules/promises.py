"""What has to hold in a world of schedules, asked of the replicas and not of the book."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from rankcore.values import DeploymentStatus

if TYPE_CHECKING:
    from rankcore.state import DeploymentState
    from rankcore.testing.schedules.actor import Actor
    from rankcore.testing.schedules.world import World


class BrokenScheduleError(AssertionError):
    """A schedule has broken a promise.

    Attributes:
        broken: The promises, each with its number first.
        story: What led there.
    """

    def __init__(self, broken: tuple[str, ...], story: str = "") -> None:
        super().__init__("; ".join(broken) + (f"\n{story}" if story else ""))
        self.broken = broken
        self.story = story

    @property
    def rule(self) -> str:
        """The number of the first promise."""
        return self.broken[0].partition(":")[0]


def shared_beliefs(actors: Iterable["Actor"]) -> list[str]:
    """R3: who believes what another believes, but for duplicates that the adversary made."""
    ranks: dict[object, Actor] = {}
    found: list[str] = []
    for actor in actors:
        rank = actor.replica.rank
        if rank is None or actor.corrupted:
            continue
        other = ranks.setdefault(rank.rank, actor)
        if other is not actor:
            found.append(f"R3: {other.replica_id} and {actor.replica_id} believe rank {rank.rank}")
        other = ranks.setdefault((actor.node_id, rank.local_rank), actor)
        if other is not actor:
            found.append(f"R3: {other.replica_id}, {actor.replica_id} on {actor.node_id}: {rank}")
        other = ranks.setdefault((rank.node_rank,), actor)
        if other.node_id != actor.node_id:
            found.append(f"R3: node rank {rank.node_rank} on {other.node_id}, {actor.node_id}")
    return found


def clash(actor: "Actor", actors: Iterable["Actor"]) -> bool:
    """Whether another believes what this one believes, at any level."""
    mine = actor.rank
    for other in actors:
        its = other.rank
        if other is actor or mine is None or its is None:
            continue
        together = other.node_id == actor.node_id
        same_node_rank = its.node_rank == mine.node_rank
        if its.rank == mine.rank or (together and its.local_rank == mine.local_rank) or together != same_node_rank:
            return True
    return False


def shared_bundles(actors: Iterable["Actor"]) -> list[str]:
    """S4, on who is there rather than on the book."""
    users: dict[tuple[str | None, int], str] = {}
    found = []
    for actor in actors:
        for bundle in actor.replica.bundles:
            other = users.setdefault((actor.replica.group_id, bundle), actor.replica_id)
            if other != actor.replica_id:
                found.append(f"S4: {other} and {actor.replica_id} share bundle {bundle}")
    return found


def unsettled(world: "World") -> list[str]:
    """Liveness: what is wrong where nothing is left to do, in the book and in fact."""
    state, actors = world.state, world.actors.values()
    if state.status is DeploymentStatus.DELETED:
        return ["liveness: deleted, and replicas live on"] if world.actors else []
    found = []
    if state.status not in (DeploymentStatus.HEALTHY, DeploymentStatus.DEPLOY_FAILED):
        found.append(f"liveness: not converged: {state.status}, {_ranks(state)}, kept {state.kept_ranks}")
    for actor in actors:
        booked = state.rank_of(actor.replica_id)
        if booked != actor.rank:
            found.append(f"liveness: {actor.replica_id} believes {actor.rank}, the book says {booked}")
    if (world.announced.epoch, world.announced.world_size) != (state.epoch, state.world_size):
        found.append(f"R9: the newest announcement is {world.announced}, and the target {state.world_size}")
    return found + (_unhealthy(world, actors) if state.status is DeploymentStatus.HEALTHY else [])


def _unhealthy(world: "World", actors: Collection["Actor"]) -> list[str]:
    state, found = world.state, []
    ranks = sorted(actor.rank.rank for actor in actors if actor.rank is not None)
    if ranks != list(range(state.world_size)):
        found.append(f"R1: ranks are {ranks} of {state.world_size}")
    everything = (*state.spec.generation, state.spec.config_id)
    reached = [actor.replica for actor in actors if actor.rank is not None and actor.rank.rank >= state.kept_below]
    running = {(replica.version, replica.restart_token, replica.config_id) for replica in reached}
    if running - {everything}:
        found.append(f"liveness: {sorted(map(str, running))} run, {everything} is wanted")
    for actor in actors:
        wanted = state.spec.place_of(actor.rank.rank) if actor.rank is not None else None
        place = (actor.replica.group_id, actor.replica.bundles)
        if place != wanted:
            found.append(f"S2: {actor.replica_id} is on {place}, expected {wanted}")
        if actor.first_bundle is not None and actor.node_id != world.bundle_node(actor):
            found.append(f"S2: {actor.replica_id} is on {actor.node_id}, its bundle on {world.bundle_node(actor)}")
    return found


def _ranks(state: "DeploymentState") -> str:
    return str(sorted((rank.rank, replica_id) for replica_id, rank in state.ranks.items()))
