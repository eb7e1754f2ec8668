"""The controller: one detached actor per namespace that hosts the driver of every deployment. It waits for nothing.

Ray restarts it whenever it dies. It then claims the next epoch, which fences off whatever an earlier one left under way,
finds the replicas by their names, and recovers.
"""

import asyncio
import importlib
import itertools
import os
from typing import Any

import attrs
import ray

from executors.engine.recent_notes import Notes
from executors.ray_gpu.capacity import share_in_force
from executors.ray_gpu.checkpoint import Checkpoint
from executors.ray_gpu.cluster import ClusterOnRay
from executors.ray_gpu.control.applying import AppliesApplications
from executors.ray_gpu.control.callers import TellsCallers
from executors.ray_gpu.control.doors import HasDoors
from executors.ray_gpu.control.named import LONG_POLL_S
from executors.ray_gpu.control.of_nodes import LeavesNodes
from executors.ray_gpu.control.operating import Operates
from executors.ray_gpu.environment import hold, uploaded
from executors.ray_gpu.errors import UnknownNameError
from executors.ray_gpu.journal_place import open_journal
from executors.ray_gpu.metrics.of_decisions import of_proxies
from executors.ray_gpu.metrics.publisher import publish
from executors.ray_gpu.overview import SETTLED, DeploymentInfo, Status
from executors.ray_gpu.proxies.keeper import ProxyKeeper
from executors.ray_gpu.versions import versions
from executors.ray_gpu.waiting_line import WaitingLine
from executors.ray_gpu.warm_workers import WarmWorkers
from executors.ray_gpu.watched import Watched
from executors.ray_gpu.worker.standing import memory_of, workers_of
from executors.ray_gpu.world import World, live_nodes, persist
from rankcore.cluster.events import DeletionRequested


def get_ready(world: World) -> None:
    """Import what deploys and starts replicas: who comes after a crash knows ranks first, and has this before it is asked."""
    importlib.import_module("executors.ray_gpu.packing")
    world.actor_class  # noqa: B018 # which is kept


class Controller(AppliesApplications, Operates, LeavesNodes, HasDoors, TellsCallers):
    """What drivers talk to. A method that waits says so; all others answer at once.

    Deployments are known by `application/deployment`. What they are to be is decided by the cluster's machine (`cluster`),
    which is asked here for what users want.

    Ray restarts a controller by the names that its methods had when it was created, private ones too: where a cluster is
    upgraded in place, the code of now has to have all methods of then.
    """

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
        self._world.on_placed = WarmWorkers(self._world, ray.get_runtime_context().get_node_id()).used
        self._journal = open_journal(namespace, journal) if journal is not None else None
        self._proxies = ProxyKeeper(self._world)
        self._cluster = ClusterOnRay(self._world, self._journal)
        self._watch_calls()
        self._cluster.health.begin()
        await self._recover()
        self._holding = asyncio.get_running_loop().create_task(hold(self._packages))
        self._getting_ready = asyncio.get_running_loop().create_task(self._world.call(get_ready, self._world))

    async def _recover(self) -> None:
        proxies = await persist(self._world.checkpoint.proxies)
        if proxies is not None:
            await self._proxies.keep(proxies)
        self._deployed = await persist(self._world.checkpoint.deployed)
        await self._cluster.recover()
        publish(self._proxies, of_proxies)

    async def notes(self, after: int) -> Notes:
        """What was decided after the note of this number of this epoch."""
        return attrs.evolve(self._cluster.notes.after(after), epoch=self._world.epoch, now=self._world.now())

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
