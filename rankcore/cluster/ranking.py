"""The ranks of each deployment as a part of the cluster: events for them, and what their commands come to."""

from typing import Any

from msgspec.structs import replace

from rankcore import core
from rankcore.cluster import demand, nodes, targets
from rankcore.cluster.commands import CarryOut
from rankcore.cluster.draft import ClusterDraft, RankStep
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.state import Entry
from rankcore.commands import Command, PublishRoutes, WakeAt
from rankcore.draft import Step
from rankcore.events import Event, ReplicasLeave
from rankcore.notes import NoteKind
from rankcore.state import DeploymentState
from rankcore.values import HEALTHY

TROUBLE = frozenset(
    {NoteKind.START_FAILED, NoteKind.BACKED_OFF, NoteKind.DEPLOY_FAILED, NoteKind.ROLLED_BACK, NoteKind.KILL_CHOSEN}
)
"""Notes that a user wants to see until the deployment is healthy again."""
PLANNED = ("S5", "V14")
"""Of rules that kill because of a lost bundle or a drain, of which the state says more."""


def tell(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, event: Any) -> None:
    """Tell the ranks of a deployment what happened. Their clock is the cluster's."""
    before = entry.ranks
    if before.clock < draft.before_clock:
        before = DeploymentState(before.spec, before.status, before.epoch, draft.before_clock, before.tables)
    step = core.step(before, event)
    entry = take(draft, deployment, entry, step, event)
    if type(event) is ReplicasLeave:
        entry = targets.followed(entry)
    if entry.residency is not None:
        entry = demand.after_failure(draft, entry, entry.residency, before)
    draft.put(deployment, entry)
    nodes.follow(draft, deployment, before, step.state, event)


def take(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, step: Step, event: Event | None = None) -> Entry:
    """A deployment after a step of its ranks; `event`: what they were told, None: they begin."""
    draft.traced.append(RankStep(deployment, event, step))
    trouble = entry.trouble
    for note in step.notes:
        draft.note(ClusterNoteKind.RANKS, note.rule, deployment, note.because, note)
        if note.kind in TROUBLE and (note.kind is not NoteKind.KILL_CHOSEN or note.rule not in PLANNED):
            trouble = f"{note.replica_id}: {note.because}" if note.replica_id else f"{note.because}\n{trouble}"
    if step.state.status is HEALTHY:
        trouble = ""
    if step.commands:
        draft.carry_out(deployment, [CarryOut(deployment, command) for command in in_order(step.commands)])
    return replace(entry, ranks=step.state, trouble=trouble)


def in_order(commands: tuple[Command, ...]) -> list[Command]:
    """Without when to be woken, which is the cluster's; routes are taken away before whoever they lead to is stopped."""
    rest = [each for each in commands if type(each) is not WakeAt]
    return sorted(rest, key=lambda each: not (type(each) is PublishRoutes and each.removed))
