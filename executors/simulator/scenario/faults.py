"""What goes wrong in a scenario: single faults, rates of faults, and a trace of node faults.

Each class checks its own fields; that the nodes and deployments exist is checked by `Scenario`.
"""

from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import attrs

from executors.simulator.faults.node_trace import NodeTrace, NodeTraceForm
from executors.simulator.fields import FieldProblem, FileTime, Missing, choice, flag, integer, name, number, optional, shown
from executors.simulator.load.distributions import Distribution
from executors.simulator.load.presets import FAULTS as PRESETS
from executors.simulator.load.stamps import ISO, LONG_UNITS, TIME_UNITS, Stamps, between_s
from executors.simulator.load.table import FIRST, Reading
from executors.simulator.scenario.hardware import GPU_GB_MAX
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.timed_file import TimedFile
from rankcore.checks import COUNT_MAX
from rankcore.frozen import FrozenJson, freeze_json

SLOWER_MAX = 1e3


def _check_one_replica(fault: Any) -> None:
    if fault.rank is not None and fault.replica_id is not None:
        raise FieldProblem(("replica_id",), fault.replica_id, "no replica_id where a rank is given")


@attrs.frozen(kw_only=True)
class ReplicaCrash:
    """A replica's process dies: the one that believes `rank`, the one with this id, or, with neither, any one."""

    kind: ClassVar[str] = "replica_crash"
    at: Moment
    deployment: str = attrs.field(validator=name)
    rank: int | None = attrs.field(default=None, validator=optional(integer(0, COUNT_MAX)))
    replica_id: str | None = attrs.field(default=None, validator=optional(name))

    def __attrs_post_init__(self) -> None:
        _check_one_replica(self)


@attrs.frozen(kw_only=True)
class ReplicaHang:
    """A replica lives but answers nothing, chosen as for replica_crash; its requests stand still.

    The health check of its deployment finds out, unless it is itself again before.

    Attributes:
        for_s: How long; None: for ever.
    """

    kind: ClassVar[str] = "replica_hang"
    at: Moment
    deployment: str = attrs.field(validator=name)
    rank: int | None = attrs.field(default=None, validator=optional(integer(0, COUNT_MAX)))
    replica_id: str | None = attrs.field(default=None, validator=optional(name))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    def __attrs_post_init__(self) -> None:
        _check_one_replica(self)


@attrs.frozen(kw_only=True)
class ReplicaSlow:
    """A replica with an engine takes longer for each iteration, chosen as for replica_crash: a GPU that is too hot, for one.

    That holds from its next iteration on; whoever comes in its place is as fast as ever. Two at once are multiplied.

    Attributes:
        factor: How many times as long: more than once, as nothing makes a replica faster.
        for_s: For how long; None: until it ends.
    """

    kind: ClassVar[str] = "replica_slow"
    at: Moment
    deployment: str = attrs.field(validator=name)
    rank: int | None = attrs.field(default=None, validator=optional(integer(0, COUNT_MAX)))
    replica_id: str | None = attrs.field(default=None, validator=optional(name))
    factor: float = attrs.field(validator=number(above=1.0, most=SLOWER_MAX))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    def __attrs_post_init__(self) -> None:
        _check_one_replica(self)


@attrs.frozen(kw_only=True)
class ReplicaUnready:
    """A replica takes no requests for a while, chosen as for replica_crash; it lives, and finishes those that it has.

    The first health check of its deployment after that finds out, and the first after `for_s` that it is over. One that comes
    up, with a rank or without, may be hit too: the end of its start-up with a rank finds out. With residency nobody waits for a
    health check: it is told at once.

    Attributes:
        for_s: How long; None: for ever.
    """

    kind: ClassVar[str] = "replica_unready"
    at: Moment
    deployment: str = attrs.field(validator=name)
    rank: int | None = attrs.field(default=None, validator=optional(integer(0, COUNT_MAX)))
    replica_id: str | None = attrs.field(default=None, validator=optional(name))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    def __attrs_post_init__(self) -> None:
        _check_one_replica(self)


