"""What happened, as an executor tells it: one frozen class each, named in the past tense, built with keyword arguments.

`at` says when it happened, in seconds on the executor's clock. Times are compared within one epoch only, and news may come
late, twice or in another order, except that *final* news (`FINAL`) is never lost and never untrue (section 2.4).

Every class raises `InvalidEventError` when it is built with something its field does not allow.
"""

from typing import Any, TypeAlias

import attrs

from rankcore import checks
from rankcore.errors import InvalidEventError
from rankcore.spec import DeploymentSpec
from rankcore.values import NodeId, ReplicaId, ReplicaRank


def _field_name(instance: object, attribute: "attrs.Attribute[Any]") -> str:
    return f"{type(instance).__name__}.{attribute.name}"


def _identifier(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    # Ids made by the core are short, printable ASCII: one look decides for nearly all of them.
    if type(value) is str and 0 < len(value) <= checks.NAME_LENGTH_MAX and value.isprintable() and " " not in value:
        return
    checks.identifier(InvalidEventError, _field_name(instance, attribute), value)


def _text(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if type(value) is str and value.isascii():
        return
    checks.text(InvalidEventError, _field_name(instance, attribute), value)


def _flag(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is True or value is False:
        return
    checks.flag(InvalidEventError, _field_name(instance, attribute), value)


def _seconds(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if type(value) is float and 0.0 <= value <= checks.SECONDS_MAX:
        return
    checks.seconds(InvalidEventError, _field_name(instance, attribute), value)


def _optional_seconds(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None:
        _seconds(instance, attribute, value)


def _number(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    # Revisions start at epoch << 32, so their range is wider than that of a count.
    if type(value) is int and 0 <= value <= checks.REVISION_MAX:
        return
    checks.count(InvalidEventError, _field_name(instance, attribute), value, 0, checks.REVISION_MAX)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= checks.COUNT_MAX


def _capacity(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if _is_count(value):
        return
    checks.count(InvalidEventError, _field_name(instance, attribute), value, 0)


def _spec(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, DeploymentSpec):
        raise InvalidEventError(_field_name(instance, attribute), value, "a DeploymentSpec")


def _ids(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    name = _field_name(instance, attribute)
    if not isinstance(value, tuple):
        raise InvalidEventError(name, value, "a list or tuple of replica ids")
    for index, replica_id in enumerate(value):
        checks.identifier(InvalidEventError, f"{name}[{index}]", replica_id)


def _bundles(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if type(value) is tuple and not value:
        return
    name = _field_name(instance, attribute)
    if not isinstance(value, tuple):
        raise InvalidEventError(name, value, "a list or tuple of bundle indices")
    for index, bundle in enumerate(value):
        checks.count(InvalidEventError, f"{name}[{index}]", bundle, 0)


def _optional_text(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is not None:
        checks.text(InvalidEventError, _field_name(instance, attribute), value)


def _rank(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if value is None:
        return
    if isinstance(value, ReplicaRank) and all(map(_is_count, (value.rank, value.node_rank, value.local_rank))):
        return
    name = _field_name(instance, attribute)
    if not isinstance(value, ReplicaRank):
        raise InvalidEventError(name, value, "a ReplicaRank, or None where the replica was never initialised")
    wrong = next(level for level in ("rank", "node_rank", "local_rank") if not _is_count(getattr(value, level)))
    checks.count(InvalidEventError, f"{name}.{wrong}", getattr(value, wrong), 0)


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class SpecChanged:
    """The user wants something else. A spec older than the one in force is late.

    Attributes:
        spec: The whole new spec, of the same deployment.
        stop_first: Ids of replicas that a downscale should stop before any other (R11).
    """

    spec: DeploymentSpec = attrs.field(validator=_spec)
    stop_first: tuple[ReplicaId, ...] = attrs.field(default=(), converter=_to_tuple, validator=_ids)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaPlaced:
    """A requested replica has a process on a node, and nothing of the user's has run yet."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    node_id: NodeId = attrs.field(validator=_identifier)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaReady:
    """An initialised replica can take requests. It also acknowledges its `InitializeReplica`, and ends a `ReplicaUnready`."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaPrepared:
    """A replica's user code is up, without a rank, as the command with this revision asks for."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    revision: int = attrs.field(validator=_number)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaStartFailed:
    """Final: a replica ended before it was ready, by its own fault."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    reason: str = attrs.field(default="", validator=_text)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaDied:
    """Final: a replica is gone."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    reason: str = attrs.field(default="", validator=_text)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaStopped:
    """Final: a replica has stopped; also the answer to a Stop or Kill of something unknown."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaReconfigured:
    """A replica has carried out the command with this revision."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    revision: int = attrs.field(validator=_number)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaReconfigureFailed:
    """The user's `reconfigure` raised while the command with this revision was carried out."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    revision: int = attrs.field(validator=_number)
    reason: str = attrs.field(default="", validator=_text)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaReported:
    """A replica's answer to `QueryReplica`: what it believes.

    Attributes:
        node_id: Where it runs.
        rank: What it believes; None: it was never initialised.
        version: Of its code.
        ready: Whether its start-up is over.
        unready: Why it takes no requests for now, though it is ready (`ReplicaUnready`); None: it takes them.
        ready_for_s: For how long user code has been up on this user_config, ready or prepared, by its own clock, since those
            of two epochs differ; None: it is not, or does not say, and counts from this report.
        prepared: Whether its user code is up, and no preparation is under way. Counts where it is not ready.
        draining: Whether it was told to stop.
        config_id: Of the user_config that it has applied; None: none yet.
        bundles: What it was started on (`StartReplica.bundles`); empty: no static placement.
        group_id: Of those bundles (`StartReplica.group_id`).
        restart_token: What it was started with (`StartReplica.restart_token`).
        epoch: Of the query that it answers.
    """

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    node_id: NodeId = attrs.field(validator=_identifier)
    rank: ReplicaRank | None = attrs.field(validator=_rank)
    version: str = attrs.field(validator=_identifier)
    ready: bool = attrs.field(validator=_flag)
    unready: str | None = attrs.field(default=None, validator=_optional_text)
    ready_for_s: float | None = attrs.field(default=None, validator=_optional_seconds)
    prepared: bool = attrs.field(default=False, validator=_flag)
    draining: bool = attrs.field(default=False, validator=_flag)
    config_id: str | None = attrs.field(default=None, validator=attrs.validators.optional(_identifier))
    bundles: tuple[int, ...] = attrs.field(default=(), converter=_to_tuple, validator=_bundles)
    group_id: str | None = attrs.field(default=None, validator=_optional_text)
    restart_token: str = attrs.field(default="", validator=_text)
    epoch: int = attrs.field(validator=_number)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaMissing:
    """Final: the answer to a query of something that does not exist (any more)."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaUnhealthy:
    """A replica is suspected: it may well be alive, and is to be killed and replaced."""

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    reason: str = attrs.field(default="", validator=_text)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaUnready:
    """A replica that serves is to get no requests for now (V16). It is not killed, and goes on with those that it has.

    Over with a `ReplicaReady` that has a later `at`. Of one replica's news of the two the newest holds; at one moment this.
    """

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    reason: str = attrs.field(default="", validator=_text)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicaPending:
    """A requested replica has no place yet, and whether that is for want of room. May be lost or left out.

    Who finds no room is waited for no longer by an update (V2; without this, once the core's own patience is over), and its
    rank may be starved (V18; without this, it never is). So say it again while the start is repeated. Of one replica's news the
    newest holds: say as well that there is room by now, where what is left to be done takes long.

    Attributes:
        replica_id: Which one waits.
        reason: For what, to people.
        no_room: No node has room for it; else it has a place, or will have one, and the place is being made ready.
        accepted: The executor has the start, and is not asked for it again: what comes of it (`ReplicaPlaced`, or its end)
            and any later news of its room is then never lost. Where this itself is lost the start is repeated, and it is said
            again.
    """

    replica_id: ReplicaId = attrs.field(validator=_identifier)
    reason: str = attrs.field(default="", validator=_text)
    no_room: bool = attrs.field(default=True, validator=_flag)
    accepted: bool = attrs.field(default=False, validator=_flag)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class NodeChanged:
    """A node came, came back, or has another capacity: how many replicas of this deployment it can hold in all."""

    node_id: NodeId = attrs.field(validator=_identifier)
    capacity: int = attrs.field(validator=_capacity)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class NodeLost:
    """Final: a node is gone, and with it every replica that was placed or reported there no later than `at`."""

    node_id: NodeId = attrs.field(validator=_identifier)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class BundleLost:
    """Bundles of an external placement group are gone: their node died, or the group was removed. All of them, for that.

    It does not say that the replicas on them are: those are killed, and their ends are told as ever. An executor tells it
    whenever it begins, recovers, or hears of a group for the first time, of what is lost by then.

    Attributes:
        bundles: Their indices.
        reason: Shown with the deployment's status while it lasts.
        group_id: The identity of the group, as in `StartReplica`; None: the one that the spec names.
    """

    bundles: tuple[int, ...] = attrs.field(converter=_to_tuple, validator=_bundles)
    reason: str = attrs.field(default="", validator=_text)
    group_id: str | None = attrs.field(default=None, validator=_optional_text)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class BundleRestored:
    """Bundles that were lost, or whose node was, are there again, empty, on whichever node. `group_id`: as in `BundleLost`."""

    bundles: tuple[int, ...] = attrs.field(converter=_to_tuple, validator=_bundles)
    group_id: str | None = attrs.field(default=None, validator=_optional_text)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ClockAdvanced:
    """Time has passed; what is due is done."""

    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class StopRequested:
    """Somebody wants these replicas stopped. They are always replaced, each with its own rank."""

    replica_ids: tuple[ReplicaId, ...] = attrs.field(converter=_to_tuple, validator=_ids)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplicasLeave:
    """These replicas are to go for good: exactly these are stopped, and the target falls by as many in that step (R9)."""

    replica_ids: tuple[ReplicaId, ...] = attrs.field(converter=_to_tuple, validator=_ids)
    at: float = attrs.field(validator=_seconds)


def _ranks(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    name = _field_name(instance, attribute)
    if not isinstance(value, tuple):
        raise InvalidEventError(name, value, "a list or tuple of ranks")
    for index, rank in enumerate(value):
        checks.count(InvalidEventError, f"{name}[{index}]", rank, 0)


@attrs.frozen(kw_only=True)
class RetryRequested:
    """Back-off is over now: what failed is started in this step (V19). What it counted stays.

    A deployment that is DEPLOY_FAILED has its counts cleared, and is updated to its spec once more.

    Attributes:
        ranks: Of these alone; empty: of all. In DEPLOY_FAILED the build is tried again in all of them.
    """

    ranks: tuple[int, ...] = attrs.field(default=(), converter=_to_tuple, validator=_ranks)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class TrialRequested:
    """A build that was given up is to be tried once more, with one replica, though nobody has changed anything about it."""

    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class DeleteRequested:
    """The user wants the deployment gone."""

    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class NodeCordoned:
    """Nothing new is to come to this node; nobody there is touched. Told again after a recovery, as all of these."""

    __stored__ = True

    node_id: NodeId = attrs.field(validator=_identifier)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class NodeUncordoned:
    """Cordon and drain of a node are over; who was told to stop still stops."""

    node_id: NodeId = attrs.field(validator=_identifier)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class NodeDrainRequested:
    """A node is to be left by all, and nothing new is to come there. A later one replaces the deadline; where one of the two is
    final the earlier holds.

    Attributes:
        deadline_at: Nobody is to be there any more from then on, in seconds on the executor's clock; None: there is time.
        reason: Shown while it lasts: "drain", "preemption", or any text.
        final: Whether the node is gone by then, whatever anybody wants.
    """

    __stored__ = True

    node_id: NodeId = attrs.field(validator=_identifier)
    deadline_at: float | None = attrs.field(default=None, validator=attrs.validators.optional(_seconds))
    reason: str = attrs.field(default="drain", validator=_text)
    final: bool = attrs.field(default=False, validator=_flag)
    at: float = attrs.field(validator=_seconds)


@attrs.frozen(kw_only=True)
class ReplaceRequested:
    """Somebody wants these replicas replaced within the budget, each by a successor with its own rank.

    Attributes:
        deadline_at: None of them is to be there any more from then on; None: there is time.
    """

    __stored__ = True

    replica_ids: tuple[ReplicaId, ...] = attrs.field(converter=_to_tuple, validator=_ids)
    deadline_at: float | None = attrs.field(default=None, validator=attrs.validators.optional(_seconds))
    at: float = attrs.field(validator=_seconds)


Event: TypeAlias = (
    SpecChanged
    | ReplicaPlaced
    | ReplicaPrepared
    | ReplicaReady
    | ReplicaStartFailed
    | ReplicaDied
    | ReplicaStopped
    | ReplicaReconfigured
    | ReplicaReconfigureFailed
    | ReplicaReported
    | ReplicaMissing
    | ReplicaUnhealthy
    | ReplicaUnready
    | ReplicaPending
    | NodeChanged
    | NodeLost
    | BundleLost
    | BundleRestored
    | ClockAdvanced
    | StopRequested
    | ReplicasLeave
    | RetryRequested
    | TrialRequested
    | DeleteRequested
    | NodeCordoned
    | NodeUncordoned
    | NodeDrainRequested
    | ReplaceRequested
)

FINAL = (ReplicaStartFailed, ReplicaDied, ReplicaStopped, ReplicaMissing, NodeLost)
"""The ends of replicas: news that an executor never loses and never makes up (section 2.4)."""
NEVER_LOST = (*FINAL, BundleLost, BundleRestored, ReplicaUnready)
"""All that an executor neither loses nor makes up, and the `ReplicaReady` that ends a `ReplicaUnready`; the rest may come late,
twice, in another order or not at all."""
