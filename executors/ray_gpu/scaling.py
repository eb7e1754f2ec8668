"""Autoscaling in the controller: what handles and replicas report goes to the core, and what it wants is asked for.

It lives in the controller: while that is away the target stays, and requests go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from rankcore import DeploymentState
from rankcore.autoscaling import AutoscalerState, AutoscalingSpec, HandleReport, Metrics, ReplicaReport, Report, autoscale

LOG = logging.getLogger(__name__)


class Scalable(Protocol):
    """A deployment."""

    @property
    def state(self) -> DeploymentState:
        """How it is."""

    async def loads(self) -> dict[str, int]:
        """How many calls each replica that answers has under way."""


class Scaling:
    """Follows the load of one deployment."""

    def __init__(
        self, spec: AutoscalingSpec, deployment: Scalable, want: Callable[[int, str], Awaitable[None]], now: Callable[[], float]
    ) -> None:
        self._core = AutoscalerState(spec=spec)
        self._deployment = deployment
        self._want = want
        self._now = now
        self._reports: list[Report] = []
        self._hurry = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    @property
    def spec(self) -> AutoscalingSpec:
        """What is wanted of it."""
        return self._core.spec

    def adopt(self, spec: AutoscalingSpec) -> None:
        """Another configuration; what was heard is kept."""
        self._core = self._core.with_spec(spec)
        self._hurry.set()

    def hear(self, handle_id: str, queued: int) -> None:
        """A handle says how many calls wait in it. It is looked at at once where nobody is there to take them."""
        self._reports.append(HandleReport(handle_id, float(queued), self._now()))
        if queued and not self._deployment.state.world_size:
            self._hurry.set()

    def close(self) -> None:
        """Follow it no longer."""
        self._task.cancel()

    async def _follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.spec.metrics_interval_s):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            self._hurry.clear()
            try:
                await self._decide()
            except Exception:
                LOG.exception("the load could not be followed; the target stays")

    async def _decide(self) -> None:
        loads = await self._deployment.loads()
        heard, self._reports = self._reports, []
        now = self._now()
        heard += [ReplicaReport(replica_id, float(under_way), now) for replica_id, under_way in sorted(loads.items())]
        decision = autoscale(self._core, Metrics.of(self._deployment.state, heard), now)
        self._core = decision.state
        for note in decision.notes:
            LOG.info("%s (%s): %s", note.kind, note.rule, note.because)
        if decision.target is not None:
            await self._want(decision.target, decision.notes[-1].because if decision.notes else "")