@attrs.frozen(kw_only=True)
class StartFailure:
    """The user's start-up code raises at its end, in replicas of a deployment whose start-up begins from now on.

    Attributes:
        node: Only in replicas on this node; None: wherever they are.
        count: How many start-ups fail; None: all within `for_s`. With neither, one.
        for_s: Start-ups that begin later are no longer affected; None: they are, until `count` have failed.
    """

    kind: ClassVar[str] = "start_failure"
    at: Moment
    deployment: str = attrs.field(validator=name)
    node: str | None = attrs.field(default=None, validator=optional(name))
    count: int | None = attrs.field(default=None, validator=optional(integer(1, COUNT_MAX)))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    @property
    def count_max(self) -> int | None:
        """How many fail at most; None: any number."""
        return 1 if self.count is None and self.for_s is None else self.count


@attrs.frozen(kw_only=True)
class CrashAfterReady:
    """Replicas of a deployment that become ready from now on die `after_s` later, each time.

    Attributes:
        after_s: How long after it became ready.
        version: Only those of this version; None: of any.
        for_s: Who becomes ready later lives; None: nobody does, until the end of the run.
    """

    kind: ClassVar[str] = "crash_after_ready"
    at: Moment
    deployment: str = attrs.field(validator=name)
    after_s: float = attrs.field(validator=number(above=0.0))
    version: str | None = attrs.field(default=None, validator=optional(name))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))


def _frozen(value: object) -> FrozenJson:
    try:
        return freeze_json(value)
    except TypeError:
        raise FieldProblem(("user_config",), value, "what JSON can hold") from None


@attrs.frozen(kw_only=True)
class ConfigFails:
    """The user's `reconfigure` raises for a user_config, from now on: in replicas that run, and in those that start with it.

    Attributes:
        user_config: The one that is refused.
        for_s: Then it is taken; None: never.
    """

    kind: ClassVar[str] = "config_fails"
    at: Moment
    deployment: str = attrs.field(validator=name)
    user_config: Any = attrs.field(converter=_frozen)
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))


@attrs.frozen(kw_only=True)
class SlowStart:
    """What begins from now on of `start_s` and `init_s` takes `factor` times as long.

    Attributes:
        factor: 2 takes twice as long, 0.5 half as long.
        deployment, node: Only in replicas of it, only on this one; at least one of the two.
        for_s: What begins later is as fast as ever; None: until the end of the run.
    """

    kind: ClassVar[str] = "slow_start"
    at: Moment
    factor: float = attrs.field(validator=number(above=0.0, most=1e6))
    deployment: str | None = attrs.field(default=None, validator=optional(name))
    node: str | None = attrs.field(default=None, validator=optional(name))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    def __attrs_post_init__(self) -> None:
        if self.deployment is None and self.node is None:
            raise FieldProblem(("deployment",), None, "a deployment, or a node: who is slow?")


@attrs.frozen(kw_only=True)
class NodeLoss:
    """A node goes down, and comes back empty after `back_after_s`, or never.

    Attributes:
        back_after_s: How long until it is back; None: it never is.
    """

    kind: ClassVar[str] = "node_loss"
    at: Moment
    node: str = attrs.field(validator=name)
    back_after_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))


@attrs.frozen(kw_only=True)
class NodeCordon:
    """Nothing new is placed on a node; what is there goes on.

    Attributes:
        for_s: How long; None: from then on.
    """

    kind: ClassVar[str] = "node_cordon"
    at: Moment
    node: str = attrs.field(validator=name)
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))


@attrs.frozen(kw_only=True)
class NodeDrain:
    """A node is to be left by all replicas, each after its successor has a place elsewhere; nothing new is placed there.

    Attributes:
        deadline_s: How long until nobody may be there any more; None: there is time.
        for_s: How long until it may be used again; None: never.
    """

    kind: ClassVar[str] = "node_drain"
    at: Moment
    node: str = attrs.field(validator=name)
    deadline_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))


