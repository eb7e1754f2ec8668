"""The model world: a controller with its state, replicas with their beliefs, and everything that is under way between them.

A world is a value, and every move makes another one. What keeps the number of worlds finite, and why nothing is lost by it:

- **Messages** under way are a set, delivered in any order or never. One that is repeated while it is still under way is
  there once; that it arrives twice all the same is a fault with a budget.
- **Time** moves only when nothing else is left to do, or with a budget (`delays`): then to the next second in which
  something falls due. All time-outs are whole seconds, so timers are small whole numbers. Within a second, time moves by
  an instant when something happens of which the order matters: a node or a bundle is lost or comes back, a controller
  begins, a spec names another placement group. So `at` tells that order, and what else happened between which of them.
- **The controller** crashes and recovers in one move. Whatever replicas do in between, they could have done before, since
  their news may stay under way; and a crash between two commands of one step is a crash after it, with the later commands
  still under way for ever. Commands of the old controller stay under way to live replicas; only the fence is sharp: an old
  `StartReplica` creates nothing any more.
- **World sizes** are state and not messages (section 2.4), so nobody has to be told here: that the newest announcement is
  always true is checked instead (R9).
"""

from math import floor
from typing import TypeAlias

import attrs
from msgspec import Struct
from msgspec.structs import replace

from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.core import deploy
from rankcore.draft import Step
from rankcore.events import (
    Event,
    NodeCordoned,
    NodeDrainRequested,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReported,
    ReplicaStopped,
    ReplicaUnready,
)
from rankcore.replica.messages import started as begun
from rankcore.replica.replica import ReplicaHalf
from rankcore.state import DeploymentState
from rankcore.testing.model.book import INSTANT_S, instant_of
from rankcore.testing.model.bounds import Bounds
from rankcore.testing.model.process import Outcome, receive
from rankcore.testing.model.steps import Steps, Told
from rankcore.values import NodeId, ReplicaId

CommandToReplica: TypeAlias = PrepareReplica | InitializeReplica | ReconfigureReplica | StopReplica | KillReplica | QueryReplica
LOST = -1
"""No node: where a lost bundle is."""


class RankWorld(Struct, frozen=True, gc=False):
    """A deployment, its controller, its replicas and its messages at one moment.

    Attributes:
        bounds: How large it may become.
        state: The controller's.
        replicas: Those that live, in the order in which they came up.
        gone: Ids that have ended, or may not begin any more.
        commands: Under way to replicas and executor.
        events: Under way to the controller.
        announced: The newest world size that everybody is told.
        instants: Twice as many as things have happened of which the order matters.
        left: What is left of the adversary's budget.
        steps: Those that the controllers of this exploration have taken.
        bundles: On which node each bundle is, of one placement group after the other; or `LOST`.
        group: The placement group of which the controller is told what is lost: the last that a spec has named.
        rooms: How many replicas each node can hold; empty: there is no placement policy that asks for it.
        cordons: What each node was cordoned or drained with, if it is; empty: none may be.
        excused: Who took part in a duplicate that the adversary made, and has not been put right since: the exception in R3.
    """

    bounds: Bounds
    state: DeploymentState
    replicas: tuple[ReplicaHalf, ...]
    gone: frozenset[ReplicaId]
    commands: tuple[Command, ...]
    events: tuple[Event, ...]
    announced: AnnounceWorldSize
    instants: int
    left: tuple[int, ...]
    steps: Steps
    bundles: tuple[int, ...] = ()
    group: str | None = None
    rooms: tuple[int, ...] = ()
    cordons: tuple[NodeCordoned | NodeDrainRequested | None, ...] = ()
    excused: frozenset[ReplicaId] = frozenset()

    @property
    def now(self) -> float:
        """When news says that it happened: in the second that is under way, after everything of which the order matters."""
        return floor(self.state.clock) + self.instants * INSTANT_S

    def find(self, replica_id: ReplicaId) -> ReplicaHalf | None:
        """The live replica with this id; None: there is none."""
        for replica in self.replicas:
            if replica.replica_id == replica_id:
                return replica
        return None


def begin(bounds: Bounds) -> tuple[RankWorld, Step]:
    """A world whose deployment has just been asked for. Bundles are spread over the nodes, and all of them are there."""
    begun = deploy(bounds.spec(), at=1.0)
    nobody = AnnounceWorldSize(0, 0, 0)
    bundles = tuple(index % bounds.nodes for _ in bounds.groups for index in range(bounds.bundles))
    group = bounds.groups[0] if bounds.groups else None
    rooms = (bounds.rooms,) * bounds.nodes if bounds.rooms else ()
    empty = RankWorld(bounds, begun.state, (), frozenset(), (), (), nobody, 0, bounds.budget, Steps(), bundles, group, rooms)
    empty = replace(empty, cordons=(None,) * bounds.nodes if bounds.cordoned else ())
    return given(empty, begun), begun


