"""The model world: a controller with its state, replicas with their beliefs, and everything that is under way between them.

A world is a value, and every move makes another one. What keeps the number of worlds finite, and why nothing is lost by it:

- **Messages** under way are a set, delivered in any order or never. One that is repeated while it is still under way is
  there once; that it arrives twice all the same is a fault with a budget.
- **Time** is the state's clock, and moves only when nothing else is left to do, or with a budget (`delays`): then to the
  next moment at which something falls due. All time-outs are whole seconds, so timers are small whole numbers. News says
  that it happened within the last second, and later than what happened before the last node was lost: so `at` tells the
  order of a node's loss and of what came to it, and nothing else.
- **The controller** crashes and recovers in one move. Whatever replicas do in between, they could have done before, since
  their news may stay under way; and a crash between two commands of one step is a crash after it, with the later commands
  still under way for ever. Commands of the old controller stay under way to live replicas; only the fence is sharp: an old
  `StartReplica` creates nothing any more.
- **World sizes** are state and not messages (section 2.4), so nobody has to be told here: that the newest announcement is
  always true is checked instead (R9).
"""

import attrs
from msgspec import Struct
from msgspec.structs import replace

from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.core import deploy, recover, step
from rankcore.draft import Step
from rankcore.events import Event, NodeLost, ReplicaDied, ReplicaMissing, ReplicaPlaced, ReplicaStopped
from rankcore.state import DeploymentState
from rankcore.testing.model.bounds import Bounds
from rankcore.testing.model.replica import Message, ModelReplica, Reply, receive
from rankcore.values import DeploymentStatus, NodeId, ReplicaId

INSTANT_S = 2.0**-10
"""Between two things of which the order matters, within the one second that all news is old."""
GOING = (DeploymentStatus.DELETING, DeploymentStatus.DELETED)


class World(Struct, frozen=True, gc=False):
    """A deployment, its controller, its replicas and its messages at one moment.

    Attributes:
        bounds: How large it may become.
        state: The controller's.
        replicas: Those that live, in the order in which they came up.
        gone: Ids that have ended, or may not begin any more.
        commands: Under way to replicas and executor.
        events: Under way to the controller.
        announced: The newest world size that everybody is told.
        instants: How many things have happened of which the order matters.
        left: What is left of the adversary's budget.
    """

    bounds: Bounds
    state: DeploymentState
    replicas: tuple[ModelReplica, ...]
    gone: frozenset[ReplicaId]
    commands: tuple[Command, ...]
    events: tuple[Event, ...]
    announced: AnnounceWorldSize
    instants: int
    left: tuple[int, ...]

    @property
    def now(self) -> float:
        """When news says that it happened: within the last second, after everything that happened before."""
        return self.state.clock - 1.0 + self.instants * INSTANT_S

    def find(self, replica_id: ReplicaId) -> ModelReplica | None:
        """The live replica with this id; None: there is none."""
        for replica in self.replicas:
            if replica.replica_id == replica_id:
                return replica
        return None


def begin(bounds: Bounds) -> tuple[World, Step]:
    """A world whose deployment has just been asked for."""
    begun = deploy(bounds.spec(), at=1.0)
    nobody = AnnounceWorldSize(0, 0, 0)
    empty = World(bounds, begun.state, (), frozenset(), (), (), nobody, 0, bounds.budget)
    return given(empty, begun), begun


def given(world: World, result: Step) -> World:
    """The world once the controller has stepped: its commands are under way. Who asks for time gets it by `move.wait`."""
    commands, announced = world.commands, world.announced
    for command in result.commands:
        if isinstance(command, AnnounceWorldSize):
            announced = max(announced, command, key=lambda each: (each.epoch, each.revision))
        elif not isinstance(command, (WakeAt, PublishRoutes)) and command not in commands:
            commands = (*commands, command)
    return replace(world, state=result.state, commands=commands, announced=announced)


def told(world: World, event: Event) -> tuple[World, Step]:
    """The controller hears of this."""
    result = step(world.state, event)
    return given(world, result), result


def said(world: World, *events: Event) -> World:
    """These events are under way."""
    known = {_gist(event) for event in world.events}
    new = tuple(event for event in events if _gist(event) not in known)
    return replace(world, events=world.events + new) if new else world


def _gist(event: Event) -> tuple[object, ...]:
    """Events that say the same; when it happened counts only where a node's loss may have come before or after."""
    instant = instant_of(event.at) if hasattr(event, "node_id") else 0.0
    return type(event), instant, *(value for name, value in attrs.asdict(event, recurse=False).items() if name != "at")


def instant_of(at: float) -> float:
    """Which of the instants it was, for what happened once the world had begun."""
    return at % 1.0


def without_command(world: World, index: int) -> World:
    """This command is no longer under way."""
    return replace(world, commands=world.commands[:index] + world.commands[index + 1 :])


