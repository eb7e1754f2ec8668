"""The controller: one detached actor per namespace that hosts the driver of every deployment. It waits for nothing.

Ray restarts it whenever it dies. It then claims the next epoch, which fences off whatever an earlier one left under way,
finds the replicas by their names, and recovers.
"""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import ray

from executors.deployment_ids import deployment_id, escaped, meant_by, own_name, split
from executors.engine.journal import LenientJournal, lenient_journal
from executors.private_folder import home, made
from executors.ray_gpu.checkpoint import Checkpoint, Record
from executors.ray_gpu.discovery import find_replicas, kill_replica
from executors.ray_gpu.environment import hold, refer_to, uploaded
from executors.ray_gpu.errors import InvalidDeploymentError, NameInUseError, UnknownNameError, not_one
from executors.ray_gpu.host import Host, environment_of, recovered
from executors.ray_gpu.membership import Membership
from executors.ray_gpu.messages import Ingress, Routes
from executors.ray_gpu.node_news import demands, obstacle
from executors.ray_gpu.overview import SETTLED, DeploymentInfo, ReplicaStatus, Status
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.proxies.keeper import ProxyKeeper
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.versions import versions
from executors.ray_gpu.warm_workers import WarmWorkers
from executors.ray_gpu.watched import Watched
from executors.ray_gpu.world import NodeInfo, World, live_nodes, persist
from rankcore import DeploymentSpec
from rankcore.autoscaling import AutoscalingSpec
from rankcore.errors import RankcoreError
from rankcore.values import ReplicaId, age_key

if TYPE_CHECKING:
    from executors.ray_gpu.packing import Package

LOG = logging.getLogger(__name__)

Version: TypeAlias = tuple[int, int]
"""Of the routes: the controller's epoch, and a number that grows with each change."""

JOURNAL_BYTES_MAX = 64 * 1024 * 1024
"""Of each of the two files of a journal that nobody asked for."""
JOURNALS = ".journals"
LONG_POLL_S = 30.0
"""Whoever waits for something is told after this long that it has not happened, and may ask again. Callers die, and Ray tells
nobody: their questions would stay for ever, and an actor answers so many at a time."""


