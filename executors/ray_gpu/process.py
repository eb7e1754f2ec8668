"""One replica's actor as the controller sees it: created or found, asked, watched, ended; each answer becomes an event."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import ray
from ray.exceptions import (
    RayError,
    RuntimeEnvSetupError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu import names, own_groups, socket_files
from executors.ray_gpu.conversation import LOAD_S, Conversation, end_of, plain, short
from executors.ray_gpu.fence import newest_epoch
from executors.ray_gpu.messages import Endpoint, Outcome
from executors.ray_gpu.placement_groups import strategy
from executors.ray_gpu.reaping import Reaper, locate
from executors.ray_gpu.room import OWN_GROUP, elsewhere
from executors.ray_gpu.world import World
from executors.waiting_for_room import NewsOfRoom
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica
from rankcore.events import (
    Event,
    ReplicaDied,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaStartFailed,
    ReplicaStopped,
)
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)

CAPTURE_CHILD_TASKS = "placement_group_capture_child_tasks"
"""Among the options of actors: whether their children run in the placement group too."""
DRAIN_MARGIN_S = 2.0
"""How much longer than its time-out a draining replica is waited for, before it is ended from outside."""
AT_A_TIME = 1_000_000
"""Calls from other nodes are actor calls, and must not keep the controller's own from the replica, which Ray would queue."""
STARTS = "its process is starting"

KILLED = "ray.kill"
"""Stands in what Ray says of an actor that it has told to end; it has no other sign of it."""


class Listener(Protocol):
    """Who hears of a process."""

    def tell(self, event: Event) -> None:
        """Something has happened."""

    def is_up(self, process: "Process") -> None:
        """It has come up, or was found."""

    async def tell_losses(self, process: "Process") -> None:
        """It has ended unasked, which is told when this is done: whatever has gone with it comes first."""

    def has_ended(self, process: "Process") -> None:
        """It is gone."""