def without_event(world: World, index: int) -> World:
    """Nor is this event."""
    return replace(world, events=world.events[:index] + world.events[index + 1 :])


def started(world: World, command: StartReplica, node_id: NodeId) -> World:
    """The executor has carried out a start, on this node if that is still open."""
    replica = world.find(command.replica_id)
    if replica is None and command.replica_id in world.gone:
        # It came and went, or was stopped before it came.
        return said(world, ReplicaDied(replica_id=command.replica_id, reason="gone", at=world.now))
    if replica is None:
        replica = ModelReplica(command.replica_id, command.version, node_id, command.epoch)
        world = replace(world, replicas=(*world.replicas, replica))
    return said(world, ReplicaPlaced(replica_id=command.replica_id, node_id=replica.node_id, at=world.now))


def handed(world: World, command: Message) -> World:
    """A command has reached its replica, or an executor that knows of none."""
    replica = world.find(command.replica_id)
    if replica is not None:
        return replied(world, replica, receive(replica, command, world.now))
    if isinstance(command, QueryReplica):
        return said(world, ReplicaMissing(replica_id=command.replica_id, at=world.now))
    if isinstance(command, (StopReplica, KillReplica)):
        ended = said(world, ReplicaStopped(replica_id=command.replica_id, at=world.now))
        return replace(ended, gone=world.gone | {command.replica_id})
    return world


def replied(world: World, before: ModelReplica, reply: Reply) -> World:
    """A replica has become another, or has ended, and has said something."""
    after, events = reply
    if after is None:
        return said(ended(world, before), *events)
    if after is not before:
        world = replace(world, replicas=tuple(after if each is before else each for each in world.replicas))
    return said(_put_right(world), *events)


def _put_right(world: World) -> World:
    """A duplicate is one until the two believe different ranks."""
    if not any(each.excused for each in world.replicas):
        return world
    checked = tuple(replace(each, excused=each.excused and clashes(world, each)) for each in world.replicas)
    return replace(world, replicas=checked)


def ended(world: World, *those: ModelReplica) -> World:
    """These replicas are gone, and what was under way to them, but for what the executor itself answers."""
    gone = {replica.replica_id for replica in those}
    answered = (StartReplica, StopReplica, KillReplica, QueryReplica)
    commands = tuple(each for each in world.commands if _about(each) not in gone or isinstance(each, answered))
    replicas = tuple(each for each in world.replicas if each.replica_id not in gone)
    return _put_right(replace(world, replicas=replicas, gone=world.gone | gone, commands=commands))


def _about(command: Command) -> ReplicaId:
    name: ReplicaId = getattr(command, "replica_id", "")
    return name


def node_lost(world: World, node_id: NodeId) -> World:
    """A node is gone with all that is on it, and back empty: whoever comes there later comes after the loss."""
    there = [replica for replica in world.replicas if replica.node_id == node_id]
    lost = replace(ended(world, *there), instants=world.instants + 2)
    return said(lost, NodeLost(node_id=node_id, at=world.now + INSTANT_S))


def restarted(world: World) -> tuple[World, Step]:
    """The controller has crashed and come back: the fence is up, and it asks everybody who lives."""
    state = world.state
    result = recover(
        state.spec,
        [replica.replica_id for replica in world.replicas],
        at=state.clock,
        epoch=state.epoch + 1,
        previous=state.previous,
        deleting=state.status in GOING,
    )
    live = {replica.replica_id for replica in world.replicas}
    left = tuple(each for each in world.commands if not isinstance(each, StartReplica) and _about(each) in live)
    return given(replace(world, commands=left), result), result


def confused(world: World, victim: ModelReplica, other: ModelReplica) -> World:
    """While no controller is up, a replica somehow believes another's global rank: what a recovery has to repair (R10)."""
    assert victim.rank is not None, f"{victim.replica_id} believes nothing that could be confused"
    assert other.rank is not None, f"{other.replica_id} believes nothing that could be taken for it"
    rank = type(victim.rank)(other.rank.rank, victim.rank.node_rank, victim.rank.local_rank)
    changed = replace(victim, rank=rank)
    after = replace(world, replicas=tuple(changed if each is victim else each for each in world.replicas))
    excused = tuple(replace(each, excused=True) if clashes(after, each) else each for each in after.replicas)
    return replace(after, replicas=excused)


def clashes(world: World, replica: ModelReplica) -> bool:
    """Whether another live replica believes a rank that this one believes to have, at any level (R3)."""
    mine = replica.rank
    for other in world.replicas:
        its = other.rank
        if mine is None or its is None or other.replica_id == replica.replica_id:
            continue
        together = other.node_id == replica.node_id
        if its.rank == mine.rank or (its.local_rank == mine.local_rank if together else its.node_rank == mine.node_rank):
            return True
    return False


COMMANDS_TO_REPLICAS = (InitializeReplica, ReconfigureReplica, StopReplica, KillReplica, QueryReplica)
