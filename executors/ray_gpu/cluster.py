"""The cluster's machine on Ray: one loop around its state, and a backend of Ray's parts that carry its commands out.

Events come from what Ray's parts tell, and from what users ask for (`request`). All of it happens on the controller's event
loop. Nothing here waits, except for what is to be found before the machine begins.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import attrs

from executors.base import Executor
from executors.engine.backend import ClusterBackend
from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.journal import LenientJournal
from executors.engine.loop import ClusterLoop
from executors.engine.recent_notes import RecentNotes
from executors.maintenance import Maintenance
from executors.ray_gpu.changes_awaited import Changes
from executors.ray_gpu.cordons import Cordons
from executors.ray_gpu.deployment_actors import end as end_actors
from executors.ray_gpu.deployment_actors import sweep as sweep_actors
from executors.ray_gpu.discovery import find_replicas, find_workers, kill_replica
from executors.ray_gpu.ids_on_ray import renamed_id
from executors.ray_gpu.loop_health import ControllerHealth
from executors.ray_gpu.metrics.of_decisions import Decisions
from executors.ray_gpu.metrics.publisher import publish
from executors.ray_gpu.node_news import NodeNews
from executors.ray_gpu.own_groups import sweep as sweep_groups
from executors.ray_gpu.policy_asker import PolicyAsker
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.record_writer import RecordWriter
from executors.ray_gpu.replacements import Replacements
from executors.ray_gpu.room import demands
from executors.ray_gpu.scaling_policy import PolicySource
from executors.ray_gpu.stray_replicas import StrayReplicas
from executors.ray_gpu.user_code import Code
from executors.ray_gpu.worker.workers import WorkersOnRay
from executors.ray_gpu.world import World, persist
from rankcore.cluster import ClusterState
from rankcore.cluster.events import ClusterEvent
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.planner import FAILURES_WITHIN_S, may_place
from rankcore.cluster.records import Record
from rankcore.cluster.residency import deployment_of
from rankcore.cluster.state import Entry
from rankcore.errors import PlannerFailedError
from rankcore.values import NodeId, ReplicaId

if TYPE_CHECKING:
    from executors.ray_gpu.worker.places import Places

LOG = logging.getLogger(__name__)


class ClusterOnRay:
    """Owns the loop.

    Args:
        journal: What steps are written to; None: nothing. It ends by itself where it cannot be written, and raises nothing.

    Attributes:
        deployments: Those in the state, and those that are gone and not tidied up yet, by id.
        left_alone: Why, by their ids on Ray: deployments that could not be taken over.
        applications: For whoever waits for a change of what requests from outside reach.
        workers: The processes that have weights which may be COLD.
        cordons: Nodes that nothing new is to come to, or that are to be left.
        replacements: Replicas that are to be replaced by name.
        notes: The newest of them.
        health: How this process keeps up with steps.
        on_change: Called with the id of a deployment whenever something about it may be new to those who call it.
    """

    loop: ClusterLoop

    def __init__(self, world: World, journal: LenientJournal | None) -> None:
        self.deployments: dict[DeploymentId, RayDeployment] = {}
        self.left_alone: dict[str, str] = {}
        self.applications = Changes()
        self.workers = WorkersOnRay(world, self._find, self._places_of, self._tell)
        self.on_change: Callable[[DeploymentId], None] = lambda _: None
        self.backend = ClusterBackend(
            RecordWriter(world, self._saved),
            self._executor_of,
            world.now,
            PolicyAsker(self._policy_of, world.now),
            self._on_news,
            self.workers,
        )
        self._world = world
        self.notes = RecentNotes(journal)
        self.health = ControllerHealth()
        self._decisions = Decisions(lambda: self.state, world.now, world.checks)
        self._seen: ClusterState | None = None
        self._is_pumping = False
        self._alarm: asyncio.TimerHandle | None = None
        self._codes_found: dict[DeploymentId, dict[str, Code]] = {}  # of those whose workers have not reported yet
        self._node_news = NodeNews(world, self.backend.tell, self.deployments.values, self.workers)
        self._maintenance = kept = Maintenance(world.checkpoint)
        self.cordons = Cordons(world, kept, lambda: self.state, self.request, self._cordons_changed)
        self.replacements = Replacements(world, kept, lambda: self.loop, self.why_left_alone, self.request)
        self._code_lock = asyncio.Lock()  # what is put for a deployment is not dropped before it is one of its versions
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> ClusterState:
        """As the machine has it."""
        return self.loop.state

    # -- beginnings

    async def recover(self) -> None:
        """Go on with what there is: with what the store has, and the replicas that are found."""
        world = self._world
        await persist(self._maintenance.read)
        self.cordons.recover()
        found = await persist(partial(find_replicas, world.namespace))
        world.own_groups = await persist(partial(sweep_groups, world.namespace, found))
        workers = await persist(partial(find_workers, world.namespace))
        failures = await persist(partial(world.checkpoint.planner_failures, world.now() - FAILURES_WITHIN_S))
        stored = await persist(partial(world.checkpoint.records, world.epoch))
        records: dict[DeploymentId, Record] = {}
        ids_on_ray: dict[str, DeploymentId] = {}
        codes = self._codes_found
        for each in stored:
            if each.record is None:
                self._leave_alone(each.id_on_ray, each.problem)
            elif each.record.deleted:  # its record stays, for whoever finds an older one (`rankcore.cluster.records`)
                continue
            elif each.record.deployment in records:  # "b" and "a/b" of application a, from before ids were full
                self._leave_alone(each.id_on_ray, f"there is another {each.record.deployment}, which is older")
            else:
                deployment = each.record.deployment
                ids_on_ray[each.id_on_ray] = deployment
                codes[deployment] = await self._stored_codes(each.id_on_ray, each.record)
                records[deployment] = _with_demand(each.record, codes[deployment])
        replica_ids: dict[DeploymentId, list[ReplicaId]] = {}
        for id_on_ray, ids in found.items():
            deployment = ids_on_ray.get(id_on_ray, id_on_ray)
            if deployment in records and id_on_ray not in ids_on_ray:  # the replicas of that have other ids
                self._kill_all(id_on_ray, ids)
            else:
                replica_ids[deployment] = [renamed_id(each, id_on_ray, deployment) for each in ids]
        how = ClusterRecovered(
            records=tuple(records.values()),
            replica_ids=tuple(chain.from_iterable(replica_ids.values())),
            at=world.now(),
            epoch=world.epoch,
            unreadable=tuple(self.left_alone),
            workers={worker_id: node_id for worker_id, (node_id, _) in workers.items()},
            placing=may_place(max(0.0, world.now() - each) for each in failures),
        )
        if not how.placing:
            LOG.error("the planner of weights has failed %d times: no weights are placed by this controller", len(failures))
        self.workers.take_over(workers)
        first = how.step()
        for note in first.notes:
            if note.kind is ClusterNoteKind.LEFT_ALONE and note.rule == "P6" and note.deployment is not None:
                problem = f"its record and its replicas cannot be gone on with: {note.because}"
                self._leave_alone(next((k for k, v in ids_on_ray.items() if v == note.deployment), note.deployment), problem)
        actors = {k: list(codes.get(v, {})) for k, v in ids_on_ray.items()}
        await persist(partial(sweep_actors, world.namespace, actors, tuple(self.left_alone)))
        for deployment, entry in first.state.deployments.items():
            view = self._add(entry, codes.pop(deployment))
            view.executor.take_over(view.replica_on_ray(each) for each in replica_ids.get(deployment, ()))
        self.loop = ClusterLoop(CLUSTER, self.backend, first.state)
        self.loop.observer = self._observe
        self.loop.start(how, first, self.notes)
        self._look()
        self.cordons.begin()
        await self.replacements.recover()
        publish(self._decisions, Decisions.samples)

    def _observe(self, event: object, step: Any, took_s: float) -> None:
        self.health.step(took_s)
        self._decisions.observe(event, step, took_s)

    def _leave_alone(self, id_on_ray: str, problem: str) -> None:
        LOG.error("%s is not taken over, and its replicas go on: %s", id_on_ray, problem)
        self.left_alone[id_on_ray] = problem

    def why_left_alone(self, deployment: DeploymentId) -> str | None:
        """Of a deployment by its full name; None: it is not."""
        return self.left_alone.get(deployment, self.left_alone.get(deployment.partition("/")[2]))

    async def _stored_codes(self, id_on_ray: str, record: Record) -> dict[str, Code]:
        """The versions that may be started, or of which replicas may run, without the user's code itself."""
        specs = (record.spec, record.previous, record.applied.ranks)
        stored = await persist(partial(self._world.checkpoint.versions, id_on_ray))
        versions = sorted({*stored, *(spec.version for spec in specs if spec is not None)})
        codes = [await persist(partial(self._world.checkpoint.code, id_on_ray, version)) for version in versions]
        return {code.version: code.without_code for code in codes if code is not None}

    def _add(self, entry: Entry, codes: dict[str, Code]) -> RayDeployment:
        view = RayDeployment(self._world, entry, codes, self.backend.tell, self._on_news, self._changed)
        self.deployments[view.deployment] = view
        self.workers.attach(view.deployment)
        return view

    def _find(self, deployment: DeploymentId) -> RayDeployment | None:
        """A deployment that there is. It may have been recovered in this very step: once its workers had reported."""
        if deployment in self._codes_found and deployment in self.state.deployments:
            self._add(self.state.deployments[deployment], self._codes_found.pop(deployment))
        return self.deployments.get(deployment)

    def _places_of(self, node_id: NodeId) -> "Places | None":
        return self._node_news.memory.places.get(node_id)

    def _tell(self, event: ClusterEvent) -> None:
        self.backend.tell(event)

    def _deliver(self, event: ClusterEvent) -> None:
        try:
            self.loop.deliver(event)
        except PlannerFailedError as error:
            self._end(error)

    def is_recovering(self, deployment: DeploymentId) -> bool:
        """Whether it is adopted once its workers have reported: until then there is nothing to be said of it."""
        return deployment in self.state.weights.recovering

    # -- what users ask for

    def request(self, event: ClusterEvent) -> None:
        """What a user asks for. What follows from it is given out once it is stored (`is_saved`).

        Raises:
            RankcoreError: The machine refuses it; nothing has changed.
        """
        self._deliver(event)
        self._look()

    async def request_with_code(
        self, event: ClusterEvent, codes: Mapping[DeploymentId, Code], still: Callable[[], None] = lambda: None
    ) -> None:
        """The same, for deployments of which a version of the user's code is to be stored before.

        Args:
            still: Raises where it is not to be any more; called right before.

        Raises:
            RankcoreError: That, or the machine refuses it; nothing has changed.
        """
        await self.until_gone(each for each in codes if each in self.deployments and self.deployments[each].is_gone)
        async with self._code_lock:
            self.loop.check(event)
            for code in codes.values():
                await self._world.call(self._world.checkpoint.put_code, code)
            still()  # others are heard while code is stored
            self._deliver(event)
            for deployment, code in codes.items():
                if deployment not in self.deployments:
                    self._add(self.state.deployments[deployment], {}).executor.routes = {}  # nobody was there before
                self.deployments[deployment].add_code(code)
            self._look()

    def is_saved(self, deployment: DeploymentId, number: int | None = None) -> bool:
        """Whether the record of this number is stored, or a newer one; None: the newest. So it is of what is gone."""
        entry = self.state.deployments.get(deployment)
        return entry is None or entry.outbox.saved >= (entry.outbox.record.number if number is None else number)

    async def until_saved(self, deployments: Iterable[DeploymentId]) -> None:
        """Wait until what is decided about these by now is stored."""
        entries = [self.state.deployments[each] for each in deployments if each in self.state.deployments]
        for record in [entry.outbox.record for entry in entries]:
            saved = partial(self.is_saved, record.deployment, record.number)
            await self.deployments[record.deployment].changes.until(saved)

    async def until_no_weights(self) -> None:
        """Wait until no process has weights that may be COLD, and give back what was planned for such."""
        await self.workers.changes.until(lambda: not self.workers.processes)
        self._node_news.memory.close()
        await self._node_news.memory.closed()

    async def until_gone(self, deployments: Iterable[DeploymentId]) -> None:
        """Wait until nothing is left of these, and the memory of their weights is free: until their processes have ended."""
        names = frozenset(deployments)
        # Those of one that takes the name meanwhile are not meant.
        leaving = [process for each, process in self.workers.processes.items() if deployment_of(each) in names]
        for view in [self.deployments[each] for each in names if each in self.deployments]:
            await view.changes.until(partial(self.is_gone, view))
        for process in leaving:
            await process.gone.wait()

    def _cordons_changed(self) -> None:
        self.applications.wake()  # the proxies on drained nodes say so
        for view in self.deployments.values():
            view.executor.spares.look_again()

    def _changed(self, deployment: DeploymentId) -> None:
        self.on_change(deployment)

    def is_gone(self, view: RayDeployment) -> bool:
        """Whether nothing is left of a deployment."""
        return self.deployments.get(view.deployment) is not view

    # -- what happens

    def _on_news(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        while True:
            try:
                self.loop.deliver_all()
                break
            except PlannerFailedError as error:
                return self._end(error)
            except Exception:  # the event is refused, and those behind it are not
                LOG.exception("the core refused an event")
        self._look()

    def _end(self, error: PlannerFailedError) -> None:
        """End this process: the next controller learns from the workers what they hold (`rankcore.cluster.planner`)."""
        LOG.critical("the planner of weights has failed, and this controller ends: %s", error, exc_info=error)
        try:
            self._world.checkpoint.put_planner_failure(self._world.now())
        finally:
            os._exit(1)

    def _look(self) -> None:
        """Take from the new state what others wait for, and be back when the machine wants to be woken."""
        before, state = self._seen, self.state
        self._seen = state
        if before is None or state.deployments is not before.deployments:
            for deployment, entry in state.deployments.items():
                found = self._find(deployment)
                assert found is not None, f"{deployment} is in the state, and nobody has added it"
                if found.entry is not entry:
                    found.look(entry)
            for deployment in [each for each in self.deployments if each not in state.deployments]:
                view = self.deployments[deployment]
                if not view.is_gone:
                    view.is_gone = True
                    self._spawn(self._tidy_up(view))
            self._node_news.follow(state)
        if before is None or state.applications is not before.applications:
            self._node_news.look_soon()
            self.applications.wake()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self.backend.wake_at < float("inf"):
            delay_s = max(0.0, self.backend.wake_at - self._world.now())
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._on_news)

    async def _tidy_up(self, view: RayDeployment) -> None:
        """End what is left of a deployment that is gone, and forget its code."""
        await view.close()
        await self._end_actors(view, frozenset())
        await persist(partial(self._world.checkpoint.forget, view.id_on_ray))
        if not self.is_gone(view):
            del self.deployments[view.deployment]
            self.backend.executors.pop(view.deployment, None)
        view.changes.wake()

    def _saved(self, record: Record) -> None:
        if not record.deleted:
            self._spawn(self._drop_code(record.deployment))

    async def _drop_code(self, deployment: DeploymentId) -> None:
        async with self._code_lock:
            view = self.deployments.get(deployment)
            if view is None or view.is_gone or not self.is_saved(deployment):
                return
            versions = view.wanted_versions()
            try:
                await self._world.call(self._world.checkpoint.drop_code, view.id_on_ray, versions)
            except Exception as error:  # it raises whatever its connection raises; the next record is another occasion
                LOG.warning("versions of %s that nobody will start again stay stored: %s", deployment, error)
            await self._end_actors(view, versions)
            view.keep_code(versions)

    async def _end_actors(self, view: RayDeployment, kept: frozenset[str]) -> None:
        """End what replicas of all but these versions have shared."""
        for version, code in view.codes().items():
            if version not in kept and code.actor_names:
                end = partial(end_actors, self._world.namespace, view.id_on_ray, version, code.actor_names)
                await persist(end)

    def _executor_of(self, deployment: DeploymentId) -> Executor:
        view = self._find(deployment)
        return view if view is not None else StrayReplicas(lambda each: self._kill_all(deployment, [each]))

    def _policy_of(self, deployment: DeploymentId) -> PolicySource | None:
        view = self.deployments.get(deployment)
        return view.extras.policy if view is not None else None

    def _kill_all(self, id_on_ray: str, replica_ids: list[ReplicaId]) -> None:
        LOG.warning("%d replicas of %s, which nobody wants, are stopped", len(replica_ids), id_on_ray)
        for each in replica_ids:
            self._spawn(persist(partial(kill_replica, self._world.namespace, id_on_ray, each)))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _with_demand(record: Record, codes: dict[str, Code]) -> Record:
    """A record of before records had what a replica asks for, with that."""
    if record.number or record.applied.ranks.version not in codes:
        return record
    demand = demands(codes[record.applied.ranks.version].actor_options)
    return attrs.evolve(record, applied=attrs.evolve(record.applied, demand=demand))
