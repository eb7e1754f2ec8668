"""What happens to a cluster, as an executor tells it: one class each, in the past tense, built with keyword arguments.

News of a replica, of a lost node or bundle, and the clock are the classes of `rankcore.events`, as they are: the id of a
replica says whose it is. What is new here is what concerns several deployments, or what ranks do not know.

Every class raises `InvalidEventError` when it is built with something its field does not allow.
"""

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from rankcore import checks, events
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import WorkerId
from rankcore.cluster.spec import ApplicationSpec, EntrySpec, check_amounts, frozen_amounts
from rankcore.errors import InvalidEventError
from rankcore.frozen import FrozenDict, FrozenJson, freeze_json
from rankcore.residency.events import EvictRequested, MemoryMeasured, UsageReported, check_sizes
from rankcore.residency.levels import Phase
from rankcore.residency.reports import check_held
from rankcore.residency.spec import ExpectedShape, frozen_labels
from rankcore.values import NodeId, ReplicaId


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _ids(instance: object, attribute: "attrs.Attribute[tuple[str, ...]]", value: object) -> None:
    name = f"{type(instance).__name__}.{attribute.name}"
    if not isinstance(value, tuple):
        raise InvalidEventError(name, value, "a list or tuple of ids")
    for index, each in enumerate(value):
        checks.identifier(InvalidEventError, f"{name}[{index}]", each)


def _id(instance: object, attribute: "attrs.Attribute[str]", value: object) -> None:
    checks.identifier(InvalidEventError, f"{type(instance).__name__}.{attribute.name}", value)


def _text(instance: object, attribute: "attrs.Attribute[str]", value: object) -> None:
    checks.text(InvalidEventError, f"{type(instance).__name__}.{attribute.name}", value)


def _flag(instance: object, attribute: "attrs.Attribute[bool]", value: object) -> None:
    checks.flag(InvalidEventError, f"{type(instance).__name__}.{attribute.name}", value)


def _moment(instance: object, attribute: "attrs.Attribute[float]", value: object) -> None:
    checks.seconds(InvalidEventError, f"{type(instance).__name__}.{attribute.name}", value)


def _number(instance: object, attribute: "attrs.Attribute[int]", value: object) -> None:
    checks.count(InvalidEventError, f"{type(instance).__name__}.{attribute.name}", value, 0, checks.REVISION_MAX)


def _count(instance: object, attribute: "attrs.Attribute[int]", value: object) -> None:
    checks.count(InvalidEventError, f"{type(instance).__name__}.{attribute.name}", value, 0)


def _applications(instance: object, attribute: "attrs.Attribute[tuple[ApplicationSpec, ...]]", value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, ApplicationSpec) for each in value):
        raise InvalidEventError("ApplyRequested.applications", value, "a list or tuple of ApplicationSpec")


def _sizes(instance: object, attribute: "attrs.Attribute[tuple[int, ...]]", value: object) -> None:
    check_sizes(f"{type(instance).__name__}.{attribute.name}", value)


def _labels(value: object) -> object:
    return frozen_labels(InvalidEventError, "NodeJoined.labels", value)


def _amounts(instance: object, attribute: "attrs.Attribute[Mapping[str, float]]", value: object) -> None:
    check_amounts(InvalidEventError, f"{type(instance).__name__}.{attribute.name}", value)


@attrs.frozen(kw_only=True)
class ApplyRequested:
    """The user wants these applications so. The same again changes nothing; all of it is taken, or nothing.

    Attributes:
        applications: Each as a whole.
        prune: Whether applications that are not among them are to go.
    """

    applications: tuple[ApplicationSpec, ...] = attrs.field(converter=_to_tuple, validator=_applications)
    prune: bool = attrs.field(default=False, validator=_flag)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class ScaleRequested:
    """The user wants another number of replicas of one deployment.

    Attributes:
        stop_first: Ids of replicas that a downscale should stop before any other (R11).
    """

    deployment: DeploymentId = attrs.field(validator=_id)
    target_replicas: int = attrs.field(validator=_count)
    stop_first: tuple[ReplicaId, ...] = attrs.field(default=(), converter=_to_tuple, validator=_ids)
    at: float = attrs.field(validator=_moment)


