"""The working copy of one step of a cluster: opened from a state, changed by the parts, closed into the next state."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from rankcore.autoscaling.notes import AutoscalingNote
from rankcore.cluster.commands import AskPolicy, ClusterCommand, ForDeployment, PublishAvailability, QueryWorker, SaveRecord
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNote, ClusterNoteKind
from rankcore.cluster.state import ClusterState, ClusterStep, Entry
from rankcore.commands import Command, WakeAt
from rankcore.draft import Step
from rankcore.events import Event
from rankcore.frozen import PMap
from rankcore.kernel import Worklist
from rankcore.notes import RankNote
from rankcore.residency.events import OffloadFailed, OffloadFinished, ReplicaLost
from rankcore.residency.notes import ResidencyNote
from rankcore.values import NodeId


class Vacancy(NamedTuple):
    """News that a worker has left the GPUs: what it held goes to whoever of its deployment is wanted next (T10)."""

    deployment: DeploymentId
    news: OffloadFinished | OffloadFailed | ReplicaLost


class RankStep(NamedTuple):
    """What the ranks of one deployment were told within a step of the cluster, and what they made of it.

    Attributes:
        event: None: they begin, new or recovered.
    """

    deployment: DeploymentId
    event: Event | None
    step: Step


class ClusterDraft:
    """The tables of a cluster, open for change, with what a step gives out.

    Attributes:
        clock: The cluster's, with this event.
        before_clock: As it was before this event: what the clocks of all deployments stand at.
        entries: The deployments, those that this step touches in their newest form.
        touched: Ids of these, in the order in which they were.
        released: What outboxes have let go, by deployment.
        given: What the ranks of each deployment want carried out.
        traced: The steps of ranks, in the order in which they were taken.
        broken: Why deployments are frozen that were not before (P6).
        sideways: Commands of ranks that have left the outbox, and are for the planner of weights.
        vacated: News for the planner of memory that becomes free, which waits until it is known who wants it.
        unbalanced: Deployments whose wanted workers may be another number than their replicas.
        renewed: Nodes that have come, gone, or have other memory.
        is_relisted: Whether the executor has said anew which nodes there are.
        weights: Of the deployments with residency.
        worklist: Events for deployments: those of `rankcore.events` for their ranks, others for their autoscaler.
    """

    def __init__(self, state: ClusterState, at: float, broken: dict[DeploymentId, str]) -> None:
        self.state = state
        self.before_clock = state.clock
        self.clock = max(state.clock, at)
        self.epoch = state.epoch
        self.entries: dict[DeploymentId, Entry] = {}
        self.gone: list[DeploymentId] = []
        self.touched: dict[DeploymentId, None] = {}
        self.released: dict[DeploymentId, list[ForDeployment]] = {}
        self.given: dict[DeploymentId, list[ForDeployment]] = {}
        self.sideways: list[tuple[DeploymentId, Command]] = []
        self.vacated: list[Vacancy] = []
        self.unbalanced: dict[DeploymentId, None] = {}
        self.renewed: dict[NodeId, None] = {}
        self.is_relisted = False
        self.weights = state.weights
        self.saves: list[SaveRecord] = []
        self.queries: list[QueryWorker] = []
        self.published: list[PublishAvailability] = []
        self.questions: list[AskPolicy] = []
        self.notes: list[ClusterNote] = []
        self.traced: list[RankStep] = []
        self.broken = broken
        self.worklist: Worklist[DeploymentId, Any] = Worklist()
        self.applications = state.applications
        self.nodes = state.nodes
        self.members = state.members
        self.ranked = state.ranked
        self.reporters = state.reporters
        self.reporters_by_age = state.reporters_by_age
        self.alarms = state.alarms
        self.revision = state.revision
        self.first_serial = state.first_serial
        self.first_revision = state.first_revision

    def find(self, deployment: DeploymentId) -> Entry | None:
        """A deployment as this step has it; None: there is none."""
        entry = self.entries.get(deployment)
        return entry if entry is not None else self.state.deployments.get(deployment)

    def put(self, deployment: DeploymentId, entry: Entry) -> None:
        """This step touches a deployment."""
        self.touched[deployment] = None
        self.entries[deployment] = entry

    def next_number(self) -> int:
        """A number above every earlier one."""
        self.revision += 1
        return self.revision

    def note(
        self,
        kind: ClusterNoteKind,
        rule: str,
        deployment: DeploymentId | None = None,
        because: str = "",
        of: RankNote | AutoscalingNote | ResidencyNote | None = None,
    ) -> None:
        """Record one decision and its cause."""
        self.notes.append(ClusterNote(kind=kind, rule=rule, deployment=deployment, because=because, of=of))

    def carry_out(self, deployment: DeploymentId, commands: Sequence[ForDeployment]) -> None:
        """What is to happen to a deployment, behind what this step has given out for it."""
        self.given.setdefault(deployment, []).extend(commands)

    def close(self) -> ClusterStep:
        """The step that this draft has come to. Saves come first, then what outboxes let go, each deployment's in order."""
        state = self.state
        deployments = state.deployments
        if self.entries or self.gone:
            deployments = _changed(deployments, self.entries, self.gone)
        commands: list[ClusterCommand] = list(self.saves)
        for released in self.released.values():
            commands.extend(released)
        commands += [*self.queries, *self.published, *self.questions]
        wake_at = state.wake_at if state.wake_at is not None and self.clock < state.wake_at else None
        weights, alarm_at = self.weights, self.alarms.first()[0] if self.alarms else None
        dues = (alarm_at, weights.planner.waking, weights.unknown_until, weights.killed_at)
        due = min([each for each in dues if each is not None], default=None)
        if due is not None and (wake_at is None or due < wake_at):
            wake_at = due
            commands.append(WakeAt(due, self.epoch))
        after = replace(
            state,
            clock=self.clock,
            applications=self.applications,
            deployments=deployments,
            nodes=self.nodes,
            members=self.members,
            ranked=self.ranked,
            reporters=self.reporters,
            reporters_by_age=self.reporters_by_age,
            alarms=self.alarms,
            wake_at=wake_at,
            revision=self.revision,
            first_serial=self.first_serial,
            first_revision=self.first_revision,
            weights=weights,
        )
        return ClusterStep(after, tuple(commands), tuple(self.notes))


def _changed(
    deployments: PMap[DeploymentId, Entry], entries: dict[DeploymentId, Entry], gone: list[DeploymentId]
) -> PMap[DeploymentId, Entry]:
    changed = deployments.mutate()
    for deployment, entry in entries.items():
        changed[deployment] = entry
    for deployment in gone:
        del changed[deployment]
    return changed.finish()
