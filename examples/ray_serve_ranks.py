"""Ray Serve with the ranks of rankcore: `RankcoreRankManager` in the place of Serve's `DeploymentRankManager`.

    serve.start(controller_options=controller_options())

Nothing that is installed is changed. Before it makes anything, Serve's controller calls the function that the environment's
RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH names, here `install`, in every process that it is ever started in; what is in the
controller's environment Serve lets one configure. Everything else of Serve, its replicas included, runs as it is.

Serve tells a rank manager less than the promises need. `RankcoreDeploymentState` passes on the rest, and decides nothing: whom
a newcomer succeeds (R6), and that it has to wait while ranks are still being reported (R10) or given up (R7).

Written for Ray 2.60, whose private names it uses; docs/ray-serve.md says what changes, and what cannot.
"""

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from ray.serve._private import deployment_state
from ray.serve._private.common import ReplicaState
from ray.serve._private.deployment_state import DeploymentState
from ray.serve.schema import ReplicaRank

from rankcore.errors import DuplicateRankError, UnknownReplicaError
from rankcore.ranks import RankTable
from rankcore.values import ReplicaRank as Ranks


class RankcoreRankManager:
    """A `DeploymentRankManager` whose ranks come from `rankcore.ranks.RankTable`: same methods, arguments and results.

    It keeps the table of those that have not stopped, and what the table is not about: which ranks wait for a successor, and
    what each replica was told. Only the rank waits: node and local ranks belong to a node, and are free once a replica on it
    has stopped, so that the replacements of a lost node do not count beyond the nodes that there are.

    Raises:
        RankError: What the table refuses is a mistake of the caller's, and changes nothing. `fail_on_rank_error` is taken for
            the sake of the signature; nothing turns an error into rank 0.
    """

    def __init__(self, fail_on_rank_error: bool = True) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everybody."""
        self._table = RankTable()
        self._vacated: dict[str, int] = {}  # stopped, their ranks kept for successors: in the order of their ends
        self._succeeds: dict[str, str] = {}  # newcomer -> whose rank it gets
        self._told: dict[str, ReplicaRank | None] = {}  # what each replica believes, as far as Serve has told it

    def expect(self, newcomers: Iterable[str], leaving: Iterable[str]) -> None:
        """Bind the newcomers without a rank, in order, to those that have left or are leaving without a successor (R6).

        Where fewer come than have left, there has been a downscale, and they succeed the holders of the lowest ranks.

        Args:
            newcomers: All that are starting, in the order in which Serve created them.
            leaving: All that are stopping, in the order in which they began to.
        """
        unranked = [each for each in newcomers if each not in self._told]
        self._succeeds = {each: self._succeeds[each] for each in unranked if each in self._succeeds}
        new = [each for each in unranked if each not in self._succeeds]
        claimed = set(self._succeeds.values())
        ranks = {**self._vacated, **{each: self._table.rank_of(each).rank for each in leaving if each in self._table}}
        left = [each for each in ranks if each not in claimed]
        lowest = set(sorted(left, key=ranks.__getitem__)[: len(new)])
        self._succeeds.update(zip(new, (each for each in left if each in lowest), strict=False))

    def must_wait(self, replica_id: str) -> bool:
        """Whether a newcomer's rank is still held by the one it succeeds, which has not fully stopped (R7)."""
        return self._succeeds.get(replica_id) in self._told

    def assign_rank(self, replica_id: str, node_id: str) -> ReplicaRank:
        """The rank of the one it succeeds (R6), else of the first to have left, else the lowest available (R4)."""
        unclaimed = (each for each in self._vacated if each not in self._succeeds.values())
        old = self._succeeds.get(replica_id) or next(unclaimed, None)
        self._seat(replica_id, node_id, self._vacated.get(old))
        self._vacated.pop(old, None)
        self._told[replica_id] = as_told(self._table.rank_of(replica_id))
        return self._told[replica_id]

    def _seat(self, replica_id: str, node_id: str, number: int | None) -> None:
        """Give it this rank, or the lowest that nobody has nor waits for; node and local rank are the lowest available."""
        table, found = self._table.assign(replica_id, node_id)
        if number is None:
            kept = set(self._vacated.values())
            number = next(each for each in count() if each not in kept and self._table.holder_of(each) is None)
        if number != found.rank:
            table = self._table.recover_rank(replica_id, node_id, Ranks(number, found.node_rank, found.local_rank))
        self._table = table

    def release_rank(self, replica_id: str) -> None:
        """It has fully stopped: its rank is kept for a successor, until `check_...` finds that none is needed."""
        rank = self.get_replica_rank(replica_id).rank
        self._table = self._table.release(replica_id)
        del self._told[replica_id]
        self._vacated[replica_id] = rank

    def recover_rank(self, replica_id: str, node_id: str, rank: ReplicaRank | None) -> None:
        """Learn what a running replica believes. Of two that believe one rank the second is moved by the next check (R10)."""
        if rank is None:  # it was never given one
            self._seat(replica_id, node_id, None)
        else:
            try:
                self._table = self._table.recover_rank(replica_id, node_id, as_ours(rank))
            except DuplicateRankError:
                self._table, _ = RankTable.recover(self._reports_with((replica_id, node_id, as_ours(rank))))
            self._keep_others()
        self._told[replica_id] = rank

    def _keep_others(self) -> None:
        """A rank that a running replica turns out to have is none that waits: another one does instead."""
        for gone, number in self._vacated.items():
            kept = {each for other, each in self._vacated.items() if other != gone}
            free = (each for each in (number, *range(len(self._table) + len(kept) + 1)) if each not in kept)
            self._vacated[gone] = next(each for each in free if self._table.holder_of(each) is None)

    def has_replica_rank(self, replica_id: str) -> bool:
        """Whether a live replica holds a rank."""
        return replica_id in self._told

    def get_replica_rank(self, replica_id: str) -> ReplicaRank:
        """The ranks that a live replica holds.

        Raises:
            UnknownReplicaError: It holds none.
        """
        if replica_id in self._vacated:
            raise UnknownReplicaError(f"replica {replica_id!r} has stopped: its rank is kept for its successor")
        return as_told(self._table.rank_of(replica_id))

    def get_replica_ranks_mapping(self) -> dict[str, ReplicaRank]:
        """The ranks of all live replicas."""
        return {each: self.get_replica_rank(each) for each in self._told}

    def check_rank_consistency_and_reassign_minimally(self, active_replicas: list) -> list:
        """All that are wanted are here: give up ranks that nobody succeeds, close the gaps (R8), and say whom to tell.

        Raises:
            UnknownReplicaError: One of `active_replicas` has no rank.
            RankError: The table has more replicas than these.
        """
        if not active_replicas:
            return []
        active = {each.replica_id.unique_id: each for each in active_replicas}
        table, _ = self._table.compact(len(active))
        ranks = {each: as_told(table.rank_of(each)) for each in active}
        moved = [each for each in active if self._told[each] != ranks[each]]
        self._table, self._vacated, self._succeeds = table, {}, {}
        self._told.update({each: ranks[each] for each in moved})
        return [active[each] for each in sorted(moved, key=lambda each: ranks[each].rank)]

    def _reports_with(self, report: tuple[str, str, Ranks]) -> list[tuple[str, str, Ranks]]:
        """What replicas believe, in the order in which they said so; last those that were never given a rank."""
        node_of = self._table.node_of
        believed = [(each, node_of(each), as_ours(rank)) for each, rank in self._told.items() if rank]
        others = [(each, node_of(each), rank) for each, rank in self._table.ranks.items() if not self._told.get(each)]
        return [*believed, report, *others]