def _entry(instance: object, attribute: "attrs.Attribute[EntrySpec]", value: object) -> None:
    if not isinstance(value, EntrySpec):
        raise InvalidEventError("ChangeRequested.spec", value, "an EntrySpec")


@attrs.frozen(kw_only=True)
class ChangeRequested:
    """The user wants another spec of one deployment; all else of its application is to stay as it is."""

    spec: EntrySpec = attrs.field(validator=_entry)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class DeploymentRetryRequested:
    """The user wants what failed in one deployment to be tried again now; `ranks`: as in `RetryRequested`."""

    deployment: DeploymentId = attrs.field(validator=_id)
    ranks: tuple[int, ...] = attrs.field(default=(), converter=_to_tuple)
    at: float = attrs.field(validator=_moment)

    def __attrs_post_init__(self) -> None:
        self.for_ranks()

    def for_ranks(self) -> events.RetryRequested:
        """For the deployment itself."""
        return events.RetryRequested(ranks=self.ranks, at=self.at)


@attrs.frozen(kw_only=True)
class DeletionRequested:
    """The user wants these applications gone, and these deployments of others."""

    applications: tuple[str, ...] = attrs.field(default=(), converter=_to_tuple, validator=_ids)
    deployments: tuple[DeploymentId, ...] = attrs.field(default=(), converter=_to_tuple, validator=_ids)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class NodeJoined:
    """A node came, came back, or offers something else.

    Attributes:
        resources: What it has for replicas of this cluster, in all, by name. Capacities are counted from it.
        gpu_bytes: What each of the GPUs can hold that the planner of weights may use, by number.
        cpu_bytes: The budget for copies of weights in its CPU memory.
        labels: What `ResidencySpec.node_labels` may ask for.
    """

    node_id: NodeId = attrs.field(validator=_id)
    resources: Mapping[str, float] = attrs.field(converter=frozen_amounts, validator=_amounts)
    gpu_bytes: tuple[int, ...] = attrs.field(default=(), converter=_to_tuple, validator=_sizes)
    cpu_bytes: int = attrs.field(default=0, validator=_number)
    labels: Mapping[str, str] = attrs.field(factory=FrozenDict, converter=_labels)
    at: float = attrs.field(validator=_moment)


def _node_ids(instance: object, attribute: "attrs.Attribute[tuple[str, ...] | None]", value: object) -> None:
    if value is not None:
        _ids(instance, attribute, value)  # type: ignore[arg-type]


def _shapes(instance: object, attribute: "attrs.Attribute[tuple[ExpectedShape, ...]]", value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, ExpectedShape) for each in value):
        raise InvalidEventError("NodesListed.expected_shapes", value, "a list or tuple of ExpectedShape")


@attrs.frozen(kw_only=True)
class NodesListed:
    """These nodes there are, and no others as far as the executor knows; told anew where one has come or gone (T18).

    Until each of them has joined nothing is said to fit nowhere for ever, and nothing at all where they are never listed.

    Attributes:
        node_ids: None: they are not known, or not any more.
        expected_shapes: Nodes that may appear once somebody waits for one.
    """

    node_ids: tuple[NodeId, ...] | None = attrs.field(converter=_to_tuple, validator=_node_ids)
    expected_shapes: tuple[ExpectedShape, ...] = attrs.field(default=(), converter=_to_tuple, validator=_shapes)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class ReportedLoad:
    """What one process says of its calls to one deployment: ages and totals, which need no common clock.

    Attributes:
        waiting: Calls that no replica has taken.
        oldest_age_s: For how long the first of them has waited.
        in_flight: Calls that replicas have taken and not answered; of a replica, those that it works on.
        arrivals_total, answered_total: Since the process began.
        service_s_total: How long the answered ones took, together.
    """

    waiting: int = attrs.field(default=0, validator=_count)
    oldest_age_s: float = attrs.field(default=0.0, validator=_moment)
    in_flight: int = attrs.field(default=0, validator=_count)
    arrivals_total: int = attrs.field(default=0, validator=_number)
    answered_total: int = attrs.field(default=0, validator=_number)
    service_s_total: float = attrs.field(default=0.0, validator=_moment)


