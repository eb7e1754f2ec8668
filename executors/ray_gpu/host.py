"""One deployment in the controller: its driver, its executor, its checkpoint, and those who wait for it.

What outlives the controller is stored before anything is done that depends on it. A user's change is stored before it becomes
an event, so that he hears of it where that fails; what a step itself decides is stored by the loop's save barrier (its theory
is in `executors.engine.loop`). Both go through `_lock`: of two puts under way, the store could keep the older one.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

import rankcore
from executors.engine.deployments import Recovered
from executors.engine.journal import JournalWriter
from executors.engine.loop import Driver, Keeping, SaveBarrier
from executors.ray_gpu.checkpoint import Record
from executors.ray_gpu.environment import RuntimeEnv, uploaded
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.executor import RayExecutor
from executors.ray_gpu.membership import Membership
from executors.ray_gpu.messages import Ranks, Routes
from executors.ray_gpu.node_news import NodeNews
from executors.ray_gpu.scaling import Scaling
from executors.ray_gpu.scaling_policy import PolicySource
from executors.ray_gpu.user_code import Code
from executors.ray_gpu.world import ASK_AGAIN_S, World, persist
from rankcore import DeploymentSpec, DeploymentState, DeploymentStatus, NoteKind, ReplicaState, Step
from rankcore.autoscaling import AutoscalingSpec
from rankcore.events import DeleteRequested, Event, SpecChanged, StopRequested
from rankcore.routing import RoutingSpec
from rankcore.values import ReplicaId, age_key

LOG = logging.getLogger(__name__)

TROUBLE = (NoteKind.START_FAILED, NoteKind.DEPLOY_FAILED, NoteKind.ROLLED_BACK, NoteKind.KILL_CHOSEN)
"""Notes that a user wants to see in `status` until the deployment is healthy again."""

PATIENCE_S = 30.0
"""How long callers wait for replicas of which the last ones have failed to start, before they are told so."""
TRY_AGAIN_S = 10.0
"""After which callers may ask again, where replicas are still being started."""

SERVING = (ReplicaState.RUNNING, ReplicaState.RECONFIGURING)
MEMBERS = (ReplicaState.STARTING, ReplicaState.RUNNING, ReplicaState.RECONFIGURING)


class Host:
    """Runs one deployment. Everything here happens on the controller's event loop.

    Attributes:
        record: As checkpointed, or about to be.
        driver: Holds the state.
        executor: Carries out its commands.
        scaling: Follows the load; None: the target is what the user says.
        trouble: What went wrong last; "" once the deployment is healthy.
    """

    driver: Driver

    def __init__(
        self, world: World, record: Record, actor_options: dict[str, dict[str, Any]], on_deleted: Callable[["Host"], None]
    ) -> None:
        self.record = record
        self.trouble = ""
        self.scaling: Scaling | None = None
        self._world = world
        self._actor_options = actor_options
        self._on_deleted = on_deleted
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._pumping = False
        self._is_deleted = False
        self._is_forgotten = False
        self._has_begun = False
        self._saving: asyncio.Task[None] | None = None
        self._membership: tuple[DeploymentState, Membership | None] | None = None
        self._routes: tuple[tuple[object, ...], int, Routes] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._patience_is_over = False
        self.executor = RayExecutor(
            world,
            lambda: self.record.spec,
            self.actor_options,
            record.spares,
            self._on_news,
        )
        self.executor.limit(record.routing.max_ongoing_requests)
        self._node_news = NodeNews(
            world,
            self.executor.tell,
            lambda: self.executor.processes.values(),
            self.actor_options,
        )

    @property
    def name(self) -> str:
        """Of the deployment."""
        return self.record.spec.name

    @property
    def status(self) -> DeploymentStatus:
        """How it is."""
        return self.driver.state.status

    def deploy(self, journal: JournalWriter | None) -> None:
        """Begin anew; the record is checkpointed already."""
        world = self._world
        self.executor.routes = {}  # nobody was there before
        self.driver = Driver.deploy(
            self.executor, self.record.spec, at=world.now(), epoch=world.epoch, journal=journal, keeping=self._keeping
        )
        self._begun()

    def recover(self, journal: JournalWriter | None, replica_ids: tuple[ReplicaId, ...]) -> None:
        """Go on after a crash of the controller, with the replicas that were found."""
        world, record = self._world, self.record
        self.executor.take_over(replica_ids)
        self.trouble = record.trouble
        how = recovered(world, record, replica_ids)
        self.driver = Driver.begin(self.executor, how, journal=journal, keeping=self._keeping)
        self._begun()

    # -- what users ask for

    async def change(
        self,
        make: Callable[[DeploymentSpec], DeploymentSpec],
        *,
        stop_first: tuple[ReplicaId, ...] = (),
        code: Code | None = None,
        spares: int | None = None,
        routing: Callable[[RoutingSpec], RoutingSpec] | None = None,
        ingress: tuple[str | None, bool] | None = None,
        autoscaling: tuple[AutoscalingSpec | None, PolicySource | None] | None = None,
    ) -> None:
        """Want something else. It is checkpointed before it takes effect.

        Raises:
            RankcoreError: The change is not allowed; nothing has changed.
            InvalidDeploymentError: The deployment is being deleted.
        """
        async with self._lock:
            if self.record.deleting:
                raise InvalidDeploymentError(f"{self.name} is being deleted")
            spec = make(self.record.spec)
            event = SpecChanged(spec=spec, stop_first=stop_first, at=self._world.now())
            expected = rankcore.step(self.driver.state, event).state  # the core is pure: what it refuses is not checkpointed
            failed = expected.status is DeploymentStatus.DEPLOY_FAILED
            if code is not None:
                await self._world.call(self._world.checkpoint.put_code, code)
                self._actor_options[code.version] = code.actor_options
            record = attrs.evolve(
                self.record,
                spec=spec,
                failed=failed,
                trouble=self.record.trouble if failed else "",
                class_name=self.record.class_name if code is None else code.class_name,
                app_name=self.record.app_name if code is None else code.app_name,
                spares=self.record.spares if spares is None else spares,
                routing=self.record.routing if routing is None else routing(self.record.routing),
                route_prefix=self.record.route_prefix if ingress is None else ingress[0],
                is_ingress=self.record.is_ingress if ingress is None else ingress[1],
                autoscaling=self.record.autoscaling if autoscaling is None else autoscaling[0],
                scaling_policy=self.record.scaling_policy if autoscaling is None else autoscaling[1],
            )
            await self._world.call(self._world.checkpoint.put_record, record)
            self.record = record
            self._barrier.stored(record)
            self.executor.spares.wanted = record.spares
            self.executor.limit(record.routing.max_ongoing_requests)
            self._follow_load()
            self._deliver(attrs.evolve(event, at=self._world.now()))

    def packages(self) -> frozenset[str]:
        """The uploaded folders that its replicas are started with, whichever version."""
        return frozenset().union(*(uploaded(options.get("runtime_env")) for options in self._actor_options.values()))

    @property
    def state(self) -> DeploymentState:
        """How it is, all of it."""
        return self.driver.state

    async def loads(self) -> dict[ReplicaId, int]:
        """How many calls each running replica has under way; those that do not answer are left out."""
        return await self.executor.loads([each.replica_id for each in self.state.replicas.values() if each.state in SERVING])

    async def _scale(self, target: int, because: str) -> None:
        LOG.info("%s: %d replicas are wanted: %s", self.name, target, because)
        await self.change(lambda spec: attrs.evolve(spec, target_replicas=target))

    def _follow_load(self) -> None:
        """Have what the record says of autoscaling."""
        spec = self.record.autoscaling
        if self.scaling is not None and (spec is None or self.record.deleting):
            self.scaling.close()
            self.scaling = None
        elif self.scaling is not None and spec is not None:
            self.scaling.adopt(spec, self.record.scaling_policy)
        elif spec is not None and not self.record.deleting:
            self.scaling = Scaling(spec, self, self._scale, self._world.now, self.record.scaling_policy)

    def stop_replicas(self, replica_ids: tuple[ReplicaId, ...]) -> None:
        """Stop these replicas; each is replaced, with its own rank."""
        self._deliver(StopRequested(replica_ids=replica_ids, at=self._world.now()))

    async def delete(self) -> None:
        """Stop everything, and forget the deployment once all is gone."""
        async with self._lock:
            if self.record.deleting:
                return
            record = attrs.evolve(self.record, deleting=True)
            await self._world.call(self._world.checkpoint.put_record, record)
            self._barrier.stored(record)
            self.record = attrs.evolve(self.record, deleting=True)
            self._follow_load()
            self._deliver(DeleteRequested(at=self._world.now()))

    async def forget(self) -> None:
        """End what is left of a deployment that is deleted, and remove its checkpoint."""
        self._node_news.close()
        await self.executor.close()
        async with self._lock:
            self._is_forgotten = True
            await persist(partial(self._world.checkpoint.forget, self.name))

    def membership(self) -> Membership | None:
        """The world as the replicas were told it; None: a rank has no holder, or two."""
        state = self.driver.state
        if self._membership is None or self._membership[0] is not state:  # all replicas may be waiting for a change
            self._membership = state, self._members()
        return self._membership[1]

    def _members(self) -> Membership | None:
        holders: dict[int, tuple[ReplicaId, Ranks]] = {}
        for replica_id, replica in self.driver.state.replicas.items():
            told = replica.told
            if told is None or replica.state not in MEMBERS:
                continue
            if told.rank in holders:
                return None
            holders[told.rank] = (replica_id, (told.rank, told.node_rank, told.local_rank))
        return Membership.of(holders, self.driver.state.world_size)

    def routes(self) -> tuple[int, Routes] | None:
        """Where calls go, and a number that grows whenever that changes; None: not published in this epoch yet."""
        endpoints, state = self.executor.routes, self.driver.state
        is_over = self._has_given_up() or (self._is_out() and self._patience_is_over)
        if endpoints is None and not is_over:
            return None
        endpoints = endpoints or {}
        seen = (state, self.executor.routes_version, self.record.routing, self.record.autoscaling, is_over, self.trouble)
        if self._routes is None or any(new is not old for new, old in zip(seen, self._routes[0], strict=True)):
            number, before = self._routes[1:] if self._routes is not None else (0, None)
            routes = Routes(
                tuple((endpoints[each], _told_rank(state, each)) for each in sorted(endpoints, key=age_key)),
                state.world_size,
                self.record.routing,
                self.record.autoscaling.metrics_interval_s if self.record.autoscaling is not None else None,
                self._problem() if is_over else "",
                TRY_AGAIN_S if is_over and not self._has_given_up() else None,
            )
            self._routes = seen, number + (routes != before), routes  # all callers may be waiting for a change
        return self._routes[1:]

    def _has_given_up(self) -> bool:
        """Whether nobody takes calls, nor will before something else is deployed."""
        state = self.driver.state
        return not self.executor.routes and state.status is DeploymentStatus.DEPLOY_FAILED and state.proven is None

    def _problem(self) -> str:
        """What callers are told: clients the first line, which is no user code's; handles all of it."""
        if self._has_given_up():
            return f"{self.name} is {self.status}: {self.trouble or 'it did not come up'}"
        return f"{self.name} is {self.status}: its replicas have ended or fail to start, and are tried again\n{self.trouble}"

    def _is_out(self) -> bool:
        """Whether nobody takes calls, and the last attempts to change that have failed."""
        out = self.status in (DeploymentStatus.UNHEALTHY, DeploymentStatus.DEPLOY_FAILED)
        return out and not self.executor.routes and self.trouble != ""

    def _have_patience(self) -> None:
        """Whoever waits for a replica is told after a while what is wrong."""
        if not self._is_out():
            self._patience_is_over = False
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience_is_over = True
        self.wake()

    async def until(self, reached: Callable[["Host"], bool], timeout_s: float | None = None) -> bool:
        """Wait until something is so; False: it was not, all the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not reached(self):
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    # -- what happens

    @property
    def _keeping(self) -> Keeping[Record]:
        return Keeping(self._begin_to_save, self._take_down, self.record)

    @property
    def _barrier(self) -> SaveBarrier[Record]:
        assert self.driver.barrier is not None, "a host's driver is begun with `_keeping`"
        return self.driver.barrier

    def _begun(self) -> None:
        self._has_begun = True
        self._look()
        self._follow_load()

    def _on_news(self) -> None:
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        while (event := self.executor.poll()) is not None:
            try:
                self._deliver(event)
            except rankcore.RankcoreError:
                LOG.exception("%s: the core refused %r", self.name, event)

    def _deliver(self, event: Event) -> None:
        self.driver.deliver(event)
        self._look()

    def _note(self, step: Step) -> None:
        for note in step.notes:
            killed_for_its_bundle = note.kind is NoteKind.KILL_CHOSEN and note.rule == "S5"  # the state says more
            if note.kind in TROUBLE and not killed_for_its_bundle:
                self.trouble = f"{note.replica_id}: {note.because}" if note.replica_id else f"{note.because}\n{self.trouble}"

    def _take_down(self, step: Step) -> Record:
        """Take from a step what is to be checkpointed: a roll-back, a build that is given up, the first health of a spec."""
        if self._has_begun:  # else what there was before the restart says more
            self._note(step)
        state = step.state
        if state.status is DeploymentStatus.HEALTHY and state.spec.version == self.record.spec.version:
            self.trouble = ""
        failed = state.status is DeploymentStatus.DEPLOY_FAILED
        trouble = self.trouble if failed else ""
        looked = attrs.evolve(self.record, spec=state.spec, previous=state.previous, failed=failed, trouble=trouble)
        if looked != self.record:
            self.record = looked
        return self.record

    def _look(self) -> None:
        """Take from the new state what others wait for."""
        state = self.driver.state
        at_rest = state.status is DeploymentStatus.HEALTHY
        self.executor.spares.keep(state.spec if at_rest else None)
        self._node_news.follow(state.spec)
        self.executor.group_news.follow(state.spec)
        self._have_patience()
        self.wake()
        if state.status is DeploymentStatus.DELETED and not self._is_deleted:
            self._is_deleted = True
            self._on_deleted(self)

    def wake(self) -> None:
        """Whoever waits is to look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def actor_options(self, version: str) -> dict[str, Any]:
        """What a version's actors ask of Ray."""
        return self._actor_options.get(version, {})

    def _begin_to_save(self, barrier: SaveBarrier[Record]) -> None:
        self._saving = asyncio.get_running_loop().create_task(self._save(barrier))

    async def _save(self, barrier: SaveBarrier[Record]) -> None:
        async with self._lock:
            if self._is_forgotten:
                return  # nothing is done any more
            number, record = barrier.newest  # of now: a user's change may have been stored since the save was asked for
            problem = "" if barrier.is_stored else await self._put(record)
            try:
                barrier.answer(number, problem)
            except Exception:  # the core repeats what is not acknowledged
                LOG.exception("%s: commands were not carried out", self.name)
            self.wake()
            if problem:
                asyncio.get_running_loop().call_later(ASK_AGAIN_S, barrier.go_on)
                return
            state = self.driver.state
            specs = (state.spec, state.previous, state.proven)
            keep = {spec.version for spec in specs if spec is not None} | {each.version for each in state.replicas.values()}
            await persist(partial(self._world.checkpoint.drop_code, self.name, frozenset(keep)))
            for version in self._actor_options.keys() - keep:
                del self._actor_options[version]

    async def _put(self, record: Record) -> str:
        """Store a record; returns why that has failed, "" where it has not."""
        try:
            await asyncio.to_thread(self._world.checkpoint.put_record, record)
        except Exception as error:  # it raises whatever its connection raises
            LOG.exception("the record of %s could not be stored; that is tried again", self.name)
            return f"what was decided about {self.name} cannot be stored, and is not carried out before it is: {error}"
        return ""


def recovered(world: World, record: Record, replica_ids: tuple[ReplicaId, ...]) -> Recovered:
    """How the core goes on with a deployment after a crash of the controller."""
    return Recovered(
        spec=record.spec,
        replica_ids=replica_ids,
        at=world.now(),
        epoch=world.epoch,
        previous=record.previous,
        deleting=record.deleting,
        failed=record.failed,
    )


def environment_of(code: Code) -> RuntimeEnv:
    """What a version's replicas run in."""
    return code.actor_options.get("runtime_env") or {}


def _told_rank(state: DeploymentState, replica_id: ReplicaId) -> int | None:
    replica = state.replicas.get(replica_id)
    return replica.told.rank if replica is not None and replica.told is not None else None
