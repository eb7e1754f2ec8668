"""What has to hold in a model world: in every one of them, and where nothing is left to do."""

from collections.abc import Iterable

from rankcore.book.slots import RUNNING
from rankcore.invariants import Violation
from rankcore.invariants.stall import is_updating
from rankcore.invariants.states import live
from rankcore.replica.replica import ReplicaHalf
from rankcore.testing.model.machines import lost_bundles
from rankcore.testing.model.moves import moves
from rankcore.testing.model.steps import Told
from rankcore.testing.model.world import LOST, RankWorld
from rankcore.values import DeploymentStatus

GOING = (DeploymentStatus.DELETING, DeploymentStatus.DELETED)
REST = (DeploymentStatus.HEALTHY, DeploymentStatus.DEPLOY_FAILED, DeploymentStatus.DELETED)


def broken_by(before: RankWorld, after: RankWorld, steps: Iterable[Told]) -> list[Violation]:
    """Which promises a move has broken. Looks only at what the move has changed."""
    found: list[Violation] = []
    for each in steps:
        found += each.broken
    if after.state is not before.state:
        found += _told_the_world_size(after)
        found += _generations_known(after)
        found += _readiness_known(after)
    if after.replicas is not before.replicas:
        found += _believed_once(after)
        found += _alone_on_bundles(after.replicas)
    if LOST in after.bundles:
        found += _losses_known(after)
    return found


def _believed_once(world: RankWorld) -> Iterable[Violation]:
    """R3, asked of the replicas and not of the book."""
    ranks: dict[object, ReplicaHalf] = {}
    for replica in world.replicas:
        rank = replica.rank
        if rank is None or replica.replica_id in world.excused:
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


def _generations_known(world: RankWorld) -> Iterable[Violation]:
    """V10: the book says of who has a rank what that was started with; else it would be restarted once more, or never."""
    for replica in world.replicas:
        booked = world.state.replicas.get(replica.replica_id)
        if booked is not None and booked.told is not None:
            if booked.generation != (replica.version, replica.restart_token):
                yield Violation(
                    "V10", f"{replica.replica_id} has token {replica.restart_token!r}, in the book {booked.generation}"
                )


def _readiness_known(world: RankWorld) -> Iterable[Violation]:
    """V16: once all that was said has been heard, requests go to those that take them, and to no others."""
    if not world.bounds.unreadies or world.events or world.state.tables.recovery.unreported:
        return
    for replica in world.replicas:
        booked = world.state.replicas.get(replica.replica_id)
        if booked is not None and booked.state in RUNNING and (booked.unready is None) is not (replica.unready is None):
            yield Violation("V16", f"{replica.replica_id} says {replica.unready!r}, in the book {booked.unready}")


def _alone_on_bundles(replicas: tuple[ReplicaHalf, ...]) -> Iterable[Violation]:
    """S4, asked of the replicas."""
    users: dict[tuple[str | None, int], ReplicaHalf] = {}
    for replica in replicas:
        for bundle in replica.bundles:
            other = users.setdefault((replica.group_id, bundle), replica)
            if other is not replica:
                yield Violation("S4", f"{other.replica_id} and {replica.replica_id} both stand on bundle {bundle}")


def _losses_known(world: RankWorld) -> Iterable[Violation]:
    """S5: where only what is lost can come back, the controller knows what that is, and nobody stands on it."""
    state, static = world.state, world.state.spec.static_placement
    if static is None or state.status in GOING or next(moves(world)).kind != "restore bundle":
        return
    lost = set(lost_bundles(world))
    stranded = tuple(rank for rank, bundles in enumerate(static.bundles) if lost.intersection(bundles))
    if state.failed_ranks != stranded:
        yield Violation("S5", f"bundles {sorted(lost)} are lost, and the stranded ranks are {state.failed_ranks}")
    for replica in world.replicas:
        if replica.group_id == world.group and lost.intersection(replica.bundles):
            yield Violation("S5", f"{replica.replica_id} lives on, of the lost bundles {sorted(lost)}")


def _told_the_world_size(world: RankWorld) -> Iterable[Violation]:
    """R9: what everybody is told last is the target, and nothing newer says otherwise."""
    announced, target = world.announced, world.state.world_size
    if (announced.epoch, announced.world_size) != (world.state.epoch, target):
        yield Violation("R9", f"the newest announcement is {announced}, and the target {target}")
    for command in world.commands:
        newer = getattr(command, "revision", -1) > announced.revision
        if newer and getattr(command, "world_size", target) != target:
            yield Violation("R9", f"{command} is newer than {announced}")


def unsettled(world: RankWorld) -> list[Violation]:
    """What is wrong with a world in which, without another fault, nothing will happen any more (liveness)."""
    state = world.state
    found: list[Violation] = []
    scarce = state.world_size > world.bounds.places and state.status not in REST
    if _has_no_room_to_begin(world) and state.status not in REST:
        scarce = True
    if scarce:
        found += _lowest_run(world)
        if state.spec.progress_deadline_s is not None and state.stalled_since is None and is_updating(state, live(state)):
            found.append(Violation("V9", "nothing is left to do, and nobody says that the update is stalled"))
    elif state.status not in REST:
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


def _has_no_room_to_begin(world: RankWorld) -> bool:
    """V2: with a budget of 0, and no room for one more, an update waits: all N serve, and it is said to be stalled."""
    bounds, state = world.bounds, world.state
    return state.spec.unavailable_max == 0 and 0 < bounds.rooms * bounds.nodes == state.world_size


def _lowest_run(world: RankWorld) -> Iterable[Violation]:
    """V18, asked of the replicas: with room for k, those are 0..k-1."""
    ranks = sorted(replica.rank.rank for replica in world.replicas if replica.rank is not None)
    if ranks != list(range(world.bounds.places)) or not all(replica.ready for replica in world.replicas):
        yield Violation("V18", f"nothing is left to do, with room for {world.bounds.places}, and the ranks are {ranks}")


def _contiguous(world: RankWorld) -> Iterable[Violation]:
    """R1, asked of the replicas, with the version and the user_config that are wanted."""
    spec = world.state.spec
    ranks = sorted(replica.rank.rank for replica in world.replicas if replica.rank is not None)
    if ranks != list(range(spec.target_replicas)):
        yield Violation("R1", f"HEALTHY with nothing left to do, and the ranks are {ranks} of {spec.target_replicas}")
    for replica in world.replicas:
        if replica.rank is None:
            yield Violation("liveness", f"HEALTHY with nothing left to do, and {replica.replica_id} lives on without a rank")
            continue
        wanted = spec.place_of(replica.rank.rank)
        if (replica.group_id, replica.bundles) != wanted:
            found = f"{replica.replica_id} is on {replica.group_id} {replica.bundles}"
            yield Violation("S2", f"HEALTHY with nothing left to do, and {found}, expected {wanted}")
    everything = (*spec.generation, spec.config_id)
    kept = world.state.kept_below
    running = {
        (replica.version, replica.restart_token, replica.config_id)
        for replica in world.replicas
        if replica.rank is not None and replica.rank.rank >= kept
    }
    if running - {everything}:
        yield Violation("liveness", f"HEALTHY with nothing left to do, and {sorted(map(str, running))} run")
