"""The state of a cluster: a value that never changes. Each deployment is one `Entry`; a step replaces those it touches."""

from collections.abc import Mapping

from msgspec import Struct

from rankcore import kernel
from rankcore.autoscaling.reports import HandleReport, ReplicaReport
from rankcore.autoscaling.state import AutoscalerState
from rankcore.cluster.commands import Availability, ClusterCommand, ForDeployment
from rankcore.cluster.events import CordonNews, WorkerReported
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNote
from rankcore.cluster.records import Cause, Record
from rankcore.cluster.residency import WorkerId
from rankcore.cluster.spec import EntrySpec
from rankcore.commands import StartReplica
from rankcore.frozen import EMPTY, PMap
from rankcore.ordered import Ordered
from rankcore.residency.events import NodeJoined as NodeMemory
from rankcore.residency.spec import ExpectedShape
from rankcore.residency.state import ResidencyState, open_residency
from rankcore.routing.demand import Demands
from rankcore.state import DeploymentState
from rankcore.values import NodeId, ReplicaId


class Application(Struct, frozen=True, gc=False):
    """One application.

    Attributes:
        deployments: Their ids, ascending.
        ingress: The one that requests from outside go to; None: there is none.
        route_prefix: Under which path HTTP requests reach it; None: none do.
    """

    deployments: tuple[DeploymentId, ...]
    ingress: DeploymentId | None = None
    route_prefix: str | None = None


class Target(Struct, frozen=True, gc=False):
    """How many replicas a deployment is to have; see `targets`.

    Attributes:
        replicas: The target, which is also the world size (R9).
        cause: Who wrote it last.
        number: How often it was written; what was decided about an earlier one is late.
    """

    replicas: int
    cause: Cause
    number: int = 0


class Held(Struct, frozen=True, gc=False):
    """A command that waits for a record to be saved.

    Attributes:
        needs: The number of that record.
    """

    needs: int
    command: ForDeployment


