"""The Ray executor of one deployment: turns the core's commands into calls of actors, and what becomes of them into events."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from executors.ray_gpu.changes import change_of
from executors.ray_gpu.conversation import Conversation
from executors.ray_gpu.group_news import GroupNews
from executors.ray_gpu.messages import Endpoint
from executors.ray_gpu.process import Process
from executors.ray_gpu.reaping import Reaper
from executors.ray_gpu.spares import Spares
from executors.ray_gpu.world import World
from rankcore import DeploymentSpec
from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import ClockAdvanced, Event, NodeLost, ReplicaMissing, ReplicaPlaced, ReplicaStopped
from rankcore.replica.messages import ReplicaChange
from rankcore.values import ReplicaId

LOG = logging.getLogger(__name__)

ENDED_KEPT = 10_000


class RayExecutor:
    """The `Executor` of one deployment. Its methods run on the controller's event loop and never wait.

    Attributes:
        processes: Replicas that have not ended, by id: their actors, or tenures of workers.
        routes: Where callers find the replicas that take calls; None: not published in this epoch yet.
        routes_version: Grows with each change of the routes.
        group_news: Of the placement group that the replicas stand on, if any.
        refused: How many commands of an older epoch were refused.
    """

    def __init__(
        self,
        world: World,
        spec: Callable[[], DeploymentSpec],
        actor_options: Callable[[str], dict[str, Any]],
        spares: int,
        on_news: Callable[[], None],
    ) -> None:
        self.processes: dict[ReplicaId, Conversation] = {}
        self.routes: dict[ReplicaId, Endpoint] | None = None
        self.routes_version = 0
        self.refused = 0
        self._world = world
        self._reaper = Reaper(world)
        self._spec = spec
        self._actor_options = actor_options
        self._on_news = on_news
        self._inbox: deque[Event] = deque()
        self._ended: dict[ReplicaId, None] = {}
        self._epoch = world.epoch
        self._announced: AnnounceWorldSize | None = None
        self._max_ongoing_requests: int | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self.group_news = GroupNews(world, self.tell)
        self.spares = Spares(spares, world.epoch, self._start_spare, self._end_spare)

    # -- the executor

    def execute(self, command: Command) -> None:
        """Begin to carry out a command, unless its controller has been replaced."""
        if command.epoch < self._epoch:
            self.refused += 1
            return
        match command:
            case StartReplica():
                self._start(command)
            case PrepareReplica() | InitializeReplica() | ReconfigureReplica():
                self._change(command)
            case QueryReplica() | StopReplica() | KillReplica():
                self._address(command)
            case AnnounceWorldSize():
                self._announce(command)
            case PublishRoutes():
                self._publish(command)
            case WakeAt():
                self._set_alarm(command)

    def poll(self) -> Event | None:
        """The next event; None: there is none now."""
        return self._inbox.popleft() if self._inbox else None

    def tell(self, event: Event) -> None:
        """Something has happened."""
        self._inbox.append(event)
        self._on_news()

    def take_over(self, replica_ids: Iterable[ReplicaId]) -> None:
        """Find the replicas of earlier controllers, before the core asks for them."""
        for replica_id in replica_ids:
            self.processes[replica_id] = process = self._process(replica_id)
            process.find()

    def add(self, tenure: Conversation) -> None:
        """A worker is a replica from now on, or was found to be one."""
        self.processes[tenure.replica_id] = tenure

    async def close(self) -> None:
        """Nothing is to be told or done any more; returns when the spares are gone."""
        if self._alarm is not None:
            self._alarm.cancel()
        self.group_news.close()
        await self.spares.close()

    def limit(self, max_ongoing_requests: int) -> None:
        """From now on every replica takes so many calls at once."""
        if max_ongoing_requests != self._max_ongoing_requests:
            self._max_ongoing_requests = max_ongoing_requests
            for process in self.processes.values():
                process.limit(max_ongoing_requests)

    async def loads(self, replica_ids: Iterable[ReplicaId]) -> dict[ReplicaId, int]:
        """How many calls these replicas have under way; those that do not answer soon are left out."""
        asked = {each: self.processes[each] for each in replica_ids if each in self.processes}
        answers = await asyncio.gather(*(process.load() for process in asked.values()))
        return {each: load for each, load in zip(asked, answers, strict=True) if load is not None}

    # -- commands

    def _start(self, command: StartReplica) -> None:
        known = self.processes.get(command.replica_id)
        if known is not None:
            if known.endpoint is not None:
                node_id = known.endpoint.node_id
                self.tell(ReplicaPlaced(replica_id=command.replica_id, node_id=node_id, at=self._world.now()))
            elif isinstance(known, Process) and known.is_told_otherwise:
                known.withdraw()
                self._create(command, after=known)
            elif isinstance(known, Process):
                known.look_for_room(self._actor_options(command.version))
            return
        if command.replica_id in self._ended:
            self.tell(ReplicaStopped(replica_id=command.replica_id, at=self._world.now()))
            return
        spare = self.spares.take(command)
        if spare is not None and spare.fits(command):
            self.processes[command.replica_id] = spare
            spare.adopt()
            return
        if spare is not None:
            spare.kill()
        self._create(command, after=spare)

    def _create(self, command: StartReplica, after: Process | None) -> None:
        self.processes[command.replica_id] = process = self._process(command.replica_id)
        process.create(command, self._actor_options(command.version), after=after)

    def _change(self, command: ReplicaChange) -> None:
        process = self.processes.get(command.replica_id)
        if process is None:
            return  # its end has been told
        change = change_of(command)
        if change.rank is None:
            process.prepare(change)
        elif change.initialize:
            process.initialize(change)
        else:
            process.reconfigure(change)

    def _address(self, command: QueryReplica | StopReplica | KillReplica) -> None:
        process = self.processes.get(command.replica_id)
        now = self._world.now()
        match command:
            case QueryReplica():
                if process is None:
                    self.tell(ReplicaMissing(replica_id=command.replica_id, at=now))
                else:
                    process.query(command.epoch)
            case _ if process is None:
                self.tell(ReplicaStopped(replica_id=command.replica_id, at=now))
            case StopReplica(timeout_s=timeout_s):
                assert isinstance(process, Process), f"{process.replica_id} is a tenure: its worker is moved or killed"
                process.stop(command.epoch, timeout_s)
            case KillReplica():
                assert isinstance(process, Process), f"{process.replica_id} is a tenure: its worker is moved or killed"
                process.kill()

    def _announce(self, command: AnnounceWorldSize) -> None:
        newest = self._announced
        if newest is not None and (command.epoch, command.revision) <= (newest.epoch, newest.revision):
            return
        self._announced = command
        for process in self.processes.values():
            process.announce(command.epoch, command.revision, command.world_size)

    def _publish(self, command: PublishRoutes) -> None:
        if self.routes is None:
            self.routes = {}
        for replica_id in command.removed:
            self.routes.pop(replica_id, None)
        for replica_id in command.added:
            process = self.processes.get(replica_id)
            if process is not None and process.endpoint is not None:
                self.routes[replica_id] = process.endpoint
        self.routes_version += 1

    def _set_alarm(self, command: WakeAt) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = max(0.0, command.at - self._world.now())
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring, command.at)

    def _ring(self, at: float) -> None:
        self.tell(ClockAdvanced(at=max(at, self._world.now())))

    # -- processes

    def _process(self, replica_id: ReplicaId) -> Process:
        return Process(self._world, self._reaper, replica_id, self._spec, self)

    def is_up(self, process: Conversation) -> None:
        """A replica has come up, or was found."""
        if self._announced is not None:
            process.announce(self._announced.epoch, self._announced.revision, self._announced.world_size)
        if self._max_ongoing_requests is not None:
            process.limit(self._max_ongoing_requests)

    async def tell_losses(self, process: Process) -> None:
        """What has gone together with a process is told before its end: its node, its bundles."""
        lost = process.node_id if process.node_id is not None and not await self._world.is_alive(process.node_id) else None
        if lost is not None:
            self.tell(NodeLost(node_id=lost, at=self._world.now()))
        await self.group_news.look(lost)

    def has_ended(self, process: Conversation) -> None:
        """A replica or spare is gone."""
        if isinstance(process, Process) and self.spares.lost(process):
            return
        if self.processes.get(process.replica_id) is not process:
            return
        del self.processes[process.replica_id]
        self._ended[process.replica_id] = None
        if len(self._ended) > ENDED_KEPT:
            del self._ended[next(iter(self._ended))]

    def _start_spare(self, replica_id: ReplicaId, spec: DeploymentSpec) -> Process:
        spare = self._process(replica_id)
        spare.standby = True
        start = StartReplica(replica_id, 0, spec.version, None, (), self._epoch, restart_token=spec.restart_token)
        spare.create(start, self._actor_options(spec.version))
        return spare

    def _end_spare(self, spare: Process) -> None:
        spare.kill()
