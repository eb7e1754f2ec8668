"""One replica's actor as the controller sees it: created or found, asked, watched, ended; each answer becomes an event."""

import asyncio
import logging
import random
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    RayActorError,
    RayError,
    RuntimeEnvSetupError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu import names, socket_files
from executors.ray_gpu.messages import Change, Endpoint, Outcome, Report
from executors.ray_gpu.placement_groups import strategy
from executors.ray_gpu.reaping import Reaper, locate
from executors.ray_gpu.world import World
from rankcore import DeploymentSpec, ReplicaRank
from rankcore.commands import StartReplica
from rankcore.events import (
    Event,
    ReplicaDied,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
)
from rankcore.values import ReplicaId

LOG = logging.getLogger(__name__)

CAPTURE_CHILD_TASKS = "placement_group_capture_child_tasks"
"""Among the options of actors: whether their children run in the placement group too."""
RETRY_S = 0.2
LOAD_S = 5.0
"""How long a replica may take to say how many calls it has under way."""
DRAIN_MARGIN_S = 2.0
"""How much longer than its time-out a draining replica is waited for, before it is ended from outside."""
HEALTH_JITTER = 0.1
AT_A_TIME = 1_000_000
"""Calls from other nodes are actor calls, and must not keep the controller's own from the replica, which Ray would queue."""

KILLED = "ray.kill"
"""Stands in what Ray says of an actor that it has told to end; it has no other sign of it."""
ENDED = (ActorDiedError, ActorUnschedulableError, RuntimeEnvSetupError)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


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


