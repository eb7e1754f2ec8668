"""The controller's health checks of one deployment: a suspicion, never the truth."""

import math
from collections.abc import Callable

from executors.simulator.clock import EventLoop
from executors.simulator.replicas.processes import SimulatedProcess
from rankcore import DeploymentSpec
from rankcore.events import ReplicaUnhealthy
from rankcore.values import ReplicaId


class HealthChecks:
    """Asks each replica every `health_check_period_s` from when it became ready, and waits `health_check_timeout_s`.

    One that does not answer is told to be unhealthy, again at every further check. Only those that have fallen silent
    cost anything: what the others would answer is known.

    Attributes:
        spec: Has the period and the time-out that are in force.
    """

    def __init__(self, spec: DeploymentSpec, loop: EventLoop, tell: Callable[[ReplicaUnhealthy], None]) -> None:
        self.spec = spec
        self._loop = loop
        self._tell = tell
        self._began_at = 0.0
        self._silent: dict[ReplicaId, int] = {}
        self._watches = 0

    @property
    def finds_out(self) -> bool:
        """Whether a replica is silent, so that a suspicion will come up."""
        return bool(self._silent)

    def look(self, process: SimulatedProcess) -> None:
        """A replica has perhaps fallen silent, or answers again, or has ended."""
        silent = process.silent and not process.ended and process.ready_at is not None
        known = process.replica_id in self._silent
        if silent and not known:
            self._watch(process)
        elif known and not silent:
            del self._silent[process.replica_id]

    def start_afresh(self, processes: dict[ReplicaId, SimulatedProcess]) -> None:
        """A controller came up: it makes its first checks now, and knows of no earlier ones."""
        self._began_at = self._loop.now
        for replica_id in tuple(self._silent):
            self._watch(processes[replica_id])

    def next_check(self, process: SimulatedProcess) -> float:
        """When a replica that was ready is asked next."""
        assert process.ready_at is not None, "only a replica that was ready is checked"
        first, period_s = max(process.ready_at, self._began_at), self.spec.health_check_period_s
        return first + math.ceil((self._loop.now - first) / period_s) * period_s

    def _watch(self, process: SimulatedProcess) -> None:
        self._watches += 1
        self._silent[process.replica_id] = self._watches
        self._loop.at(self.next_check(process) + self.spec.health_check_timeout_s, self._is_overdue, process, self._watches)

    def _is_overdue(self, process: SimulatedProcess, watch: int) -> None:
        if self._silent.get(process.replica_id) != watch:
            return
        reason = f"no answer for {self.spec.health_check_timeout_s:g} s"
        self._loop.after(self.spec.health_check_period_s, self._is_overdue, process, watch)
        self._tell(ReplicaUnhealthy(replica_id=process.replica_id, reason=reason, at=self._loop.now))