def next_instant(world: RankWorld) -> tuple[RankWorld, float]:
    """A moment after all that has happened, and the world in which all that happens from now on is after it."""
    return replace(world, instants=world.instants + 2), world.now + INSTANT_S


def given(world: RankWorld, result: Step) -> RankWorld:
    """The world once the controller has stepped: its commands are under way. Who asks for time gets it by `move.wait`."""
    commands, announced = world.commands, world.announced
    for command in result.commands:
        if isinstance(command, AnnounceWorldSize):
            announced = max(announced, command, key=lambda each: (each.epoch, each.revision))
        elif not isinstance(command, (WakeAt, PublishRoutes)) and command not in commands:
            commands = (*commands, command)
    return replace(world, state=result.state, commands=commands, announced=announced)


def told(world: RankWorld, event: Event) -> tuple[RankWorld, Told]:
    """The controller hears of this."""
    taken = world.steps.take(world.state, event)
    return given(world, taken.result), taken


def said(world: RankWorld, *events: Event) -> RankWorld:
    """These events are under way."""
    known = {_gist(world, event) for event in world.events}
    new = tuple(event for event in events if _gist(world, event) not in known)
    return replace(world, events=world.events + new) if new else world


def _gist(world: RankWorld, event: Event) -> tuple[object, ...]:
    """Events that say the same; when it happened counts only where something may have come before or after."""
    counts = hasattr(event, "node_id") or hasattr(event, "bundles") or is_of_readiness(world, event)
    instant = instant_of(event.at) if counts else 0.0
    return type(event), instant, *(value for name, value in attrs.asdict(event, recurse=False).items() if name != "at")


def is_of_readiness(world: RankWorld, event: Event) -> bool:
    """Whether it says that a replica is ready or is not, where that can change."""
    return world.bounds.unreadies > 0 and isinstance(event, (ReplicaReady, ReplicaUnready))


def without_command(world: RankWorld, index: int) -> RankWorld:
    """This command is no longer under way."""
    return replace(world, commands=world.commands[:index] + world.commands[index + 1 :])


def without_event(world: RankWorld, index: int) -> RankWorld:
    """Nor is this event."""
    return replace(world, events=world.events[:index] + world.events[index + 1 :])


def started(world: RankWorld, command: StartReplica, node_id: NodeId) -> RankWorld:
    """The executor has carried out a start, on this node if that is still open."""
    replica = world.find(command.replica_id)
    if replica is None and command.replica_id in world.gone:
        # It came and went, or was stopped before it came.
        return said(world, ReplicaDied(replica_id=command.replica_id, reason="gone", at=world.now))
    if replica is None:
        replica = begun(command, node_id)
        world = replace(world, replicas=(*world.replicas, replica))
    return said(world, ReplicaPlaced(replica_id=command.replica_id, node_id=replica.node_id, at=world.now))


def handed(world: RankWorld, command: CommandToReplica) -> RankWorld:
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


def replied(world: RankWorld, before: ReplicaHalf, reply: Outcome) -> RankWorld:
    """A replica has become another, or has ended, and has said something."""
    after, events = reply
    if after is None:
        return said(ended(world, before), *events)
    if after is not before:
        world = replace(world, replicas=tuple(after if each is before else each for each in world.replicas))
    return said(_put_right(world), *(_in_seconds(world, each) for each in events))


def _in_seconds(world: RankWorld, event: Event) -> Event:
    """How long it has been ready it says where that counts, in whole seconds: instants tell an order, and no time."""
    if not isinstance(event, ReplicaReported) or event.ready_for_s is None:
        return event
    return attrs.evolve(event, ready_for_s=float(floor(event.ready_for_s)) if world.bounds.min_ready_s else None)


def _put_right(world: RankWorld) -> RankWorld:
    """A duplicate is one until the two believe different ranks."""
    if not world.excused:
        return world
    still = (each.replica_id for each in world.replicas if each.replica_id in world.excused and clashes(world, each))
    return replace(world, excused=frozenset(still))


def ended(world: RankWorld, *those: ReplicaHalf) -> RankWorld:
    """These replicas are gone, and what was under way to them, but for what the executor itself answers."""
    gone = {replica.replica_id for replica in those}
    answered = (StartReplica, StopReplica, KillReplica, QueryReplica)
    commands = tuple(each for each in world.commands if about(each) not in gone or isinstance(each, answered))
    replicas = tuple(each for each in world.replicas if each.replica_id not in gone)
    return _put_right(replace(world, replicas=replicas, gone=world.gone | gone, commands=commands))


def about(command: Command) -> ReplicaId:
    """Whom it is for; "": nobody."""
    name: ReplicaId = getattr(command, "replica_id", "")
    return name


def clashes(world: RankWorld, replica: ReplicaHalf) -> bool:
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
