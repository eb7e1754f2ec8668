"""D12: ranks belong to HOT replicas; planner and machine of ranks agree."""

from collections.abc import Iterable

from rankcore.dispatching.alarms import AlarmKind
from rankcore.dispatching.ranking import HOT, seat_for
from rankcore.dispatching.seats import Ranking
from rankcore.dispatching.state import FleetState
from rankcore.invariants import check as check_deployment
from rankcore.kernel import Violation
from rankcore.residency import Phase
from rankcore.values import DRAINING, REQUESTED


def check_ranks(state: FleetState, model: str, ranking: Ranking) -> Iterable[Violation]:
    """The promises of the machine of ranks (R1 to R12), and that it is about the replicas that the planner has."""
    yield from check_deployment(ranking.deployment)
    target = state.residency.target(model)
    if ranking.deployment.world_size != target:
        yield Violation("D12", f"the world size of {model!r} is {ranking.deployment.world_size}, {target} are wanted")
    due = state.alarms.times.get((AlarmKind.RANKS, model))
    if due != ranking.deployment.wake_at:
        yield Violation("D12", f"the ranks of {model!r} are due at {ranking.deployment.wake_at}, its alarm is at {due}")
    yield from _seats(state, model, ranking)


def _seats(state: FleetState, model: str, ranking: Ranking) -> Iterable[Violation]:
    seats, replicas = ranking.seats, ranking.deployment.replicas
    taken = sorted(seats.values())
    begun = sorted(each.replica_id for each in replicas.values() if each.state is not REQUESTED)
    if taken != begun:
        yield Violation("D12", f"of {model!r} the seats {taken} are taken, the machine of ranks has begun {begun}")
        return
    for replica_id in sorted(seats):
        phase = state.residency.replicas[replica_id].phase
        if phase not in HOT:
            yield Violation("D12", f"{replica_id} has a seat, and is {phase.value}")
        elif phase is Phase.LEAVING and replicas[seats[replica_id]].state is not DRAINING:
            yield Violation("D12", f"{replica_id} is leaving, and its rank does not know it")
    for replica_id in state.residency.hot_replicas(model):
        seat = seat_for(ranking, state.residency, replica_id) if replica_id not in seats else None
        if seat is not None:
            yield Violation("D12", f"{replica_id} is HOT without a seat, and {seat.replica_id} is open")
