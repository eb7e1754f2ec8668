"""The simulated controller: hosts one driver for each deployment, crashes, comes back and recovers."""

from collections.abc import Iterable

import attrs

from executors.checking import Checking
from executors.engine.deployments import Recovered, Resumed
from executors.engine.journal import Journal
from executors.engine.loop import Driver
from executors.simulator.cluster.outages import CONTROLLER, CONTROLLER_DOWN
from executors.simulator.deployment import DeploymentWorld
from executors.simulator.record.happenings import Failure, Happening
from executors.simulator.record.notebook import Notebook
from executors.simulator.scaling import Autoscaler, Clock
from executors.simulator.scenario.model import Change
from executors.simulator.world import SimulatedWorld
from rankcore import DeploymentState, Step, invariants
from rankcore.autoscaling import AutoscalerState, AutoscalingNote, Policy, ongoing_requests
from rankcore.errors import InvalidSpecError
from rankcore.events import DeleteRequested, Event, SpecChanged
from rankcore.values import DeploymentStatus

UNCHECKED_LINES = 50
"""A book with no more replicas and nodes is checked after every event, and with it the step. The checks look at all of
them, so a larger book is checked less often, in proportion, and whenever its status changes. Beliefs are checked at every
change, however many there are."""

SETTLED = (DeploymentStatus.HEALTHY, DeploymentStatus.DELETED)


def _is_waiting(state: DeploymentState) -> bool:
    """Whether a replica has not acknowledged something: ranks still move in a deployment that is healthy already (R1, R8)."""
    return any(replica.pending is not None for replica in state.replicas.values())


