"""A deployment in a cluster is the deployment alone: equal events, equal commands (D10); two of them never touch each other."""

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from rankcore import DeploymentSpec, DeploymentState, Step, deploy, events, step
from rankcore.cluster import ApplicationSpec, EntrySpec, cluster_step, recover_cluster
from rankcore.cluster.commands import CarryOut, SaveRecord
from rankcore.cluster.events import ApplyRequested, DeletionRequested, NodeJoined, RecordSaved, ScaleRequested
from rankcore.cluster.invariants import check, check_step
from rankcore.cluster.ranking import in_order
from rankcore.cluster.records import Record
from rankcore.testing.schedules import World, heal, play, spec_from, static_spec_from
from rankcore.testing.schedules.specs import changed

ALONE, TWIN = "a/x", "b/x"


def renamed(value: Any, name: str) -> Any:
    """The same event or command about the other deployment."""
    if name == ALONE:
        return value
    fields = {}
    for field in ("replica_id", "replica_ids", "added", "removed"):
        if hasattr(value, field):
            found = getattr(value, field)
            fields[field] = (
                found.replace(ALONE, TWIN) if isinstance(found, str) else tuple(x.replace(ALONE, TWIN) for x in found)
            )
    return attrs.evolve(value, **fields) if fields else value


class Mirror:
    """A cluster of deployments that all get what one deployment alone gets, and give the same commands."""

    def __init__(self, world: World, *names: str) -> None:
        self.world, self.names = world, names
        self.store: list[Record] = []
        self.commands: dict[str, list[Any]] = {}
        self.state = recover_cluster((), (), at=0.0, epoch=1).state
        self.is_over = False
        self.tell(*(ApplyRequested(applications=(self.application(name, world.state.spec),), at=0.0) for name in names))
        self.compare(world.commands)
        world.watch = self.watch
        world.retry = lambda _index: None  # in a cluster its own demand asks for that

    def application(self, name: str, spec: DeploymentSpec) -> ApplicationSpec:
        entry = EntrySpec(ranks=changed(spec, name=name), demand={"slot": 1})
        return ApplicationSpec(name=name.partition("/")[0], deployments=(entry,))

    def tell(self, *told: Any) -> None:
        """These events, one after the other, with every save acknowledged at once."""
        waiting = list(told)
        while waiting:
            event = waiting.pop(0)
            before = self.state
            step = cluster_step(before, event)
            assert check_step(before, event, step) == []
            self.take(step)
            saves = [each.record for each in step.commands if isinstance(each, SaveRecord)]
            at = self.state.clock
            waiting[:0] = [RecordSaved(deployment=each.deployment, number=each.number, at=at) for each in saves]

    def take(self, step: Any) -> None:
        self.state = step.state
        assert check(step.state) == []
        for command in step.commands:
            if isinstance(command, SaveRecord):
                self.store.append(command.record)
            elif isinstance(command, CarryOut):
                self.commands.setdefault(command.deployment, []).append(command.command)

    def watch(self, before: Any, event: Any, step: Step) -> None:
        if self.is_over:
            return
        self.commands = {}
        if event is None:
            self.recover(step)
        else:
            self.tell(*self.translated(before, event))
        self.compare(step.commands)
        wakes = [entry.ranks.wake_at for entry in self.state.deployments.values()]
        assert all(each == step.state.wake_at for each in wakes)
        self.is_over = not self.state.deployments

    def recover(self, step: Step) -> None:
        epoch, at = step.state.epoch, step.state.clock
        found = [each.replace(ALONE, name) for name in self.names for each in self.world.actors]
        begun = recover_cluster(self.store, found, at=at, epoch=epoch)
        self.take(begun)
        saves = [each.record for each in begun.commands if isinstance(each, SaveRecord)]
        self.tell(*(RecordSaved(deployment=each.deployment, number=each.number, at=at) for each in saves))

    def compare(self, commands: Any) -> None:
        expected = in_order(tuple(commands))
        for name in self.names:
            assert self.commands.get(name, []) == [renamed(each, name) for each in expected]

    def translated(self, before: Any, event: Any) -> list[Any]:
        """What a cluster is told instead; shared news is told once."""
        match event:
            case events.SpecChanged(spec=spec, stop_first=first, at=at):
                if any(entry.deleting for entry in self.state.deployments.values()):
                    return [events.ClockAdvanced(at=at)]  # it is refused, where the ranks would call it late
                is_static = spec.static_placement is not None or before.spec.static_placement is not None
                if not is_static and changed(before.spec, target_replicas=spec.target_replicas) == spec:
                    return [
                        ScaleRequested(
                            deployment=name,
                            target_replicas=spec.target_replicas,
                            stop_first=tuple(each.replace(ALONE, name) for each in first),
                            at=at,
                        )
                        for name in self.names
                    ]
                return [ApplyRequested(applications=(self.application(name, spec),), at=at) for name in self.names]
            case events.DeleteRequested(at=at):
                return [DeletionRequested(deployments=self.names, at=at)]
            case events.NodeChanged(node_id=node_id, capacity=capacity, at=at):
                return [NodeJoined(node_id=node_id, resources={"slot": capacity}, at=at)]
            case events.NodeLost() | events.BundleLost() | events.BundleRestored() | events.ClockAdvanced():
                return [event]
            case _:
                return [renamed(event, name) for name in self.names]