def as_told(rank: Ranks) -> ReplicaRank:
    """As Serve has it."""
    return ReplicaRank(rank=rank.rank, node_rank=rank.node_rank, local_rank=rank.local_rank)


def as_ours(rank: ReplicaRank) -> Ranks:
    """As rankcore has it."""
    return Ranks(rank.rank, rank.node_rank, rank.local_rank)


class RankcoreDeploymentState(DeploymentState):
    """Serve's deployment, telling its rank manager who comes, who goes, and who has not reported yet."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self._rank_manager = RankcoreRankManager()

    def scale_deployment_replicas(self, *args, **options):
        upscale, downscale = super().scale_deployment_replicas(*args, **options)
        if upscale:
            self._rank_manager.expect(self._names(ReplicaState.STARTING), self._names(ReplicaState.STOPPING))
        return upscale, downscale

    def _check_startup_replicas(self, original_state, *args, **options):
        held = self._replicas.remove(self._without_a_rank_yet()) if original_state == ReplicaState.STARTING else []
        try:
            return super()._check_startup_replicas(original_state, *args, **options)
        finally:
            for replica in held:
                self._replicas.add(ReplicaState.STARTING, replica)

    def _without_a_rank_yet(self):
        ranks, recovering = self._rank_manager, self._replicas.count(states=[ReplicaState.RECOVERING])
        starting = [each.replica_id for each in self._replicas.get([ReplicaState.STARTING])]
        unranked = [each for each in starting if not ranks.has_replica_rank(each.unique_id)]
        return [each for each in unranked if recovering or ranks.must_wait(each.unique_id)]

    def _names(self, state):
        return [each.replica_id.unique_id for each in self._replicas.get([state])]


def install() -> None:
    """Put it into this process, which is a Serve controller's, or about to be."""
    deployment_state.DeploymentState = RankcoreDeploymentState


def controller_options() -> dict:
    """What `serve.start` takes to have its controller call `install`, now and after every restart."""
    here = Path(__file__).resolve()
    path = os.pathsep.join(filter(None, [str(here.parent), os.environ.get("PYTHONPATH")]))
    hook = {"RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH": f"{here.stem}:{install.__name__}", "PYTHONPATH": path}
    return {"runtime_env": {"env_vars": hook}}
