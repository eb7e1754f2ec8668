"""How many calls the replicas of one deployment work on, asked for regularly while its target follows the load."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable

from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.events import LoadReported, ReportedLoad
from rankcore.cluster.names import DeploymentId
from rankcore.values import ReplicaId

LOG = logging.getLogger(__name__)


class LoadPoll:
    """Asks, and tells the machine, once in each interval of metrics.

    Args:
        deployment: Whose replicas they are.
        epoch: Of this controller: replicas do not number what they say, so it is numbered here.
        loads: How many calls each replica that takes some has under way; who does not say so soon is left out.
    """

    def __init__(
        self,
        deployment: DeploymentId,
        epoch: int,
        loads: Callable[[], Awaitable[dict[ReplicaId, int]]],
        tell: Callable[[LoadReported], None],
        now: Callable[[], float],
    ) -> None:
        self._deployment = deployment
        self._epoch = epoch
        self._loads = loads
        self._tell = tell
        self._now = now
        self._numbers = itertools.count()
        self._interval_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def follow(self, spec: AutoscalingSpec | None) -> None:
        """Begin or cease, as the spec has it."""
        if spec is None:
            self.close()
            return
        self._interval_s = spec.metrics_interval_s
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._poll())

    def close(self) -> None:
        """Ask no longer."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                loads = await self._loads()
            except Exception:
                LOG.exception("the load of %s is not known", self._deployment)
                continue
            for replica_id, in_flight in sorted(loads.items()):
                self._tell(
                    LoadReported(
                        reporter=replica_id,
                        incarnation=self._epoch,
                        seq=next(self._numbers),
                        entries={self._deployment: ReportedLoad(in_flight=in_flight)},
                        at=self._now(),
                    )
                )
