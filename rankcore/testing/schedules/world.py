"""A deployment, its controller, and what an adversary does to them and to the cluster below."""

from collections.abc import Callable

from msgspec.structs import replace

from rankcore.commands import AnnounceWorldSize, Command
from rankcore.core import deploy, recover, step
from rankcore.draft import Step
from rankcore.events import (
    BundleLost,
    BundleRestored,
    ClockAdvanced,
    DeleteRequested,
    Event,
    NodeChanged,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaDied,
    ReplicaReady,
    ReplicaUnhealthy,
    ReplicaUnready,
    RetryRequested,
    SpecChanged,
    StopRequested,
    TrialRequested,
)
from rankcore.invariants import check, check_step
from rankcore.replica.messages import readiness_checked
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState
from rankcore.testing.schedules.actor import Actor
from rankcore.testing.schedules.cluster import NODES, TO_REPLICAS, Cluster
from rankcore.testing.schedules.promises import clash, shared_beliefs
from rankcore.testing.schedules.specs import BUNDLES, GROUPS, changed
from rankcore.values import DeploymentStatus, ReplicaRank, age_key

HAPPENINGS = (
    *(
        "lost message",
        "repeated message",
        "replica crash",
        "failed start",
        "failed reconfigure",
        "false suspicion",
        "lost readiness",
        "node loss",
    ),
    *("bundle loss", "controller crash", "duplicate", "stop by name", "named victims", "retry", "delete"),
    *("cordon", "drain", "replacement"),
    *(f"change of {name}" for name in ("target_replicas", "version", "user_config", "placement", "restart_token", "partition")),
)
"""What `World.seen` may have: the faults and wishes of schedules."""
LEVELS = ("rank", "node_rank", "local_rank")
GOING = (DeploymentStatus.DELETING, DeploymentStatus.DELETED)


