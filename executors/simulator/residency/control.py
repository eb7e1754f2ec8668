"""The control plane of a simulated run: the fleet of `rankcore.dispatching`, with its planner and its routers.

This is the one module that knows how the fleet is opened, stepped and checked. It decides nothing.
"""

from typing import Any, Protocol

from executors.fleet.journal import FleetJournal
from executors.simulator.clock import EventLoop
from executors.simulator.record.happenings import Failure, Story
from executors.simulator.scenario.residency.hardware import NodeShape
from executors.simulator.scenario.residency.models import Model
from executors.simulator.scenario.residency.whole import ResidencyScenario
from rankcore.dispatching import FleetState, ModelRequested, ServingChanged, ServingSpec, TellCaller, fleet_step, open_fleet
from rankcore.dispatching.events import Event
from rankcore.dispatching.invariants import Violation, check, check_step
from rankcore.dispatching.state import Note
from rankcore.events import ClockAdvanced
from rankcore.residency import Level, ModelSpec, ResidencyState, Wanted
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import DeployRequested, EvictRequested, NodeJoined, ScaleRequested
from rankcore.routing import FailureKind, RoutingSpec
from rankcore.routing.commands import Complete, Dispatch, Expire, Fail, Forget, Reject, Retry, StopAttempt, WakeAt
from rankcore.routing.events import RequestDone, RequestFailed

FLEET = "the fleet"
CHECKED_WELL = 2_000
"""So many steps about requests are all checked; of later ones each of these many-th, as a check looks at everything."""
CHECKED_EVERY = 200


class Effects(Protocol):
    """What carries out the commands. News of them comes later, never from inside these calls."""

    def load(self, command: LoadToGpu) -> None:
        """Bring weights to GPUs."""

    def offload(self, command: OffloadToCpu) -> None:
        """Finish, copy the weights to CPU memory, and free the GPUs."""

    def unload(self, command: UnloadFromGpu) -> None:
        """Finish, and free the GPUs."""

    def drop(self, command: DropFromCpu) -> None:
        """Free CPU memory."""

    def dispatch(self, command: Dispatch | Retry) -> None:
        """Have a replica work on a request."""

    def answer(self, command: Complete | Fail | Reject | Expire | Forget) -> None:
        """A request has its one final answer."""

    def noted(self, note: Note) -> None:
        """The fleet decided something."""

    def placed(self) -> None:
        """Something other than a request may have changed which replicas are HOT."""