class Process:
    """One replica's actor. Its end is told exactly once, and only when Ray says that the process is gone.

    Attributes:
        replica_id: Whose.
        endpoint: Where it is; None: not up yet.
        requested_at: On the controller's clock.
        standby: Whether it is a spare, of which the core knows nothing yet.
        node_id: Where it is, or is to be; None: Ray chooses.
        gone: Set when its end has been told.
    """

    def __init__(
        self,
        world: World,
        reaper: Reaper,
        replica_id: ReplicaId,
        spec: Callable[[], DeploymentSpec],
        listener: Listener,
    ) -> None:
        self.replica_id = replica_id
        self.endpoint: Endpoint | None = None
        self.requested_at = world.now()
        self.standby = False
        self.node_id: str | None = None
        self.version: str | None = None
        self.gone = asyncio.Event()
        self._world = world
        self._reaper = reaper
        self._spec = spec
        self._listener = listener
        self._tell = listener.tell
        self._actor: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[tuple[object, ...]] = set()
        self._limits = 0
        self._asked_to_end = False
        self._failure: str | None = None
        self._checks_health = False
        self._found = False
        self._killed: tuple[str, int, int | None] | None = None  # node and process that were told to end

    # -- beginnings

    def create(self, start: StartReplica, actor_options: dict[str, Any], after: "Process | None" = None) -> None:
        """Begin to create the actor, once an earlier process that has its name is gone."""
        self.node_id, self.version = start.node_id, start.version
        self._spawn(self._create(start, actor_options, after))

    def find(self) -> None:
        """Begin to find the actor that an earlier controller created."""
        self._found = True
        self._spawn(self._find())

    def fits(self, start: StartReplica) -> bool:
        """Whether this spare is what a command asks for."""
        return self.version == start.version and start.node_id in (None, self.node_id) and not self._asked_to_end

    def adopt(self) -> None:
        """A spare becomes the replica whose name it has."""
        self.standby = False
        self.requested_at = self._world.now()
        if self.endpoint is not None:
            self._placed(self.endpoint)

    # -- what the controller asks; nothing here waits

    def initialize(self, change: Change) -> None:
        """Start the user's code; `ReplicaReady`, or `ReplicaStartFailed` once the process is gone."""
        self._spawn_once(("initialize", change.epoch, change.revision), self._initialize(change))

    def reconfigure(self, change: Change) -> None:
        """Change ranks or user_config; `ReplicaReconfigured` or `ReplicaReconfigureFailed`."""
        self._spawn_once(("reconfigure", change.epoch, change.revision), self._reconfigure(change))

    def query(self, epoch: int) -> None:
        """Ask what it believes; `ReplicaReported`."""
        self._spawn_once(("query", epoch), self._query(epoch))

    def announce(self, epoch: int, revision: int, world_size: int) -> None:
        """Deliver a world size, repeating until it has arrived or the process is gone."""
        self._spawn_once(("announce", epoch, revision), self._announce(epoch, revision, world_size))

    def limit(self, max_ongoing_requests: int) -> None:
        """Tell it how many calls it may take at once, repeating until that has arrived or the process is gone."""
        self._limits += 1
        self._spawn_once(("limit", self._limits), self._limit(self._limits, max_ongoing_requests))

    async def load(self) -> int | None:
        """How many calls it has under way; None: it does not say so soon, or is gone."""
        with suppress(RayError, TimeoutError):
            async with asyncio.timeout(LOAD_S):
                under_way: int = await (await asyncio.shield(self._actor)).load.remote()
                return under_way
        return None

    async def processors_in_use(self, during_s: float) -> float | None:
        """What share of its node's processor time is in use, from 0 to 1; None: it does not say so soon, or is gone."""
        with suppress(RayError, TimeoutError):
            async with asyncio.timeout(during_s + LOAD_S):
                share: float = await (await asyncio.shield(self._actor)).processors_in_use.remote(during_s)
                return share
        return None

    def stop(self, epoch: int, timeout_s: float) -> None:
        """Drain it, then end it; `ReplicaStopped`."""
        self._spawn_once(("stop",), self._stop(epoch, timeout_s))

    def kill(self) -> None:
        """End it at once; `ReplicaStopped`, or the failure that it is killed for."""
        self._asked_to_end = True
        self._spawn(self._kill())

    # -- the actor

    async def _create(self, start: StartReplica, actor_options: dict[str, Any], after: "Process | None") -> None:
        if after is not None:
            await after.gone.wait()
        try:
            actor = await self._world.call(self._make_actor, start, actor_options)
        except Exception as error:
            self._actor.cancel()
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
        self._world.on_placed(endpoint.node_id, self.processors_in_use, actor_options.get("runtime_env") or {})
        if not self.standby:
            self._placed(endpoint)

    def _make_actor(self, start: StartReplica, actor_options: dict[str, Any]) -> Any:
        deployment = self._spec().name
        name = names.actor_name(deployment, self.replica_id)
        options = {"num_cpus": 1, **actor_options}
        capture_child_tasks = options.pop(CAPTURE_CHILD_TASKS, False)
        if start.group_id is not None:
            options["scheduling_strategy"] = strategy(start.group_id, start.bundles[0], capture_child_tasks)
        elif start.node_id is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(start.node_id, soft=False)
        return self._world.actor_class.options(
            name=name,
            namespace=self._world.namespace,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=AT_A_TIME,
            **options,
        ).remote(self._world.namespace, deployment, self.replica_id, start.version, start.epoch, start.bundles, start.group_id)

    async def _find(self) -> None:
        name = names.actor_name(self._spec().name, self.replica_id)
        try:
            actor = await self._world.call(ray.get_actor, name, namespace=self._world.namespace)
        except ValueError:  # there is none (any more)
            self._actor.cancel()
            self._finish(ReplicaDied(replica_id=self.replica_id, reason="it is not there any more", at=self._world.now()))
            return
        self._meet(actor)

    def _meet(self, actor: Any) -> None:
        self._actor.set_result(actor)
        self._spawn(self._watch(actor))

    async def _watch(self, actor: Any) -> None:
        """Wait for the end of the process: a call that takes long fails as soon as Ray knows that it is gone."""
        while True:
            try:
                while True:
                    await actor.watch.remote()
            except ENDED as error:
                return await self._has_ended(error)
            except Exception as error:  # out of reach: perhaps gone, perhaps not
                LOG.info("%s does not answer: %s", self.replica_id, plain(error))
            await asyncio.sleep(RETRY_S)

    async def _has_ended(self, error: RayError) -> None:
        killed = self._killed
        if killed is None and self.endpoint is not None and KILLED in str(error):  # by somebody else
            killed = self.endpoint.node_id, self.endpoint.pid, self.endpoint.started
        if killed is not None:
            # Ray says so when it has told the process; that is gone some milliseconds later, or stuck.
            await self._reaper.gone(*killed)
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
        if self.endpoint is not None:
            socket_files.remove(self.endpoint.socket_path)
        current = asyncio.current_task()
        for task in tuple(self._tasks):
            if task is not current:
                task.cancel()
        self._listener.has_ended(self)
        if not self.standby:
            self._tell(end)

    def _placed(self, endpoint: Endpoint) -> None:
        self._listener.is_up(self)
        self._tell(ReplicaPlaced(replica_id=self.replica_id, node_id=endpoint.node_id, at=self._world.now()))

    # -- conversations

    async def _ask(self, method: str, *args: object) -> Any:
        """Call the replica, again while it is out of reach.

        Raises:
            RayError: It is gone.
        """
        actor = await self._actor
        while True:
            try:
                return await getattr(actor, method).remote(*args)
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)

    async def _initialize(self, change: Change) -> None:
        self._start_ended(await self._ask("change", change))

    def _start_ended(self, outcome: Outcome) -> None:
        if outcome.kind == "done":
            self._tell(ReplicaReady(replica_id=self.replica_id, at=self._world.now()))
            self._begin_health_checks()
        elif outcome.kind == "failed":
            self._failure = outcome.detail
            self._spawn(self._kill())

    async def _reconfigure(self, change: Change) -> None:
        outcome: Outcome = await self._ask("change", change)
        now = self._world.now()
        if outcome.kind == "done":
            self._tell(ReplicaReconfigured(replica_id=self.replica_id, revision=change.revision, at=now))
        elif outcome.kind == "failed":
            self._tell(
                ReplicaReconfigureFailed(replica_id=self.replica_id, revision=change.revision, reason=outcome.detail, at=now)
            )

    async def _query(self, epoch: int) -> None:
        report: Report | Outcome = await self._ask("query", epoch)
        if isinstance(report, Outcome):
            return  # a newer controller has been here
        version = names.generation(report.version, report.protocol)
        self.endpoint, self.node_id, self.version = report.endpoint, report.endpoint.node_id, version
        self._listener.is_up(self)
        self._tell(
            ReplicaReported(
                replica_id=self.replica_id,
                node_id=report.endpoint.node_id,
                rank=ReplicaRank(*report.ranks) if report.ranks is not None else None,
                version=version,
                ready=report.ready,
                draining=report.draining,
                config_id=report.config_id,
                epoch=report.epoch,
                bundles=report.bundles,
                group_id=report.group_id,
                at=self._world.now(),
            )
        )
        if report.ready and report.failure is not None:
            self._unhealthy(f"reconfigure failed while no controller was there: {report.failure}")
        elif report.ready and not report.draining:
            self._begin_health_checks()
        elif report.ranks is not None and not report.draining:
            self._spawn_once(("start",), self._await_start())

    async def _await_start(self) -> None:
        self._start_ended(await self._ask("wait_ready"))

    async def _announce(self, epoch: int, revision: int, world_size: int) -> None:
        await self._ask("announce", epoch, revision, world_size)

    async def _limit(self, number: int, max_ongoing_requests: int) -> None:
        if number == self._limits:  # there is none since
            await self._ask("limit", (self._world.epoch, number), max_ongoing_requests)

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
        actor = await self._actor
        if self.endpoint is not None:
            self._killed = (self.endpoint.node_id, self.endpoint.pid, self.endpoint.started)
        elif (place := await self._world.call(locate, actor)) is not None:
            self._killed = (*place, None)
        await self._world.call(ray.kill, actor)

    # -- health

    def _begin_health_checks(self) -> None:
        if not self._checks_health:
            self._checks_health = True
            self._spawn(self._check_health())

    async def _check_health(self) -> None:
        """Probe it now and then, at times of its own: a thousand replicas are not to be asked at once."""
        await asyncio.sleep(random.uniform(0.0, self._spec().health_check_period_s))
        while not self._asked_to_end:
            timeout_s = self._spec().health_check_timeout_s
            try:
                async with asyncio.timeout(timeout_s):
                    problem = await self._ask("check_health")
            except TimeoutError:
                problem = f"check_health has not answered for {timeout_s:g} s"
            if problem is not None:
                return self._unhealthy(problem)
            period_s = self._spec().health_check_period_s
            await asyncio.sleep(period_s * random.uniform(1.0 - HEALTH_JITTER, 1.0 + HEALTH_JITTER))

    def _unhealthy(self, reason: str) -> None:
        if not self._asked_to_end:
            self._tell(ReplicaUnhealthy(replica_id=self.replica_id, reason=reason, at=self._world.now()))

    # -- tasks

    def _spawn_once(self, key: tuple[object, ...], work: Coroutine[Any, Any, None]) -> None:
        """Begin something, unless that very thing is under way: the core repeats what takes long."""
        if key in self._asked:
            work.close()
            return
        self._asked.add(key)
        self._spawn(work).add_done_callback(lambda _: self._asked.discard(key))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_quiet(self.replica_id, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _quiet(replica_id: ReplicaId, work: Coroutine[Any, Any, None]) -> None:
    """A conversation that breaks off because the replica is gone is no news: its end is told by who watches."""
    try:
        await work
    except RayActorError:
        pass
    except Exception:  # the core repeats what is not acknowledged
        LOG.exception("a conversation with %s broke off", replica_id)


def plain(error: BaseException) -> str:
    """An error's text without colours."""
    return COLOURS.sub("", str(error)) or type(error).__name__


def short(error: BaseException) -> str:
    """What Ray says about the end of an actor, in one line."""
    lines = [line.strip() for line in plain(error).splitlines() if line.strip() and not line.startswith("\t")]
    return " ".join(lines[1:] or lines)[:300]
