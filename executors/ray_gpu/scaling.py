"""Autoscaling in the controller: what handles and replicas report goes to the core, and what it wants is asked for.

It lives in the controller: while that is away the target stays, and requests go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from executors.ray_gpu.scaling_policy import PolicySource
from rankcore import DeploymentState
from rankcore.autoscaling import (
    AutoscalerState,
    AutoscalingSpec,
    Decision,
    HandleReport,
    Metrics,
    ReplicaReport,
    Report,
    View,
    autoscale,
)
from rankcore.errors import PolicyError

LOG = logging.getLogger(__name__)

POLICY_S = 5.0
"""How long a user's policy may take, being imported included. The controller goes on meanwhile."""


class Scalable(Protocol):
    """A deployment."""

    @property
    def state(self) -> DeploymentState:
        """How it is."""

    async def loads(self) -> dict[str, int]:
        """How many calls each replica that answers has under way."""


def as_it_is(view: View) -> tuple[float, Any]:
    """The policy where the user's own has failed: the target stays."""
    return view.target_replicas, view.memory


class Scaling:
    """Follows the load of one deployment.

    Attributes:
        problem: Why the user's policy is not followed; "": it is, or there is none.
    """

    def __init__(
        self,
        spec: AutoscalingSpec,
        deployment: Scalable,
        want: Callable[[int, str], Awaitable[None]],
        now: Callable[[], float],
        policy: PolicySource | None = None,
    ) -> None:
        self.problem = ""
        self._core = AutoscalerState(spec=spec)
        self._deployment = deployment
        self._want = want
        self._now = now
        self._source = policy
        self._loaded: tuple[PolicySource, Callable[[View], Any]] | None = None
        self._asking: asyncio.Task[Decision] | None = None
        self._reports: list[Report] = []
        self._hurry = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    @property
    def spec(self) -> AutoscalingSpec:
        """What is wanted of it."""
        return self._core.spec

    def adopt(self, spec: AutoscalingSpec, policy: PolicySource | None) -> None:
        """Another configuration; what was heard is kept."""
        if spec != self.spec:
            self._core = self._core.with_spec(spec)
            self._hurry.set()
        if policy != self._source:
            self._source = policy
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
        decision = await self._decided(Metrics.of(self._deployment.state, heard), now)
        self._core = decision.state
        for note in decision.notes:
            LOG.info("%s (%s): %s", note.kind, note.rule, note.because)
        if decision.target is not None:
            await self._want(decision.target, decision.notes[-1].because if decision.notes else "")

    async def _decided(self, metrics: Metrics, now: float) -> Decision:
        if self._source is None:
            self._say("")
            return autoscale(self._core, metrics, now)
        try:
            decision = await self._asked(self._source, metrics, now)
        except PolicyError as error:
            self._say(str(error))
            return autoscale(self._core, metrics, now, as_it_is)
        self._say("")
        return decision

    async def _asked(self, source: PolicySource, metrics: Metrics, now: float) -> Decision:
        """What the user's policy comes to, on a thread: it is to keep nobody waiting.

        Raises:
            PolicyError: It has failed, or takes too long.
        """
        if self._asking is not None and not self._asking.done():
            raise PolicyError(source.name, "has not come back yet")
        asked = asyncio.to_thread(self._ask, source, self._core, metrics, now)
        self._asking = asyncio.get_running_loop().create_task(asked)
        done, _ = await asyncio.wait([self._asking], timeout=POLICY_S)
        if not done:
            self._asking.add_done_callback(_nobody_asks)
            raise PolicyError(source.name, f"has not answered for {POLICY_S:g} s")
        return self._asking.result()

    def _ask(self, source: PolicySource, core: AutoscalerState, metrics: Metrics, now: float) -> Decision:
        loaded = self._loaded
        if loaded is None or loaded[0] is not source:
            loaded = self._loaded = source, source.load()
        return autoscale(core, metrics, now, loaded[1])

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            LOG.warning("%s; the target stays", problem)
        self.problem = f"autoscaling: {problem}; the target stays" if problem else ""


def _nobody_asks(late: "asyncio.Task[Decision]") -> None:
    if not late.cancelled() and late.exception() is not None:
        LOG.info("a policy that took too long has failed: %s", late.exception())