def mirrored(spec: DeploymentSpec, moves: bytes, bad: bool, *names: str) -> None:
    world = World(changed(spec, name=ALONE), bad_versions=("2",) if bad else (), book_every=100)
    mirror = Mirror(world, *names)
    play(world, moves)
    heal(world)
    assert mirror.is_over or mirror.state.deployments[ALONE].ranks.status == world.state.status


MOVES = st.binary(max_size=60) | st.binary(min_size=150, max_size=400)
SPECS: tuple[Callable[[int], DeploymentSpec], ...] = (spec_from, static_spec_from)


@settings(max_examples=150, deadline=None)
@given(number=st.integers(0, 1023), moves=MOVES, bad=st.booleans(), kind=st.sampled_from(SPECS))
def test_a_deployment_in_a_cluster_is_commanded_as_it_is_alone(number: int, moves: bytes, bad: bool, kind: Any) -> None:
    mirrored(kind(number), moves, bad, ALONE)


class Pair:
    """Two deployments of one cluster, and each of them alone: time-outs fall due by the clock that they share."""

    def __init__(self, spec: DeploymentSpec) -> None:
        self.alone = {name: deploy(changed(spec, name=name)).state for name in (ALONE, TWIN)}
        self.mirror = Mirror.__new__(Mirror)
        self.mirror.names, self.mirror.store, self.mirror.commands = (ALONE, TWIN), [], {}
        self.mirror.state = recover_cluster((), (), at=0.0, epoch=1).state
        for name in self.alone:
            self.mirror.tell(ApplyRequested(applications=(self.mirror.application(name, spec),), at=0.0))

    def tell(self, name: str, event: Any) -> None:
        """News of a replica of one of them."""
        expected = {name: self.step(name, event)}
        other = TWIN if name == ALONE else ALONE
        wake_at = self.alone[other].wake_at
        if wake_at is not None and wake_at <= max(event.at, self.mirror.state.clock):
            expected[other] = self.step(other, events.ClockAdvanced(at=max(event.at, self.mirror.state.clock)))
        before, self.mirror.commands = self.mirror.state.deployments[other], {}
        self.mirror.tell(event)
        assert self.mirror.commands == {each: commands for each, commands in expected.items() if commands}
        assert other in expected or self.mirror.state.deployments[other] is before

    def step(self, name: str, event: Any) -> list[Any]:
        alone = self.alone[name]
        at_cluster = DeploymentState(alone.spec, alone.status, alone.epoch, self.mirror.state.clock, alone.tables)
        found = step(at_cluster, event)
        self.alone[name] = found.state
        return in_order(found.commands)


@settings(max_examples=100, deadline=None)
@given(
    number=st.integers(0, 1023).filter(lambda number: number % 11),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 5), st.floats(0.0, 9.0)), max_size=60),
)
def test_two_deployments_never_touch_each_other(number: int, moves: list[tuple[bool, int, int, float]]) -> None:
    pair, now = Pair(spec_from(number)), 0.0
    for twin, what, serial, later_s in moves:
        now += later_s
        name = TWIN if twin else ALONE
        kind = (
            *(events.ReplicaPlaced, events.ReplicaReady, events.ReplicaDied, events.ReplicaStartFailed),
            *(events.ReplicaStopped, events.ReplicaUnhealthy, events.ReplicaMissing),
        )[what]
        more = {"node_id": f"n{serial % 2}"} if kind is events.ReplicaPlaced else {}
        pair.tell(name, kind(replica_id=f"{name}#1.{serial}", at=now, **more))
