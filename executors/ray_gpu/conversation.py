"""What the controller asks of one replica, wherever that lives, and the events that its answers become.

A conversation is broken off where the replica is gone: its end is told by who watches its process.
"""

import asyncio
import logging
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    RayActorError,
    RayError,
    RuntimeEnvSetupError,
)

from executors.ray_gpu import names
from executors.ray_gpu.messages import Change, Endpoint, Outcome, Report
from executors.ray_gpu.world import World
from rankcore import DeploymentSpec, ReplicaRank
from rankcore.cluster.names import owner_of
from rankcore.events import (
    Event,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaUnhealthy,
    ReplicaUnready,
)
from rankcore.values import ReplicaId

LOG = logging.getLogger(__name__)

RETRY_S = 0.2
LOAD_S = 5.0
"""How long a replica may take to say how many calls it has under way."""
HEALTH_JITTER = 0.1
READY_MARGIN_S = 5.0
"""How much longer than its user code a replica may take to say whether it takes requests."""

ENDED = (ActorDiedError, ActorUnschedulableError, RuntimeEnvSetupError)
SHORT_MAX = 4000
"""Characters: what Ray says of the usual ends has 400 to 2,000, with the hints at their end."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Conversation(ABC):
    """With one replica.

    Args:
        spec: Of its deployment, as it is now.
        tell: What has happened.

    Attributes:
        replica_id: Whose.
        endpoint: Where it is; None: not up yet.
        node_id: Where it is, or is to be; None: Ray chooses.
        version: Of its code; None: not known yet.
        requested_at: On the controller's clock.
    """

    def __init__(
        self, world: World, replica_id: ReplicaId, spec: Callable[[], DeploymentSpec], tell: Callable[[Event], None]
    ) -> None:
        self.replica_id = replica_id
        self.endpoint: Endpoint | None = None
        self.node_id: str | None = None
        self.version: str | None = None
        self.requested_at = world.now()
        self._world = world
        self._spec = spec
        self._tell = tell
        self._actor: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[tuple[object, ...]] = set()
        self._limits = 0
        self._asked_to_end = False
        self._checks_health = False
        self._unready: str | None = None  # as the core knows it

    # -- what its kind does in its own way

    @abstractmethod
    def _is_up(self) -> None:
        """It has said where it is."""

    @abstractmethod
    def _start_failed(self, reason: str) -> None:
        """The user's code has not started."""

    async def _ask_to_change(self, change: Change) -> Outcome:
        outcome: Outcome = await self._ask("change", change)
        return outcome

    async def _ask_how_it_started(self) -> Outcome:
        outcome: Outcome = await self._ask("wait_ready")
        return outcome

    async def _ask_what_it_is(self, epoch: int) -> Report | None:
        """None: a newer controller has been here, or it is told otherwise."""
        report: Report | Outcome = await self._ask("query", epoch)
        return report if isinstance(report, Report) else None

    # -- what the controller asks; nothing here waits

    def initialize(self, change: Change) -> None:
        """Start the user's code; `ReplicaReady`, or `ReplicaStartFailed` once the process is gone."""
        self._spawn_once(("initialize", change.epoch, change.revision), self._initialize(change))

    def prepare(self, change: Change) -> None:
        """Start the user's code without ranks; `ReplicaPrepared`, or `ReplicaStartFailed` once the process is gone."""
        self._spawn_once(("prepare", change.epoch, change.revision), self._prepare(change))

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

    # -- conversations

    async def _ask(self, method: str, *args: object) -> Any:
        """Call the replica, again while it is out of reach.

        Raises:
            RayError: It is gone.
        """
        return await self._ask_of(await self._actor, method, *args)

    async def _ask_of(self, actor: Any, method: str, *args: object) -> Any:
        while True:
            try:
                return await getattr(actor, method).remote(*args)
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)

    async def _initialize(self, change: Change) -> None:
        self._start_ended(await self._ask_to_change(change))

    async def _prepare(self, change: Change) -> None:
        outcome = await self._ask_to_change(change)
        if outcome.kind == "done":
            prepared = ReplicaPrepared(replica_id=self.replica_id, revision=change.revision, at=self._world.now())
            self._tell(prepared)
            self._begin_health_checks()
        elif outcome.kind == "failed":
            self._start_failed(outcome.detail)

    def _start_ended(self, outcome: Outcome) -> None:
        if outcome.kind == "done":
            self._tell_ready(outcome.detail)
            self._begin_health_checks()
        elif outcome.kind == "failed":
            self._start_failed(outcome.detail)

    def _tell_ready(self, problem: str) -> None:
        """Its start-up is over. If it takes no requests for now that comes first, so that it is not routed for a moment."""
        self._unready, now = problem or None, self._world.now()
        if self._unready is not None:
            self._tell(ReplicaUnready(replica_id=self.replica_id, reason=self._unready, at=now))
        self._tell(ReplicaReady(replica_id=self.replica_id, at=now))

    async def _reconfigure(self, change: Change) -> None:
        outcome = await self._ask_to_change(change)
        now = self._world.now()
        if outcome.kind == "done":
            self._tell(ReplicaReconfigured(replica_id=self.replica_id, revision=change.revision, at=now))
        elif outcome.kind == "failed":
            self._tell(
                ReplicaReconfigureFailed(replica_id=self.replica_id, revision=change.revision, reason=outcome.detail, at=now)
            )

    async def _query(self, epoch: int) -> None:
        report = await self._ask_what_it_is(epoch)
        if report is None:
            return
        version = names.generation(report.version, report.protocol)
        self.endpoint, self.node_id, self.version = report.endpoint, report.endpoint.node_id, version
        self._is_up()
        self._unready = report.unready
        self._tell(
            ReplicaReported(
                replica_id=self.replica_id,
                node_id=report.endpoint.node_id,
                rank=ReplicaRank(*report.ranks) if report.ranks is not None else None,
                version=version,
                ready=report.ready,
                unready=report.unready,
                ready_for_s=report.ready_for_s,
                prepared=report.prepared,
                draining=report.draining,
                config_id=report.config_id,
                epoch=report.epoch,
                bundles=report.bundles,
                group_id=report.group_id,
                restart_token=report.restart_token,
                at=self._world.now(),
            )
        )
        if report.ready and report.failure is not None:
            self._unhealthy(f"reconfigure failed while no controller was there: {report.failure}")
        elif not report.draining:
            if report.ready or report.prepared:
                self._begin_health_checks()
            if report.ranks is not None and not report.ready:
                self._spawn_once(("start",), self._await_start())

    async def _await_start(self) -> None:
        self._start_ended(await self._ask_how_it_started())

    async def _announce(self, epoch: int, revision: int, world_size: int) -> None:
        await self._ask("announce", epoch, revision, world_size)

    async def _limit(self, number: int, max_ongoing_requests: int) -> None:
        if number == self._limits:  # there is none since
            await self._ask("limit", (self._world.epoch, number), max_ongoing_requests)

    # -- health

    def _begin_health_checks(self) -> None:
        if not self._checks_health:
            self._checks_health = True
            self._spawn(self._check_health())
            self._spawn(self._check_readiness())

    async def _check_health(self) -> None:
        """Probe it now and then, at times of its own: a thousand replicas are not to be asked at once."""
        await asyncio.sleep(random.uniform(0.0, self._spec().health_check_period_s))
        while not self._asked_to_end:
            timeout_s, began = self._spec().health_check_timeout_s, self._world.now()
            try:
                async with asyncio.timeout(timeout_s):
                    problem = await self._ask("check_health")
            except TimeoutError:
                problem = f"check_health has not answered for {timeout_s:g} s"
            self._world.checks[owner_of("replica_id", self.replica_id)].add(problem, self._world.now() - began)
            if problem is not None:
                return self._unhealthy(problem)
            period_s = self._spec().health_check_period_s
            await asyncio.sleep(period_s * random.uniform(1.0 - HEALTH_JITTER, 1.0 + HEALTH_JITTER))

    async def _check_readiness(self) -> None:
        """Ask in the same period whether it takes requests, if its user code can say so. Nothing is ended for the answer."""
        with suppress(AttributeError):  # a replica of a release that cannot be asked
            while not self._asked_to_end:
                period_s, timeout_s = self._spec().health_check_period_s, self._spec().health_check_timeout_s
                await asyncio.sleep(period_s * random.uniform(1.0 - HEALTH_JITTER, 1.0 + HEALTH_JITTER))
                with suppress(TimeoutError):  # it does not answer at all: that is for the other check to say
                    async with asyncio.timeout(timeout_s + READY_MARGIN_S):
                        can_say, problem = await self._ask("check_ready", timeout_s)
                    if not can_say:
                        return
                    self._note_readiness(problem)

    def _note_readiness(self, problem: str | None) -> None:
        known, self._unready, now = self._unready, problem, self._world.now()
        if self._asked_to_end or (known is None) is (problem is None):
            return
        if problem is not None:
            self._tell(ReplicaUnready(replica_id=self.replica_id, reason=problem, at=now))
        else:
            self._tell(ReplicaReady(replica_id=self.replica_id, at=now))

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


async def end_of(actor: Any, name: str) -> RayError:
    """Wait for the end of a process, and return what Ray says: a call that takes long fails as soon as Ray knows of it."""
    while True:
        try:
            while True:
                await actor.watch.remote()
        except ENDED as error:
            return error
        except Exception as error:  # out of reach: perhaps gone, perhaps not
            LOG.info("%s does not answer: %s", name, plain(error))
        await asyncio.sleep(RETRY_S)


def plain(error: BaseException) -> str:
    """An error's text without colours."""
    return COLOURS.sub("", str(error)) or type(error).__name__


def short(error: BaseException) -> str:
    """What Ray says about the end of an actor, in one line, which the journal and `status` have."""
    lines = [line.strip() for line in plain(error).splitlines() if line.strip() and not line.startswith("\t")]
    text = " ".join(lines[1:] or lines)
    return text if len(text) <= SHORT_MAX else f"{text[:SHORT_MAX]}..."