class SimulatedController:
    """Delivers each event to its deployment's driver, and looks at the invariants after it.

    Attributes:
        epoch: Grows with every restart.
        drivers: By deployment; empty while the controller is down.
        notebook: What is kept of the steps, and hands them on to the journal.
        policies: Of autoscaled deployments, by name, for those that have one of their own.
        scaling_notes: The decision log of each autoscaled deployment, with the time of each note.
    """

    def __init__(self, world: SimulatedWorld, journal: Journal | None) -> None:
        self.epoch = 0
        self.drivers: dict[str, Driver] = {}
        self.notebook = Notebook(world.loop, journal)
        self._world = world
        self._outage: Happening | None = None
        self._postponed: list[Change] = []
        self._checkpoints: dict[str, Recovered] = {}  # what outlives this controller, and no ranks (R10)
        self._states: dict[str, DeploymentState] = {}
        self._unchecked: dict[str, int] = {}
        self._autoscalers: dict[str, Autoscaler] = {}
        self.policies: dict[str, Policy] = {}
        self.scaling_notes: dict[str, list[tuple[float, AutoscalingNote]]] = {}

    def start(self) -> None:
        """The controller comes up for the first time and deploys everything."""
        self.epoch = 1
        for name, port in self._world.deployments.items():
            driver = Driver.deploy(port, port.deployment.spec, at=self._world.loop.now, epoch=self.epoch, journal=self.notebook)
            self._attach(name, port, driver)
        self._world.tell_capacities()
        self._begin_autoscaling()
        for port in self._world.deployments.values():
            if port.deployment.autoscaling is not None:
                Clock(port, port.deployment.autoscaling, self).begin()

    def resume(self, states: Iterable[DeploymentState]) -> None:
        """The controller is up already, and has come to these states: it goes on from there."""
        for state in states:
            name = state.spec.name
            port = self._world.deployments[name]
            self.epoch = max(self.epoch, state.epoch)
            port.resume(state)
            self._attach(name, port, Driver(port, state, journal=self.notebook))
        self._world.tell_capacities()

    def crash(self, restart_after_s: float) -> None:
        """The controller is gone, with all that it knew. News that arrives until it is back is heard by nobody."""
        now = self._world.loop.now
        if not self.drivers:
            self._world.story.tell(now, "controller", None, "the controller was to crash, but is down already")
            return
        self.drivers = {}
        for port in self._world.deployments.values():
            port.listener = _nobody
        self._outage = self._world.story.tell(now, "controller", None, "the controller crashed")
        self._world.outages.begin(now, CONTROLLER, CONTROLLER_DOWN)
        self._world.loop.after(restart_after_s, self.restart)

    def restart(self) -> None:
        """The controller is back: it raises the fence, then looks which replicas there are, then asks them."""
        now = self._world.loop.now
        self._world.outages.end(now, CONTROLLER, CONTROLLER_DOWN)
        self.epoch += 1
        found = 0
        for name, port in self._world.deployments.items():
            kept = self._checkpoints[name]
            port.raise_fence(self.epoch)
            port.beliefs.tolerate_present_duplicates()
            replica_ids = port.discover()
            found += len(replica_ids)
            if self._states[name].status is DeploymentStatus.DELETED:
                continue
            how = attrs.evolve(kept, replica_ids=tuple(replica_ids), at=now, epoch=self.epoch)
            driver = Driver.begin(port, how, journal=self.notebook)
            self._attach(name, port, driver)
        if self._outage is not None:
            self._world.story.over(now, self._outage)
            self._outage = None
        text = f"the controller is back in epoch {self.epoch} and found {found} replicas"
        self._world.story.tell(now, "controller", None, text)
        self._world.tell_capacities()
        self._begin_autoscaling()
        postponed, self._postponed = self._postponed, []
        for change in postponed:
            self.change(change)

    def change(self, change: Change) -> None:
        """Somebody wants something else. While no controller is up, they try again until one is."""
        now = self._world.loop.now
        if not self.drivers:
            self._postponed.append(change)
            return
        kept = self._checkpoints[change.deployment]
        if change.deployment not in self.drivers or kept.deleting:
            text = f"{change.deployment} was to be changed, but is deleted"
            self._world.story.tell(now, "change", change.deployment, text)
            return
        if change.delete:
            self._world.story.tell(now, "change", change.deployment, f"{change.deployment} is to be deleted")
            self._deliver(change.deployment, DeleteRequested(at=now))
            return
        try:
            spec = change.apply(kept.spec)
        except InvalidSpecError as error:
            self._world.story.tell(now, "change", change.deployment, f"{change.deployment} was to be changed, but {error}")
            return
        wanted = ", ".join(f"{key} = {value}" for key, value in change.fields.items())
        self._world.story.tell(now, "change", change.deployment, f"{change.deployment}: {wanted}")
        self._deliver(change.deployment, SpecChanged(spec=spec, stop_first=change.stop_first, at=now))

    def look_at_load(self, name: str) -> None:
        """It is time to decide on a deployment's target. While no controller is up, nobody does."""
        kept, autoscaler = self._checkpoints[name], self._autoscalers.get(name)
        if autoscaler is None or kept.deleting or name not in self.drivers:
            return
        now, state = self._world.loop.now, self.drivers[name].state
        verdict = autoscaler.decide(self._world.deployments[name], state, now)
        for violation in verdict.violations:
            self._world.story.fail(Failure(now, name, "a decision of the autoscaler", violation.rule, violation.detail))
        if verdict.target is None:
            return
        self._world.deployments[name].tally.scale_events += 1
        text = f"{name} is scaled from {state.world_size} to {verdict.target}: {verdict.because}"
        self._world.story.tell(now, "change", name, text)
        spec = attrs.evolve(kept.spec, target_replicas=verdict.target)
        self._deliver(name, SpecChanged(spec=spec, at=now))

    def look_at_queue(self, name: str) -> None:
        """A request waits: where there is to be no replica, that calls for one at once (A5)."""
        if name in self.drivers and self.drivers[name].state.world_size == 0:
            self.look_at_load(name)

    def _begin_autoscaling(self) -> None:
        """With nothing heard yet: what was known is gone with the last controller."""
        for name, port in self._world.deployments.items():
            if port.deployment.autoscaling is not None:
                notes = self.scaling_notes.setdefault(name, [])
                state = AutoscalerState(spec=port.deployment.autoscaling)
                self._autoscalers[name] = Autoscaler(state, self.policies.get(name, ongoing_requests), notes)

    @property
    def states(self) -> tuple[object, ...]:
        """What the core has come to, with the specs in force: values that never change."""
        found = [*self._states.values(), *(driver.state for driver in self.drivers.values())]
        specs = [state.spec for state in found]
        autoscaling = (autoscaler.state for autoscaler in self._autoscalers.values())
        return (*found, *specs, *self._checkpoints.values(), *autoscaling)

    @property
    def journal(self) -> Journal | None:
        """Where steps are written; None: nowhere."""
        return self.notebook.journal

    def write_to(self, journal: Journal | None) -> None:
        """Write further steps there, in a journal that knows of these deployments, or nowhere."""
        self.notebook.journal = journal

    def resume_in(self, journal: Journal) -> None:
        """Begin another journal with the present states."""
        self.write_to(journal)
        for driver in self.drivers.values():
            journal.begin(Resumed(state=driver.state), Step(driver.state, (), ()))

    @property
    def settled(self) -> bool:
        """Whether the controller is up and every deployment is healthy or deleted, with all that it was told acknowledged."""
        states = [driver.state for driver in self.drivers.values()]
        return bool(states) and all(state.status in SETTLED for state in states) and not any(map(_is_waiting, states))

    def status_of(self, name: str) -> str:
        """A deployment's status, as the controller last knew it."""
        return str(self._states[name].status)

    def _attach(self, name: str, port: DeploymentWorld, driver: Driver) -> None:
        self.drivers[name] = driver
        port.listener = _Ear(self, name).hear
        self._look(name, "the start of the controller")

    def _deliver(self, name: str, event: Event) -> None:
        driver = self.drivers[name]
        before, said = driver.state, type(event).__name__ + _about(event)
        result = driver.deliver(event)
        if self._world.story.checking is Checking.EACH and len(before.replicas) <= UNCHECKED_LINES:
            self._fail_with(name, said, invariants.check_step(before, event, result))
        self._look(name, said)

    def _look(self, name: str, event: str) -> None:
        """Check the invariants, and take from the new state what others want to know."""
        now = self._world.loop.now
        state = self.drivers[name].state
        before = self._states.get(name)
        if state is before:
            return
        self._states[name] = state
        status_changed = before is None or before.status is not state.status
        if status_changed or self._is_due(name, state):
            self._check(name, state, event)
        port, kept = self._world.deployments[name], Recovered.of(state)
        self._checkpoints[name] = kept
        # A deployment that is being deleted keeps its target, but nobody misses its ranks.
        port.timeline.resize(now, 0 if kept.deleting else state.world_size)
        port.timeline.availability.follow(now, state)
        port.health.spec = state.spec
        static = state.spec.static_placement
        port.bundles.follow(static.group if static is not None else None)
        if state.status is DeploymentStatus.DELETED:
            port.requests.close()
        more_failed = before is not None and set(state.failed_ranks) - set(before.failed_ranks)
        if status_changed or more_failed:
            why = f": {state.message}" if state.message else ""
            self._world.story.tell(now, "status", name, f"{name} is {state.status}{why}")

    def check_all(self) -> None:
        """Check every book once more, at the end of a run."""
        for name, driver in self.drivers.items():
            self._check(name, driver.state, "the end of the run")

    def _is_due(self, name: str, state: DeploymentState) -> bool:
        if self._world.story.checking is not Checking.EACH:
            return False
        self._unchecked[name] = self._unchecked.get(name, 0) + UNCHECKED_LINES
        return self._unchecked[name] >= len(state.replicas) + len(self._world.cluster.nodes)

    def _check(self, name: str, state: DeploymentState, event: str) -> None:
        if self._world.story.checking is Checking.OFF:
            return
        self._unchecked[name] = 0
        self._fail_with(name, event, (*invariants.check(state), *self._misplaced(name, state)))

    def _fail_with(self, name: str, event: str, violations: Iterable[invariants.Violation]) -> None:
        for violation in violations:
            self._world.story.fail(Failure(self._world.loop.now, name, event, violation.rule, violation.detail))

    def _misplaced(self, name: str, state: DeploymentState) -> list[invariants.Violation]:
        """S2, on where replicas are and what they believe, once a deployment has settled."""
        if state.status is not DeploymentStatus.HEALTHY or _is_waiting(state):
            return []
        port = self._world.deployments[name]
        believed = {replica_id: port.beliefs.of(replica_id) for replica_id in port.processes}
        return port.standings.check(state.spec, {who: rank for who, rank in believed.items() if rank is not None})


@attrs.frozen(eq=False)
class _Ear:
    """A listener that can be copied together with the world, which a closure can't."""

    controller: SimulatedController
    name: str

    def hear(self, event: Event) -> None:
        self.controller._deliver(self.name, event)


def _nobody(_: Event) -> None:
    """Nobody listens: the event is lost. What it said of an end, `discover` shows."""


def _about(event: Event) -> str:
    subject = getattr(event, "replica_id", None) or getattr(event, "node_id", None)
    return f" {subject}" if subject else ""
