"""rankcore: a pure state machine for ranks and replicas.

    state, commands, notes = deploy(spec)
    state, commands, notes = step(state, event)

An executor carries out the commands and reports events; nothing in here touches the world. `rankcore.events` and
`rankcore.commands` hold what goes in and out, `rankcore.invariants` checks the promises R1..R12.
"""

from rankcore import commands, errors, events
from rankcore.core import deploy, recover, step
from rankcore.draft import Step
from rankcore.errors import RankcoreError
from rankcore.notes import Note, NoteKind
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Replica
from rankcore.values import DeploymentStatus, ReplicaRank, ReplicaState

__all__ = [
    "DeploymentSpec",
    "DeploymentState",
    "DeploymentStatus",
    "Note",
    "NoteKind",
    "RankcoreError",
    "Replica",
    "ReplicaRank",
    "ReplicaState",
    "Step",
    "commands",
    "deploy",
    "errors",
    "events",
    "recover",
    "step",
]
