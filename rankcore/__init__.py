"""rankcore: a pure state machine for ranks and replicas.

    state, commands, notes = deploy(spec)
    state, commands, notes = step(state, event)

An executor carries out the commands and reports events; nothing in here touches the world. `rankcore.events` and
`rankcore.commands` hold what goes in and out, `rankcore.invariants` checks the promises R1..R12.
"""

from typing import TYPE_CHECKING, Any

from rankcore import commands, errors, events
from rankcore.core import deploy, recover, step
from rankcore.draft import Step
from rankcore.errors import RankcoreError
from rankcore.notes import Note, NoteKind
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Replica
from rankcore.values import DeploymentStatus, ReplicaRank, ReplicaState

if TYPE_CHECKING:
    from rankcore import codec, invariants
    from rankcore.planning import Plan, plan

__all__ = [
    "DeploymentSpec",
    "DeploymentState",
    "DeploymentStatus",
    "Note",
    "NoteKind",
    "Plan",
    "RankcoreError",
    "Replica",
    "ReplicaRank",
    "ReplicaState",
    "Step",
    "codec",
    "commands",
    "deploy",
    "errors",
    "events",
    "invariants",
    "plan",
    "recover",
    "step",
]


def __getattr__(name: str) -> Any:
    """Load on first use what few embedders need on start-up: it would make the import a third longer."""
    if name == "codec":
        import rankcore.codec

        return rankcore.codec
    if name == "invariants":
        import rankcore.invariants

        return rankcore.invariants
    if name in ("Plan", "plan"):
        import rankcore.planning

        return getattr(rankcore.planning, name)
    raise AttributeError(f"module 'rankcore' has no attribute {name!r}")
