"""The controller: one detached actor per namespace that hosts the driver of every deployment. It waits for nothing.

Ray restarts it whenever it dies. It then claims the next epoch, which fences off whatever an earlier one left under way,
finds the replicas by their names, and recovers.
"""

import asyncio
import itertools
import logging
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

import attrs

from executors import operations
from executors.deployment_ids import deployment_id, meant_by, split
from executors.engine.recent_notes import Notes
from executors.node_reports import node_meant
from executors.ray_gpu import traces
from executors.ray_gpu.capacity import ShareInForce
from executors.ray_gpu.checkpoint import Checkpoint
from executors.ray_gpu.cluster import ClusterOnRay
from executors.ray_gpu.deployment_info import info_of
from executors.ray_gpu.environment import hold, refer_to, uploaded
from executors.ray_gpu.errors import InvalidDeploymentError, NameInUseError, UnknownNameError, not_one
from executors.ray_gpu.ids_on_ray import renamed_id
from executors.ray_gpu.in_force import config_of, outside_of, share_in_force
from executors.ray_gpu.journal_place import open_journal
from executors.ray_gpu.membership import Membership
from executors.ray_gpu.messages import DeploymentNews, Ingress, LoadReport, Routes, Seen, Version, WatchQuestion
from executors.ray_gpu.metrics.of_decisions import of_proxies
from executors.ray_gpu.metrics.publisher import publish
from executors.ray_gpu.overview import SETTLED, CordonedNode, DeploymentInfo, Status, WorkerStatus
from executors.ray_gpu.packing import wanted_of
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.proxies.keeper import ProxyKeeper
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.ray_deployment import RayDeployment, environment_of
from executors.ray_gpu.routing_table import routing_of
from executors.ray_gpu.versions import versions
from executors.ray_gpu.waiting_line import WaitingLine
from executors.ray_gpu.warm_workers import WarmWorkers
from executors.ray_gpu.watched import Watched
from executors.ray_gpu.watches import Watches
from executors.ray_gpu.worker.options import MemoryOptions
from executors.ray_gpu.worker.standing import memory_of, workers_of
from executors.ray_gpu.world import NodeInfo, World, live_nodes, persist
from executors.revisions import check_revision, revision_of
from rankcore.cluster.events import (
    ApplyRequested,
    CordonNews,
    DeletionRequested,
    LoadReported,
    ReportedLoad,
)
from rankcore.cluster.names import DeploymentId, application_of
from rankcore.cluster.planning import ClusterPlan, plan_cluster
from rankcore.errors import InvalidEventError, InvalidSpecError, RankcoreError
from rankcore.events import NodeCordoned, NodeDrainRequested, NodeUncordoned, ReplaceRequested, StopRequested
from rankcore.residency.defragmentation import Proposal, propose_defragmentation
from rankcore.residency.events import EvictRequested
from rankcore.residency.levels import Level
from rankcore.values import ReplicaId

if TYPE_CHECKING:
    from executors.ray_gpu.packing import Package

LOG = logging.getLogger(__name__)

LOAD_FIELDS = [field.name for field in attrs.fields(ReportedLoad)]
LONG_POLL_S = 30.0
"""Whoever waits for something is told after this long that it has not happened, and may ask again. Callers die, and Ray tells
nobody: their questions would stay for ever, and an actor answers so many at a time."""


