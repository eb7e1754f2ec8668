"""Dispatching: requests for models whose weights may be anywhere, from the caller's word to the answer.

    state = open_fleet(DispatchPolicy())
    state, commands, notes = fleet_step(state, event)

A fleet is the planner of `rankcore.residency` and one router of `rankcore.routing` for each model, in one state: a request
for a model that is not HOT waits while it is provisioned, and is told how it stands. All that happens, and all that anybody
wants, is an event of this one machine. `events` and `commands` hold what goes in and out, `invariants` checks the promises
D1 to D12.
"""

from rankcore.dispatching.commands import Status, StatusKind, TellCaller, TellReplica
from rankcore.dispatching.core import fleet_step
from rankcore.dispatching.events import ControllerTookOver, LoadProgressed, ModelRequested, ReplicaSaid, ServingChanged
from rankcore.dispatching.image import FleetImage, fleet_of, image_of
from rankcore.dispatching.notes import FleetNote, FleetNoteKind
from rankcore.dispatching.outstanding import outstanding
from rankcore.dispatching.seats import Ranking, RankSpec
from rankcore.dispatching.spec import DispatchPolicy, ServingSpec
from rankcore.dispatching.state import FleetState, FleetStep, OpenRequest, Served, open_fleet

__all__ = [
    "ControllerTookOver",
    "DispatchPolicy",
    "FleetImage",
    "FleetNote",
    "FleetNoteKind",
    "FleetState",
    "FleetStep",
    "LoadProgressed",
    "ModelRequested",
    "OpenRequest",
    "RankSpec",
    "Ranking",
    "ReplicaSaid",
    "Served",
    "ServingChanged",
    "ServingSpec",
    "Status",
    "StatusKind",
    "TellCaller",
    "TellReplica",
    "fleet_of",
    "fleet_step",
    "image_of",
    "open_fleet",
    "outstanding",
]
