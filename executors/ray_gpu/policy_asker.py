"""Runs users' scaling policies, each on a thread of its own: they are to keep nobody waiting."""

import asyncio
from collections.abc import Callable
from typing import Any

from executors.ray_gpu.scaling_policy import PolicySource
from rankcore.autoscaling.core import asked
from rankcore.autoscaling.policies import View
from rankcore.cluster.commands import AskPolicy
from rankcore.cluster.events import PolicyAnswered
from rankcore.cluster.names import DeploymentId
from rankcore.errors import PolicyError


class PolicyAsker:
    """Asks the policy of a deployment. How long it may take is the machine's business; a late answer counts for nothing.

    Args:
        source_of: Of a deployment; None: it is gone.
        now: Seconds on the executor's clock.
    """

    def __init__(self, source_of: Callable[[DeploymentId], PolicySource | None], now: Callable[[], float]) -> None:
        self._source_of = source_of
        self._now = now
        self._loaded: dict[DeploymentId, tuple[PolicySource, Callable[[View], Any]]] = {}
        self._asking: dict[DeploymentId, asyncio.Task[None]] = {}

    def ask(self, question: AskPolicy, answer: Callable[[PolicyAnswered], None]) -> None:
        """Begin to ask."""
        deployment = question.deployment
        if deployment in self._asking:
            answer(self._answered(question, problem=str(PolicyError(question.policy, "has not come back yet"))))
            return
        task = asyncio.get_running_loop().create_task(self._ask(question, answer))
        self._asking[deployment] = task
        task.add_done_callback(lambda _: self._asking.pop(deployment))

    def forget(self, deployment: DeploymentId) -> None:
        """A deployment is gone."""
        self._loaded.pop(deployment, None)

    async def _ask(self, question: AskPolicy, answer: Callable[[PolicyAnswered], None]) -> None:
        source = self._source_of(question.deployment)
        if source is None:
            return
        try:
            wanted, memory = await asyncio.to_thread(self._run, source, question)
        except PolicyError as error:
            answer(self._answered(question, problem=str(error)))
        else:
            answer(self._answered(question, wanted=wanted, memory=memory))

    def _run(self, source: PolicySource, question: AskPolicy) -> tuple[float, Any]:
        loaded = self._loaded.get(question.deployment)
        if loaded is None or loaded[0] is not source:
            loaded = self._loaded[question.deployment] = source, source.load()
        return asked(loaded[1], question.view)

    def _answered(self, question: AskPolicy, **answer: Any) -> PolicyAnswered:
        number, at = question.target_number, self._now()
        return PolicyAnswered(deployment=question.deployment, ask=question.ask, target_number=number, at=at, **answer)
