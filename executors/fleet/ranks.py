"""What the replicas in this process believe of their ranks, and the user's `reconfigure` that is run for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from executors.fleet.node import RankedNode, WeightsNode
from rankcore.dispatching import FleetState, ReplicaSaid, TellReplica
from rankcore.dispatching.ranking import is_hot
from rankcore.events import ReplicaStartFailed
from rankcore.frozen import thaw_json
from rankcore.replica.messages import Reaction, ReplicaChange, worker_receive, worker_user_code_ended
from rankcore.replica.replica import Drain, End, Refused, RunUserCode
from rankcore.replica.worker import Worker
from rankcore.residency.events import ReplicaLost
from rankcore.values import ReplicaId, ReplicaRank


class RanksHere:
    """The replicas that have been told of a rank. Nothing that they answer is told while they are told something.

    Args:
        node: Has their weights, and perhaps a `reconfigure`.
        say: Tells the fleet.
        end: Has a replica give up all that it holds.
        now: Seconds on the clock of the fleet.
    """

    def __init__(
        self,
        node: WeightsNode,
        say: Callable[[ReplicaSaid | ReplicaLost], object],
        end: Callable[[ReplicaId], Coroutine[Any, Any, None]],
        now: Callable[[], float],
    ) -> None:
        self._reconfigure = node.reconfigure if isinstance(node, RankedNode) else None
        self._say, self._end, self._now = say, end, now
        self._workers: dict[ReplicaId, Worker] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def rank_of(self, replica_id: ReplicaId) -> ReplicaRank | None:
        """What a replica believes; None: it has no rank."""
        worker = self._workers.get(replica_id)
        return None if worker is None else worker.rank

    def follow(self, state: FleetState) -> None:
        """Whoever is not HOT has no rank any more."""
        for replica_id in [each for each in self._workers if not is_hot(state.residency, each)]:
            del self._workers[replica_id]

    def receive(self, command: TellReplica, state: FleetState) -> None:
        """Hand a replica its command."""
        worker = self._workers.get(command.replica_id)
        if worker is None:
            node_id = state.residency.replicas[command.replica_id].node_id
            assert node_id is not None, f"{command.replica_id} is HOT, and nowhere"
            worker = Worker(command.replica_id, node_id)
        self._react(*worker_receive(worker, command.command, self._now()))

    async def aclose(self) -> None:
        """Nothing goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _react(self, worker: Worker, reactions: tuple[Reaction, ...]) -> None:
        replica_id = worker.worker_id
        self._workers[replica_id] = worker
        for each in reactions:
            match each:
                case RunUserCode():
                    self._begin(self._run(replica_id, each))
                case End():
                    lost = ReplicaLost(replica_id=replica_id, reason="its rank was to end it", at=self._now())
                    self._begin(self._end_it(replica_id, worker.tenure, lost))
                case Drain() | Refused():
                    pass  # the planner says who leaves the GPU
                case _:
                    said = ReplicaSaid(replica_id=replica_id, news=each, at=self._now())
                    if isinstance(each, ReplicaStartFailed):
                        self._begin(self._end_it(replica_id, worker.tenure, said))
                    else:
                        asyncio.get_running_loop().call_soon(self._say, said)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_it(self, replica_id: ReplicaId, tenure: ReplicaId | None, then: ReplicaSaid | ReplicaLost) -> None:
        if self._holds(replica_id, tenure):
            await self._end(replica_id)
            self._say(then)

    def _holds(self, replica_id: ReplicaId, tenure: ReplicaId | None) -> bool:
        worker = self._workers.get(replica_id)
        return worker is not None and worker.tenure == tenure

    async def _run(self, replica_id: ReplicaId, code: RunUserCode) -> None:
        failure: str | None = None
        command = code.command
        assert isinstance(command, ReplicaChange), f"{command} is no command of the core's"
        if self._reconfigure is not None:
            config = thaw_json(command.user_config)
            try:
                await self._reconfigure(replica_id, command.rank, command.world_size, config)
            except Exception as error:  # whatever a user's code raises
                failure = f"{type(error).__name__}: {error}"
        worker = self._workers.get(replica_id)
        if worker is not None:
            self._react(*worker_user_code_ended(worker, code, self._now(), failure))
