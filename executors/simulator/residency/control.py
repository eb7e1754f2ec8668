"""The controller of a simulated cluster: `cluster_step`, its journal, its store, and what happens when it dies."""

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from executors.checking import Checking
from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.journal import Journal
from executors.engine.loop import ClusterLoop
from executors.simulator.clock import EventLoop
from executors.simulator.record.happenings import Failure, Story
from rankcore.cluster import ApplicationSpec, ClusterState, ClusterStep
from rankcore.cluster.commands import AskPolicy, CarryOut, ClusterCommand, PublishAvailability, SaveRecord
from rankcore.cluster.events import ApplyRequested, ClusterEvent, RecordSaved
from rankcore.cluster.invariants import check, check_step
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNote
from rankcore.cluster.records import Record
from rankcore.cluster.residency import WorkerId
from rankcore.commands import PublishRoutes, WakeAt
from rankcore.events import ClockAdvanced
from rankcore.kernel import Violation
from rankcore.residency.spec import ResidencyPolicy
from rankcore.values import NodeId

CLUSTER_NAME = "the cluster"
CHECKED_WELL = 2_000
"""So many steps are all checked; of later ones each of these many-th, as a check looks at everything."""
CHECKED_EVERY = 100


class Effects(Protocol):
    """What carries out the commands. News of them comes later, or from inside these calls: it is heard after the step."""

    def obey(self, command: Any) -> None:
        """A command about a worker, or about a replica that one is."""

    def publish(self, deployment: DeploymentId, routes: PublishRoutes) -> None:
        """Callers are to send their requests elsewhere."""

    def say_how_it_stands(self, command: PublishAvailability) -> None:
        """Callers are told whether anybody serves, or is about to."""

    def noted(self, note: ClusterNote) -> None:
        """The machine decided something."""


class Control:
    """The controller in motion, and the store, which outlives it.

    Attributes:
        journal: Where it writes down what happens and what came of it; None: nowhere.
        machine: The loop around the machine; None: the controller is down, and hears nothing.
        epoch: Of the newest controller.
    """

    def __init__(self, loop: EventLoop, story: Story, effects: Effects, policy: ResidencyPolicy) -> None:
        self.journal: Journal | None = None
        self.machine: ClusterLoop | None = None
        self.epoch = 0
        self._loop = loop
        self._story = story
        self._effects = effects
        self._policy = policy
        self._records: dict[DeploymentId, Record] = {}
        self._inbox: deque[ClusterEvent] = deque()
        self._is_busy = False
        self._wakes = 0
        self._steps = 0

    @property
    def state(self) -> ClusterState | None:
        """What it knows; None: nobody does."""
        return self.machine.state if self.machine is not None else None

    @property
    def unchanging(self) -> tuple[object, ...]:
        """What it has come to, and what is stored: values that never change."""
        return (*((self.machine.state,) if self.machine is not None else ()), *self._records.values())

    def claim(self) -> int:
        """The epoch of the controller that is to come up. It raises the fence with it, looks for workers, and begins."""
        self.epoch += 1
        return self.epoch

    def begin(self, workers: Iterable[tuple[WorkerId, NodeId]] = ()) -> None:
        """A controller comes up, with the records of the store and the workers that were found."""
        records = tuple(self._records[each] for each in sorted(self._records))
        how = ClusterRecovered(records=records, at=self._loop.now, epoch=self.epoch, workers=dict(workers), policy=self._policy)
        first = how.step()
        self.machine = ClusterLoop(CLUSTER, self, first.state)
        self._is_busy = True
        self.machine.start(how, first, self.journal)
        self._followed(first)
        self._is_busy = False
        self._work_off()

    def end(self) -> None:
        """The controller dies; what was on its way to it is lost."""
        self.machine = None
        self._inbox.clear()
        self._wakes += 1

    def write_to(self, journal: Journal | None) -> Journal | None:
        """Write to this journal from now on; returns the one before."""
        before, self.journal = self.journal, journal
        if self.machine is not None:
            self.machine.journal = journal
        return before

    def apply(self, applications: tuple[ApplicationSpec, ...]) -> None:
        """A user wants these."""
        self.tell(ApplyRequested(applications=applications, at=self._loop.now))

    def tell(self, event: ClusterEvent) -> None:
        """Something has happened. While no controller is up nobody hears it."""
        if self.machine is not None:
            self._inbox.append(event)
            if not self._is_busy:
                self._work_off()

    def check(self) -> None:
        """Look at everything that is known."""
        if self.machine is not None and self._story.checking is not Checking.OFF:
            self._fail_with("the end of the run", check(self.machine.state))

    # -- the backend of the loop

    def execute(self, command: ClusterCommand) -> None:
        """Begin to carry out a command."""
        match command:
            case SaveRecord(record=record):
                self._records[record.deployment] = record
                self.tell(RecordSaved(deployment=record.deployment, number=record.number, at=self._loop.now))
            case CarryOut(deployment=deployment, command=PublishRoutes() as routes):
                self._effects.publish(deployment, routes)
            case PublishAvailability():
                self._effects.say_how_it_stands(command)
            case WakeAt(at=at):
                self._wakes += 1
                self._loop.at(at, self._wake, self._wakes)
            case AskPolicy():
                raise AssertionError(f"no scenario has a policy of its own, and {command.policy} is asked")
            case _:
                self._effects.obey(command)

    def poll(self) -> ClusterEvent | None:
        """Nothing is polled here: what happens is told."""
        return None

    def _work_off(self) -> None:
        self._is_busy = True
        try:
            while self._inbox and self.machine is not None:
                self._deliver(self.machine, self._inbox.popleft())
        finally:
            self._is_busy = False

    def _deliver(self, machine: ClusterLoop, event: ClusterEvent) -> None:
        before = machine.state
        step = machine.deliver(event)
        self._steps += 1
        is_due = self._steps < CHECKED_WELL or not self._steps % CHECKED_EVERY
        if is_due and self._story.checking is Checking.EACH:
            self._fail_with(type(event).__name__, check_step(before, event, step))
        self._followed(step)

    def _followed(self, step: ClusterStep) -> None:
        for note in step.notes:
            self._effects.noted(note)

    def _wake(self, number: int) -> None:
        if number == self._wakes:
            self.tell(ClockAdvanced(at=self._loop.now))

    def _fail_with(self, event: str, violations: Iterable[Violation]) -> None:
        for each in violations:
            self._story.fail(Failure(self._loop.now, CLUSTER_NAME, event, each.rule, each.detail))
