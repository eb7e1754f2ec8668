"""Residency: which model replicas are on GPUs (HOT), in CPU memory (WARM) or on disk (COLD), and who makes room for whom.

    state = open_residency(ResidencyPolicy())
    state, commands, notes = residency_step(state, event)
    plan = plan_residency(state, event)          # a dry run
    proposal = propose_defragmentation(state)    # costed, never carried out by itself

`events` and `commands` hold what goes in and out, `invariants` checks the promises T1 to T10. docs/residency.md says it
all in words.
"""

from typing import TYPE_CHECKING

from rankcore.homes import loading

if TYPE_CHECKING:
    from rankcore.residency.defragmentation import Proposal, ProposedMove, propose_defragmentation
    from rankcore.residency.levels import Level, Phase
    from rankcore.residency.notes import CantAccommodate, NodeReason, ReasonCount, ResidencyNote, ResidencyNoteKind
    from rankcore.residency.planning import ResidencyPlan, plan_residency
    from rankcore.residency.spec import ModelSpec, ResidencyPolicy, Wanted
    from rankcore.residency.state import Gpu, ResidencyNode, ResidencyState, Resident, open_residency
    from rankcore.residency.step import ResidencyStep, residency_step

__all__ = [
    "CantAccommodate",
    "Gpu",
    "Level",
    "ModelSpec",
    "NodeReason",
    "Phase",
    "Proposal",
    "ProposedMove",
    "ReasonCount",
    "ResidencyNode",
    "ResidencyNote",
    "ResidencyNoteKind",
    "ResidencyPlan",
    "ResidencyPolicy",
    "ResidencyState",
    "ResidencyStep",
    "Resident",
    "Wanted",
    "open_residency",
    "plan_residency",
    "propose_defragmentation",
    "residency_step",
]

_HOMES = {
    "CantAccommodate": "rankcore.residency.notes",
    "Gpu": "rankcore.residency.state",
    "Level": "rankcore.residency.levels",
    "ModelSpec": "rankcore.residency.spec",
    "NodeReason": "rankcore.residency.notes",
    "Phase": "rankcore.residency.levels",
    "Proposal": "rankcore.residency.defragmentation",
    "ProposedMove": "rankcore.residency.defragmentation",
    "ReasonCount": "rankcore.residency.notes",
    "ResidencyNode": "rankcore.residency.state",
    "ResidencyNote": "rankcore.residency.notes",
    "ResidencyNoteKind": "rankcore.residency.notes",
    "ResidencyPlan": "rankcore.residency.planning",
    "ResidencyPolicy": "rankcore.residency.spec",
    "ResidencyState": "rankcore.residency.state",
    "ResidencyStep": "rankcore.residency.step",
    "Resident": "rankcore.residency.state",
    "Wanted": "rankcore.residency.spec",
    "open_residency": "rankcore.residency.state",
    "plan_residency": "rankcore.residency.planning",
    "propose_defragmentation": "rankcore.residency.defragmentation",
    "residency_step": "rankcore.residency.step",
}

__getattr__ = loading(__name__, _HOMES)
"""An executor that moves weights wants `Level`, and not the planner with it."""
