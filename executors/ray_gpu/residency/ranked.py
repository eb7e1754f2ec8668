"""The rank of one replica of a fleet, in its process: what it believes, and what user code sees and is told of it (R12)."""

import time
from collections.abc import Callable
from typing import Any

import attrs

from executors.ray_gpu import context
from executors.ray_gpu.changes import change_of
from executors.ray_gpu.messages import Change, Ranks
from executors.ray_gpu.requests.threads import SyncThreads
from executors.ray_gpu.residency.words import SaidOfRank
from executors.ray_gpu.user_code import reconfigure, traceback_of, wants_rank
from executors.ray_gpu.worker.places import Places
from rankcore.dispatching.commands import RankCommand
from rankcore.events import ReplicaStartFailed
from rankcore.replica.messages import Reaction, ReplicaChange, worker_receive, worker_user_code_ended
from rankcore.replica.replica import Drain, End, Refused, RunUserCode
from rankcore.replica.worker import Worker, leave
from rankcore.values import ReplicaId


class Ranked:
    """What its process does with `TellReplica`.

    Args:
        model: Of the replica.
        replica_id: Its own.
        places: Of its node.
        user: The user's object, which is there when the replica is HOT.
        threads: For synchronous calls of user code.
    """

    def __init__(
        self, model: str, replica_id: str, places: Places, user: Callable[[], Any], threads: Callable[[], SyncThreads]
    ) -> None:
        self._worker = Worker(replica_id, places.node_id)
        self._user = user
        self._threads = threads
        self._user_config: Any = None
        self._failed = SaidOfRank()
        self._given: tuple[str | None, Ranks] | None = None  # config_id and ranks that user code was last told
        self._context = context.ReplicaContext(
            app_name=model,
            deployment=model,
            replica_id=replica_id,
            ranks=(-1, -1, -1),
            world_size=0,
            node_id=places.node_id,
            namespace=places.namespace,
        )

    @property
    def seat(self) -> ReplicaId | None:
        """Where it believes a rank; None: nowhere."""
        return self._worker.tenure if self._worker.rank is not None else None

    async def tell(self, command: RankCommand) -> SaidOfRank:
        """Adopt what is commanded, let user code know where R12 says so, and answer when that is done.

        A start that has failed is the answer to all that comes later: who was told so may have died since.
        """
        if self._failed.news:
            return self._failed
        self._worker, reactions = worker_receive(self._worker, command, time.monotonic())
        self._show()
        return await self._react(reactions)

    def leave(self) -> None:
        """It is off the GPU, and has no rank any more."""
        self._worker = leave(self._worker)
        self._failed = SaidOfRank()

    async def _react(self, reactions: tuple[Reaction, ...]) -> SaidOfRank:
        said = SaidOfRank()
        for reaction in reactions:
            match reaction:
                case RunUserCode():
                    failure = await self._run(reaction)
                    self._worker, more = worker_user_code_ended(self._worker, reaction, time.monotonic(), failure)
                    said += await self._react(more)
                case End():
                    said += SaidOfRank(ends=True)
                case Drain() | Refused():
                    pass  # the planner says who leaves the GPU
                case news:
                    said += SaidOfRank((news,))
                    if isinstance(news, ReplicaStartFailed):
                        self._failed = SaidOfRank((news,))
        return said

    async def _run(self, work: RunUserCode) -> str | None:
        assert isinstance(work.command, ReplicaChange), f"{work.command} is no command of the core's"
        try:
            await self._apply(change_of(work.command), starting=work.starting)
        except Exception as error:
            return traceback_of(error)
        return None

    async def _apply(self, change: Change, *, starting: bool) -> None:
        user, given = self._user(), self._given
        news_config = not change.keeps_config and (given is None or change.config_id != given[0])
        news_rank = given is None or change.ranks != given[1]
        self._given = (change.config_id, change.ranks)
        if not change.keeps_config:
            self._user_config = change.user_config
        if starting or news_config or (news_rank and wants_rank(user)):
            await reconfigure(user, self._user_config, change.ranks, self._threads())

    def _show(self) -> None:
        """Let user code see what is believed now."""
        replica = self._worker.replica
        if replica is None or replica.rank is None or replica.world_size is None:
            return
        rank, world_size = replica.rank, replica.world_size
        ranks = (rank.rank, rank.node_rank, rank.local_rank)
        self._context = attrs.evolve(self._context, ranks=ranks, world_size=world_size, servable_object=self._user())
        context.set_context(self._context)