class Outbox(Struct, frozen=True, gc=False):
    """The save barrier of one deployment; see `outbox`.

    Attributes:
        record: The newest, sent or not.
        needed: Number of the newest record that commands wait for.
        sent: Number of the last record given to the store; 0: none.
        saved: The greatest number that the store has acknowledged; 0: none.
        due_at: When `record` is to be given to the store, for the first time or again; None: it is saved.
        unsaved_since: Since when the store has owed an acknowledgement; None: it owes none.
        held: What waits, in the order in which it is to happen.
    """

    record: Record
    needed: int = 0
    sent: int = 0
    saved: int = 0
    due_at: float | None = None
    unsaved_since: float | None = None
    held: tuple[Held, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether commands go out as they come."""
        return self.saved >= self.needed


class Question(Struct, frozen=True, gc=False):
    """A user's scaling policy was asked, and has not answered.

    Attributes:
        ask: Its number.
        target_number: Of the target that it was shown.
        reports: What had come in by then.
        at: When it was asked, for which the decision is made once it has answered.
        due_at: When it counts as failed.
    """

    ask: int
    target_number: int
    reports: tuple[HandleReport | ReplicaReport, ...]
    at: float
    due_at: float


class Scaler(Struct, frozen=True, gc=False):
    """What makes the target of one deployment follow its load.

    Attributes:
        core: The autoscaler.
        decides_at: When it looks at the load next.
        reports: The newest of each source since it last did.
        question: What the user's policy was asked; None: nothing.
        problem: Why the policy is not followed; "": it is, or there is none.
    """

    core: AutoscalerState
    decides_at: float
    reports: PMap[str, HandleReport | ReplicaReport] = EMPTY
    question: Question | None = None
    problem: str = ""


class Residency(Struct, frozen=True, gc=False):
    """The workers of a deployment whose weights may be COLD; see `tenures`.

    Attributes:
        tenures: Which worker is a replica: from the end of its load to the end of its offload.
        claims: Starts that wait for a worker that is HOT, the oldest first.
        versions: Those of which there may be workers.
        availability: What was published last; None: nothing was.
        unplaced_since: Since when a claim has had no place; None: each has one.
        failed_until: Until when nothing is tried for those who call.
        unfit: Why it is not: no node could ever hold a replica (T18); "": it has another cause.
        look_at: When to look at demand, places and loads again; None: never.
    """

    tenures: PMap[ReplicaId, WorkerId] = EMPTY
    claims: tuple[StartReplica, ...] = ()
    versions: tuple[str, ...] = ()
    availability: Availability | None = None
    unplaced_since: float | None = None
    failed_until: float = 0.0
    unfit: str = ""
    look_at: float | None = None


class Entry(Struct, frozen=True, gc=False):
    """One deployment.

    Attributes:
        spec: What the user applied last. What is in force is `ranks.spec`.
        ranks: Its replicas and their ranks.
        target: How many replicas it is to have, and who says so.
        outbox: Its record, and what waits for that to be saved.
        scaler: What makes the target follow the load; None: nothing does.
        route_prefix, is_ingress: As in `Record`.
        trouble: What went wrong last; "" once it is healthy.
        deleting: Whether it is to go.
        frozen: Why nothing about it is decided any more (P6); "": it is.
        alarm_at: The least of its times, as it stands in `ClusterState.alarms`; None: nothing is due.
        residency: Its workers; None: each replica is a process of its own.
    """

    spec: EntrySpec
    ranks: DeploymentState
    target: Target
    outbox: Outbox
    scaler: Scaler | None = None
    route_prefix: str | None = None
    is_ingress: bool = False
    trouble: str = ""
    deleting: bool = False
    frozen: str = ""
    alarm_at: float | None = None
    residency: Residency | None = None

    def message(self, known: str | None = None) -> str:
        """What a person has to know first: what the ranks say of themselves, and what went wrong last. Neither hides the other.

        Args:
            known: In place of the former; None: as `ranks.message` has it.
        """
        return "; ".join(filter(None, (self.ranks.message if known is None else known, self.trouble)))

    @property
    def conditions(self) -> tuple[str, ...]:
        """What a person has to know beside the status."""
        found = []
        if self.frozen:
            found.append(f"frozen until the controller is restarted: {self.frozen}")
        if self.outbox.unsaved_since is not None and not self.outbox.is_open:
            found.append(f"{len(self.outbox.held)} commands wait for the store since {self.outbox.unsaved_since:g} s")
        if self.scaler is not None and self.scaler.problem:
            found.append(f"autoscaling: {self.scaler.problem}; the target stays")
        return tuple(found)


class NodeOffer(Struct, frozen=True, gc=False):
    """What is known of a node beside who is on it.

    Attributes:
        resources: What it has for replicas, in all; None: it was never told, or the node is lost.
        at: When that was so.
        lost_at: When it was last lost. Deployments without replicas there are told once they have one.
        memory: What the planner of weights is told of it; None: nothing.
        cordon: The newest word on whether replicas may come or stay there; None: they may.
    """

    resources: Mapping[str, float] | None = None
    at: float = -1.0
    lost_at: float = -1.0
    memory: NodeMemory | None = None
    cordon: CordonNews | None = None


class FoundWorker(Struct, frozen=True, gc=False):
    """A worker that was found after a restart and is not in the planner's books yet.

    Attributes:
        node_id: Where it was found.
        report: What it says; None: it has not said anything yet, or there is newer news.
    """

    node_id: NodeId
    report: WorkerReported | None = None


class Weights(Struct, frozen=True, gc=False):
    """What is known of weights, over all deployments. Nothing of it is saved (T11).

    Attributes:
        planner: Which worker is where, and who makes room for whom.
        found: Workers that were found and are not in its books yet.
        recovering: Records of deployments whose workers have not all reported.
        unknown_until: Until when demand that is not heard of may be there all the same (amendment 15); None: that is over.
        killed_at: When workers that do not report are killed next; None: all have.
        progress: How much of a load has come, by worker.
        demands: Who waits for deployments with residency.
        placing: Whether anything is placed: not after the planner has failed too often.
        refused: Nodes that have other weights than a version, by what the planner calls that (`refusals`).
        missing: The nodes that the executor has listed and the planner does not know yet; None: it has listed none (`never`).
        expected: Nodes that may appear.
        judged_from: From when on something may be said to fit on no node for ever.
    """

    planner: ResidencyState = open_residency()
    found: PMap[WorkerId, FoundWorker] = EMPTY
    recovering: PMap[DeploymentId, Record] = EMPTY
    unknown_until: float | None = None
    killed_at: float | None = None
    progress: PMap[WorkerId, float] = EMPTY
    demands: Demands = Demands()
    placing: bool = True
    refused: PMap[str, tuple[NodeId, ...]] = EMPTY
    missing: Ordered[NodeId] | None = None
    expected: tuple[ExpectedShape, ...] = ()
    judged_from: float = 0.0


class Reporter(Struct, frozen=True, gc=False):
    """The newest report of one process: (incarnation, seq), and when it came."""

    incarnation: int
    seq: int
    at: float


class ClusterState(Struct, frozen=True, gc=False):
    """A cluster at one moment. Immutable: keep it, fork it, compare it.

    Attributes:
        epoch: Of the controller; grows with every restart.
        clock: The largest `at` seen, in seconds on the executor's clock.
        applications: By name; of the deployments, those that are not gone.
        deployments: By id.
        nodes: What is known of nodes that were told of.
        members: How many replicas of each deployment are on a node, by node: to whom its news goes.
        ranked: Ids of the deployments whose placement follows nodes, or bundles: to whom all such news goes.
        reporters: By reporter; those that were silent for long are forgotten.
        reporters_by_age: When each was heard last, the longest silent first.
        left_alone: Ids whose records cannot be read: their replicas are left as they are.
        alarms: When the deployments want to be woken, the next first.
        wake_at: What the executor was last asked for; None: nothing.
        revision: The last number given to a record or a question; begins at `epoch << 32`.
        first_serial, first_revision: What deployments that begin later in this epoch count from, above all that were given
            to deployments of the same name before.
        weights: Of the deployments with residency.
    """

    epoch: int
    clock: float
    applications: PMap[str, Application] = EMPTY
    deployments: PMap[DeploymentId, Entry] = EMPTY
    nodes: PMap[NodeId, NodeOffer] = EMPTY
    members: PMap[NodeId, PMap[DeploymentId, int]] = EMPTY
    ranked: tuple[DeploymentId, ...] = ()
    reporters: PMap[str, Reporter] = EMPTY
    reporters_by_age: Ordered[tuple[float, str]] = Ordered()
    left_alone: tuple[DeploymentId, ...] = ()
    alarms: Ordered[tuple[float, DeploymentId]] = Ordered()
    wake_at: float | None = None
    revision: int = 0
    first_serial: int = 0
    first_revision: int = 0
    weights: Weights = Weights()

    def find(self, name: str) -> tuple[DeploymentId, ...]:
        """The ids that a name may mean: an id itself, or a deployment's name without its application."""
        if name in self.deployments:
            return (name,)
        return tuple(sorted(each for each in self.deployments if each.partition("/")[2] == name))


ClusterStep = kernel.Step[ClusterState, ClusterCommand, ClusterNote]