def _frozen_loads(value: object) -> object:
    return FrozenDict(value) if isinstance(value, Mapping) else value


def _loads(instance: object, attribute: "attrs.Attribute[Mapping[str, ReportedLoad]]", value: object) -> None:
    if not isinstance(value, Mapping):
        raise InvalidEventError("LoadReported.entries", value, "a ReportedLoad by the ids of deployments")
    for deployment, load in value.items():
        checks.identifier(InvalidEventError, "LoadReported.entries[...]", deployment)
        if not isinstance(load, ReportedLoad):
            raise InvalidEventError(f"LoadReported.entries[{deployment!r}]", load, "a ReportedLoad")


@attrs.frozen(kw_only=True)
class LoadReported:
    """A process says how its calls stand. Of one reporter the newest (incarnation, seq) counts; older ones are late.

    Attributes:
        reporter: The process that calls; or a replica, by its id, which speaks of the calls that it works on.
        incarnation: Which start of that process; the next one has a greater number.
        seq: Which report of that incarnation.
        entries: By deployment; one that is not among them is as it was.
    """

    reporter: str = attrs.field(validator=_id)
    incarnation: int = attrs.field(validator=_number)
    seq: int = attrs.field(validator=_number)
    entries: Mapping[DeploymentId, ReportedLoad] = attrs.field(converter=_frozen_loads, validator=_loads)
    at: float = attrs.field(validator=_moment)


def _wanted(instance: object, attribute: "attrs.Attribute[float | None]", value: object) -> None:
    if value is not None and (not checks.is_number(value) or not 0.0 <= value <= checks.COUNT_MAX):  # type: ignore[operator]
        raise InvalidEventError("PolicyAnswered.wanted", value, f"a number from 0 to {checks.COUNT_MAX}, or None")


def _memory(value: object) -> object:
    try:
        return freeze_json(value)
    except TypeError as error:
        raise InvalidEventError("PolicyAnswered.memory", value, f"JSON-like data ({error})") from None


@attrs.frozen(kw_only=True)
class PolicyAnswered:
    """A user's scaling policy has answered `AskPolicy`, or failed. It stands in the journal, so a replay asks nobody.

    Attributes:
        ask: Of the question that it answers.
        target_number: Of the target that the question showed (`AskPolicy.target_number`): an answer about another one is late.
        wanted: How many replicas the load calls for; None: it failed.
        memory: What the policy wants to be shown the next time.
        problem: Why it failed; "": it did not.
    """

    deployment: DeploymentId = attrs.field(validator=_id)
    ask: int = attrs.field(validator=_number)
    target_number: int = attrs.field(validator=_number)
    wanted: float | None = attrs.field(default=None, validator=_wanted)
    memory: FrozenJson = attrs.field(default=None, converter=_memory)
    problem: str = attrs.field(default="", validator=_text)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class RecordSaved:
    """The store has acknowledged `SaveRecord`: the record of this number survives this controller.

    Attributes:
        number: `Record.number`.
    """

    deployment: DeploymentId = attrs.field(validator=_id)
    number: int = attrs.field(validator=_number)
    at: float = attrs.field(validator=_moment)


def _share(instance: object, attribute: "attrs.Attribute[float]", value: object) -> None:
    if not checks.is_number(value) or not 0.0 <= value <= 1.0:  # type: ignore[operator]
        raise InvalidEventError(f"{type(instance).__name__}.{attribute.name}", value, "a number from 0 to 1")


