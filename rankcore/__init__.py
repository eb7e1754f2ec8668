"""rankcore: a pure state machine for ranks and replicas.

    state, commands, notes = deploy(spec)
    state, commands, notes = step(state, event)

An executor carries out the commands and reports events; nothing in here touches the world. `rankcore.events` and
`rankcore.commands` hold what goes in and out, `rankcore.invariants` checks the promises R1..R12 and S1..S8.
"""

from typing import TYPE_CHECKING

from rankcore.homes import loading

if TYPE_CHECKING:
    from rankcore import codec, commands, errors, events, invariants
    from rankcore.core import deploy, recover, step
    from rankcore.draft import Step
    from rankcore.errors import RankcoreError
    from rankcore.notes import Note, NoteKind
    from rankcore.placement import StaticPlacement
    from rankcore.planning import Plan, plan
    from rankcore.spec import DeploymentSpec
    from rankcore.state import DeploymentState, Replica
    from rankcore.takeover import outstanding
    from rankcore.values import DeploymentStatus, ReplicaRank, ReplicaState

__version__ = "0.1.0"

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
    "StaticPlacement",
    "Step",
    "__version__",
    "codec",
    "commands",
    "deploy",
    "errors",
    "events",
    "invariants",
    "outstanding",
    "plan",
    "recover",
    "step",
]


_HOMES = {
    "DeploymentSpec": "rankcore.spec",
    "DeploymentState": "rankcore.state",
    "DeploymentStatus": "rankcore.values",
    "Note": "rankcore.notes",
    "NoteKind": "rankcore.notes",
    "Plan": "rankcore.planning",
    "RankcoreError": "rankcore.errors",
    "Replica": "rankcore.state",
    "ReplicaRank": "rankcore.values",
    "ReplicaState": "rankcore.values",
    "StaticPlacement": "rankcore.placement",
    "Step": "rankcore.kernel",
    "deploy": "rankcore.core",
    "outstanding": "rankcore.takeover",
    "plan": "rankcore.planning",
    "recover": "rankcore.core",
    "step": "rankcore.core",
}

__getattr__ = loading(__name__, _HOMES, ("codec", "commands", "errors", "events", "invariants"))
"""A replica's process wants `ReplicaRank`, and not the whole machine with it."""
