"""Where calls of one deployment go, as its routers are told: the replicas that take calls, and what is wrong where none does.

Whoever waits for a replica while the last attempts to start one have failed is told so after a while, and may ask again.
"""

import asyncio
from collections.abc import Callable, Iterator

from executors.ray_gpu.executor import RayExecutor
from executors.ray_gpu.ids_on_ray import renamed_id
from executors.ray_gpu.messages import Routes
from executors.ray_gpu.routing_defaults import ROUTING_DEFAULTS, UNAVAILABLE
from rankcore import DeploymentStatus, ReplicaState
from rankcore.cluster.state import Entry
from rankcore.routing import RoutingSpec
from rankcore.state import DeploymentState
from rankcore.values import ReplicaId, age_key

PATIENCE_S = 30.0
"""How long callers wait for replicas of which the last ones have failed to start, before they are told so."""
TRY_AGAIN_S = 10.0
"""After which callers may ask again, where replicas are still being started."""
SERVING = (ReplicaState.RUNNING, ReplicaState.RECONFIGURING)
"""States in which a replica has said that it has its rank."""


class RoutingTable:
    """The routes of one deployment.

    Args:
        deployment, id_on_ray: Its id, and what it is called in Ray's names.
        numbers: Those of this epoch, as of statuses (`rankcore.routing.statuses`).
        on_change: Called when what is wrong is to be told from now on.
    """

    def __init__(
        self, deployment: str, id_on_ray: str, executor: RayExecutor, numbers: Iterator[int], on_change: Callable[[], None]
    ) -> None:
        self._deployment = deployment
        self._id_on_ray = id_on_ray
        self._executor = executor
        self._numbers = numbers
        self._on_change = on_change
        self._made: tuple[tuple[object, ...], int, Routes] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._patience_is_over = False

    def routes(self, entry: Entry, rejected_with: int = UNAVAILABLE) -> tuple[int, Routes] | None:
        """Where calls go, and a number that grows whenever that changes; None: not published in this epoch yet.

        Args:
            rejected_with: As in `RayExtras`, which are a part of the entry.
        """
        endpoints, state = self._executor.routes, entry.ranks
        is_over = entry.residency is None and (  # else the machine says what there is, and calls are what changes it (D7)
            self._has_given_up(entry) or (self._is_out(entry) and self._patience_is_over)
        )
        if endpoints is None and not is_over:
            return None
        endpoints = endpoints or {}
        seen = (entry.ranks, self._executor.routes_version, entry.spec, is_over, entry.trouble)
        if self._made is None or any(new is not old for new, old in zip(seen, self._made[0], strict=True)):
            before = self._made
            routes = Routes(
                tuple((endpoints[each], self._rank_told(state, each)) for each in sorted(endpoints, key=age_key)),
                state.world_size,
                routing_of(entry),
                entry.spec.autoscaling.metrics_interval_s if entry.spec.autoscaling is not None else None,
                self._problem(entry) if is_over else "",
                TRY_AGAIN_S if is_over and not self._has_given_up(entry) else None,
                rejected_with,
            )
            number = before[1] if before is not None and before[2] == routes else next(self._numbers)
            self._made = seen, number, routes  # all callers may be waiting for a change
        return self._made[1:]

    def look(self, entry: Entry) -> None:
        """The deployment has changed: patience begins, or is needed no more."""
        if not self._is_out(entry):
            self._patience_is_over = False
            self.close()
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._lose_patience)

    def close(self) -> None:
        """Nobody is told anything more."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._patience_is_over = True
        self._on_change()

    def _has_given_up(self, entry: Entry) -> bool:
        """Whether nobody takes calls, nor will before something else is deployed."""
        state = entry.ranks
        return not self._executor.routes and state.status is DeploymentStatus.DEPLOY_FAILED and state.proven is None

    def _is_out(self, entry: Entry) -> bool:
        """Whether nobody takes calls, and the last attempts to change that have failed."""
        out = entry.ranks.status in (DeploymentStatus.UNHEALTHY, DeploymentStatus.DEPLOY_FAILED)
        return out and not self._executor.routes and entry.trouble != ""

    def _problem(self, entry: Entry) -> str:
        """What callers are told: clients the first line, which is no user code's; handles all of it."""
        named = f"{self._deployment} is {entry.ranks.status}"
        if self._has_given_up(entry):
            return f"{named}: {entry.trouble or 'it did not come up'}"
        return f"{named}: its replicas have ended or fail to start, and are tried again\n{entry.trouble}"

    def _rank_told(self, state: DeploymentState, replica_id: ReplicaId) -> int | None:
        """With which rank calls find it; None: for its rank they wait until it has said that it has it."""
        replica = state.replicas.get(renamed_id(replica_id, self._id_on_ray, self._deployment))
        if replica is None or replica.told is None or replica.state not in SERVING:
            return None
        return replica.told.rank


def routing_of(entry: Entry) -> RoutingSpec:
    """How calls of a deployment are routed."""
    return entry.spec.routing or RoutingSpec(name=entry.spec.deployment, **ROUTING_DEFAULTS)