class Process(Conversation):
    """One replica's actor. Its end is told exactly once, and only when Ray says that the process is gone.

    Attributes:
        standby: Whether it is a spare, of which the core knows nothing yet.
        gone: Set when its end has been told.
        room: What is known of the room that it waits for.
        passes_over: Nodes that Ray was told not to place it on; None: the core has named its place, or nobody knows.
    """

    def __init__(
        self,
        world: World,
        reaper: Reaper,
        replica_id: ReplicaId,
        spec: Callable[[], DeploymentSpec],
        listener: Listener,
    ) -> None:
        super().__init__(world, replica_id, spec, listener.tell)
        self.standby = False
        self.restart_token = ""
        self.passes_over: frozenset[NodeId] | None = None
        self.gone = asyncio.Event()
        self._reaper = reaper
        self._listener = listener
        self._failure: str | None = None
        self._found = False
        self.room = NewsOfRoom()
        self._after: Process | None = None  # has its name until it is gone
        self._nowhere = False  # no node may have it, so that there is no actor
        self._killed: tuple[str, int, int | None] | None = None  # node and process that were told to end

    # -- beginnings

    def create(self, start: StartReplica, actor_options: dict[str, Any], after: "Process | None" = None) -> None:
        """Begin to create the actor, once an earlier process that has its name is gone."""
        self.node_id, self.version, self.restart_token = start.node_id, start.version, start.restart_token
        self.passes_over = self._world.cordoned if start.node_id is None and start.group_id is None else None
        self._after = after
        if after is not None:
            self.room = after.room  # the core has heard it of this very replica
        self._nowhere = bool(self.passes_over) and elsewhere(actor_options.get("label_selector"), self._world.cordoned) is None
        self._spawn(self._wait_for_node(actor_options) if self._nowhere else self._create(start, actor_options))

    def find(self) -> None:
        """Begin to find the actor that an earlier controller created."""
        self._found = True
        self._spawn(self._find())

    def fits(self, start: StartReplica) -> bool:
        """Whether this spare is what a command asks for."""
        same = (self.version, self.restart_token) == (start.version, start.restart_token)
        return same and start.node_id in (None, self.node_id) and self.may_stay and not self._asked_to_end

    @property
    def may_stay(self) -> bool:
        """Whether a spare is where one may be; it is not moved as replicas are."""
        return self.node_id not in self._world.cordoned

    @property
    def is_told_otherwise(self) -> bool:
        """Whether Ray would place it by cordons of before: it is to be created anew if it has no place yet."""
        return self.passes_over not in (None, self._world.cordoned)

    def withdraw(self) -> None:
        """It is not up, and another process gets its name: end it, of which nobody is to hear."""
        self.standby = True
        self.kill()

    def adopt(self) -> None:
        """A spare becomes the replica whose name it has."""
        self.standby = False
        self.requested_at = self._world.now()
        if self.endpoint is not None:
            self._placed(self.endpoint)

    # -- what the controller asks; nothing here waits

    async def processors_in_use(self, during_s: float) -> float | None:
        """What share of its node's processor time is in use, from 0 to 1; None: it does not say so soon, or is gone."""
        with suppress(RayError, TimeoutError):
            async with asyncio.timeout(during_s + LOAD_S):
                share: float = await (await asyncio.shield(self._actor)).processors_in_use.remote(during_s)
                return share
        return None

    def look_for_room(self, actor_options: dict[str, Any]) -> None:
        """See whether it waits for room, and not for its process to come up; `ReplicaPending`."""
        self._spawn_once(("room",), self._look_for_room(actor_options))

    def stop(self, epoch: int, timeout_s: float) -> None:
        """Drain it, then end it; `ReplicaStopped`."""
        self._spawn_once(("stop",), self._stop(epoch, timeout_s))

    def kill(self) -> None:
        """End it at once; `ReplicaStopped`, or the failure that it is killed for."""
        self._asked_to_end = True
        self._spawn(self._kill())

    # -- the actor

    async def _create(self, start: StartReplica, actor_options: dict[str, Any]) -> None:
        await self._has_its_name()
        if self.passes_over and not self._nowhere and OWN_GROUP not in actor_options:
            actor_options = actor_options | {"label_selector": elsewhere(actor_options.get("label_selector"), self.passes_over)}
        self._world.line.enter(self, actor_options)
        try:
            actor = await self._world.call(self._make_actor, start, actor_options)
        except Exception as error:
            self._actor.cancel()
            await self._remove_group()
            self._finish(
                ReplicaStartFailed(
                    replica_id=self.replica_id, reason=f"Ray refused the actor: {plain(error)}", at=self._world.now()
                )
            )
            return
        self._meet(actor)
        try:
            endpoint = await self._ask("describe")
        except RayError:
            return  # its end is told by who watches
        self.endpoint, self.node_id = endpoint, endpoint.node_id
        self._world.line.leave(self)
        self._world.on_placed(endpoint.node_id, self.processors_in_use, actor_options.get("runtime_env") or {})
        if not self.standby:
            self._placed(endpoint)

    def _make_actor(self, start: StartReplica, actor_options: dict[str, Any]) -> Any:
        deployment = self._spec().name
        name = names.actor_name(deployment, self.replica_id)
        options = {"num_cpus": 1, **actor_options}
        capture_child_tasks, own_group = options.pop(CAPTURE_CHILD_TASKS, False), options.pop(OWN_GROUP, None)
        if start.group_id is not None:
            options["scheduling_strategy"] = strategy(start.group_id, start.bundles[0], capture_child_tasks)
        elif own_group is not None:
            on_first = own_groups.made(self._group_name, own_group, self.passes_over or frozenset())
            self._world.own_groups[self._group_name] = on_first.placement_group.id.hex()
            options["scheduling_strategy"] = on_first
        elif start.node_id is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(start.node_id, soft=False)
        return self._world.actor_class.options(
            name=name,
            namespace=self._world.namespace,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=AT_A_TIME,
            **options,
        ).remote(
            self._world.namespace,
            deployment,
            self.replica_id,
            start.version,
            start.epoch,
            start.bundles,
            start.group_id,
            restart_token=start.restart_token,
        )

    @property
    def _group_name(self) -> str:
        return own_groups.name_of(self._world.namespace, self._spec().name, self.replica_id)

    async def _remove_group(self) -> None:
        """The actor is gone, and whatever it has started in its group goes with it."""
        group_id = self._world.own_groups.pop(self._group_name, None)
        if group_id is None:
            return
        try:
            await self._world.call(own_groups.remove, group_id)
        except Exception as error:  # Ray raises whatever its connection raises
            LOG.warning("the placement group %s is not removed: %s", self._group_name, error)

    async def _look_for_room(self, actor_options: dict[str, Any]) -> None:
        try:
            reason = await self._world.line.obstacle(self, actor_options)
            if reason and not self._nowhere and await self._world.call(self._has_room, await self._actor):
                reason = ""  # what it asks for is its own by now
        except Exception as error:  # Ray raises whatever its connection raises; it is asked again
            LOG.debug("%s: Ray does not say whether there is room: %s", self.replica_id, error)
            return
        if self.endpoint is None and not self._asked_to_end and self.room.is_to_be_said(bool(reason)):
            said, no_room, at = reason or STARTS, bool(reason), self._world.now()
            self._tell(ReplicaPending(replica_id=self.replica_id, reason=said, no_room=no_room, at=at))

    def _has_room(self, actor: Any) -> bool:
        group_id = self._world.own_groups.get(self._group_name)
        return locate(actor) is not None or (group_id is not None and own_groups.is_made(group_id))

    async def _wait_for_node(self, actor_options: dict[str, Any]) -> None:
        """Say so at once; it is created anew when other nodes are cordoned (`is_told_otherwise`)."""
        if self.standby:
            await self._finish_without_actor()
        else:
            await self._look_for_room(actor_options)

    async def _has_its_name(self) -> None:
        if self._after is not None:
            await self._after.gone.wait()
            self._after = None

    async def _finish_without_actor(self) -> None:
        await self._has_its_name()
        self._actor.cancel()
        self._finish(ReplicaStopped(replica_id=self.replica_id, at=self._world.now()))

    async def _find(self) -> None:
        name = names.actor_name(self._spec().name, self.replica_id)
        try:
            actor = await self._world.call(ray.get_actor, name, namespace=self._world.namespace)
        except ValueError:  # there is none (any more)
            self._actor.cancel()
            await self._remove_group()
            self._finish(ReplicaDied(replica_id=self.replica_id, reason="it is not there any more", at=self._world.now()))
            return
        self._meet(actor)
        if await self._world.call(locate, actor) is None:
            # Ray still queues it, perhaps for ever, and behind the fence it would end as it begins: it cannot report (R10).
            self.kill()

    def _meet(self, actor: Any) -> None:
        self._actor.set_result(actor)
        self._spawn(self._watch(actor))

    async def _watch(self, actor: Any) -> None:
        await self._has_ended(await end_of(actor, self.replica_id))

    async def _has_ended(self, error: RayError) -> None:
        killed = self._killed
        if self.endpoint is not None:
            self._world.leave(self.endpoint.node_id, self.endpoint.pid)
        if killed is None and self.endpoint is not None and KILLED in str(error):  # by somebody else
            killed = self.endpoint.node_id, self.endpoint.pid, self.endpoint.started
        if killed is not None:
            # Ray says so when it has told the process; that is gone some milliseconds later, or stuck.
            await self._reaper.gone(*killed)
        await self._remove_group()
        now = self._world.now()
        failed_creation = isinstance(error, RuntimeEnvSetupError) or getattr(error, "_actor_init_failed", False)
        if self._failure is not None or (failed_creation and not self._asked_to_end):
            reason = self._failure if self._failure is not None else plain(error)
            return self._finish(ReplicaStartFailed(replica_id=self.replica_id, reason=reason, at=now))
        if self._asked_to_end:
            return self._finish(ReplicaStopped(replica_id=self.replica_id, at=now))
        if not self.standby:
            await self._listener.tell_losses(self)
        self._finish(ReplicaDied(replica_id=self.replica_id, reason=short(error), at=now))

    def _finish(self, end: Event) -> None:
        if self.gone.is_set():
            return
        self.gone.set()
        self._world.line.leave(self)
        if self.endpoint is not None:
            socket_files.remove(self.endpoint.socket_path)
        current = asyncio.current_task()
        for task in tuple(self._tasks):
            if task is not current:
                task.cancel()
        self._listener.has_ended(self)
        if not self.standby:
            self._tell(end)

    def _is_up(self) -> None:
        if self.endpoint is not None:
            self._world.settle(self.endpoint.node_id, self.endpoint.pid, self._actor.result())
        self._listener.is_up(self)

    def _start_failed(self, reason: str) -> None:
        self._failure = reason
        self._spawn(self._kill())

    def _placed(self, endpoint: Endpoint) -> None:
        self._is_up()
        self._tell(ReplicaPlaced(replica_id=self.replica_id, node_id=endpoint.node_id, at=self._world.now()))

    # -- conversations

    async def _stop(self, epoch: int, timeout_s: float) -> None:
        self._asked_to_end = True
        if self.endpoint is not None or self._found:  # else there is nothing to drain
            try:
                async with asyncio.timeout(timeout_s + DRAIN_MARGIN_S):
                    outcome: Outcome = await self._ask("drain", epoch, timeout_s)
                if outcome.kind == "refused":
                    self._asked_to_end = False
                    return  # a newer controller has been here
                if outcome.kind == "failed":
                    LOG.warning("%s did not drain: %s", self.replica_id, outcome.detail)
            except TimeoutError:
                LOG.warning("%s does not answer while it drains: it is ended", self.replica_id)
        await self._kill()

    async def _kill(self) -> None:
        if self._nowhere:
            return await self._finish_without_actor()
        actor = await self._actor
        if self.endpoint is not None:
            self._killed = (self.endpoint.node_id, self.endpoint.pid, self.endpoint.started)
        elif (place := await self._world.call(locate, actor)) is not None:
            self._killed = (*place, None)
        await self._world.call(self._end_actor, actor)

    def _end_actor(self, actor: Any) -> None:
        """Unless a newer controller has begun, whose it is. One that begins between the look and the deed is not seen."""
        if newest_epoch(self._world.namespace) <= self._world.epoch:
            ray.kill(actor)
