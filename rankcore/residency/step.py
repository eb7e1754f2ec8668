"""The machine: what becomes of a planner of residency when something has happened."""

from collections.abc import Callable
from typing import Any, TypeAlias

from rankcore import kernel
from rankcore.events import ClockAdvanced
from rankcore.residency import asking, events, life, machines, reports
from rankcore.residency.commands import Command
from rankcore.residency.events import Event
from rankcore.residency.ledger import Ledger
from rankcore.residency.notes import ResidencyNote
from rankcore.residency.state import ResidencyState
from rankcore.residency.turns import follow_the_first, review
from rankcore.residency.waking import ask_to_be_woken, do_what_is_due, retry
from rankcore.values import NodeId

ResidencyStep: TypeAlias = kernel.Step[ResidencyState, Command, ResidencyNote]


def _on_clock_advanced(ledger: Ledger, event: ClockAdvanced) -> None:
    """Time has passed; what is due is done after every event."""


HANDLERS: dict[type, Callable[[Ledger, Any], None]] = {
    events.NodeJoined: machines.on_node_joined,
    events.NodeLost: machines.on_node_lost,
    events.MemoryMeasured: machines.on_memory_measured,
    events.DeployRequested: asking.on_deploy_requested,
    events.EvictRequested: asking.on_evict_requested,
    events.ReplicaUsed: life.on_replica_used,
    events.UsageReported: life.on_usage_reported,
    events.LoadFinished: life.on_load_finished,
    events.LoadFailed: life.on_load_failed,
    events.OffloadFinished: life.on_offload_finished,
    events.OffloadFailed: life.on_offload_failed,
    events.ReplicaLost: life.on_replica_lost,
    ClockAdvanced: _on_clock_advanced,
    reports.NodeAdopted: reports.on_node_adopted,
}


def residency_step(state: ResidencyState, event: Event) -> ResidencyStep:
    """The machine: what becomes of a planner of residency when something has happened.

    Costs O(log N) for N nodes and replicas plus the size of what it changes; displacement also the nodes that it searches.

    Raises:
        InvalidEventError: The event is none of a planner, or speaks of a model that was never deployed. `state` is as it was.
    """
    ledger = carried_out(state, event)
    return kernel.Step(ledger.close(), tuple(ledger.commands), tuple(ledger.notes))


def carried_out(state: ResidencyState, event: Event) -> Ledger:
    """The books after an event, still open."""
    handler = kernel.handler_of(HANDLERS, event, "one of rankcore.residency.events")
    ledger = Ledger(state, event.at)
    handler(ledger, event)
    do_what_is_due(ledger)
    follow_the_first(ledger)
    try_those_that_wait(ledger)
    ledger.end_at_rest()
    ask_to_be_woken(ledger)
    return ledger


def try_those_that_wait(ledger: Ledger) -> None:
    """All that fit have a place, and then the first of the others a reservation.

    Again where who got it needs nobody to leave, or took it from another one, whose room may do for others. It ends: each round
    but the last gives one that waits a place for good, or the reservation to somebody of a higher standing.
    """
    changed: dict[NodeId, None] = {}
    again = True
    while again:
        changed.update(ledger.roomier)
        retry(ledger)
        ledger.roomier = {}
        changed.update(dict.fromkeys(ledger.nodes_of_moves()))
        if ledger.stirred or changed:
            review(ledger, sorted(changed))
        again = bool(ledger.stirred or ledger.roomier)