class Controller:
    """What drivers talk to. A method that waits says so; all others answer at once.

    Deployments are known by `application/deployment`. What they are to be is decided by the cluster's machine (`cluster`),
    which is asked here for what users want.

    Ray restarts a controller by the names that its methods had when it was created, private ones too: where a cluster is
    upgraded in place, the code of now has to have all methods of then.
    """

    _world: World

    async def __init__(self, namespace: str, journal: str | None) -> None:  # type: ignore[misc]
        """Raise the fence, find what there is, and go on with it."""
        self._watched = Watched()
        self._watched.begin()
        self._deploying = asyncio.Lock()
        self._reports = itertools.count()
        checkpoint = Checkpoint(namespace)
        epoch = await persist(checkpoint.raise_fence)
        origin = await persist(checkpoint.origin)
        self._world = World(namespace, epoch, checkpoint, origin)
        self._world.line = WaitingLine(self._world)
        self._world.on_placed = WarmWorkers(self._world).used
        self._journal = open_journal(namespace, journal) if journal is not None else None
        self._proxies = ProxyKeeper(self._world)
        self._cluster = ClusterOnRay(self._world, self._journal)
        self._watch_calls()
        self._cluster.health.begin()
        await self._recover()
        self._holding = asyncio.get_running_loop().create_task(hold(self._packages))

    def _watch_calls(self) -> None:
        """Know which processes call what."""

        def known(name: str) -> RayDeployment | None:
            return self._of_handle(name) if name not in self._cluster.left_alone else None

        def is_gone(name: str) -> bool:
            found = known(name)
            if found is not None:
                return self._deleted(found)
            return self._why_left_alone(name) is None and not self._cluster.is_recovering(name)

        self._watches = Watches(self._world.epoch, known, is_gone, self._world.now)
        self._cluster.on_change = self._watches.touch

    async def _recover(self) -> None:
        proxies = await persist(self._world.checkpoint.proxies)
        if proxies is not None:
            await self._proxies.keep(proxies)
        self._deployed = await persist(self._world.checkpoint.deployed)
        await self._cluster.recover()
        publish(self._proxies, of_proxies)

    # -- deployments

    async def deploy(self, packages: "tuple[Package, ...]", replace: bool) -> None:
        """`apply`, of one application."""
        await self.apply(packages, replace, False)

    async def apply(self, packages: "tuple[Package, ...]", replace: bool, prune: bool, expected: str | None = None) -> str:
        """Deploy applications, or change what there is to them; what these no longer have is deleted. One request: all of it is
        taken, or nothing. Repeatable. Waits until that is stored.

        Args:
            replace: Whether a deployment may replace one of another class that has its name.
            prune: Whether all other applications are deleted.
            expected: The revision that is to be in force until then; None: any may be.

        Returns:
            The revision that this has brought.

        Raises:
            ConflictError: Another one is. Nothing was deployed.
            NameInUseError: A name belongs to another class, or to something that is being deleted, or a prefix to another
                application. Likewise.
            RankcoreError: A spec is not allowed here. Likewise.
        """
        async with self._deploying:  # two applications at once could both find a name free
            self._check_revision(expected)
            for package in packages:
                self._check_name(package, replace)
            await self._world.call(refer_to, frozenset().union(*(uploaded(environment_of(each.code)) for each in packages)))
            await self._deploy(packages, prune, expected)
            brought = self._revision()
            await self._note_time({each.code.app_name for each in packages})
        await self._cluster.until_saved(package.spec.name for package in packages)
        return brought

    async def _note_time(self, deployed: set[str]) -> None:
        """Applications are deployed now, which is only shown: it is no mistake where it cannot be stored."""
        there_are = self._cluster.state.applications
        times = self._deployed | dict.fromkeys(deployed, time.time())
        self._deployed = {name: at for name, at in times.items() if name in there_are}
        try:
            await self._world.call(self._world.checkpoint.put_deployed, self._deployed)
        except Exception:  # it raises whatever its connection raises
            LOG.exception("when applications were deployed could not be stored")

    async def plan(self, packages: "tuple[Package, ...]", replace: bool, prune: bool) -> ClusterPlan:
        """What `apply` would bring, if nothing failed. Nothing changes.

        Raises:
            NameInUseError, RankcoreError: As `apply`.
        """
        for package in packages:
            self._check_name(package, replace)
        try:
            return plan_cluster(self._cluster.state, self._wanted(packages, prune)[1])
        except RankcoreError as error:
            self._check_prefix(error)
            raise

    async def revision(self) -> str:
        """Of what users want, for `apply`."""
        return self._revision()

    async def notes(self, after: int) -> Notes:
        """What was decided after the note of this number of this epoch."""
        return attrs.evolve(self._cluster.notes.after(after), epoch=self._world.epoch, now=self._world.now())

    async def propose_defragmentation(self, name: str | None) -> Proposal:
        """Moves that would let weights fit; nothing is moved.

        Args:
            name: Of the deployment; None: the largest that waits.

        Raises:
            UnknownNameError: There is no such deployment.
            InvalidDeploymentError: Its weights are not such that may be COLD.
        """
        model = None if name is None else await self.require(name)
        if model is not None and self._cluster.deployments[model].entry.residency is None:
            raise InvalidDeploymentError(f"{model} has no residency: its replicas have their weights for life")
        return propose_defragmentation(self._cluster.state.weights.planner, model)

    async def config(self) -> dict[str, Any]:
        """What is in force, as a file of applications says it."""
        spans = await self._world.call(traces.kept, self._world.namespace)
        return config_of(self._cluster.state.applications, self._cluster.deployments, self._proxies.options, spans)

    async def share(self) -> ShareInForce:
        """Of their replicas that all deployments are to have."""
        return share_in_force(self._cluster.state.applications, self._cluster.deployments)

    def _check_name(self, package: "Package", replace: bool) -> None:
        code, name = package.code, package.spec.name
        if (why := self._why_left_alone(name)) is not None:
            raise NameInUseError(f"{name} is left alone: {why}; shutdown() removes it, with all else")
        found = self._cluster.deployments.get(name)
        if found is None:
            if (other := self._with_id_on_ray(name)) is not None:
                raise NameInUseError(f"{name} is the id of {other.deployment}, which is older: delete that first")
        elif found.extras.class_name != code.class_name and not replace and not found.entry.deleting:
            raise NameInUseError(
                f"{name} is the name of a deployment of {found.extras.class_name} already: delete that first, or "
                f"deploy {code.class_name} under another name with .options(name=...), or pass replace=True to run()"
            )

    def _wanted(self, packages: "tuple[Package, ...]", prune: bool) -> "tuple[list[Package], ApplyRequested]":
        ids_on_ray = {name: found.id_on_ray for name, found in self._cluster.deployments.items() if not found.is_gone}
        wanted = [package.on_ray(ids_on_ray.get(package.spec.name)) for package in packages]
        for each in wanted:
            if each.residency is not None and each.code.deployment != each.spec.name:
                raise InvalidDeploymentError(
                    f"residency of {each.spec.name} cannot be had while {each.code.deployment} has its place, which is from "
                    "before deployments were called after their applications: delete that first"
                )
        return wanted, wanted_of(wanted, prune, self._world.now())

    async def _deploy(self, packages: "tuple[Package, ...]", prune: bool, expected: str | None) -> None:
        wanted, event = self._wanted(packages, prune)
        try:
            codes = {each.spec.name: each.code for each in wanted}
            await self._cluster.request_with_code(event, codes, lambda: self._check_revision(expected))
        except RankcoreError as error:
            self._check_prefix(error)
            raise

    def _revision(self) -> str:
        return revision_of(self._cluster.state, self._outside_said())

    def _check_revision(self, expected: str | None) -> None:
        check_revision(self._cluster.state, expected, self._outside_said())

    def _outside_said(self) -> dict[str, Any]:
        """What writers have said of proxies: those that the first route has started are as nobody has said."""
        options = self._proxies.options
        return {} if options == ProxyOptions() else outside_of(options)

    def _check_prefix(self, error: RankcoreError) -> None:
        """Say in the words of users what the machine has refused."""
        if isinstance(error, InvalidEventError):  # it is being deleted, or frozen
            raise NameInUseError(f"{error.found} cannot be deployed now: {error.allowed}") from None
        if isinstance(error, InvalidSpecError) and error.field.endswith(".route_prefix"):
            raise NameInUseError(
                f"route_prefix {error.found!r} must be {error.allowed}: give this application another, or None for no HTTP"
            ) from None

    async def evict(self, name: str, keep: str) -> None:
        """Take the replicas of a deployment off the GPUs, or the one replica that has the name. Does not wait for them.

        Args:
            keep: WARM: a copy stays in the node's memory if there is room; COLD: none does.

        Raises:
            UnknownNameError: There is no such deployment or replica.
            InvalidDeploymentError: Its weights are not such that may be COLD, or it is being deleted.
        """
        found = self._host(await self.require(name.partition("#")[0]))
        replica_id = f"{found.deployment}#{name.partition('#')[2]}" if "#" in name else None
        if replica_id is not None and replica_id not in found.entry.ranks.replicas:
            raise UnknownNameError(f"there is no replica {replica_id!r}: status() shows those that there are")
        if found.entry.residency is None:
            raise InvalidDeploymentError(f"{found.deployment} has no residency: its replicas have their weights for life")
        model = found.deployment if replica_id is None else None
        event = EvictRequested(model=model, replica_id=replica_id, keep=Level(keep), at=self._world.now())
        try:
            self._cluster.request(event)
        except InvalidEventError as error:
            raise InvalidDeploymentError(str(error)) from None
        await self._cluster.until_saved((found.deployment,))

    async def use_tracing(self, config: dict[str, Any]) -> None:
        """Have replicas and proxies that begin from now on leave these spans. Repeatable."""
        await self._world.call(traces.keep, self._world.namespace, traces.tracing_config_of(config))

    async def use_memory(self, options: MemoryOptions) -> None:
        """Have weights that may be COLD use this memory of nodes. Repeatable.

        Raises:
            InvalidDeploymentError: There are such weights, and they use other memory.
        """
        if options == await self._world.call(self._world.checkpoint.memory):
            return
        users = sorted(name for name, found in self._cluster.deployments.items() if found.entry.residency is not None)
        if users or self._cluster.workers.processes:
            first = f"delete {', '.join(users)}" if users else "wait until workers have ended"
            raise InvalidDeploymentError(f"memory can be chosen where nobody uses it: {first}")
        await self._world.call(self._world.checkpoint.put_memory, options)

    async def change(
        self,
        name: str,
        fields: dict[str, Any],
        stop_first: tuple[ReplicaId, ...],
        routing_fields: dict[str, Any] | None = None,
    ) -> None:
        """Change some fields of a deployment's spec, and of how its calls are routed. Repeatable. Waits until that is stored.

        Raises:
            InvalidDeploymentError: It asks for a number of replicas, which follows the load; or it is being deleted.
        """
        found = self._host(await self.require(name))
        bare = split(found.deployment)[1]
        renamed = (renamed_id(each, found.id_on_ray, found.deployment) for each in stop_first)
        first = tuple(renamed_id(each, bare, found.deployment) for each in renamed)
        routing = attrs.evolve(routing_of(found.entry), **routing_fields) if routing_fields else None
        try:
            for event in operations.changed(found.entry, fields, self._world.now(), stop_first=first, routing=routing):
                self._cluster.request(event)
        except InvalidEventError as error:
            raise InvalidDeploymentError(str(error)) from None
        await self._cluster.until_saved((found.deployment,))

    async def rollback(self, name: str) -> None:
        """Want what was healthy last again: its code, user_config and restart token, in all ranks. Waits until that is stored.

        Raises:
            InvalidDeploymentError: Nothing else was healthy; or it is being deleted.
        """
        found = self._host(await self.require(name))
        await self.change(found.deployment, operations.rolled_back(found.entry), ())

    async def retry(self, name: str, ranks: tuple[int, ...]) -> None:
        """End the back-off of these ranks, or of all, and try again what was given up. Waits until that is stored.

        Raises:
            InvalidDeploymentError: There is no such rank, or none that waits; or it is being deleted.
        """
        found = self._host(await self.require(name))
        event = operations.retried(found.entry, ranks, self._world.now())
        try:
            self._cluster.request(event)
        except InvalidEventError as error:
            raise InvalidDeploymentError(str(error)) from None
        await self._cluster.until_saved((found.deployment,))

    def _host(self, deployment: str) -> RayDeployment:
        """A deployment that is to stay."""
        found = self._cluster.deployments[deployment]
        if found.entry.deleting or found.is_gone:
            raise InvalidDeploymentError(f"{deployment} is being deleted")
        return found

    async def stop_replicas(self, replica_ids: tuple[ReplicaId, ...]) -> None:
        """Stop some replicas; each is replaced, with its own rank.

        Raises:
            UnknownNameError: There is no such replica, or there are several of that name. None is stopped.
        """
        self._cluster.request(StopRequested(replica_ids=self._replicas_meant(replica_ids), at=self._world.now()))

    async def replace_replicas(self, replica_ids: tuple[ReplicaId, ...], deadline_s: float | None) -> None:
        """Replace some replicas within the budget, each by a successor with its rank that has a place before it goes.

        Repeatable. Waits until that is stored.

        Raises:
            UnknownNameError: There is no such replica, or there are several of that name. None is replaced.
            InvalidDeploymentError: The weights of one of them may be COLD. Likewise.
        """
        now = self._world.now()
        deadline_at = now + deadline_s if deadline_s is not None else None
        event = ReplaceRequested(replica_ids=self._replicas_meant(replica_ids), deadline_at=deadline_at, at=now)
        try:
            await self._cluster.replacements.ask(event)
        except InvalidEventError as error:
            raise InvalidDeploymentError(str(error)) from None

    def _replicas_meant(self, replica_ids: tuple[ReplicaId, ...]) -> tuple[ReplicaId, ...]:
        known = {
            found.replica_on_ray(replica_id): replica_id
            for found in self._cluster.deployments.values()
            for replica_id in found.entry.ranks.replicas
        }
        return operations.replicas_meant(replica_ids, known)

    # -- nodes

    async def cordon(self, name: str) -> CordonedNode:
        """Let nothing new come to a node. Repeatable. Waits until that is stored.

        Raises:
            UnknownNameError: No node that is alive has this id, beginning of an id, or address, or several have.
        """
        node = await self._node_meant(name)
        return await self._ask_of_node(node, NodeCordoned(node_id=node.node_id, at=self._world.now()))

    async def uncordon(self, name: str) -> CordonedNode:
        """Cordon and drain of a node are over. Repeatable. Waits until that is stored.

        Raises:
            UnknownNameError: As `cordon`.
            InvalidCallError: Ray itself drains it.
        """
        node = await self._node_meant(name)
        return await self._ask_of_node(node, NodeUncordoned(node_id=node.node_id, at=self._world.now()))

    async def drain(self, name: str, deadline_s: float | None, reason: str) -> CordonedNode:
        """Have all replicas leave a node, by a deadline or when it suits. Waits until that is stored.

        Raises:
            UnknownNameError: As `cordon`.
        """
        node, now = await self._node_meant(name), self._world.now()
        deadline_at = now + deadline_s if deadline_s is not None else None
        return await self._ask_of_node(
            node, NodeDrainRequested(node_id=node.node_id, deadline_at=deadline_at, reason=reason, at=now)
        )

    async def _node_meant(self, name: str) -> NodeInfo:
        nodes = await self._world.call(live_nodes)
        return nodes[node_meant(name, {each: node.address for each, node in nodes.items()})]

    async def _ask_of_node(self, node: NodeInfo, event: CordonNews) -> CordonedNode:
        await self._cluster.cordons.ask(event)
        return self._cluster.cordons.report(node.node_id, node, self._cluster.deployments.values())

    async def delete(self, deployments: tuple[str, ...]) -> None:
        """Delete deployments, and wait until they are gone. Repeatable."""
        there = tuple(each for each in deployments if each in self._cluster.state.deployments)
        if there:
            self._cluster.request(DeletionRequested(deployments=there, at=self._world.now()))
        await self._cluster.until_gone(deployments)

    async def end_workers(self) -> None:
        """Wait until nothing is left of weights that may be COLD: all deployments are deleted. The journal has its end then."""
        await self._cluster.until_no_weights()
        if self._journal is not None:
            self._journal.end()

    def _packages(self) -> frozenset[str]:
        """The uploaded folders that replicas of now or later, and proxies, are started with."""
        options = self._proxies.options
        outside = options.grpc.runtime_env if options is not None and options.grpc is not None else {}
        there = self._cluster.deployments.values()
        return frozenset().union(uploaded(outside), *(found.packages() for found in there))

    # -- requests from outside

    async def serve_outside(self, options: ProxyOptions, replace: bool, timeout_s: float) -> tuple[ProxyInfo, ...]:
        """Have proxies on the nodes that should have them, and wait until they are up. Repeatable.

        Args:
            replace: Whether other options take the place of those in force; else these stay.
        """
        if replace or self._proxies.options is None:
            await self._world.call(self._world.checkpoint.put_proxies, options)
            await self._proxies.keep(options)
        return await self._proxies.until_up(timeout_s)

    async def proxy_options(self) -> ProxyOptions | None:
        """What proxies serve; None: there are none."""
        return self._proxies.options

    async def end_proxies(self) -> None:
        """End the proxies; what is under way is answered first."""
        await self._proxies.close()
        await self._world.call(self._world.checkpoint.put_proxies, None)

    async def ingress(self, seen: Ingress | None) -> Ingress:
        """Which deployments requests from outside reach, and which nodes are drained. Waits for others than those seen, for a
        while.
        """
        await self._cluster.applications.until(lambda: self._ingress_changed(seen), LONG_POLL_S)
        return self._ingress()

    def _ingress(self) -> Ingress:
        applications = {name: each for name, each in self._cluster.state.applications.items() if each.ingress is not None}
        return Ingress(
            {each.route_prefix: str(each.ingress) for each in applications.values() if each.route_prefix is not None},
            {name: str(each.ingress) for name, each in applications.items()},
            self._cluster.cordons.drained,
        )

    def _ingress_changed(self, seen: Ingress | None) -> bool:
        now = self._ingress()
        if seen is not None and seen.drained is None:
            now = attrs.evolve(now, drained=None)  # it is never seen by a proxy of before
        return now != seen

    # -- what drivers want to know

    async def hello(self) -> dict[str, str]:
        """Which versions run here."""
        return versions()

    async def deployments(self) -> dict[str, bool]:
        """The names of all deployments, and whether each is being deleted."""
        return {name: found.entry.deleting for name, found in sorted(self._cluster.deployments.items())}

    async def health(self) -> dict[str, Any]:
        """How this process keeps up."""
        return self._cluster.health.read()

    async def status(self) -> Status:
        """What there is, and how it is."""
        there = self._cluster.deployments
        settled = all(found.entry.ranks.status in SETTLED for found in there.values())
        cordons = self._cluster.cordons
        nodes = {} if settled and not cordons.nodes else await self._world.call(live_nodes)
        waits_on = {} if settled else nodes
        workers = workers_of(self._cluster.state)
        return Status(
            namespace=self._world.namespace,
            epoch=self._world.epoch,
            controller_pid=os.getpid(),
            journal=self._journal.path if self._journal is not None and not self._journal.broken else None,
            journal_problem=self._journal.problem if self._journal is not None else None,
            proxy_infos=self._proxies.infos,
            deployed=self._deployed,
            target_capacity=share_in_force(self._cluster.state.applications, there).percent,
            deployments={name: self._info(each, waits_on, workers.get(name, ())) for name, each in sorted(there.items())},
            cordons=tuple(cordons.report(each, nodes.get(each), there.values()) for each in sorted(cordons.nodes)),
            left_alone=self._cluster.left_alone,
            memory=memory_of(self._cluster.state),
            revision=self._revision(),
            routes={each.route_prefix: name for name, each in self._cluster.state.applications.items() if each.route_prefix},
        )

    async def require(self, name: str, application: str | None = None) -> str:
        """The full name of a deployment, perhaps of one that is being deleted.

        Args:
            name: Full, or bare where no other application has a deployment of that name.
            application: Whose is meant where it has one of that bare name.

        Raises:
            UnknownNameError: There is none, or there are several; says which.
        """
        preferred = deployment_id(application, name) if application is not None else name
        there, left_alone = self._cluster.deployments, self._cluster.left_alone
        found = [preferred] if preferred in there else meant_by(name, there)
        if len(found) == 1:
            return found[0]
        of_application = (each for each in left_alone if split(each)[0] == name)
        for left in () if found else (preferred, *meant_by(name, left_alone), *of_application):
            if (why := self._why_left_alone(left)) is not None:
                raise UnknownNameError(f"{left} is left alone: {why}; shutdown() removes it, with all else")
        raise UnknownNameError(not_one("deployment", name, found, there))

    async def find_all(self, name: str) -> tuple[str, ...]:
        """The full names of an application's deployments, else of the one deployment that has the name.

        Raises:
            UnknownNameError: There is neither, or there are several deployments of the name; says which.
        """
        of_application = tuple(sorted(each for each in self._cluster.deployments if application_of(each) == name))
        return of_application or (await self.require(name),)

    async def ingress_of(self, application: str) -> str:
        """The full name of the deployment that `run` gave a handle of.

        Raises:
            UnknownNameError: There is no such application; says which there are.
        """
        found = self._ingress().applications
        if application not in found:
            raise UnknownNameError(not_one("application", application, (), found))
        return found[application]

    async def wait_settled(self, name: str, wait_s: float) -> DeploymentInfo:
        """Wait until a deployment is healthy or has failed, for a while, and tell how it is."""
        found = self._host(await self.require(name))

        def settled() -> bool:
            return found.entry.ranks.status in SETTLED

        await found.changes.until(lambda: settled() or self._deleted(found), min(wait_s, LONG_POLL_S))
        if self._deleted(found):
            raise UnknownNameError(f"{name} was deleted while it was waited for")
        nodes = {} if settled() else await self._world.call(live_nodes)
        return self._info(found, nodes)

    async def watch(self, question: WatchQuestion) -> dict[str, DeploymentNews | None] | None:
        """What is new of the deployments that a process calls. Waits until something is, for a while.

        Returns:
            By deployment, None: there is no such deployment (any more). Or None: the process is to say all that it knows.
        """
        return await self._watches.ask(question, LONG_POLL_S)

    async def report_load(self, report: LoadReport) -> None:
        """A process says how its calls stand."""
        began = time.monotonic()
        self._take_in(report)
        self._cluster.health.report(time.monotonic() - began)

    async def inquire_waiting(
        self, deployments: tuple[str, ...], process: str | None, request: int | None, because: str | None
    ) -> dict[str, Any]:
        """`Watches.inquire`: ask those that call about their calls that wait, or have these end."""
        return await self._watches.inquire(deployments, process, request, because)

    async def tell_waiting(self, number: int, process: str, name: str, calls: list[dict[str, Any]]) -> None:
        """A process says what waits there, for whoever has asked."""
        self._watches.told(number, process, name, calls)

    def _take_in(self, report: LoadReport) -> None:
        self._watches.hear(report)
        entries: dict[DeploymentId, ReportedLoad] = {}
        for name, load in report.entries.items():
            found = self._of_handle(name)
            if found is not None and (found.entry.scaler is not None or found.entry.residency is not None):
                entries[found.deployment] = ReportedLoad(**{key: load[key] for key in LOAD_FIELDS if key in load})
        if entries:
            event = LoadReported(
                reporter=report.process, incarnation=report.incarnation, seq=report.seq, entries=entries, at=self._world.now()
            )
            self._cluster.backend.tell(event)

    async def routes(
        self, name: str | WatchQuestion, seen: Version
    ) -> dict[str, DeploymentNews | None] | tuple[Version, Routes | None] | None:
        """`watch`, for callers of before it was there, each of which asks for one deployment; None: there is none (any more).

        Ray gives callers the methods that a controller was created with: those of now, of one that was upgraded in place,
        ask here as they do there.
        """
        if isinstance(name, WatchQuestion):
            return await self.watch(name)
        question = WatchQuestion(uuid.uuid4().hex, 1, 0, {name: Seen(seen)})
        try:
            news = await self._watches.ask(question, LONG_POLL_S)
        finally:
            self._watches.forget(question.process)
        found = (news or {}).get(name, DeploymentNews())
        if found is None:
            return None
        return found.routes if found.routes is not None else (seen, None)

    async def hear_load(self, name: str | LoadReport, handle_id: str, queued: int) -> None:
        """`report_load`, likewise."""
        report = name
        if not isinstance(report, LoadReport):
            report = LoadReport(handle_id, self._world.epoch, next(self._reports), {str(name): {"waiting": queued}})
        await self.report_load(report)

    async def world(self, name: str, seen: str | None, wait_s: float) -> Membership | None:
        """Wait until every rank has a holder, in another generation than the one seen; None: there is no such deployment.

        Raises:
            TimeoutError: Not for `wait_s`, or for so long that it is time to ask again.
        """
        found = self._of_handle(name)
        if found is None:
            return None

        def complete() -> bool:
            now = found.membership()
            return self._deleted(found) or (now is not None and now.generation != seen)

        if not await found.changes.until(complete, min(wait_s, LONG_POLL_S)):
            raise TimeoutError(f"the world of {name} is as it was")
        return found.membership() if not self._deleted(found) else None

    # -- whom names mean

    def _why_left_alone(self, name: str) -> str | None:
        return self._cluster.why_left_alone(name)

    def _deleted(self, found: RayDeployment) -> bool:
        """Whether nothing is left of a deployment."""
        return self._cluster.is_gone(found)

    def _of_handle(self, name: str) -> RayDeployment | None:
        """By the full name that handles have, or by the bare one that those have which are older."""
        there = self._cluster.deployments
        if (found := there.get(name) or self._with_id_on_ray(name)) is not None:
            return found
        meant = meant_by(name, there)
        return there[meant[0]] if len(meant) == 1 else None

    def _with_id_on_ray(self, name: str) -> RayDeployment | None:
        return next((found for found in self._cluster.deployments.values() if found.id_on_ray == name), None)

    def _info(self, found: RayDeployment, nodes: dict[str, NodeInfo], workers: tuple[WorkerStatus, ...] = ()) -> DeploymentInfo:
        return info_of(found, self._cluster, self._world, nodes, workers, self._watches.waiting(found.deployment))
