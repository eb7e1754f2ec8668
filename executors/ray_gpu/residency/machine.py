"""The machine of a fleet in its controller: what it is told becomes commands, and these become tasks.

All that happens, and all that anybody wants, is an event that is told in one place (`Machine.tell`), which also keeps the
journal.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from executors.engine.journal import Journal
from executors.ray_gpu.residency.memory import Memory
from rankcore.dispatching import FleetState, FleetStep, LoadProgressed, ModelRequested, fleet_step
from rankcore.dispatching.commands import Command
from rankcore.dispatching.events import Event
from rankcore.events import ClockAdvanced
from rankcore.routing.commands import WakeAt
from rankcore.routing.events import RequestCancelled, RequestDone, RequestFailed
from rankcore.values import ReplicaId

LOG = logging.getLogger(__name__)

OF_REQUESTS = (ModelRequested, RequestDone, RequestFailed, RequestCancelled, LoadProgressed, ClockAdvanced)
"""Events after which the state need not be kept: where weights are does not depend on them."""

Handler = Callable[[Any], Coroutine[Any, Any, None] | None]


class Machine:
    """One controller's.

    Args:
        state: Where to begin.
        clock: The time, in seconds; it may be behind the state's.
        journal: Where each step is written; None: nowhere.
        on_placing: Called after each event that may have changed where weights are, with the replicas that it is about.

    Attributes:
        state: After the last step.
        memory: Why things are as they are.
        closed: Nothing is told any more: what would be started then would outlive the fleet.
        handlers: How each command is carried out, by its class; what takes time is a coroutine.
    """

    def __init__(
        self,
        state: FleetState,
        clock: Callable[[], float],
        journal: Journal | None,
        on_placing: Callable[[frozenset[ReplicaId]], None],
    ) -> None:
        self.state = state
        self.memory = Memory()
        self.closed = False
        self.handlers: dict[type[Any], Handler] = {WakeAt: self._wake}
        self._clock = clock
        self._journal = journal
        self._on_placing = on_placing
        self._tasks: set[asyncio.Task[object]] = set()
        self._alarm: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """Seconds on the fleet's clock, which never goes back."""
        return max(self.state.clock, self._clock())

    def tell(self, event: Event) -> None:
        """The one place where anything is decided."""
        if self.closed:
            return
        step = fleet_step(self.state, event)
        if self._journal is not None:
            self._journal.append(event, step)
        self.state = step.state
        self.memory.remember(step.notes, self.state)
        for command in step.commands:
            self.carry_out(command)
        if not isinstance(event, OF_REQUESTS):
            self._on_placing(concerned(event, step))

    def carry_out(self, command: Command) -> None:
        """Begin what a command asks for."""
        doing = self.handlers[type(command)](command)
        if doing is not None:
            self.spawn(doing)

    def spawn(self, doing: Coroutine[Any, Any, object]) -> None:
        """Do something beside all else; that it has failed is logged."""
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def close(self) -> None:
        """Tell nothing any more, and break off what is being done."""
        self.closed = True
        for task in self._tasks:
            task.cancel()

    def _done(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.error("a task of the fleet's controller failed", exc_info=task.exception())

    def _wake(self, command: WakeAt) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = max(0.0, command.at - self.now())
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._woken, command.at)

    def _woken(self, due: float) -> None:
        """Told at `due` at the earliest: the loop's clock is another one, and what falls due is not commanded twice."""
        self.tell(ClockAdvanced(at=max(due, self.now())))


def concerned(event: Event, step: FleetStep) -> frozenset[ReplicaId]:
    """The replicas whose place a step may have changed: those that its event, its commands and its notes name."""
    named = (getattr(each, "replica_id", None) for each in (event, *step.commands, *step.notes))
    return frozenset(each for each in named if each is not None)
