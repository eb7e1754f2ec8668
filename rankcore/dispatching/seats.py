"""Who of a model's HOT replicas has which rank: rankcore's own machine, and who sits where in it (D12).

The planner knows a replica by its record, which outlives many processes and levels; the machine of ranks knows who began to
serve as a replica of its own, which ends when that one is off the GPU. A *seat* ties one of the first to one of the second.
"""

from collections.abc import Mapping

import attrs

from rankcore import checks
from rankcore.errors import InvalidSpecError
from rankcore.frozen import EMPTY, FrozenJson, PMap
from rankcore.spec import CompactionPolicy, DeploymentSpec
from rankcore.state import DeploymentState, Replica
from rankcore.values import DRAINING, REQUESTED, ReplicaId, ReplicaRank, ReplicaState

ENDS_WITH_ITS_OFFLOAD_S = 1e9
"""The planner says how long a replica may take to leave, and how long its weights may: nobody is killed for it by its rank."""
_RUNS = frozenset({ReplicaState.RUNNING, ReplicaState.RECONFIGURING})


@attrs.frozen(kw_only=True)
class RankSpec:
    """The HOT replicas of a model have ranks: 0..N-1, where N, the world size, is the planner's target of the model.

    Attributes:
        user_config: JSON-like data that comes with each rank, for the user's `reconfigure` (R12).
        compaction: When ranks close their gaps: "when_healthy", or "immediate" (R8).
        start_timeout_s: How long a replica that is HOT may take from its first rank until it can take requests.
        repeat_period_s: How long an acknowledgement is waited for before a command is repeated.
        health_check_timeout_s: How long a controller that takes over waits for a replica's report.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    user_config: FrozenJson = attrs.field(default=None, hash=False, eq=False)
    compaction: CompactionPolicy = "when_healthy"
    start_timeout_s: float = 600.0
    repeat_period_s: float = 5.0
    health_check_timeout_s: float = 30.0
    config_id: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        spec = self.deployment("ranks", 0)
        object.__setattr__(self, "user_config", spec.user_config)
        object.__setattr__(self, "config_id", spec.config_id)

    def deployment(self, model: str, target: int) -> DeploymentSpec:
        """What rankcore's own machine is told."""
        return DeploymentSpec(
            name=model,
            target_replicas=target,
            user_config=self.user_config,
            compaction=self.compaction,
            victims="highest_rank",
            graceful_shutdown_timeout_s=ENDS_WITH_ITS_OFFLOAD_S,
            health_check_timeout_s=self.health_check_timeout_s,
            start_timeout_s=self.start_timeout_s,
            repeat_period_s=self.repeat_period_s,
            max_start_failures=checks.COUNT_MAX,
        )


def check_ranks(model: str, ranks: object) -> None:
    """Raise `InvalidSpecError` unless a model of this name may have these ranks."""
    if ranks is None:
        return
    if not isinstance(ranks, RankSpec):
        raise InvalidSpecError("ServingSpec.ranks", ranks, "a RankSpec, or None")
    if "#" in model:
        raise InvalidSpecError("ServingSpec.routing.name", model, "free of '#' where the model's replicas have ranks")


@attrs.frozen
class Ranking:
    """The ranks of one model's replicas.

    Attributes:
        deployment: The machine of ranks. Its target is the planner's.
        seats: Who sits where: the machine's id of a replica, by the planner's. HOT replicas only, leaving ones included.
        homes: The rank that each replica had last, which it has again where that is free.
        because: Why a start failed last.
        served_before: Replicas that had requests before their model had ranks, and go on with them until they run with one.
    """

    deployment: DeploymentState
    seats: PMap[ReplicaId, ReplicaId] = EMPTY
    homes: PMap[ReplicaId, int] = EMPTY
    because: str = ""
    served_before: tuple[ReplicaId, ...] = ()

    @property
    def ranks(self) -> Mapping[ReplicaId, ReplicaRank]:
        """The rank of each replica that has one, by the planner's id, sorted."""
        found = {each: self.deployment.rank_of(self.seats[each]) for each in sorted(self.seats)}
        return {each: rank for each, rank in found.items() if rank is not None}

    @property
    def failures(self) -> int:
        """How many starts in a row have failed, in the slot where most have."""
        return max((slot.failures for slot in self.deployment.tables.slots.values()), default=0)

    def open_seats(self) -> list[Replica]:
        """Those that nobody sits on, the lowest rank first."""
        found = [each for each in self.deployment.replicas.values() if each.state is REQUESTED]
        return sorted(found, key=lambda each: (-1 if each.slot is None else each.slot, each.birth))

    def seat_of(self, replica_id: ReplicaId) -> Replica | None:
        """What the machine of ranks knows of a replica of the planner's; None: it has no seat."""
        seat = self.seats.get(replica_id)
        return None if seat is None else self.deployment.replicas[seat]

    def takes_requests(self, replica_id: ReplicaId, *, routed: bool) -> bool:
        """Whether a replica that is SERVING is to have requests: it knows its rank and runs.

        Args:
            routed: It has them now, and goes on so while a new controller asks it.
        """
        seat = self.seat_of(replica_id)
        if seat is None:
            return replica_id in self.served_before
        if seat.state is ReplicaState.RECOVERING:
            return routed
        return seat.state in _RUNS or (replica_id in self.served_before and seat.state is not DRAINING)

    def has_run(self, replica_id: ReplicaId) -> bool:
        """Whether a replica runs with a rank."""
        seat = self.seat_of(replica_id)
        return seat is not None and seat.state in _RUNS