class Controller:
    """What drivers talk to. A method that waits says so; all others answer at once.

    Deployments are known by `application/deployment`, which is their id too, except for those that were deployed before
    applications had names of their own: these have bare ids, which they and their replicas keep until they are deleted.

    Ray restarts a controller by the names that its methods had when it was created, private ones too: where a cluster is
    upgraded in place, the code of now has to have all methods of then.
    """

    _world: World

    async def __init__(self, namespace: str, journal: str | None) -> None:  # type: ignore[misc]
        """Raise the fence, find what there is, and go on with it."""
        self._watched = Watched()
        self._watched.begin()
        self._hosts: dict[str, Host] = {}
        self._deploying = asyncio.Lock()
        self._left_alone: dict[str, str] = {}  # by their ids, and why
        checkpoint = Checkpoint(namespace)
        epoch = await persist(checkpoint.raise_fence)
        origin = await persist(checkpoint.origin)
        self._world = World(namespace, epoch, checkpoint, origin)
        self._world.on_placed = WarmWorkers(self._world).used
        self._journal = open_journal(namespace, journal) if journal is not None else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ingress_news = asyncio.Event()
        self._proxies = ProxyKeeper(self._world)
        await self._recover()
        self._spawn(hold(self._packages))

    # -- deployments

    async def deploy(self, packages: "tuple[Package, ...]", replace: bool) -> None:
        """Deploy an application, or change what there is to it; what it no longer has is deleted. Repeatable.

        Raises:
            NameInUseError: A name belongs to another class, or to something that is being deleted, or a prefix to another
                application. Nothing was deployed.
            RankcoreError: A spec is not allowed here. Likewise.
        """
        async with self._deploying:  # two applications at once could both find a name or a prefix free
            for package in packages:
                self._check_name(package, replace)
                self._check_prefix(package)
            await self._world.call(refer_to, frozenset().union(*(uploaded(environment_of(each.code)) for each in packages)))
            application = {package.code.app_name for package in packages}
            kept = {package.spec.name for package in packages}
            dropped = [host for name, host in self._hosts.items() if host.record.app_name in application and name not in kept]
            await asyncio.gather(*(host.delete() for host in dropped))
            for package in packages:
                await self._deploy(package)

    def _check_name(self, package: "Package", replace: bool) -> None:
        code, name = package.code, package.spec.name
        if (why := self._why_left_alone(name)) is not None:
            raise NameInUseError(f"{name} is left alone: {why}; shutdown() removes it, with all else")
        host = self._hosts.get(name)
        if host is None:
            if (other := self._host_with_id(name)) is not None:
                raise NameInUseError(f"{name} is the id of {full_name(other.record)}, which is older: delete that first")
            return
        if host.record.deleting:
            raise NameInUseError(f"{name} is being deleted: deploy it again once status() no longer shows it")
        if host.record.class_name != code.class_name and not replace:
            raise NameInUseError(
                f"{name} is the name of a deployment of {host.record.class_name} already: delete that first, or "
                f"deploy {code.class_name} under another name with .options(name=...), or pass replace=True to run()"
            )

    def _check_prefix(self, package: "Package") -> None:
        for host in self._hosts.values():
            taken = host.record.route_prefix is not None and host.record.route_prefix == package.route_prefix
            if taken and host.record.app_name != package.code.app_name and not host.record.deleting:
                raise NameInUseError(
                    f"route_prefix {package.route_prefix!r} is application {host.record.app_name!r}'s: give this one another"
                )

    def _packages(self) -> frozenset[str]:
        """The uploaded folders that replicas of now or later, and proxies, are started with."""
        options = self._proxies.options
        outside = options.grpc.runtime_env if options is not None and options.grpc is not None else {}
        return frozenset().union(uploaded(outside), *(host.packages() for host in self._hosts.values()))

    async def _deploy(self, package: "Package") -> None:
        name = package.spec.name
        host = self._hosts.get(name)
        package = package if host is None else package.of(host.name)
        code, spec = package.code, package.spec
        if host is None:
            record = Record(
                spec=spec,
                class_name=code.class_name,
                app_name=code.app_name,
                spares=package.spares,
                routing=package.routing,
                route_prefix=package.route_prefix,
                is_ingress=package.is_ingress,
                autoscaling=package.autoscaling,
                scaling_policy=package.scaling_policy,
            )
            await self._world.call(self._world.checkpoint.put_code, code)
            await self._world.call(self._world.checkpoint.put_record, record)
            host = Host(self._world, record, {code.version: code.actor_options}, self._deleted)
            host.deploy(self._journal)
            self._hosts[name] = host
            self._ingress_changed()
            return
        await host.change(
            lambda before: spec if package.autoscaling is None else within(package.autoscaling, spec, before),
            code=code,
            spares=package.spares,
            routing=lambda _: package.routing,
            ingress=(package.route_prefix, package.is_ingress),
            autoscaling=(package.autoscaling, package.scaling_policy),
        )
        self._ingress_changed()

    async def change(
        self,
        name: str,
        fields: dict[str, Any],
        stop_first: tuple[ReplicaId, ...],
        routing_fields: dict[str, Any] | None = None,
    ) -> None:
        """Change some fields of a deployment's spec, and of how its calls are routed. Repeatable.

        Raises:
            InvalidDeploymentError: It asks for a number of replicas, which follows the load.
        """
        host = await self._host(name)
        if "target_replicas" in fields and host.record.autoscaling is not None:
            raise InvalidDeploymentError(
                f"the number of replicas of {name} follows its load: its autoscaling_config has min_replicas and max_replicas"
            )
        await host.change(
            lambda spec: attrs.evolve(spec, **fields),
            stop_first=stop_first,
            routing=lambda routing: attrs.evolve(routing, **(routing_fields or {})),
        )

    async def stop_replicas(self, replica_ids: tuple[ReplicaId, ...]) -> None:
        """Stop some replicas; each is replaced, with its own rank.

        Raises:
            UnknownNameError: There is no such replica. None is stopped.
        """
        by_host: dict[Host, list[ReplicaId]] = defaultdict(list)
        for replica_id in replica_ids:
            host = next((host for host in self._hosts.values() if replica_id in host.driver.state.replicas), None)
            if host is None:
                raise UnknownNameError(f"there is no replica {replica_id!r}: status() shows those that there are")
            by_host[host].append(replica_id)
        for host, ids in by_host.items():
            host.stop_replicas(tuple(ids))

    async def delete(self, deployments: tuple[str, ...]) -> None:
        """Delete deployments, and wait until they are gone. Repeatable."""
        hosts = [self._hosts[name] for name in deployments if name in self._hosts]
        await asyncio.gather(*(host.delete() for host in hosts))
        self._ingress_changed()
        await asyncio.gather(*(host.until(lambda host: not self._is_there(host)) for host in hosts))

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
        """Which deployments requests from outside reach. Waits until they are others than those seen, for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONG_POLL_S):
                while self._ingress() == seen:
                    await self._ingress_news.wait()
        return self._ingress()

    def _ingress(self) -> Ingress:
        records = {name: host.record for name, host in sorted(self._hosts.items()) if not host.record.deleting}
        return Ingress(
            {record.route_prefix: name for name, record in records.items() if record.route_prefix is not None},
            {record.app_name: name for name, record in records.items() if record.is_ingress},
        )

    def _ingress_changed(self) -> None:
        self._ingress_news.set()
        self._ingress_news = asyncio.Event()

    # -- what drivers want to know

    async def hello(self) -> dict[str, str]:
        """Which versions run here."""
        return versions()

    async def deployments(self) -> dict[str, bool]:
        """The names of all deployments, and whether each is being deleted."""
        return {name: host.record.deleting for name, host in sorted(self._hosts.items())}

    async def status(self) -> Status:
        """What there is, and how it is."""
        settled = all(host.status in SETTLED for host in self._hosts.values())
        nodes = {} if settled else await self._world.call(live_nodes)
        return Status(
            namespace=self._world.namespace,
            epoch=self._world.epoch,
            controller_pid=os.getpid(),
            journal=self._journal.path if self._journal is not None and not self._journal.broken else None,
            proxies=self._proxies.infos,
            deployments={name: self._info(host, nodes) for name, host in sorted(self._hosts.items())},
            left_alone=self._left_alone,
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
        found = [preferred] if preferred in self._hosts else meant_by(name, self._hosts)
        if len(found) == 1:
            return found[0]
        of_application = (each for each in self._left_alone if split(each)[0] == name)
        for left in () if found else (preferred, *meant_by(name, self._left_alone), *of_application):
            if (why := self._why_left_alone(left)) is not None:
                raise UnknownNameError(f"{left} is left alone: {why}; shutdown() removes it, with all else")
        raise UnknownNameError(not_one("deployment", name, found, self._hosts))

    async def find_all(self, name: str) -> tuple[str, ...]:
        """The full names of an application's deployments, else of the one deployment that has the name.

        Raises:
            UnknownNameError: There is neither, or there are several deployments of the name; says which.
        """
        of_application = tuple(sorted(each for each, host in self._hosts.items() if host.record.app_name == name))
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
        host = await self._host(name)
        await host.until(lambda host: host.status in SETTLED or not self._is_there(host), timeout_s=min(wait_s, LONG_POLL_S))
        if not self._is_there(host):
            raise UnknownNameError(f"{name} was deleted while it was waited for")
        nodes = {} if host.status in SETTLED else await self._world.call(live_nodes)
        return self._info(host, nodes)

    async def routes(self, name: str, seen: Version) -> tuple[Version, Routes | None] | None:
        """Wait until the routes are others than those seen, for a while; None: there is no such deployment (any more).

        Routes that are None are not known: the caller goes on with those that it has.
        """
        host = self._host_of_handle(name)
        if name in self._left_alone or (host is None and self._why_left_alone(name) is not None):
            await asyncio.sleep(LONG_POLL_S)
            return seen, None
        if host is None:
            return None

        def has_news(host: Host) -> bool:
            found = host.routes()
            return not self._is_there(host) or (found is not None and (self._world.epoch, found[0]) != seen)

        await host.until(has_news, LONG_POLL_S)
        if not self._is_there(host):
            return None
        found = host.routes()
        if found is None:
            return seen, None
        number, routes = found
        if routes.spec.name != name:  # the router has the name that it asks by
            routes = attrs.evolve(routes, spec=attrs.evolve(routes.spec, name=name))
        return (self._world.epoch, number), routes

    async def hear_load(self, name: str, handle_id: str, queued: int) -> None:
        """A handle says how many calls wait in it."""
        host = self._host_of_handle(name)
        if host is not None and host.scaling is not None:
            host.scaling.hear(handle_id, queued)

    async def world(self, name: str, seen: str | None, wait_s: float) -> Membership | None:
        """Wait until every rank has a holder, in another generation than the one seen; None: there is no such deployment.

        Raises:
            TimeoutError: Not for `wait_s`, or for so long that it is time to ask again.
        """
        host = self._host_of_handle(name)
        if host is None:
            return None
        found: Membership | None = None

        def complete(host: Host) -> bool:
            nonlocal found
            found = host.membership()
            return not self._is_there(host) or (found is not None and found.generation != seen)

        if not await host.until(complete, min(wait_s, LONG_POLL_S)):
            raise TimeoutError(f"the world of {name} is as it was")
        return found if self._is_there(host) else None

    # -- the controller's own life

    async def _recover(self) -> None:
        world = self._world
        proxies = await persist(world.checkpoint.proxies)
        if proxies is not None:
            await self._proxies.keep(proxies)
        records = await persist(world.checkpoint.records)
        found = await persist(partial(find_replicas, world.namespace))
        for name, record in records.items():
            replica_ids = tuple(found.pop(name, ()))
            problem = self._not_taken_over(name, record, replica_ids)
            if isinstance(record, str) or problem is not None:
                LOG.error("%s is not taken over, and its replicas go on: %s", name, problem)
                self._left_alone[name] = str(problem)
                continue
            wanted = {spec.version for spec in (record.spec, record.previous) if spec is not None}
            codes = [await persist(partial(world.checkpoint.code, name, version)) for version in sorted(wanted)]
            options = {code.version: code.actor_options for code in codes if code is not None}
            host = Host(world, record, options, self._deleted)
            self._hosts[full_name(record)] = host
            host.recover(self._journal, replica_ids)
        for name, strangers in found.items():
            LOG.warning("%d replicas of %s, which nobody wants, are stopped", len(strangers), name)
            await asyncio.gather(*(world.call(kill_replica, world.namespace, name, each) for each in strangers))

    def _not_taken_over(self, name: str, record: Record | str, replica_ids: tuple[ReplicaId, ...]) -> str | None:
        """Why a deployment has to be left alone, which the others need not suffer for; None: it need not."""
        if isinstance(record, str):
            return record
        if record.spec.name != name:
            return f"its record is one of {record.spec.name}"
        if full_name(record) in self._hosts:  # "b" and "a/b" of application a, from before ids were full
            return f"there is another {full_name(record)}, which is older"
        try:
            recovered(self._world, record, replica_ids).step()  # pure: what the core refuses begins nothing
        except RankcoreError as error:
            return f"its record and its replicas cannot be gone on with: {error}"
        return None

    def _why_left_alone(self, name: str) -> str | None:
        """Of a deployment by its full name; None: it is not."""
        return self._left_alone.get(name, self._left_alone.get(name.partition("/")[2]))

    def _deleted(self, host: Host) -> None:
        async def forget() -> None:
            await host.forget()
            if self._is_there(host):
                del self._hosts[full_name(host.record)]
            host.wake()

        self._spawn(forget())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_there(self, host: Host) -> bool:
        return self._hosts.get(full_name(host.record)) is host

    def _host_of_handle(self, name: str) -> Host | None:
        """By the full name that handles have, or by the bare one that those have which are older."""
        if (host := self._hosts.get(name) or self._host_with_id(name)) is not None:
            return host
        found = meant_by(name, self._hosts)
        return self._hosts[found[0]] if len(found) == 1 else None

    def _host_with_id(self, found: str) -> Host | None:
        return next((host for host in self._hosts.values() if host.name == found), None)

    async def _host(self, name: str) -> Host:
        host = self._hosts[await self.require(name)]
        if host.record.deleting:
            raise InvalidDeploymentError(f"{name} is being deleted")
        return host

    def _info(self, host: Host, nodes: dict[str, NodeInfo]) -> DeploymentInfo:
        state = host.driver.state
        options = host.actor_options(state.spec.version)
        scaling_problem = host.scaling.problem if host.scaling is not None else ""
        problem = (host.executor.group_news.obstacle or obstacle(nodes, demands(options))) if nodes else ""
        labels = options.get("label_selector")
        starting = f"its process is starting, if there is a node with {labels}" if labels else "its process is starting"
        replicas = replicas_of(host, (problem or starting) if nodes else "")
        # Where ranks steer placement nobody is started before there is room.
        unplaced = problem if state.spec.placement is not None and len(replicas) < state.world_size else ""
        waiting = next((each.message for each in replicas if each.message), unplaced)
        return DeploymentInfo(
            name=full_name(host.record),
            status=state.status,
            message=host.driver.unsaved or state.message or host.trouble or waiting or scaling_problem,
            world_size=state.world_size,
            version=state.spec.version,
            class_name=host.record.class_name,
            app_name=host.record.app_name,
            replicas=replicas,
            spares=host.executor.spares.ready,
        )


def full_name(record: Record) -> str:
    """What a deployment is called outside."""
    return deployment_id(record.app_name, own_name(record.app_name, record.spec.name))


def within(autoscaling: AutoscalingSpec, spec: DeploymentSpec, before: DeploymentSpec) -> DeploymentSpec:
    """A new spec, with the number of replicas that the load had called for, as far as the new bounds allow it."""
    return attrs.evolve(spec, target_replicas=autoscaling.within_bounds(before.target_replicas))


def replicas_of(host: Host, waiting_for: str) -> tuple[ReplicaStatus, ...]:
    """How each replica is, those that are not up yet with what they wait for."""
    replicas: list[ReplicaStatus] = []
    for replica_id, replica in sorted(host.driver.state.replicas.items(), key=lambda item: age_key(item[0])):
        process = host.executor.processes.get(replica_id)
        endpoint = process.endpoint if process is not None else None
        replicas.append(
            ReplicaStatus(
                replica_id=replica_id,
                state=replica.state,
                rank=replica.rank,
                node_id=replica.node_id,
                pid=endpoint.pid if endpoint is not None else None,
                version=replica.version,
                message=waiting_for if process is not None and endpoint is None else "",
            )
        )
    return tuple(sorted(replicas, key=lambda each: each.rank.rank if each.rank is not None else 2**31))


def open_journal(namespace: str, path: str) -> LenientJournal | None:
    """Go on with the journal; None: that is not possible, which the log says.

    Args:
        path: Of a file that is to have all; "": in this user's private folder, which is not to fill the disk.
    """
    if path:
        return lenient_journal(path)
    try:
        found = journal_path(namespace, session_name())
    except OSError as error:
        LOG.error("there is no journal: %s", error)
        return None
    return lenient_journal(found, bytes_max=JOURNAL_BYTES_MAX)


def journal_path(namespace: str, session: str) -> str:
    """Where the journal is by default: on the controller's node, and not with the logs of the cluster's session, whose folder
    all users can write to.

    Raises:
        PlaceError: There is no folder that only this user can write to.
    """
    folder = made(made(home() / JOURNALS) / session)
    return str(folder / f"rankcore-{escaped(namespace)}.journal.jsonl")


def session_name() -> str:
    """What Ray calls this cluster, from its start to its end."""
    return Path(ray._private.worker._global_node.get_session_dir_path()).name
