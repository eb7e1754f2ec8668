"""The control plane of a simulated run: the planner of `rankcore.residency`, and what asks it for models.

This is the one module that knows the planner. It hands commands to the world and takes the world's news; it decides no more
than what it asks for: a model whose requests wait and that nobody has asked for, or whose loads were given up.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from executors.simulator.clock import EventLoop
from executors.simulator.record.happenings import Failure, Story
from executors.simulator.scenario.residency.hardware import NodeShape
from executors.simulator.scenario.residency.whole import ResidencyScenario
from rankcore.events import ClockAdvanced
from rankcore.residency import Level, ModelSpec, Phase, ResidencyNote, ResidencyState, Wanted, open_residency, residency_step
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu, WakeAt
from rankcore.residency.events import DeployRequested, Event, EvictRequested, NodeJoined, ScaleRequested
from rankcore.residency.invariants import Violation, check, check_step

PLANNER = "the planner"


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

    def noted(self, note: ResidencyNote) -> None:
        """The planner decided something."""


class Control:
    """The planner in motion.

    Attributes:
        state: What it knows.
        specs: What it is told of each model.
    """

    def __init__(self, loop: EventLoop, scenario: ResidencyScenario, story: Story, effects: Effects) -> None:
        self.state: ResidencyState = open_residency(scenario.policy.for_planner)
        self.specs = specs_of(scenario)
        self._replicas = {model.name: model.replicas for model in scenario.models}
        self._loop = loop
        self._story = story
        self._effects = effects
        self._wakes = 0
        self._carry_out: Mapping[type, Any] = {
            LoadToGpu: effects.load,
            OffloadToCpu: effects.offload,
            UnloadFromGpu: effects.unload,
            DropFromCpu: effects.drop,
            WakeAt: self._wake_at,
        }

    def tell(self, event: Event) -> None:
        """Let the planner decide what follows from some news, have it carried out, and look whether its promises hold."""
        before = self.state
        step = residency_step(before, event)
        self.state = step.state
        for violation in check_step(before, event, step):
            self._broken(type(event).__name__, violation)
        for note in step.notes:
            self._effects.noted(note)
        for command in step.commands:
            self._carry_out[type(command)](command)

    def join(self, shape: NodeShape) -> None:
        """A node is there, and says what it has."""
        labels = dict(shape.labels)
        self.tell(
            NodeJoined(
                node_id=shape.node_id, gpu_bytes=shape.gpu_bytes, cpu_bytes=shape.cpu_bytes, labels=labels, at=self._loop.now
            )
        )

    def deploy(self, models: tuple[str, ...]) -> None:
        """Somebody wants models, all in one request."""
        wanted = tuple(Wanted(spec=self.specs[model], replicas=self._replicas[model]) for model in models)
        self.tell(DeployRequested(wanted=wanted, at=self._loop.now))

    def is_provisioned(self, model: str) -> bool:
        """Whether a model has been asked for, and its loads are still being tried."""
        return self.state.target(model) > 0 and not self._is_given_up(model)

    def scale(self, model: str, replicas: int) -> None:
        """Somebody wants so many replicas of a model, now and whenever it is asked for again."""
        if replicas:
            self._replicas[model] = replicas
        if model in self.state.models:
            self.tell(ScaleRequested(model=model, replicas=replicas, at=self._loop.now))
        elif replicas:
            self.deploy((model,))

    def evict(self, model: str, keep: Level) -> None:
        """Somebody wants a model off the GPUs; of one that was never asked for, nothing is there."""
        if model in self.state.models:
            self.tell(EvictRequested(model=model, keep=keep, at=self._loop.now))

    def is_serving(self, replica_id: str) -> bool:
        """Whether the planner has it as HOT."""
        resident = self.state.replicas.get(replica_id)
        return resident is not None and resident.phase is Phase.SERVING

    def check(self) -> None:
        """Look at the whole book."""
        for violation in check(self.state):
            self._broken("the end of the run", violation)

    def _is_given_up(self, model: str) -> bool:
        most = self.state.policy.max_load_failures
        return any(
            resident.model == model and resident.phase is Phase.WAITING and resident.failures >= most
            for resident in self.state.replicas.values()
        )

    def _wake_at(self, command: WakeAt) -> None:
        self._wakes += 1
        self._loop.at(command.at, self._wake, self._wakes)

    def _wake(self, number: int) -> None:
        if number == self._wakes:
            self.tell(ClockAdvanced(at=self._loop.now))

    def _broken(self, event: str, violation: Violation) -> None:
        self._story.fail(Failure(self._loop.now, PLANNER, event, violation.rule, violation.detail))


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
