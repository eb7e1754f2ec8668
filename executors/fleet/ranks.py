"""What the replicas in this process believe of their ranks, and the user's `reconfigure` that is run for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from executors.fleet.node import RankedNode, WeightsNode
from executors.ranked_replica import RankedReplica, Reaction
from executors.replica_half import End, RunUserCode
from rankcore.dispatching import FleetState, ReplicaSaid, TellReplica
from rankcore.dispatching.ranking import is_hot
from rankcore.events import ReplicaStartFailed
from rankcore.frozen import thaw_json
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
        self._replicas: dict[ReplicaId, RankedReplica] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def rank_of(self, replica_id: ReplicaId) -> ReplicaRank | None:
        """What a replica believes; None: it has no rank."""
        replica = self._replicas.get(replica_id)
        return None if replica is None else replica.rank

    def follow(self, state: FleetState) -> None:
        """Whoever is not HOT has no rank any more."""
        for replica_id in [each for each in self._replicas if not is_hot(state.residency, each)]:
            del self._replicas[replica_id]

    def receive(self, command: TellReplica, state: FleetState) -> None:
        """Hand a replica its command."""
        replica = self._replicas.get(command.replica_id)
        if replica is None:
            node_id = state.residency.replicas[command.replica_id].node_id
            assert node_id is not None, f"{command.replica_id} is HOT, and nowhere"
            replica = self._replicas[command.replica_id] = RankedReplica(command.replica_id, node_id)
        self._react(replica, replica.receive(command.command, self._now()))

    async def aclose(self) -> None:
        """Nothing goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _react(self, replica: RankedReplica, reactions: tuple[Reaction, ...]) -> None:
        for each in reactions:
            match each:
                case ReplicaSaid(news=ReplicaStartFailed()):
                    self._begin(self._end_it(replica, each))
                case ReplicaSaid():
                    asyncio.get_running_loop().call_soon(self._say, each)
                case RunUserCode():
                    self._begin(self._run(replica, each))
                case End():
                    lost = ReplicaLost(replica_id=replica.replica_id, reason="its rank was to end it", at=self._now())
                    self._begin(self._end_it(replica, lost))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_it(self, replica: RankedReplica, then: ReplicaSaid | ReplicaLost) -> None:
        if self._replicas.get(replica.replica_id) is replica:
            await self._end(replica.replica_id)
            self._say(then)

    async def _run(self, replica: RankedReplica, code: RunUserCode) -> None:
        failure: str | None = None
        command = code.command
        if self._reconfigure is not None:
            config = thaw_json(command.user_config)
            try:
                await self._reconfigure(replica.replica_id, command.rank, command.world_size, config)
            except Exception as error:  # whatever a user's code raises
                failure = f"{type(error).__name__}: {error}"
        if self._replicas.get(replica.replica_id) is replica:
            self._react(replica, replica.user_code_ended(code, self._now(), failure))
