"""A small adversarial world around the core: it keeps its half of the contract (design 2.4) and nothing beyond it.

Messages wait in two bags and are delivered in any order, twice, or never (final news always, in the end). Replicas have
beliefs of their own. After every step the promises are checked, on the book and on the beliefs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import attrs
from msgspec.structs import replace

from rankcore import StaticPlacement, deploy, recover, step
from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import (
    NEVER_LOST,
    BundleLost,
    BundleRestored,
    ClockAdvanced,
    DeleteRequested,
    Event,
    NodeChanged,
    NodeLost,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaStopped,
    ReplicaUnhealthy,
    SpecChanged,
    StopRequested,
)
from rankcore.invariants import check, check_step
from rankcore.spec import DeploymentSpec
from rankcore.testing.model.replica import Message, ModelReplica, finish, receive
from rankcore.testing.model.replica import fail as end_badly
from rankcore.values import ReplicaRank, age_key

NODES = ("a", "b", "c")
GROUPS = ("g", "h")
BUNDLES = 8


@dataclass
class Actor:
    """A replica of the world: its process, and where the world has put it."""

    replica: ModelReplica
    wanted_node_id: str | None = None
    node_id: str | None = None
    world: tuple[int, int] = (0, 0)
    world_size: int | None = None
    corrupted: bool = False

    @property
    def bundles(self) -> tuple[int, ...]:
        return self.replica.bundles

    @property
    def group_id(self) -> str | None:
        return self.replica.group_id

    @property
    def replica_id(self) -> str:
        return self.replica.replica_id

    @property
    def rank(self) -> ReplicaRank | None:
        return self.replica.rank


class World:
    """A deployment, its controller and its replicas. Every method is one move of the adversary."""

    def __init__(self, spec: DeploymentSpec, *, bad_versions: tuple[str, ...] = ()) -> None:
        self.now = 0.0
        self.epoch = 1
        self.actors: dict[str, Actor] = {}
        self.commands: list[Command] = []
        self.events: list[Event] = []
        self.bad_versions = bad_versions
        self.announced: AnnounceWorldSize | None = None
        self.down_nodes: set[str] = set()
        self.steps = 0
        self.log: list[str] = []
        self.checkpoint = spec
        self.deleting = False
        self.gone: set[str] = set()
        # Where each bundle of somebody else's placement groups is; None: it is lost.
        self.bundle_nodes: dict[tuple[str, int], str | None] = {
            (group, bundle): NODES[bundle % len(NODES)] for group in GROUPS for bundle in range(BUNDLES)
        }
        begun = deploy(spec, epoch=1)
        self.state = begun.state
        self._take(begun.commands)

    # the controller

    def _take(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            if isinstance(command, AnnounceWorldSize):
                self.announced = command
            self.commands.append(command)

    def tell(self, event: Event) -> None:
        """The controller hears of an event; every promise is checked."""
        before = self.state
        self.log.append(f"{event}")
        result = step(before, event)
        self.steps += 1
        self.state = result.state
        for command in result.commands:
            self.log.append(f"    {command}")
        problems = [*check(self.state), *check_step(before, event, result)]
        assert not problems, self._story("; ".join(map(str, problems)))
        self.checkpoint = self.state.spec
        self._take(result.commands)
        self.check_beliefs()

    def restart_controller(self) -> None:
        """The controller dies between two commands and comes back, with a fence against its predecessor."""
        self.epoch += 1
        self.now += 1.0
        found = [a.replica_id for a in self.actors.values()]
        self.commands = [c for c in self.commands if isinstance(c, (InitializeReplica, ReconfigureReplica))]
        self.log.append(f"controller restarts, epoch {self.epoch}, finds {found}")
        begun = recover(
            self.checkpoint,
            found,
            at=self.now,
            epoch=self.epoch,
            previous=self.state.previous,
            deleting=self.state.status in ("DELETING", "DELETED"),
            failed=self.state.status == "DEPLOY_FAILED",
        )
        self.state = begun.state
        problems = check(self.state)
        assert not problems, self._story("; ".join(map(str, problems)))
        self._take(begun.commands)
        for group in GROUPS:
            self._say_lost(group)

    def corrupt(self, one: int, other: int) -> None:
        """While no controller is up, a replica somehow believes another's rank: what R10 has to repair."""
        ranked = sorted((a for a in self.actors.values() if a.rank is not None), key=lambda a: age_key(a.replica_id))
        if len(ranked) < 2:
            return
        victim, model = ranked[one % len(ranked)], ranked[other % len(ranked)]
        if victim is model or victim.replica.moving is not None or model.rank is None or victim.rank is None:
            return
        level = ("rank", "node_rank", "local_rank")[one % 3]
        confused = attrs.evolve(victim.rank, **{level: getattr(model.rank, level)})
        victim.replica = replace(victim.replica, rank=confused)
        victim.corrupted = True
        for actor in self.actors.values():
            actor.corrupted = actor.corrupted or (actor.rank is not None and self._clashes(actor))
        self.log.append(f"corrupted: {victim.replica_id} believes {victim.rank}")
        self.restart_controller()

    def _clashes(self, actor: Actor) -> bool:
        others = [a for a in self.actors.values() if a is not actor and a.rank is not None]
        return any(
            a.rank is not None
            and actor.rank is not None
            and (
                a.rank.rank == actor.rank.rank
                or (a.node_id == actor.node_id and a.rank.local_rank == actor.rank.local_rank)
                or (a.node_id != actor.node_id and a.rank.node_rank == actor.rank.node_rank)
                or (a.node_id == actor.node_id and a.rank.node_rank != actor.rank.node_rank)
            )
            for a in others
        )

    # messages

    def deliver_command(self, index: int, *, keep: bool = False) -> None:
        if self.commands:
            index %= len(self.commands)
            command = self.commands[index] if keep else self.commands.pop(index)
            self.carry_out(command)

    def lose_command(self, index: int) -> None:
        if self.commands:
            self.log.append(f"lost: {self.commands.pop(index % len(self.commands))}")

    def deliver_event(self, index: int, *, keep: bool = False) -> None:
        if self.events:
            index %= len(self.events)
            event = self.events[index] if keep else self.events.pop(index)
            self.tell(event)

    def lose_event(self, index: int) -> None:
        if self.events:
            index %= len(self.events)
            if not isinstance(self.events[index], NEVER_LOST):
                self.log.append(f"lost: {self.events.pop(index)}")

    def carry_out(self, command: Command) -> None:
        if command.epoch < self.epoch and not isinstance(command, (InitializeReplica, ReconfigureReplica)):
            return
        match command:
            case StartReplica():
                self._start(command)
            case InitializeReplica() | ReconfigureReplica():
                self._configure(command)
            case StopReplica() | KillReplica():
                self._stop(command)
            case QueryReplica():
                self._query(command)
            case _:
                pass

    def _start(self, command: StartReplica) -> None:
        actor = self.actors.get(command.replica_id)
        if actor is None:
            if command.replica_id in self.gone:
                # It came and went, with its node perhaps, and the news of its coming was lost.
                self.events.append(ReplicaDied(replica_id=command.replica_id, reason="gone", at=self.now))
                return
            place = {"bundles": command.bundles, "group_id": command.group_id}
            unplaced = ModelReplica(command.replica_id, command.version, "", command.epoch, **place)
            actor = self.actors[command.replica_id] = Actor(unplaced, command.node_id)
            self._check_bundles()
            self.log.append(f"created {actor.replica_id}")
        if actor.node_id is not None:
            self.events.append(ReplicaPlaced(replica_id=actor.replica_id, node_id=actor.node_id, at=self.now))

    def place(self, index: int, where: int) -> None:
        """A created actor gets a node."""
        waiting = [a for a in self.actors.values() if a.node_id is None and self._can_be_placed(a)]
        up = [node for node in NODES if node not in self.down_nodes]
        if waiting and up:
            actor = waiting[index % len(waiting)]
            self._put(actor, self._bundle_node(actor) or actor.wanted_node_id or up[where % len(up)])

    def _put(self, actor: Actor, node_id: str) -> None:
        actor.node_id, actor.replica = node_id, replace(actor.replica, node_id=node_id)
        self.log.append(f"placed {actor.replica_id} on {node_id}")
        self.events.append(ReplicaPlaced(replica_id=actor.replica_id, node_id=node_id, at=self.now))

    def _hear(self, actor: Actor, command: Message) -> None:
        after, said = receive(actor.replica, command, self.now)
        assert after is not None, "only a kill ends a replica at once"
        actor.replica = after
        self.events.extend(said)

    def _configure(self, command: InitializeReplica | ReconfigureReplica) -> None:
        actor = self.actors.get(command.replica_id)
        if actor is None or actor.node_id is None:
            return
        heard = actor.replica.heard
        self._hear(actor, command)
        if actor.replica.heard != heard:
            # Told anything, it is sound again, unless another still believes the same: a duplicate lasts until one has moved.
            actor.corrupted = actor.corrupted and self._clashes(actor)
            self.log.append(f"{actor.replica_id} believes {actor.rank}")
            self._hear_world(actor, command.world_size, actor.replica.heard)
        self.check_beliefs()

    def _hear_world(self, actor: Actor, world_size: int, order: tuple[int, int]) -> None:
        if order > actor.world:
            actor.world, actor.world_size = order, world_size

    def _stop(self, command: StopReplica | KillReplica) -> None:
        actor = self.actors.get(command.replica_id)
        if actor is None:
            self.gone.add(command.replica_id)
            self.events.append(ReplicaStopped(replica_id=command.replica_id, at=self.now))
        elif isinstance(command, KillReplica):
            self._end(actor, ReplicaStopped(replica_id=actor.replica_id, at=self.now))
        else:
            self._hear(actor, command)

    def _query(self, command: QueryReplica) -> None:
        actor = self.actors.get(command.replica_id)
        if actor is None:
            self.events.append(ReplicaMissing(replica_id=command.replica_id, at=self.now))
        elif actor.node_id is not None:
            self._hear(actor, command)

    # what replicas do

    def work(self, index: int, *, fail: bool = False) -> None:
        """A replica gets on with what it is doing: starting, reconfiguring or draining."""
        busy = [a for a in self.actors.values() if a.replica.draining or a.replica.starting or a.replica.moving is not None]
        if not busy:
            return
        actor = busy[index % len(busy)]
        if actor.replica.draining:
            self._end(actor, ReplicaStopped(replica_id=actor.replica_id, at=self.now))
            return
        fails = fail or (actor.replica.starting and actor.replica.version in self.bad_versions)
        after, said = (end_badly if fails else finish)(actor.replica, self.now)
        if after is None:
            self._end(actor, *said)
        else:
            actor.replica = after
            self.events.extend(said)

    def crash(self, index: int) -> None:
        if self.actors:
            actor = list(self.actors.values())[index % len(self.actors)]
            self._end(actor, ReplicaDied(replica_id=actor.replica_id, reason="killed", at=self.now))

    def suspect(self, index: int) -> None:
        if self.actors:
            actor = list(self.actors.values())[index % len(self.actors)]
            self.events.append(ReplicaUnhealthy(replica_id=actor.replica_id, reason="silent", at=self.now))

    def lose_node(self, index: int) -> None:
        node_id = NODES[index % len(NODES)]
        self.now += 1.0
        for actor in [a for a in self.actors.values() if a.node_id == node_id]:
            self.gone.add(actor.replica_id)
            del self.actors[actor.replica_id]
        self.log.append(f"node {node_id} is lost")
        self.events.append(NodeLost(node_id=node_id, at=self.now))
        for group in GROUPS:
            self._lose(group, [bundle for bundle in range(BUNDLES) if self.bundle_nodes[group, bundle] == node_id])
        # Whoever comes there later came after the loss.
        self.now += 1.0

    def lose_bundles(self, index: int, *, everything: bool = False) -> None:
        """A bundle goes, or a whole group; a replica dies with its first one, and lives on without any other."""
        self.now += 1.0
        group, bundle = GROUPS[index // BUNDLES % len(GROUPS)], index % BUNDLES
        there = [each for each in range(BUNDLES) if self.bundle_nodes[group, each] is not None]
        self._lose(group, there if everything else [each for each in there if each == bundle])
        self.now += 1.0

    def _lose(self, group: str, bundles: list[int]) -> None:
        for bundle in bundles:
            self.bundle_nodes[group, bundle] = None
        self.log.append(f"bundles {bundles} of {group} are lost")
        for actor in [a for a in self.actors.values() if a.group_id == group and a.bundles and a.bundles[0] in bundles]:
            self._end(actor, ReplicaDied(replica_id=actor.replica_id, reason="its bundle is gone", at=self.now))
        if bundles:
            self.events.append(BundleLost(bundles=bundles, reason="gone", group_id=group, at=self.now))

    def restore_bundles(self, index: int, *, everything: bool = False) -> None:
        """What was lost is there again, on some node."""
        self.now += 1.0
        lost = sorted(key for key, node_id in self.bundle_nodes.items() if node_id is None)
        for group, bundle in lost if everything else lost[index % len(lost) :][:1] if lost else []:
            self.bundle_nodes[group, bundle] = NODES[(bundle + index) % len(NODES)]
            self.log.append(f"bundle {bundle} of {group} is back on {self.bundle_nodes[group, bundle]}")
            self.events.append(BundleRestored(bundles=(bundle,), group_id=group, at=self.now))
        self.now += 1.0

    def _say_lost(self, group: str) -> None:
        """A new controller, or one that hears of a group for the first time, is told what is lost by now."""
        lost = [bundle for bundle in range(BUNDLES) if self.bundle_nodes[group, bundle] is None]
        if lost:
            self.events.append(BundleLost(bundles=lost, reason="gone", group_id=group, at=self.now))

    def _bundle_node(self, actor: Actor) -> str | None:
        return self.bundle_nodes[actor.group_id, actor.bundles[0]] if actor.bundles and actor.group_id else None

    def _can_be_placed(self, actor: Actor) -> bool:
        return not actor.bundles or self._bundle_node(actor) is not None

    def say_capacity(self, index: int, capacity: int) -> None:
        self.events.append(NodeChanged(node_id=NODES[index % len(NODES)], capacity=capacity, at=self.now))

    def _end(self, actor: Actor, news: Event) -> None:
        self.gone.add(actor.replica_id)
        del self.actors[actor.replica_id]
        self.log.append(f"ended: {news}")
        self.events.append(news)

    # what users do

    def change(self, **changes: object) -> None:
        self.now += 1.0
        self._change(changed(self.state.spec, **changes))

    def change_naming(self, target: int, index: int) -> None:
        self.now += 1.0
        names = sorted(self.state.replicas, key=age_key)
        named = names[index % len(names) :][:2] if names else []
        self._change(changed(self.state.spec, target_replicas=target), named)

    def _change(self, spec: DeploymentSpec, named: list[str] | None = None) -> None:
        before = self.state.tables.bundles.group_id
        self.tell(SpecChanged(spec=spec, stop_first=named or (), at=self.now))
        if spec.static_placement is not None and spec.static_placement.identity != before:
            self._say_lost(str(spec.static_placement.identity))

    def stop_by_name(self, index: int) -> None:
        names = sorted(self.state.replicas, key=age_key)
        if names:
            self.tell(StopRequested(replica_ids=[names[index % len(names)]], at=self.now))

    def delete(self) -> None:
        self.tell(DeleteRequested(at=self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.tell(ClockAdvanced(at=self.now))

    # promises

    def _check_bundles(self) -> None:
        """S4, on who is there rather than on the book."""
        users: dict[tuple[str | None, int], str] = {}
        for actor in self.actors.values():
            for bundle in actor.bundles:
                other = users.setdefault((actor.group_id, bundle), actor.replica_id)
                assert other == actor.replica_id, self._story(f"S4: {other} and {actor.replica_id} share bundle {bundle}")

    def check_beliefs(self) -> None:
        """R3, on what replicas believe rather than on the book."""
        live = [a for a in self.actors.values() if a.rank is not None and not a.corrupted]
        globals_: dict[int, str] = {}
        locals_: dict[tuple[str | None, int], str] = {}
        nodes: dict[int, str | None] = {}
        for actor in live:
            if actor.rank is None:
                continue
            rank = actor.rank
            other = globals_.setdefault(rank.rank, actor.replica_id)
            assert other == actor.replica_id, self._story(f"R3: {other} and {actor.replica_id} believe rank {rank.rank}")
            other = locals_.setdefault((actor.node_id, rank.local_rank), actor.replica_id)
            assert other == actor.replica_id, self._story(f"R3: {other}, {actor.replica_id} on {actor.node_id}: {rank}")
            node_id = nodes.setdefault(rank.node_rank, actor.node_id)
            assert node_id == actor.node_id, self._story(f"R3: node rank {rank.node_rank} on {node_id}, {actor.node_id}")

    def heal(self) -> None:
        """Faults off: everything is delivered in order, everybody works, time passes, until nothing is left to do."""
        self.now += 1.0
        for node_id in NODES:
            self.events.append(NodeChanged(node_id=node_id, capacity=10, at=self.now))
        self.restore_bundles(0, everything=True)
        for _ in range(400):
            while self.commands or self.events:
                while self.commands:
                    self.deliver_command(0)
                while self.events:
                    self.deliver_event(0)
            busy = True
            while busy:
                busy = False
                for actor in list(self.actors.values()):
                    if actor.node_id is None:
                        anywhere = actor.wanted_node_id or NODES[len(actor.replica_id) % len(NODES)]
                        self._put(actor, self._bundle_node(actor) or anywhere)
                before = len(self.events)
                for index in range(len(self.actors)):
                    self.work(index)
                while self.events or self.commands:
                    busy = True
                    if self.events:
                        self.deliver_event(0)
                    if self.commands:
                        self.deliver_command(0)
                busy = busy or len(self.events) > before
            if self._is_quiet():
                break
            self.pass_time(max(1.0, (self.state.wake_at or self.now) - self.now))
        self.check_converged()

    def pump(self) -> None:
        """A calm moment: what waits is delivered in order, and everybody gets on with what it is doing."""
        for actor in list(self.actors.values()):
            if actor.node_id is None:
                self.place(0, len(self.log))
        for _ in range(len(self.commands)):
            self.deliver_command(0)
        for _ in range(len(self.events)):
            self.deliver_event(0)
        for index in range(len(self.actors)):
            self.work(index)

    def _is_quiet(self) -> bool:
        state = self.state
        if state.status == "DELETED":
            return True
        calm = all(r.pending is None for r in state.replicas.values())
        if state.status == "DEPLOY_FAILED":
            return calm and not state.tables.retries
        return calm and state.status == "HEALTHY"

    def check_converged(self) -> None:
        """Liveness: with the faults off, the deployment is healthy and its ranks are contiguous, in the book and in fact."""
        state = self.state
        story = f"not converged: {state.status}, {dict(state.ranks)}, kept {state.kept_ranks}"
        assert state.status in ("HEALTHY", "DELETED", "DEPLOY_FAILED"), self._story(story)
        for actor in self.actors.values():
            rank = state.rank_of(actor.replica_id)
            assert rank == actor.rank, self._story(f"{actor.replica_id} believes {actor.rank}, the book says {rank}")
        if state.status == "HEALTHY":
            found = sorted(a.rank.rank for a in self.actors.values() if a.rank is not None)
            assert found == list(range(state.world_size)), self._story(f"ranks are {found}")
            builds = {(actor.replica.version, actor.replica.config_id) for actor in self.actors.values()}
            assert builds <= {state.spec.build}, self._story(f"{builds} run, {state.spec.build} is wanted")
            for actor in self.actors.values():
                wanted = state.spec.place_of(actor.rank.rank) if actor.rank is not None else None
                found = (actor.group_id, actor.bundles)
                assert found == wanted, self._story(f"S2: {actor.replica_id} is on {found}, expected {wanted}")
                if actor.bundles:
                    node_id = self._bundle_node(actor)
                    assert actor.node_id == node_id, self._story(f"S2: {actor.replica_id} is not on {node_id}")
        if state.status == "DELETED":
            assert not self.actors, self._story("deleted, and replicas live on")

    def _story(self, what: str) -> str:
        return what + "\n" + "\n".join(self.log[-150:])


MOVES = 32


def play(world: World, moves: bytes) -> None:
    """Decode a schedule: two bytes a move."""
    for kind, argument in zip(moves[::2], moves[1::2], strict=False):
        one_move(world, kind % MOVES, argument)


def one_move(world: World, kind: int, argument: int) -> None:
    """One move of the adversary; the argument chooses whom it concerns."""
    match kind:
        case 0 | 1 | 2:
            world.deliver_command(argument)
        case 3 | 4 | 5:
            world.deliver_event(argument)
        case 6 | 7:
            world.work(argument)
        case 8 | 9:
            world.place(argument, argument >> 3)
        case 10:
            world.deliver_command(argument, keep=True)
        case 11:
            world.deliver_event(argument, keep=True)
        case 12:
            world.lose_command(argument) if argument & 1 else world.lose_event(argument)
        case 13:
            world.crash(argument)
        case 14:
            world.change(target_replicas=argument % 6)
        case 15:
            world.change(version=str(argument % 3)) if argument & 8 else world.change(user_config={"c": argument % 3})
        case 16:
            world.pass_time((0.5, 5.0, 31.0, 700.0)[argument % 4])
        case 17:
            world.suspect(argument) if argument & 1 else world.work(argument, fail=True)
        case 18:
            world.lose_node(argument) if argument % 4 == 0 else world.say_capacity(argument, argument % 5)
        case 19:
            world.restart_controller() if argument % 3 == 0 else world.deliver_event(argument)
        case 20:
            world.stop_by_name(argument) if argument & 1 else world.change_naming(argument % 6, argument)
        case 21:
            world.delete() if argument % 64 == 0 else world.deliver_command(argument)
        case 22:
            world.corrupt(argument, argument >> 4) if argument % 4 == 0 else world.deliver_command(argument)
        case 23:
            world.deliver_command(0)
            world.deliver_event(0)
        case 24 | 25 if world.state.spec.static_placement is not None or argument % 16 == 0:
            world.change(placement=placement_from(argument) if argument % 8 else None)
        case 26:
            world.lose_bundles(argument, everything=argument % 32 == 31)
        case 27:
            world.restore_bundles(argument, everything=argument % 8 == 7)
        case _:
            world.pump()


def placement_from(number: int, ranks: int | None = None) -> StaticPlacement:
    """A static placement of up to four ranks: the same few bundles over and over, so that they change hands."""
    chance = random.Random(number)
    ranks = ranks or 1 + number % 4
    bundles = chance.sample(range(BUNDLES), BUNDLES) if number % 3 else list(range(BUNDLES))
    width = 1 + number // 4 % 2
    group = GROUPS[0] if number % 5 else GROUPS[1]
    mapping = {rank: bundles[rank * width : (rank + 1) * width] for rank in range(ranks)}
    return StaticPlacement(mapping, BUNDLES, group=group)


def changed(spec: DeploymentSpec, **changes: object) -> DeploymentSpec:
    """A spec with these changes, and whatever a static placement asks for beside them."""
    placement = changes.get("placement", spec.placement)
    if isinstance(placement, StaticPlacement):
        target = changes.get("target_replicas")
        if isinstance(target, int):
            ranks = max(1, min(target, 4))
            kept = {rank: placement.bundles[rank] for rank in range(min(ranks, len(placement)))}
            free = [bundle for bundle in range(BUNDLES) if all(bundle not in used for used in kept.values())]
            placement = StaticPlacement(
                {rank: kept.get(rank) or [free.pop()] for rank in range(ranks)}, BUNDLES, group=placement.group
            )
        changes |= {"placement": placement, "target_replicas": None, "max_surge": 0, "compaction": "when_healthy"}
    return attrs.evolve(spec, **changes)


def static_spec_from(number: int) -> DeploymentSpec:
    """The same policies with a static placement."""
    return changed(spec_from(number), placement=placement_from(number))


def spec_from(number: int) -> DeploymentSpec:
    """A spec for a schedule: small, with every policy."""
    return DeploymentSpec(
        name="llm",
        target_replicas=1 + number % 5,
        user_config=(None, {}, {"c": 1})[number % 3],
        compaction="immediate" if number & 1 else "when_healthy",
        victims=("any", "highest_rank", "newest")[number // 2 % 3],
        placement="pack_ranks" if number % 11 == 0 else None,
        max_unavailable=(None, 1, 2)[number // 4 % 3],
        max_surge=number // 8 % 3,
        rollback=bool(number & 16),
        start_timeout_s=60.0,
    )
