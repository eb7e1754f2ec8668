"""Faults off: what a world has to come to once nobody disturbs it any more (liveness)."""

from rankcore.events import NodeChanged
from rankcore.state import DeploymentState
from rankcore.testing.schedules.cluster import NODES
from rankcore.testing.schedules.promises import unsettled
from rankcore.testing.schedules.world import World
from rankcore.values import DeploymentStatus

ROUNDS_MAX = 400
CALM_ROUNDS_MAX = 50
MESSAGES_MAX = 1_000
ROOM = 10


def heal(world: World) -> None:
    """Everything is delivered in order, everybody works, time passes as the core asks, until nothing is left to do.

    Raises:
        BrokenScheduleError: That ends badly, or never.
    """
    world.now += 1.0
    for index, node_id in enumerate(NODES):
        world.uncordon(index)
        world.events.append(NodeChanged(node_id=node_id, capacity=ROOM, at=world.now))
    world.restore_bundles(0, everything=True)
    world.look_at_all()
    for _ in range(ROUNDS_MAX):
        _calm(world)
        wake_at = world.state.wake_at
        if _is_quiet(world.state) or wake_at is None:
            break
        world.pass_time(max(0.0, wake_at - world.now))
    world.check_book()
    world.demand(unsettled(world))


def _calm(world: World) -> None:
    """Until everybody waits for time to pass."""
    for _ in range(CALM_ROUNDS_MAX):
        _deliver(world)
        for actor in list(world.actors.values()):
            if actor.node_id is None:
                anywhere = actor.wanted_node_id or NODES[len(actor.replica_id) % len(NODES)]
                world.put(actor, world.bundle_node(actor) or anywhere)
        world.work_through()
        if not (world.events or world.commands):
            return
    world.demand([f"liveness: at one moment, there is something to do {CALM_ROUNDS_MAX} times over"])


def _deliver(world: World) -> None:
    for _ in range(MESSAGES_MAX):
        if not (world.events or world.commands):
            return
        if world.events:
            world.deliver_event(0)
        if world.commands:
            world.deliver_command(0)
    world.demand([f"liveness: {MESSAGES_MAX:,} messages have arrived, and there are more and more"])


def _is_quiet(state: DeploymentState) -> bool:
    if state.status is DeploymentStatus.DELETED:
        return True
    if any(replica.pending is not None for replica in state.replicas.values()):
        return False
    if state.status is DeploymentStatus.DEPLOY_FAILED:
        return not state.tables.retries
    return state.status is DeploymentStatus.HEALTHY
