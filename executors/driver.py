"""The driver: owns a deployment's state, feeds events to the core, and hands its commands to an executor, in order."""

from collections.abc import Iterable

import rankcore
from executors.base import Executor
from executors.journal import Beginning, Deployed, Journal, Recovered, Resumed
from rankcore import DeploymentSpec, DeploymentState, Step
from rankcore.events import Event
from rankcore.values import ReplicaId


class Driver:
    """Runs the core for one deployment.

    A step is journalled before its state is adopted, and adopted before its commands run: a journal that cannot be
    written stops the run before the world has changed, and a crash in between loses commands, never decisions (the core
    repeats what is not acknowledged, and a restarted controller recovers).

    Not thread-safe; in asyncio, call it from one task. Use `deploy` or `recover` to begin; the constructor goes on
    from a state that exists, such as the fork of another run.

    Attributes:
        state: After the last step. Only the driver sets it.
        journal: Where steps are written; None: nowhere. May be exchanged between two steps.
    """

    def __init__(self, executor: Executor, state: DeploymentState, *, journal: Journal | None = None) -> None:
        self._executor = executor
        self.journal = journal
        self._executing = False
        self.state = state
        if journal is not None:
            journal.begin(Resumed(state=state), Step(state, (), ()))

    @classmethod
    def deploy(
        cls,
        executor: Executor,
        spec: DeploymentSpec,
        *,
        at: float = 0.0,
        epoch: int = 1,
        journal: Journal | None = None,
    ) -> "Driver":
        """Begin a new deployment: `rankcore.deploy`, with its first commands journalled and handed over."""
        return cls.begin(executor, Deployed(spec=spec, at=at, epoch=epoch), journal=journal)

    @classmethod
    def recover(
        cls,
        executor: Executor,
        spec: DeploymentSpec,
        replica_ids: Iterable[ReplicaId],
        *,
        at: float,
        epoch: int,
        previous: DeploymentSpec | None = None,
        deleting: bool = False,
        failed: bool = False,
        journal: Journal | None = None,
    ) -> "Driver":
        """Come back after a restart: `rankcore.recover`, with its queries journalled and handed over."""
        ids = tuple(replica_ids)
        how = Recovered(spec=spec, replica_ids=ids, at=at, epoch=epoch, previous=previous, deleting=deleting, failed=failed)
        return cls.begin(executor, how, journal=journal)

    @classmethod
    def begin(cls, executor: Executor, how: Beginning, *, journal: Journal | None = None) -> "Driver":
        """Begin in a way that is given as a value."""
        first = how.step()
        if journal is not None:
            journal.begin(how, first)
        driver = cls(executor, first.state)
        driver.journal = journal
        driver.hand_over(first)
        return driver

    def deliver(self, event: Event) -> Step:
        """Tell the core what happened and hand its commands over.

        Raises:
            RankcoreError: The event is malformed, or has no text that the journal could keep. Nothing has changed.
            OSError: The journal cannot be written. Nothing has changed.
            RuntimeError: An executor called this from its `execute`, which would put commands out of order.
        """
        result = self.decide(event)
        self.hand_over(result)
        return result

    def decide(self, event: Event) -> Step:
        """Tell the core what happened, for a caller that has to store something before the commands: `hand_over` follows.

        Raises:
            As `deliver`.
        """
        if self._executing:
            raise RuntimeError(f"deliver({type(event).__name__}) was called while commands are handed over: use poll()")
        result = rankcore.step(self.state, event)
        if self.journal is not None:
            self.journal.append(event, result)
        self.state = result.state
        return result

    def deliver_all(self) -> int:
        """Deliver what the executor has to tell until it has nothing more; returns how many events that were.

        An error leaves the events that were not delivered yet with the executor.
        """
        delivered = 0
        while (event := self._executor.poll()) is not None:
            self.deliver(event)
            delivered += 1
        return delivered

    def hand_over(self, result: Step) -> None:
        """Give the executor the commands of a step; steps in the order in which they were decided."""
        self._executing = True
        try:
            for command in result.commands:
                self._executor.execute(command)
        finally:
            self._executing = False
