"""Asks a user's request router who may have a call, and tells the routing core. On the routers' thread.

The core says `Propose` once when a call comes to wait, and keeps the last proposal: whoever of it has room first takes it.
So this asks, tells, and as long as the call waits asks again, later each time (`initial_backoff_s`, ...). A router that raises
has named nobody: the call waits and is asked about again; the log has the first of such errors in a row, with its traceback.
Where the router cannot be made at all, since its module is missing in this process, say, all replicas are named for every
call, which is "least_loaded"; the log says so once.

All calls of this process are on this thread, and what waits here is asked about by nobody else. So nothing that a user's code
raises gets further, be it `SystemExit`, which would end the thread, or a `CancelledError` of its own; whatever else it says or
sets is taken for what it can be taken for; and it is asked again at once a few times only (`AT_ONCE_MAX`).
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import ray

from executors.ray_gpu.context import ReplicaID
from executors.ray_gpu.messages import Endpoint
from executors.ray_gpu.request_router import (
    BACKOFF_MULTIPLIER,
    INITIAL_BACKOFF_S,
    MAX_BACKOFF_S,
    PendingRequest,
    RequestMetadata,
    RequestRouter,
    RoutingContext,
    RunningReplica,
)
from executors.ray_gpu.requests.call import Call, Fetched
from executors.ray_gpu.requests.packing import Arguments, unpack_call
from executors.ray_gpu.requests.response import DeploymentResponse
from executors.ray_gpu.router_source import RouterSource
from rankcore import routing
from rankcore.routing import RequestId

LOG = logging.getLogger(__name__)

TRIES_A_WARNING = 50
AT_ONCE_MAX = 8
"""So often in a row another one is asked for at once: a mixin has two to propose first."""
BACKOFF_MIN_S = 0.001
Ranked = tuple[tuple[str, ...], ...]


class _Everybody(RequestRouter):
    """What there is in the place of a router that cannot be made."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """All."""
        return [candidate_replicas]


class Proposer:
    """One user's router, of one deployment in one process.

    Args:
        deployment: Its id.
        text: `RoutingSpec.router`.
        core: Which replica has room is looked up there.
        propose: Tells the core who may have a call.

    Attributes:
        source: What the router is made of.
    """

    def __init__(
        self,
        namespace: str,
        deployment: str,
        node_id: str,
        text: str,
        core: routing.Router,
        propose: Callable[[RequestId, Ranked], None],
    ) -> None:
        self.source = RouterSource.read(text)
        self._namespace = namespace
        self._deployment = deployment
        self._core = core
        self._propose = propose
        self._replicas: dict[str, RunningReplica] = {}
        self._changed = asyncio.Event()
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._pending: dict[RequestId, PendingRequest] = {}
        self._flying: dict[RequestId, str] = {}
        self._fails = False
        self._router = self._made(node_id)
        cap = getattr(self._router, "max_num_routing_tasks_cap", None)
        self._places = asyncio.Semaphore(cap if type(cap) is int and cap > 0 else RequestRouter.max_num_routing_tasks_cap)

    def _made(self, node_id: str) -> Any:
        deployment_id = ReplicaID(f"{self._deployment}#").deployment_id
        backoff: dict[str, Any] = dict(self.source.backoff)
        try:
            made = self.source.load()(
                deployment_id=deployment_id,
                handle_source=None,
                self_node_id=node_id,
                prefer_local_node_routing=False,
                prefer_local_az_routing=False,
                self_availability_zone=None,
                use_replica_queue_len_cache=True,
                **backoff,
            )
            made._pending_count = lambda: self._core.waiting
            made.initialize_state(**self.source.kwargs)
        except BaseException:
            LOG.exception("%s: its request router %s cannot be made; least_loaded here", self._deployment, self.source.name)
            return _Everybody(deployment_id, **backoff)
        return made

    # -- who there is

    def follow(self, endpoints: Iterable[Endpoint]) -> None:
        """These take calls, and no others."""
        found = {}
        for each in endpoints:
            replica = self._replicas.get(each.replica_id)
            if replica is None:
                replica = RunningReplica(each.replica_id, each.node_id, lambda name=each.actor_name: self._actor(name))  # type: ignore[misc]
                replica._load, replica._has_room = self._load, self._has_room
            replica.max_ongoing_requests = self._core.spec.max_ongoing_requests
            found[each.replica_id] = replica
        self._replicas = found
        self._update()

    def says(self, replica_id: str, said: dict[str, Any]) -> None:
        """A replica has said what it has."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.says(said)
            self._update()

    def lost(self, replica_id: str) -> None:
        """A replica cannot be reached any more."""
        if replica_id in self._replicas:
            self._told("on_replica_actor_unavailable", ReplicaID(replica_id))

    def _update(self) -> None:
        self._told("update_replicas", list(self._replicas.values()))
        self._changed.set()

    def _actor(self, name: str) -> Any:
        return ray.get_actor(name, namespace=self._namespace)

    def _load(self, replica_id: str) -> int:
        found = self._core.replicas.get(replica_id)
        return 0 if found is None else len(found.flights)

    def _has_room(self, replica_id: str) -> bool:
        found = self._core.replicas.get(replica_id)
        return found is not None and len(found.flights) < found.limit

    # -- calls

    def asked(self, call: Call) -> None:
        """A call waits, and nobody knows for whom."""
        self._stop(call.request_id)
        if call.request_id not in self._pending:
            self._pending[call.request_id] = PendingRequest(
                metadata=_about(call, self._deployment.rpartition("/")[0]), unpack=lambda: _arguments(call)
            )
        task = asyncio.get_running_loop().create_task(self._ask(call.request_id))
        self._tasks[call.request_id] = task

    def sent(self, call: Call, replica_id: str) -> None:
        """A call goes to a replica, as an attempt of the core."""
        self._stop(call.request_id)
        pending = self._pending.get(call.request_id)
        if pending is not None:
            self._flying[call.request_id] = replica_id
            self._told("on_send_request", ReplicaID(replica_id))
            self._told("on_request_routed", pending, ReplicaID(replica_id), DeploymentResponse(call))

    def landed(self, request_id: RequestId) -> None:
        """Its attempt has ended."""
        replica_id, pending = self._flying.pop(request_id, None), self._pending.get(request_id)
        if replica_id is not None and pending is not None:
            self._told("on_request_completed", ReplicaID(replica_id), pending.metadata.internal_request_id)

    def over(self, request_id: RequestId) -> None:
        """It has its answer, and is not wanted any more."""
        self._stop(request_id)
        self.landed(request_id)
        self._pending.pop(request_id, None)

    def close(self) -> None:
        """Nobody is asked any more."""
        for request_id in tuple(self._tasks):
            self._stop(request_id)

    def _stop(self, request_id: RequestId) -> None:
        task = self._tasks.pop(request_id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _ask(self, request_id: RequestId) -> None:
        """Until it is sent, or answered, which cancels this."""
        pending, tries, at_once = self._pending[request_id], 0, 0
        while self._tasks.get(request_id) is asyncio.current_task():
            while not self._replicas:
                self._changed.clear()
                await self._changed.wait()
            context = copy(pending.routing_context)
            async with self._places:
                ranked = await self._chosen(pending)
            if self._tasks.get(request_id) is not asyncio.current_task():
                return
            self._propose(request_id, ranked)
            if self._tasks.get(request_id) is not asyncio.current_task():
                return
            at_once += 1
            if at_once > AT_ONCE_MAX or not _has_more(pending.routing_context, context):
                tries, at_once = tries + 1, 0
                if tries % TRIES_A_WARNING == 0:
                    LOG.warning("%s: %r waits for a replica after %d proposals", self._deployment, pending.metadata, tries)
                await asyncio.sleep(self._backoff_s(tries - 1))

    async def _chosen(self, pending: PendingRequest) -> Ranked:
        try:
            groups = await self._router.choose_replicas(
                candidate_replicas=list(self._replicas.values()), pending_request=pending
            )
            there = self._replicas
            ranked = tuple(tuple(name for each in group if (name := str(each.replica_id)) in there) for group in groups)
        except BaseException:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            if not self._fails:
                LOG.exception("%s: its request router %s has raised: the call waits", self._deployment, self.source.name)
            self._fails = True
            return ()
        self._fails = False
        return ranked

    def _backoff_s(self, tries: int) -> float:
        router = self._router
        try:
            most_s = float(getattr(router, "max_backoff_s", MAX_BACKOFF_S))
            first_s = float(getattr(router, "initial_backoff_s", INITIAL_BACKOFF_S))
            factor = float(getattr(router, "backoff_multiplier", BACKOFF_MULTIPLIER))
            backoff_s = min(first_s * factor**tries, most_s)
        except OverflowError:
            backoff_s = most_s
        except (TypeError, ValueError):
            backoff_s = MAX_BACKOFF_S
        return max(backoff_s, BACKOFF_MIN_S) if math.isfinite(backoff_s) else MAX_BACKOFF_S

    def _told(self, hook: str, *args: Any) -> None:
        try:
            getattr(self._router, hook)(*args)
        except BaseException:
            LOG.exception("%s: %s of its request router %s has raised", self._deployment, hook, self.source.name)


def _has_more(context: Any, before: Any) -> bool:
    """Whether a mixin has proposed the first of what it has to propose."""
    return isinstance(context, RoutingContext) and context != before and not context.should_backoff


def _about(call: Call, app_name: str) -> RequestMetadata:
    return RequestMetadata(
        request_id=call.name or str(call.request_id),
        internal_request_id=str(call.request_id),
        call_method=call.method,
        app_name=app_name,
        multiplexed_model_id=call.about.model_id,
        session_id=call.wishes.key or "",
        is_streaming=call.about.stream,
    )


def _arguments(call: Call) -> Arguments:
    if call.packed is not None:
        return unpack_call(call.packed)[1]
    large = call.arguments
    found: Arguments = large.value if isinstance(large, Fetched) else ray.get(large)
    return found