class World(Cluster):
    """A cluster with a controller. Every public method is one move of the adversary; a broken promise is raised at once.

    Checked after every step: the step (`check_step`); R3 by what replicas believe, whenever a belief changes; S4 by who
    stands where, whenever somebody comes. Checked after every so-manyth step: the whole book (`check`), and that a wake-up
    was asked for whatever falls due.

    Args:
        spec: What is deployed first.
        bad_versions: Whose start-up always fails.
        book_every: After how many steps the whole book is checked, which costs three times what a step does.
        log_max: How many of the latest happenings are remembered; None: all of them.

    Attributes:
        state: The controller's.
        announced: The newest world size that everybody is told.
        closed: What was last asked for of each node that is cordoned or drained: a new controller is told it again.
        steps: Events that the core has been told, each of them checked.
        watch: Called after every step with the state before it, the event (None: the controller has just come up), and the
            step; None: nobody watches.
    """

    def __init__(
        self,
        spec: DeploymentSpec,
        *,
        bad_versions: tuple[str, ...] = (),
        book_every: int = 1,
        log_max: int | None = None,
    ) -> None:
        super().__init__(bad_versions, log_max)
        self.announced = AnnounceWorldSize(0, 0, 0)
        self.steps = 0
        self.book_every = book_every
        self.closed: dict[str, NodeCordoned | NodeDrainRequested] = {}
        self.watch: Callable[[DeploymentState, Event | None, Step], None] | None = None
        begun = deploy(spec, epoch=1)
        self.state = begun.state
        self._take(begun.commands)

    # the controller

    def _take(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            if type(command) is AnnounceWorldSize:
                self.announced = command
        self.commands.extend(commands)

    def deliver_event(self, index: int, *, keep: bool = False) -> None:
        """News arrives, and, kept, will arrive again."""
        if self.events:
            index %= len(self.events)
            event = self.events[index] if keep else self.events.pop(index)
            if keep:
                self.seen.add("repeated message")
            self.tell(event)

    def tell(self, event: Event) -> None:
        """The controller hears of an event; every promise is checked."""
        before = self.state
        result = step(before, event)
        self.state, commands, notes = result
        self.steps += 1
        if self.remembers:
            self.log += (event, (commands, notes))
        violations = check_step(before, event, result)
        if violations:
            self.demand([str(each) for each in violations])
        if self.watch is not None:
            self.watch(before, event, result)
        if self.steps % self.book_every == 0:
            self.check_book()
        if commands:
            self._take(commands)

    def check_book(self) -> None:
        """The promises that take a look at everything."""
        self.demand([str(each) for each in check(self.state)])

    def check_beliefs(self) -> None:
        """R3, by what replicas believe."""
        self.demand(shared_beliefs(self.actors.values()))

    def restart_controller(self) -> None:
        """The controller dies between two commands and comes back, with a fence against its predecessor."""
        self.seen.add("controller crash")
        self.epoch += 1
        self.now += 1.0
        state, found = self.state, list(self.actors)
        self.commands = [command for command in self.commands if type(command) in TO_REPLICAS]
        self.log.append(("controller restarts, epoch {}, finds {}", self.epoch, found))
        begun = recover(
            state.spec,
            found,
            at=self.now,
            epoch=self.epoch,
            previous=state.previous,
            deleting=state.status in GOING,
            failed=state.status is DeploymentStatus.DEPLOY_FAILED,
        )
        self.state = begun.state
        self.log.append(begun[1:])
        if self.watch is not None:
            self.watch(state, None, begun)
        if self.epoch % self.book_every == 0:
            self.check_book()
        self._take(begun.commands)
        for group in GROUPS:
            self._say_lost(group)
        self.events += self.closed.values()

    def corrupt(self, one: int, other: int) -> None:
        """While no controller is up, a replica somehow believes another's rank: what R10 has to repair."""
        ranked = sorted((a for a in self.actors.values() if a.rank is not None), key=lambda a: age_key(a.replica_id))
        if len(ranked) < 2:
            return
        victim, model = ranked[one % len(ranked)], ranked[other % len(ranked)]
        if victim is model or victim.replica.changing or model.rank is None or victim.rank is None:
            return
        self.seen.add("duplicate")
        level = LEVELS[one % 3]
        numbers = [getattr(model.rank if name == level else victim.rank, name) for name in LEVELS]
        victim.replica = replace(victim.replica, rank=ReplicaRank(*numbers))
        victim.corrupted = True
        for actor in self.actors.values():
            actor.corrupted = actor.corrupted or (actor.rank is not None and clash(actor, self.actors.values()))
        self.log.append(("corrupted: {} believes {}", victim.replica_id, victim.rank))
        self.restart_controller()

    # what breaks

    def crash(self, index: int) -> None:
        """A replica dies."""
        if self.actors:
            self.seen.add("replica crash")
            actor = self._any(index)
            self.end(actor, ReplicaDied(replica_id=actor.replica_id, reason="killed", at=self.now))

    def suspect(self, index: int) -> None:
        """A replica is called unhealthy, and is not."""
        if self.actors:
            self.seen.add("false suspicion")
            self.events.append(ReplicaUnhealthy(replica_id=self._any(index).replica_id, reason="silent", at=self.now))

    def look(self, index: int) -> None:
        """A replica takes no requests for now, or, if it did not, takes them again; it says so, if it has started."""
        if self.actors:
            self.seen.add("lost readiness")
            actor = self._any(index)
            self._look(actor, "cold" if actor.replica.unready is None else None)

    def look_at_all(self) -> None:
        """All take requests; what was lost of that is said again, as with each health check."""
        for actor in self.actors.values() if "lost readiness" in self.seen else ():
            self._look(actor, None)
            if actor.replica.ready and not actor.replica.draining:
                self.events.append(ReplicaReady(replica_id=actor.replica_id, at=self.now))

    def _look(self, actor: Actor, problem: str | None) -> None:
        self.now += 1.0
        actor.replica, said = readiness_checked(actor.replica, self.now, problem)
        self.events += [event for event in said if isinstance(event, (ReplicaUnready, ReplicaReady))]

    def _any(self, index: int) -> Actor:
        return list(self.actors.values())[index % len(self.actors)]

    def lose_node(self, index: int) -> None:
        """A node is lost with all that is on it, and back empty at once."""
        self.seen.add("node loss")
        node_id = NODES[index % len(NODES)]
        self.now += 1.0
        for actor in [actor for actor in self.actors.values() if actor.node_id == node_id]:
            self.gone.add(actor.replica_id)
            del self.actors[actor.replica_id]
        self.closed.pop(node_id, None)
        self.log.append(("node {} is lost", node_id))
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
        if not bundles:
            return
        self.seen.add("bundle loss")
        for bundle in bundles:
            self.bundle_nodes[group, bundle] = None
        self.log.append(("bundles {} of {} are lost", bundles, group))
        lost = {(group, bundle) for bundle in bundles}
        for actor in [actor for actor in self.actors.values() if actor.first_bundle in lost]:
            self.end(actor, ReplicaDied(replica_id=actor.replica_id, reason="its bundle is gone", at=self.now))
        self.events.append(BundleLost(bundles=bundles, reason="gone", group_id=group, at=self.now))

    def restore_bundles(self, index: int, *, everything: bool = False) -> None:
        """What was lost is there again, on some node."""
        self.now += 1.0
        lost = sorted(key for key, node_id in self.bundle_nodes.items() if node_id is None)
        for group, bundle in lost if everything else lost[index % len(lost) :][:1] if lost else []:
            node_id = self.bundle_nodes[group, bundle] = NODES[(bundle + index) % len(NODES)]
            self.log.append(("bundle {} of {} is back on {}", bundle, group, node_id))
            self.events.append(BundleRestored(bundles=(bundle,), group_id=group, at=self.now))
        self.now += 1.0

    def _say_lost(self, group: str) -> None:
        """A new controller, or one that hears of a group for the first time, is told what is lost by now."""
        lost = [bundle for bundle in range(BUNDLES) if self.bundle_nodes[group, bundle] is None]
        if lost:
            self.events.append(BundleLost(bundles=lost, reason="gone", group_id=group, at=self.now))

    def say_capacity(self, index: int, capacity: int) -> None:
        """A node has room for so many."""
        self.events.append(NodeChanged(node_id=NODES[index % len(NODES)], capacity=capacity, at=self.now))

    # what users do

    def change(self, **changes: object) -> None:
        """Somebody wants another spec."""
        self.seen.update(f"change of {name}" for name in changes)
        self.now += 1.0
        self._change(changed(self.state.spec, **changes))

    def change_naming(self, target: int, index: int) -> None:
        """Somebody wants another size, and says who is to go first."""
        self.seen.add("named victims")
        self.now += 1.0
        names = sorted(self.state.replicas, key=age_key)
        self._change(changed(self.state.spec, target_replicas=target), names[index % len(names) :][:2] if names else [])

    def _change(self, spec: DeploymentSpec, named: list[str] | None = None) -> None:
        before = self.state.tables.bundles.group_id
        self.tell(SpecChanged(spec=spec, stop_first=named or (), at=self.now))
        static = spec.static_placement
        if static is not None and static.identity != before:
            self._say_lost(str(static.identity))

    def stop_by_name(self, index: int) -> None:
        """Somebody wants one replica replaced."""
        names = sorted(self.state.replicas, key=age_key)
        if names:
            self.seen.add("stop by name")
            self.tell(StopRequested(replica_ids=[names[index % len(names)]], at=self.now))

    def replace_by_name(self, index: int, within_s: float | None) -> None:
        """Somebody wants one replica replaced, after its successor has a place."""
        names = sorted(self.state.replicas, key=age_key)
        if names:
            self.seen.add("replacement")
            deadline_at = self.now + within_s if within_s is not None else None
            self.tell(ReplaceRequested(replica_ids=[names[index % len(names)]], deadline_at=deadline_at, at=self.now))

    def cordon(self, index: int) -> None:
        """Somebody wants nothing new on a node; the executor of this world does not care."""
        self.seen.add("cordon")
        self._close(NodeCordoned(node_id=NODES[index % len(NODES)], at=self.now))

    def drain(self, index: int, within_s: float | None) -> None:
        """Somebody wants a node to be left."""
        self.seen.add("drain")
        deadline_at = self.now + within_s if within_s is not None else None
        self._close(NodeDrainRequested(node_id=NODES[index % len(NODES)], deadline_at=deadline_at, at=self.now))

    def _close(self, event: NodeCordoned | NodeDrainRequested) -> None:
        self.closed[event.node_id] = event
        self.tell(event)

    def uncordon(self, index: int) -> None:
        """Somebody wants a node to be used again."""
        node_id = NODES[index % len(NODES)]
        self.closed.pop(node_id, None)
        self.tell(NodeUncordoned(node_id=node_id, at=self.now))

    def retry(self, index: int) -> None:
        """Somebody wants what was given up to be tried again, with one replica or all, or a rank that rests."""
        self.seen.add("retry")
        if index % 4 == 0:
            self.tell(TrialRequested(at=self.now))
        else:
            self.tell(RetryRequested(ranks=() if index % 4 < 3 else (index // 4 % 5,), at=self.now))

    def delete(self) -> None:
        """Somebody wants it gone."""
        self.seen.add("delete")
        self.tell(DeleteRequested(at=self.now))

    def pass_time(self, seconds: float) -> None:
        """The clock goes on."""
        self.now += seconds
        self.tell(ClockAdvanced(at=self.now))

    def pump(self) -> None:
        """A calm moment: what waits is delivered in order, and everybody gets on with what it is doing."""
        for _ in range(len(self.actors)):
            if not self.place(0, self.steps):
                break  # the next one would find nobody either
        waiting, self.commands = self.commands, []
        for command in waiting:
            self.carry_out(command)
        for _ in range(len(self.events)):
            self.tell(self.events.pop(0))
        self.work_through()
