"""The workers of a cluster: what the machine commands about them is handed to their processes, and nothing is decided here."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from executors.ray_gpu.changes_awaited import Changes
from executors.ray_gpu.executor import RayExecutor
from executors.ray_gpu.reaping import Reaper
from executors.ray_gpu.user_code import Code
from executors.ray_gpu.worker.given_tenure import GivenTenure
from executors.ray_gpu.worker.gpu_holder import HeldGpus, misplaced
from executors.ray_gpu.worker.messages import Leave, Load
from executors.ray_gpu.worker.starting import start_worker
from executors.ray_gpu.worker.worker_process import WorkerProcess
from executors.ray_gpu.world import World
from rankcore import DeploymentSpec
from rankcore.cluster.commands import Availability, GiveTenure, KillWorker, MoveWeights, PublishAvailability, QueryWorker
from rankcore.cluster.events import ClusterEvent, MoveFailed, WorkerLost
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import WorkerId, deployment_of, model_id
from rankcore.events import NodeLost
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.levels import Level
from rankcore.values import NodeId

if TYPE_CHECKING:
    from executors.ray_gpu.worker.places import Places

LOG = logging.getLogger(__name__)


class DeploymentOfWorkers(Protocol):
    """What is to be known of the deployment of a worker."""

    executor: RayExecutor
    spec_on_ray: DeploymentSpec

    def codes(self) -> Mapping[str, Code]:
        """By version."""

    def publish(self, availability: Availability) -> None:
        """It stands otherwise for those who call it."""


class WorkersOnRay:
    """All of one controller.

    Args:
        deployment: By its id; None: there is none (any more).
        places: Where weights may be, by node.
        tell: What has happened.

    Attributes:
        processes: Those that have not ended, by worker.
        changes: For whoever waits for the end of one.
    """

    def __init__(
        self,
        world: World,
        deployment: Callable[[DeploymentId], DeploymentOfWorkers | None],
        places: Callable[[NodeId], "Places | None"],
        tell: Callable[[ClusterEvent], None],
    ) -> None:
        self.processes: dict[WorkerId, WorkerProcess] = {}
        self.changes = Changes()
        self.tell = tell
        self._world = world
        self._reaper = Reaper(world)
        self._deployment = deployment
        self._places = places

    def execute(self, command: GiveTenure | MoveWeights | KillWorker | QueryWorker | PublishAvailability) -> None:
        """Begin to carry out a command."""
        match command:
            case MoveWeights(command=move):
                if isinstance(move, LoadToGpu):
                    self._load(command.deployment, move, command.epoch)
                else:
                    self._leave(move, command.epoch)
            case GiveTenure():
                self._give(command)
            case KillWorker():
                self._kill(command)
            case QueryWorker():
                self._query(command)
            case PublishAvailability(deployment=deployment, availability=availability):
                if (found := self._deployment(deployment)) is not None:
                    found.publish(availability)
            case _:
                assert_never(command)

    # -- commands

    def _load(self, deployment: DeploymentId, load: LoadToGpu, epoch: int) -> None:
        move = Load(epoch, load.move, load.gpus, load.gpu_bytes)
        process = self.processes.get(load.replica_id)
        if load.source is not Level.COLD:
            if process is None:
                return self._failed(load, "its process has ended")
            return process.load(move, from_disk=False)
        found, places = self._deployment(deployment), self._places(load.node_id)
        codes = found.codes() if found is not None else {}
        code = next((each for version, each in codes.items() if model_id(deployment, version) == load.model), None)
        if code is None or places is None:
            return self._failed(load, "its code is not stored (any more)" if code is None else "nothing is known of its node")
        if process is not None:  # of an earlier load, on a node that is lost, say
            process.replace()
        self.processes[load.replica_id] = fresh = self._process(load.replica_id, load.node_id)
        make = partial(
            start_worker,
            self._world.namespace,
            code.deployment,
            load.replica_id,
            code.version,
            epoch,
            code.weights,
            code.weights_contents,
            places,
            code.actor_options,
        )
        fresh.start(make, after=process)
        fresh.load(move, from_disk=True)

    def _leave(self, command: OffloadToCpu | UnloadFromGpu | DropFromCpu, epoch: int) -> None:
        process = self.processes.get(command.replica_id)
        if process is None:
            return self._failed(command, "its process has ended")
        keep_copy = isinstance(command, OffloadToCpu) or (isinstance(command, UnloadFromGpu) and command.keep_copy)
        timeout_s = 0.0 if isinstance(command, DropFromCpu) else command.timeout_s
        process.leave(Leave(epoch, command.move, timeout_s, keep_copy))

    def _failed(self, command: LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu, reason: str) -> None:
        at = self._world.now()
        self.tell(MoveFailed(worker_id=command.replica_id, move=command.move, reason=reason, at=at))

    def _give(self, command: GiveTenure) -> None:
        process, found = self.processes.get(command.worker_id), self._deployment(command.deployment)
        if process is None or found is None or not process.actor.done():
            return  # it was HOT: its end has been told
        tenure = self._tenure(process, found, command.start.replica_id)
        tenure.give(command.epoch, command.start.version)

    def _kill(self, command: KillWorker) -> None:
        process = self.processes.get(command.worker_id)
        if process is not None:
            process.kill_for(command)
        elif command.move is None:
            self.tell(WorkerLost(worker_id=command.worker_id, reason="there is no process", at=self._world.now()))

    def _query(self, command: QueryWorker) -> None:
        process = self.processes.get(command.worker_id)
        if process is None:
            self.tell(WorkerLost(worker_id=command.worker_id, reason="there is no process", at=self._world.now()))
        else:
            process.query(command.epoch)

    # -- those that were found

    def take_over(self, found: Mapping[WorkerId, tuple[NodeId, Any]]) -> None:
        """Watch the workers of earlier controllers, before the machine asks for them.

        Args:
            found: Node and actor of each.
        """
        for worker_id, (node_id, actor) in found.items():
            self.processes[worker_id] = process = self._process(worker_id, node_id)
            process.find(actor)

    def attach(self, deployment: DeploymentId) -> None:
        """There is such a deployment now: those of its replicas that were found are known to it."""
        for worker_id, process in sorted(self.processes.items()):
            if deployment_of(worker_id) == deployment:
                self.found_tenure(process)

    async def end_misplaced(self, node_id: NodeId, held: HeldGpus | None) -> None:
        """End the workers of a node that are on GPUs which are not held there, and return when they have ended."""
        here = {each: process for each, process in self.processes.items() if process.node_id == node_id}
        said = dict(zip(here, await asyncio.gather(*(process.describe() for process in here.values())), strict=True))
        ending = [each for each, report in said.items() if report is None]  # gone, or nobody knows where it is
        ending += misplaced(held, node_id, {each: report for each, report in said.items() if report is not None})
        for each in ending:
            here[each].kill("its GPUs are not held for it")
        for each in ending:
            await here[each].gone.wait()

    # -- what processes tell

    def found_tenure(self, process: WorkerProcess) -> None:
        """A worker says that it is a replica."""
        found = self._deployment(deployment_of(process.worker_id))
        if found is not None and process.tenure_found is not None and process.tenure is None:
            self._tenure(process, found, process.tenure_found).find()

    async def tell_losses(self, node_id: NodeId) -> None:
        """A worker has ended unasked: perhaps its node is lost."""
        if not await self._world.is_alive(node_id):
            self.tell(NodeLost(node_id=node_id, at=self._world.now()))

    def has_ended(self, process: WorkerProcess) -> None:
        """A worker is gone."""
        if self.processes.get(process.worker_id) is process:
            del self.processes[process.worker_id]
            self.changes.wake()

    def _process(self, worker_id: WorkerId, node_id: NodeId) -> WorkerProcess:
        return WorkerProcess(self._world, self._reaper, worker_id, node_id, self)

    def _tenure(self, process: WorkerProcess, found: DeploymentOfWorkers, replica_id: str) -> GivenTenure:
        if process.tenure is not None:
            process.tenure.end()
        process.tenure = tenure = GivenTenure(
            self._world, replica_id, lambda: found.spec_on_ray, found.executor, process.actor.result(), process.node_id
        )
        found.executor.add(tenure)
        return tenure