class Control:
    """The fleet in motion.

    Attributes:
        state: What it knows.
        journal: Where it writes down what happens and what came of it; None: nowhere.
    """

    def __init__(self, loop: EventLoop, scenario: ResidencyScenario, story: Story, effects: Effects) -> None:
        self.journal: FleetJournal | None = None
        self.state: FleetState = open_fleet(scenario.dispatch.for_fleet, scenario.policy.for_planner)
        self._scenario = scenario
        self._loop = loop
        self._story = story
        self._effects = effects
        self._wakes = 0
        self._steps = 0
        self._carry_out: dict[Any, Any] = {
            LoadToGpu: effects.load,
            OffloadToCpu: effects.offload,
            UnloadFromGpu: effects.unload,
            DropFromCpu: effects.drop,
            Dispatch: effects.dispatch,
            Retry: effects.dispatch,
            StopAttempt: _goes_on,
            TellCaller: _goes_on,
            WakeAt: self._wake_at,
        } | dict.fromkeys((Complete, Fail, Reject, Expire, Forget), effects.answer)

    @property
    def residency(self) -> ResidencyState:
        """What the planner knows."""
        return self.state.residency

    def start(self, shapes: tuple[NodeShape, ...]) -> None:
        """Nodes are there, models are known, and those that are to be there from the start are asked for in one request."""
        if self.journal is not None:
            self.journal.begin(self.state)
        for shape in shapes:
            self.join(shape, self._loop.now)
        specs = specs_of(self._scenario)
        for model in self._scenario.models:
            serving = ServingSpec(routing=routing_of(model), autoscaling=model.autoscaling)
            self.tell(ServingChanged(spec=serving, at=self._loop.now))
        wanted = tuple(Wanted(spec=specs[model.name], replicas=model.replicas) for model in self._scenario.models)
        self.tell(DeployRequested(wanted=wanted, at=self._loop.now))

    def join(self, shape: NodeShape, at: float) -> None:
        """A node was there at that time, and says what it has."""
        labels = dict(shape.labels)
        self.tell(NodeJoined(node_id=shape.node_id, gpu_bytes=shape.gpu_bytes, cpu_bytes=shape.cpu_bytes, labels=labels, at=at))

    def request(self, model: str, request_id: int) -> None:
        """A request arrives."""
        self._step(ModelRequested(request_id=request_id, model=model, at=self._loop.now))

    def request_done(self, request_id: int, attempt: int, at: float) -> None:
        """A replica was done with a request at that time."""
        self._step(RequestDone(request_id=request_id, attempt=attempt, at=at))

    def request_lost(self, request_id: int, attempt: int, at: float) -> None:
        """A replica had to leave at that time, before it was done with a request."""
        lost = FailureKind.LOST
        reason = "its replica had to leave before it was done"
        self._step(RequestFailed(request_id=request_id, attempt=attempt, kind=lost, reason=reason, at=at))

    def scale(self, model: str, replicas: int) -> None:
        """Somebody wants so many replicas of a model."""
        self.tell(ScaleRequested(model=model, replicas=replicas, at=self._loop.now))

    def evict(self, model: str, keep: Level) -> None:
        """Somebody wants a model off the GPUs."""
        self.tell(EvictRequested(model=model, keep=keep, at=self._loop.now))

    def tell(self, event: Event) -> None:
        """News of nodes and weights, or what somebody wants."""
        self._step(event, checks=True)
        self._effects.placed()

    def is_hot(self, model: str) -> bool:
        """Whether requests for a model have a replica to go to."""
        served = self.state.models.get(model)
        return served is not None and bool(served.routed)

    def check(self) -> None:
        """Look at everything that is known."""
        for violation in check(self.state):
            self._broken("the end of the run", violation)

    def _step(self, event: Event, checks: bool = False) -> None:
        """Let the fleet decide what follows, look whether its promises hold, and have it carried out."""
        before = self.state
        step = fleet_step(before, event)
        if self.journal is not None:
            self.journal.append(event, step)
        self.state = step.state
        self._steps += 1
        if checks or self._steps < CHECKED_WELL or not self._steps % CHECKED_EVERY:
            for violation in check_step(before, event, step):
                self._broken(type(event).__name__, violation)
        for note in step.notes:
            self._effects.noted(note)
        for command in step.commands:
            self._carry_out[type(command)](command)

    def _wake_at(self, command: WakeAt) -> None:
        self._wakes += 1
        self._loop.at(command.at, self._wake, self._wakes)

    def _wake(self, number: int) -> None:
        if number == self._wakes:
            self.tell(ClockAdvanced(at=self._loop.now))

    def _broken(self, event: str, violation: Violation) -> None:
        self._story.fail(Failure(self._loop.now, FLEET, event, violation.rule, violation.detail))


def _goes_on(_: object) -> None:
    """What a replica has begun goes on to its end, and nobody reads what callers are told."""


def specs_of(scenario: ResidencyScenario) -> dict[str, ModelSpec]:
    """What the planner is told of each model."""
    return {
        model.name: ModelSpec(
            model=model.name,
            weight_bytes=scenario.sizes[model.name].weight_bytes,
            working_bytes=scenario.sizes[model.name].working_bytes,
            gpus=model.gpus,
            priority=model.priority,
            dedicated=model.dedicated,
            min_hot_s=model.min_hot_s,
            spread=model.spread,
            node_labels=dict(model.node_labels),
        )
        for model in scenario.models
    }


def routing_of(model: Model) -> RoutingSpec:
    """What the router of a model goes by. What a replica had in flight when it ended is done again: nobody saw an answer."""
    return RoutingSpec(
        name=model.name,
        max_ongoing_requests=model.max_ongoing_requests,
        max_queued_requests=model.max_queued_requests,
        request_timeout_s=model.request_timeout_s,
        idempotent=True,
    )