@attrs.frozen(kw_only=True)
class NodePreemption:
    """A node is said to be lost soon, is drained until then, and is lost; it comes back empty after `back_after_s`, or never.

    Attributes:
        notice_s: How long before its loss that is said.
        back_after_s: How long until it is back; None: it never is.
    """

    kind: ClassVar[str] = "node_preemption"
    at: Moment
    node: str = attrs.field(validator=name)
    notice_s: float = attrs.field(validator=number(above=0.0))
    back_after_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))


@attrs.frozen(kw_only=True)
class BundleLoss:
    """Bundles of a placement group are gone, and there again, empty, after `back_after_s`, or never.

    A replica dies with its first bundle; one that loses another is killed by its controller. Either is FAILED until then.

    Attributes:
        group: Name of the placement group.
        bundles: Which, by index; left out: all of them, since the group is removed.
        back_after_s: How long until they are back; None: they never are.
    """

    kind: ClassVar[str] = "bundle_loss"
    at: Moment
    group: str = attrs.field(validator=name)
    bundles: tuple[int, ...] = ()
    back_after_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    def __attrs_post_init__(self) -> None:
        for place, bundle in enumerate(self.bundles):
            if type(bundle) is not int or bundle < 0:
                raise FieldProblem(("bundles", place), bundle, "an integer >= 0")


@attrs.frozen(kw_only=True)
class NodePartition:
    """The controller and a node no longer reach each other; the node's replicas go on serving.

    After `network.lease_s` its lease lapses: its replicas stop themselves, and only then the node counts as lost.

    Attributes:
        for_s: Then they reach each other again, and a node that was lost is back, empty; None: never.
    """

    kind: ClassVar[str] = "node_partition"
    at: Moment
    node: str = attrs.field(validator=name)
    for_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))


@attrs.frozen(kw_only=True)
class ControllerCrash:
    """The controller of all deployments dies and comes back after `restart_after_s`.

    Attributes:
        restart_after_s: How long until it is back, with the wanted configuration and no ranks.
    """

    kind: ClassVar[str] = "controller_crash"
    at: Moment
    restart_after_s: float = attrs.field(validator=number(above=0.0))


@attrs.frozen(kw_only=True)
class LoadFailure:
    """The next loads of a deployment's weights fail, each somewhere on its way.

    Attributes:
        count: How many.
    """

    kind: ClassVar[str] = "load_failure"
    at: Moment
    deployment: str = attrs.field(validator=name)
    count: int = attrs.field(default=1, validator=integer(1, COUNT_MAX))


@attrs.frozen(kw_only=True)
class MemoryShrinks:
    """Somebody else takes memory of a node's GPUs: from now on no more than `gpu_gb` of each is there, as is measured at once.

    Attributes:
        gpu_gb: What is left of each GPU.
    """

    kind: ClassVar[str] = "memory_shrinks"
    at: Moment
    node: str = attrs.field(validator=name)
    gpu_gb: float = attrs.field(validator=number(above=0.0, most=GPU_GB_MAX))


Fault: TypeAlias = (
    ReplicaCrash
    | ReplicaHang
    | ReplicaSlow
    | StartFailure
    | SlowStart
    | NodeLoss
    | BundleLoss
    | NodePartition
    | ControllerCrash
    | LoadFailure
    | MemoryShrinks
    | NodeCordon
    | NodeDrain
    | NodePreemption
    | CrashAfterReady
    | ConfigFails
    | ReplicaUnready
)
OF_WEIGHTS = (LoadFailure, MemoryShrinks)
WITH_RESIDENCY = (ReplicaCrash, ReplicaUnready, NodeLoss, ControllerCrash, *OF_WEIGHTS)
"""What can happen to deployments whose weights may be COLD; whom it happens to is then the oldest replica on GPUs."""
_PLANNED = (NodeCordon, NodeDrain, NodePreemption)
_OF_CODE = (StartFailure, SlowStart, CrashAfterReady, ConfigFails)
_OF_REPLICAS = (ReplicaCrash, ReplicaHang, ReplicaSlow, ReplicaUnready)
_PINNED = (*_OF_REPLICAS, *_OF_CODE, NodeLoss, *_PLANNED, BundleLoss, NodePartition, ControllerCrash)
FAULTS: dict[str, type[Any]] = {cls.kind: cls for cls in (*_PINNED, *OF_WEIGHTS)}

