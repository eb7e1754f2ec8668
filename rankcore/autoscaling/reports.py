"""What an autoscaler hears: reports of handles and replicas, and how the deployment is. Plain messages with times."""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import attrs

from rankcore import checks
from rankcore.errors import InvalidEventError
from rankcore.state import DeploymentState
from rankcore.values import ReplicaId, ReplicaState

HandleId: TypeAlias = str
SERVING = frozenset({ReplicaState.RUNNING, ReplicaState.RECONFIGURING})


class HandleReport(NamedTuple):
    """A handle, or a proxy, says how many requests wait in it.

    Attributes:
        handle_id: Of whoever keeps the queue; never used again once it is gone.
        queued: Requests that no replica has taken.
        at: When that was so, in seconds on the clock of `autoscale`'s `at`.
    """

    handle_id: HandleId
    queued: float
    at: float


class ReplicaReport(NamedTuple):
    """A replica says how many requests it works on.

    Attributes:
        replica_id: Its id in the deployment's state.
        in_flight: Requests that it has taken and not answered.
        at: When that was so, in seconds on the clock of `autoscale`'s `at`.
    """

    replica_id: ReplicaId
    in_flight: float
    at: float


Report: TypeAlias = HandleReport | ReplicaReport


def _ids(replica_ids: Iterable[ReplicaId]) -> frozenset[ReplicaId]:
    try:
        return frozenset(replica_ids)
    except TypeError:
        raise InvalidEventError("Metrics.running", replica_ids, "a collection of replica ids") from None


def _reports(reports: Iterable[Report]) -> tuple[Report, ...]:
    try:
        return tuple(reports)
    except TypeError:
        raise InvalidEventError("Metrics.reports", reports, "a collection of HandleReport and ReplicaReport") from None


@attrs.frozen(kw_only=True)
class Metrics:
    """What an autoscaler is told at one call.

    Attributes:
        target_replicas: The target in force.
        running: Replicas that take requests: started up, alive, not draining.
        reports: What has come in since the last call, in any order; late and repeated ones are left out of account.
        rank_moves: Replicas that have to take another rank, or were told to and have not acknowledged it (A9).
        stops_move_ranks: Whether a downscale brings moves: not where the highest ranks are stopped first (R11).

    Raises:
        InvalidEventError: Names the field, what was found and what is allowed.
    """

    target_replicas: int
    running: frozenset[ReplicaId] = attrs.field(default=(), converter=_ids)
    reports: tuple[Report, ...] = attrs.field(default=(), converter=_reports)
    rank_moves: int = 0
    stops_move_ranks: bool = True

    def __attrs_post_init__(self) -> None:
        checks.count(InvalidEventError, "Metrics.target_replicas", self.target_replicas, 0)
        checks.count(InvalidEventError, "Metrics.rank_moves", self.rank_moves, 0)
        checks.flag(InvalidEventError, "Metrics.stops_move_ranks", self.stops_move_ranks)
        for replica_id in self.running:
            checks.identifier(InvalidEventError, "Metrics.running", replica_id)
        for report in self.reports:
            _check_report(report)

    @classmethod
    def of(cls, state: DeploymentState, reports: Iterable[Report] = ()) -> "Metrics":
        """What a deployment's state says; costs O(N)."""
        replicas = state.replicas.values()
        return cls(
            target_replicas=state.world_size,
            running=frozenset(each.replica_id for each in replicas if each.state in SERVING),
            reports=reports,
            rank_moves=rank_moves(state),
            stops_move_ranks=state.spec.victims != "highest_rank",
        )


def rank_moves(state: DeploymentState) -> int:
    """Replicas that are on the way to another global rank: told of it and not known to have it, or still to be told (R8)."""
    return sum(
        1
        for each in state.replicas.values()
        if each.leaving is None
        and each.rank is not None
        and (each.rank.rank >= state.world_size or any(old.rank != each.rank.rank for old in each.believed))
    )


def _check_report(report: object) -> None:
    match report:
        case HandleReport(source, value, at):
            source_field, value_field = "HandleReport.handle_id", "HandleReport.queued"
        case ReplicaReport(source, value, at):
            source_field, value_field = "ReplicaReport.replica_id", "ReplicaReport.in_flight"
        case _:
            raise InvalidEventError("Metrics.reports", report, "HandleReport or ReplicaReport")
    kind = type(report).__name__
    checks.identifier(InvalidEventError, source_field, source)
    checks.seconds(InvalidEventError, f"{kind}.at", at)
    if not checks.is_number(value) or not 0 <= value <= checks.COUNT_MAX:
        raise InvalidEventError(value_field, value, f"a number from 0 to {checks.COUNT_MAX}")
