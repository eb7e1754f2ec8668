"""A bench with a controller beside it is a whole system: this is the controller, with a checkpoint and no more."""

from collections.abc import Callable, Sequence

import rankcore
from rankcore.draft import Step
from rankcore.events import DeleteRequested, Event, SpecChanged
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState
from rankcore.testing.conformance.bench import Bench, Executor, complete
from rankcore.testing.conformance.system import SelfReport
from rankcore.values import DeploymentStatus, NodeId, ReplicaId

AWAY_S = 0.3
"""How long a crashed controller is away."""


class ControlledBench:
    """A `System` of one deployment: the core, driven by the suite, over the executor of a bench.

    Args:
        bench: Whose executor it is.
    """

    def __init__(self, bench: Bench) -> None:
        complete(bench)
        self._bench = bench
        self.room: Callable[[NodeId], int] | None = getattr(bench, "room", None)
        if getattr(bench, "repeats", False):  # what is told of it once may be lost
            self.room = None
        self._epoch = 0
        self._executor: Executor | None = None  # None: the controller is away
        self._back_at = 0.0
        # What outlives the controller:
        self._spec: DeploymentSpec | None = None
        self._previous: DeploymentSpec | None = None
        self._deleting = False
        self._failed = False

    def deploy(self, spec: DeploymentSpec) -> None:
        """Begin."""
        self._spec = spec
        self._open()
        self._adopt(rankcore.deploy(spec, at=self._bench.now(), epoch=self._epoch))

    def change(self, spec: DeploymentSpec) -> None:
        """Want something else; who is away finds it in the checkpoint."""
        self._spec = spec
        self._deliver_if_there(SpecChanged(spec=spec, at=self._bench.now()))

    def delete(self, name: str) -> None:
        """Want it gone."""
        self._deleting = True
        self._deliver_if_there(DeleteRequested(at=self._bench.now()))

    def status(self, name: str) -> DeploymentStatus | None:
        """What the controller says."""
        return self._state.status if self._executor is not None else None

    def crash_controller(self) -> None:
        """Forget everything but the checkpoint."""
        self._bench.crash(self._executor)
        self._executor = None
        self._back_at = self._bench.now() + AWAY_S

    def until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        """Drive the core until the condition holds.

        Raises:
            TimeoutError: It did not within the bench's patience.
        """
        deadline = self._bench.now() + self._bench.patience_s
        while not condition():
            if self._bench.now() > deadline:
                raise TimeoutError(f"waited {self._bench.patience_s:g} s for {waiting_for}")
            self._go_on()
            self._bench.advance()

    # -- the rest is asked of the bench

    def reports(self, name: str) -> Sequence[SelfReport]:
        """What the replicas say."""
        return self._bench.replicas()

    def kill_replica(self, replica_id: ReplicaId) -> None:
        """End a process."""
        self._bench.kill(replica_id)

    def lose_node(self, node_id: NodeId) -> None:
        """Take a node away."""
        self._bench.lose_node(node_id)

    def fail_starts(self, name: str, count: int) -> None:
        """Let starts fail."""
        self._bench.fail_starts(count)

    def slow_starts(self, name: str, by_s: float) -> None:
        """Let starts take longer."""
        self._bench.slow(by_s)

    # -- the controller

    def _open(self) -> None:
        self._epoch += 1
        self._executor = self._bench.open(self._epoch)

    def _go_on(self) -> None:
        if self._executor is None:
            if self._bench.now() >= self._back_at:
                self._come_back()
            return
        while (event := self._executor.poll()) is not None:
            self._adopt(rankcore.step(self._state, event))

    def _come_back(self) -> None:
        assert self._spec is not None, "something was deployed before"
        self._open()
        self._adopt(
            rankcore.recover(
                self._spec,
                self._bench.survivors(),
                at=self._bench.now(),
                epoch=self._epoch,
                previous=self._previous,
                deleting=self._deleting,
                failed=self._failed,
            )
        )

    def _deliver_if_there(self, event: Event) -> None:
        if self._executor is not None:
            self._adopt(rankcore.step(self._state, event))

    def _adopt(self, step: Step) -> None:
        self._state: DeploymentState = step.state
        self._spec, self._previous = step.state.spec, step.state.previous
        self._failed = step.state.status is DeploymentStatus.DEPLOY_FAILED
        assert self._executor is not None, "steps are made while the controller is there"
        for command in step.commands:
            self._executor.execute(command)
