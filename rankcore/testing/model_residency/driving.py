"""What the cluster does around the planner of weights, for tests of the planner alone.

The planner wants nothing by itself: a record that was lost, or whose load failed, ends, and nobody asks for another one. In
a cluster ranks do (`rankcore/cluster/tenures.py`). Here so many replicas of each model are called for, and after each event:

1. who was displaced, idle or evicted is called for no longer; who had to leave for want of memory still is;
2. of what is called for and not wanted HOT more is asked for (T10): in the place of who was lost first, if it is free, and
   of who was evicted to be replaced, as its offload ends;
3. who is wanted and not called for is let go, in the order in which a cluster does;
4. until both numbers are the same. It ends: what is asked for is wanted at once, and makes only others be called for less.
"""

from collections.abc import Iterator
from typing import NamedTuple

import attrs
from msgspec.structs import replace

from rankcore import kernel
from rankcore.cluster.state import Residency
from rankcore.cluster.tenures import surplus
from rankcore.frozen import EMPTY, PMap
from rankcore.residency.events import DeployRequested, Event, EvictRequested, OffloadFinished, ReplicaLost
from rankcore.residency.levels import Phase
from rankcore.residency.spec import Wanted
from rankcore.residency.state import ResidencyState
from rankcore.residency.step import ResidencyStep, carried_out
from rankcore.values import ReplicaId

NO_TENURES = Residency()
TOLD_MAX = 100
"""So many events never follow from one in the small worlds of tests."""


class Told(NamedTuple):
    """One event that the planner was told, and its step."""

    before: ResidencyState
    event: Event
    step: ResidencyStep


@attrs.frozen
class DrivenPlanner:
    """A planner, and how many replicas of each model are called for."""

    state: ResidencyState
    called_for: PMap[str, Wanted] = EMPTY


def driven(planner: DrivenPlanner, event: Event) -> tuple[DrivenPlanner, tuple[Told, ...]]:
    """Tell a planner of an event, and of all that the cluster tells it then.

    Raises:
        InvalidEventError: As `residency_step`.
    """
    told: list[Told] = []
    if isinstance(event, DeployRequested):
        called_for = {wanted.spec.model: wanted for wanted in event.wanted}
        planner = attrs.evolve(planner, called_for=planner.called_for.update(called_for))
    elif isinstance(event, ReplicaLost):
        lost = planner.state.replicas.get(event.replica_id)
        if lost is not None and lost.phase is Phase.SERVING:
            event = replace(event, heir=planner.called_for[lost.model].spec)  # 2.
    elif isinstance(event, OffloadFinished) and event.heir is not None:
        replicas = planner.state.target(event.heir.model) + 1
        wanted = Wanted(spec=event.heir, replicas=replicas)
        planner = attrs.evolve(planner, called_for=planner.called_for.set(event.heir.model, wanted))
    following: Event | None = event
    while following is not None:
        assert len(told) < TOLD_MAX, f"what is wanted HOT never comes to what is called for: {following}"
        planner = _told_of(planner, following, told)
        following = next(_balancing(planner, event.at), None)  # 4.
    return planner, tuple(told)


def _told_of(planner: DrivenPlanner, event: Event, told: list[Told]) -> DrivenPlanner:
    before = planner.state
    ledger = carried_out(before, event)
    step = kernel.Step(ledger.close(), tuple(ledger.commands), tuple(ledger.notes))
    told.append(Told(before, event, step))
    called_for = planner.called_for
    evicted = _evicted(before, event)
    if evicted is not None:  # 1.
        called_for = _calling_for(called_for, evicted, min(called_for[evicted].replicas, step.state.target(evicted)))
    for replica_id, returns in ledger.departed:
        model = _model_of(replica_id)
        if not returns and model != evicted:
            called_for = _calling_for(called_for, model, max(0, called_for[model].replicas - 1))
    return DrivenPlanner(step.state, called_for)


def _balancing(planner: DrivenPlanner, at: float) -> Iterator[Event]:
    for model in sorted(planner.called_for):
        wanted, target = planner.called_for[model], planner.state.target(model)
        if target < wanted.replicas:
            yield DeployRequested(wanted=(wanted,), at=at)  # 2.
        elif target > wanted.replicas:
            yield EvictRequested(replica_id=surplus(planner.state, NO_TENURES, model)[0], at=at)  # 3.


def _evicted(before: ResidencyState, event: Event) -> str | None:
    if not isinstance(event, EvictRequested):
        return None
    return event.model if event.replica_id is None else before.replicas[event.replica_id].model


def _model_of(replica_id: ReplicaId) -> str:
    return replica_id.rpartition("#")[0]


def _calling_for(called_for: PMap[str, Wanted], model: str, replicas: int) -> PMap[str, Wanted]:
    return called_for.set(model, replace(called_for[model], replicas=replicas))