RATE_TARGETS = {
    "replica_crash": "deployment",
    "replica_hang": "deployment",
    "node_loss": "nodes",
    "node_partition": "nodes",
    "controller_crash": None,
}
"""Kinds of faults that can come at a rate, and the key that says whom they hit."""

WITHOUT_REPAIR = ("replica_crash",)
"""A crashed replica is not repaired but replaced, which takes what it takes."""

REPAIRED_BY_OTHERS = ("replica_hang",)
"""Without a repair it lasts until somebody does something about it."""


@attrs.frozen(kw_only=True)
class FaultRate:
    """Faults that come again and again, each unit on its own: every rank of a deployment, every node of a group.

    A unit works for a time drawn from `mtbf_s`, is broken for a time drawn from `mttr_s`, and works again. In a file a
    plain number means an exponential distribution with this mean.

    Attributes:
        kind: What happens again and again.
        deployment: Whose ranks; for replica_crash and replica_hang.
        nodes: Name of a node group; for node_loss and node_partition.
        mtbf_s: How long a unit works until its next fault.
        mttr_s: How long a fault lasts; for replica_hang, left out, until the health check has found it.
        begin_s, end_s: Faults begin within; without an end until `duration_s`, or else until the last request arrives.
    """

    kind: str = attrs.field(validator=choice(*RATE_TARGETS))
    deployment: str | None = attrs.field(default=None, validator=optional(name))
    nodes: str | None = attrs.field(default=None, validator=optional(name))
    mtbf_s: Distribution
    mttr_s: Distribution | None = None
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    end_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    def __attrs_post_init__(self) -> None:
        wanted = RATE_TARGETS[self.kind]
        for key, found in (("deployment", self.deployment), ("nodes", self.nodes)):
            if found is not None and key != wanted:
                raise FieldProblem((key,), found, f"no {key} for {self.kind}")
            if found is None and key == wanted:
                raise FieldProblem((key,), None, f"a name: whom does {self.kind} hit?")
        if self.mtbf_s.mean <= 0.0:
            raise FieldProblem(("mtbf_s",), self.mtbf_s.mean, "a mean above 0")
        if self.kind in WITHOUT_REPAIR and self.mttr_s is not None:
            raise FieldProblem(("mttr_s",), self.mttr_s.mean, f"no time to repair: after {self.kind} comes a replacement")
        if self.mttr_s is None and self.kind not in WITHOUT_REPAIR + REPAIRED_BY_OTHERS:
            raise FieldProblem(("mttr_s",), None, f"seconds: how long does {self.kind} last?")
        if self.end_s is not None and self.end_s <= self.begin_s:
            raise FieldProblem(("end_s",), self.end_s, f"a number above begin_s, which is {self.begin_s:g}")


NODE_MAPPINGS = ("sample", "first", "by_name", "slots")
OF_A_POPULATION = ("sample", "first")
CLUSTER_MAX = 1_000_000