@attrs.frozen(kw_only=True)
class MoveProgressed:
    """So much of a load has come, from 0 to 1; nothing is decided by it."""

    worker_id: WorkerId = attrs.field(validator=_id)
    move: int = attrs.field(validator=_number)
    share: float = attrs.field(validator=_share)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class MoveFinished:
    """`MoveWeights` was carried out: a load: it is HOT; any other: the bytes are free."""

    worker_id: WorkerId = attrs.field(validator=_id)
    move: int = attrs.field(validator=_number)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class MoveFailed:
    """A load failed, and it is off the GPUs again, a copy where it was; or any other did, and nothing is left but the file.

    Attributes:
        wrong_weights: What is on that node are not the weights of this version: it would fail there again.
    """

    worker_id: WorkerId = attrs.field(validator=_id)
    move: int = attrs.field(validator=_number)
    reason: str = attrs.field(default="", validator=_text)
    wrong_weights: bool = attrs.field(default=False, validator=_flag)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class WorkerLost:
    """Final: a worker's process has ended, and with it what it held. Told once for each process.

    Attributes:
        node_id: Where it ran; None: it never did, as far as is known.
    """

    worker_id: WorkerId = attrs.field(validator=_id)
    node_id: NodeId | None = attrs.field(default=None, validator=attrs.validators.optional(_id))
    reason: str = attrs.field(default="", validator=_text)
    at: float = attrs.field(validator=_moment)


@attrs.frozen(kw_only=True)
class WorkerReported:
    """A worker's answer to `QueryWorker`: what it holds.

    Attributes:
        phase: RESTING: a copy in CPU memory; LOADING, LEAVING, DROPPING: its newest move is under way; SERVING: it is HOT.
        gpus, gpu_bytes: What it takes on GPUs.
        cpu_bytes: What it takes in CPU memory: its copy, or the room for the one that is being made.
        move: The newest that it was given.
        tenure: The replica that it is, if that has a rank; else None.
        epoch: Of the query that it answers.
    """

    worker_id: WorkerId = attrs.field(validator=_id)
    node_id: NodeId = attrs.field(validator=_id)
    phase: Phase
    gpus: tuple[int, ...] = attrs.field(default=(), converter=_to_tuple, validator=_sizes)
    gpu_bytes: tuple[int, ...] = attrs.field(default=(), converter=_to_tuple, validator=_sizes)
    cpu_bytes: int = attrs.field(default=0, validator=_number)
    move: int = attrs.field(default=0, validator=_number)
    tenure: ReplicaId | None = attrs.field(default=None, validator=attrs.validators.optional(_id))
    epoch: int = attrs.field(validator=_number)
    at: float = attrs.field(validator=_moment)

    def __attrs_post_init__(self) -> None:
        check_held("WorkerReported", self.phase, self.gpus, self.gpu_bytes, self.cpu_bytes)


WorkerNews: TypeAlias = MoveProgressed | MoveFinished | MoveFailed | WorkerLost | WorkerReported

CordonNews: TypeAlias = events.NodeCordoned | events.NodeUncordoned | events.NodeDrainRequested
"""Told to those who have replicas on that node, or whose placement follows nodes, but not to weights that may be COLD."""

ReplicaNews: TypeAlias = (
    events.ReplicaPlaced
    | events.ReplicaPrepared
    | events.ReplicaReady
    | events.ReplicaStartFailed
    | events.ReplicaDied
    | events.ReplicaStopped
    | events.ReplicaReconfigured
    | events.ReplicaReconfigureFailed
    | events.ReplicaReported
    | events.ReplicaMissing
    | events.ReplicaUnhealthy
    | events.ReplicaUnready
    | events.ReplicaPending
)
"""Handed on to the deployment that the replica is of."""

ClusterEvent: TypeAlias = (
    ApplyRequested
    | ScaleRequested
    | ChangeRequested
    | DeploymentRetryRequested
    | DeletionRequested
    | events.StopRequested
    | events.ReplicasLeave
    | events.ReplaceRequested
    | ReplicaNews
    | WorkerNews
    | EvictRequested
    | MemoryMeasured
    | UsageReported
    | NodeJoined
    | NodesListed
    | events.NodeLost
    | CordonNews
    | events.BundleLost
    | events.BundleRestored
    | LoadReported
    | PolicyAnswered
    | RecordSaved
    | events.ClockAdvanced
)