@attrs.frozen(kw_only=True)
class FaultTrace(TimedFile):
    """Node faults of a file, CSV or JSON lines, packed or not, one row for each node that goes down or comes up.

    Faults of one node may overlap: it is up again when all of them are over.

    Attributes:
        file: Relative to the scenario file.
        preset: A published trace, which sets the keys that are not here.
        group: The node group that the trace's nodes stand for; None: all nodes of the scenario.
        cluster_size: Of how many nodes the trace is, those that never failed included; for "sample" and "first".
        map: "sample": each node stands for one of `cluster_size`, drawn by the seed; those that the trace does not name have no
            faults. "first": the first node that the trace names is the group's first, and so on, which gives fewer nodes than
            `cluster_size` too many faults. "by_name": the names are those of the scenario. "slots": nodes are added and removed
            and never come back, as spot nodes are: each takes the first node of the group that is free, and all of them are
            down until then.
        replicate: With "sample", more nodes than `cluster_size` are copies of the trace, whose faults come at other times.
        node_column, time_column, event_column: What the columns are called; other columns are not looked at.
        down, up: What stands in the event column.
        time_unit: Of the time column, and of `begin` and `end`; "iso": ISO 8601, in UTC where no zone is named.
        begin, end: The window of the trace; its begin is second 0 of the run. Who is down at the begin is so in the run.
        events: The window, read from the file; not a key of the scenario.
    """

    file: str = attrs.field(validator=name)
    preset: str | None = attrs.field(default=None, validator=optional(choice(*PRESETS)))
    group: str | None = attrs.field(default=None, validator=optional(name))
    cluster_size: int | None = attrs.field(default=None, validator=optional(integer(1, CLUSTER_MAX)))
    map: str = attrs.field(default="sample", validator=choice(*NODE_MAPPINGS))
    replicate: bool = attrs.field(default=False, validator=flag)
    node_column: str = attrs.field(default="node", validator=name)
    time_column: str = attrs.field(default="time", validator=name)
    event_column: str = attrs.field(default="event", validator=name)
    down: str = attrs.field(default="down", validator=name)
    up: str = attrs.field(default="up", validator=name)
    time_unit: str = attrs.field(default="seconds", validator=choice(*LONG_UNITS, *TIME_UNITS))
    begin: float | str = attrs.field(default=0.0, validator=FileTime())
    end: float | str | None = attrs.field(default=None, validator=optional(FileTime()))
    events: NodeTrace | None = attrs.field(default=None, metadata={"in_file": False})

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.map in OF_A_POPULATION and self.cluster_size is None:
            raise FieldProblem(
                ("cluster_size",), Missing(), f"an integer: of how many nodes is {self.file}? (or map: by_name, slots)"
            )
        if self.map not in OF_A_POPULATION and self.cluster_size is not None:
            raise FieldProblem(("cluster_size",), self.cluster_size, f"no cluster_size with map: {self.map}")
        if self.replicate and self.map != "sample":
            raise FieldProblem(("replicate",), True, "false, but for map: sample")
        if self.down == self.up:
            raise FieldProblem(("up",), self.up, "another word than that for down")
        self._check_window()
        columns = (self.node_column, self.time_column, self.event_column)
        if len(set(columns)) < len(columns):
            raise FieldProblem(("event_column",), self.event_column, "a column of its own for node, time and event")

    def _check_window(self) -> None:
        if self.end is not None and self._origin == FIRST:
            raise FieldProblem(("begin",), Missing(), "a time of the file where there is an end, as time_unit is iso")
        length_s = self._window_s
        if length_s is not None and length_s <= 0.0:
            raise FieldProblem(("end",), self.end, f"a time after begin, which is {shown(self.begin)}")

    @property
    def _origin(self) -> float | str:
        """What becomes 0: the begin of the window, or of a file in which no time is 0."""
        return FIRST if self._unit == ISO and self.begin == 0.0 else self.begin

    @property
    def _unit(self) -> str:
        return LONG_UNITS.get(self.time_unit, self.time_unit)

    @property
    def _window_s(self) -> float | None:
        stamps = Stamps(Path(self.file), self.time_column, self._unit)
        begin = None if self._origin == FIRST else stamps.given("begin", self.begin)
        return None if self.end is None or begin is None else between_s(begin, stamps.given("end", self.end))

    @property
    def form(self) -> NodeTraceForm:
        """How the file is to be read."""
        reading = Reading(
            time=self.time_column,
            time_unit=self._unit,
            sort=self.sort,
            where=self.where,
            skip_bad=self.skip_bad,
            origin=self._origin,
            end=self.end,
            of="node fault",
            ahead=True,
        )
        return NodeTraceForm(
            reading=reading,
            node_column=self.node_column,
            event_column=self.event_column,
            down=self.down,
            up=self.up,
            window_s=self._window_s,
            map=self.map,
            cluster_size=self.cluster_size,
        )
