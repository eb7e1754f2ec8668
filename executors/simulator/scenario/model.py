"""What a scenario says, as typed values.

Each class checks its own fields, and `Scenario` what they say of each other.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

from executors.simulator.arrivals import REQUESTS_MAX
from executors.simulator.distributions import Constant, Distribution
from executors.simulator.fields import FieldProblem, flag, integer, name, number, optional
from rankcore import DeploymentSpec
from rankcore.checks import COUNT_MAX
from rankcore.errors import InvalidSpecError

NODES_MAX = 100_000
SPEC_FIELDS = tuple(field.name for field in attrs.fields(DeploymentSpec) if field.init)
CHANGEABLE = tuple(field for field in SPEC_FIELDS if field != "name")
DEFAULT_LATENCY = Constant(value=0.001)
DEFAULT_START = Constant(value=1.0)
DEFAULT_INIT = Constant(value=10.0)
DEFAULT_RECONFIGURE = Constant(value=0.1)
DEFAULT_DRAIN = Constant(value=0.0)


@attrs.frozen(kw_only=True)
class Moment:
    """When something happens.

    Attributes:
        offset_s: Seconds from the start of the run, or from the anchor.
        anchor: "busiest_minute": the start of the minute in which most requests arrive; None: the start of the run.
    """

    offset_s: float = 0.0
    anchor: str | None = None


@attrs.frozen(kw_only=True)
class NodeGroup:
    """Some equal nodes: `<name>-0`, `<name>-1`, ...; a group of one is called `<name>` unless `count` is given."""

    name: str = attrs.field(validator=name)
    gpus: int = attrs.field(validator=integer(1, 1024))
    count: int | None = attrs.field(default=None, validator=optional(integer(1, NODES_MAX)))

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The names of its nodes."""
        return (self.name,) if self.count is None else tuple(f"{self.name}-{index}" for index in range(self.count))


@attrs.frozen(kw_only=True)
class NetworkModel:
    """How long a message takes between controller, replicas and routers."""

    latency_s: Distribution = DEFAULT_LATENCY


@attrs.frozen(kw_only=True)
class TraceRequests:
    """Requests of a CSV file with token counts.

    Attributes:
        file: Relative to the scenario file.
        begin_s: When the first request arrives.
        base_s, prompt_s_per_token, output_s_per_token: Service time = base + prompt tokens x .. + output tokens x ..
        time_column, prompt_tokens_column, output_tokens_column: What the columns are called.
    """

    file: str = attrs.field(validator=name)
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    base_s: float = attrs.field(validator=number(least=0.0))
    prompt_s_per_token: float = attrs.field(validator=number(least=0.0, most=1e3))
    output_s_per_token: float = attrs.field(validator=number(least=0.0, most=1e3))
    time_column: str = attrs.field(default="TIMESTAMP", validator=name)
    prompt_tokens_column: str = attrs.field(default="ContextTokens", validator=name)
    output_tokens_column: str = attrs.field(default="GeneratedTokens", validator=name)


@attrs.frozen(kw_only=True)
class PoissonRequests:
    """Requests that arrive independently of each other, from `begin_s` on for `for_s`."""

    rate_per_s: float = attrs.field(validator=number(above=0.0, most=1e6))
    begin_s: float = attrs.field(default=0.0, validator=number(least=0.0))
    for_s: float = attrs.field(validator=number(above=0.0))
    service_s: Distribution

    def __attrs_post_init__(self) -> None:
        if self.rate_per_s * self.for_s > REQUESTS_MAX:
            most = REQUESTS_MAX / self.rate_per_s
            raise FieldProblem(("for_s",), self.for_s, f"at most {most:g}: {REQUESTS_MAX} requests at this rate")


Requests: TypeAlias = TraceRequests | PoissonRequests
REQUEST_SOURCES: dict[str, type[TraceRequests] | type[PoissonRequests]] = {
    "trace": TraceRequests,
    "poisson": PoissonRequests,
}


@attrs.frozen(kw_only=True)
class Deployment:
    """One deployment: what the user wants of it, and how its replicas behave in this world.

    Attributes:
        spec: Its fields are written beside the others in the file, under the names that `DeploymentSpec` has for them.
        start_s: From room on a node to a process that is up.
        init_s: How long the user's start-up takes, such as loading weights.
        reconfigure_s: How long the user's `reconfigure` takes.
        drain_s: What a stopping replica still does once its requests are done.
        max_ongoing_requests: How many requests a replica works on at once.
        max_queued_requests: How many may wait; more are turned away.
    """

    spec: DeploymentSpec
    gpus_per_replica: int = attrs.field(default=1, validator=integer(1, 1024))
    max_ongoing_requests: int = attrs.field(default=8, validator=integer(1, 100_000))
    max_queued_requests: int = attrs.field(default=1_000_000, validator=integer(0, COUNT_MAX))
    start_s: Distribution = DEFAULT_START
    init_s: Distribution = DEFAULT_INIT
    reconfigure_s: Distribution = DEFAULT_RECONFIGURE
    drain_s: Distribution = DEFAULT_DRAIN
    requests: Requests | None = None


@attrs.frozen(kw_only=True)
class ReplicaCrash:
    """A replica's process dies: the one that believes `rank`, the one with this id, or, with neither, any one."""

    kind: ClassVar[str] = "replica_crash"
    at: Moment
    deployment: str = attrs.field(validator=name)
    rank: int | None = attrs.field(default=None, validator=optional(integer(0, COUNT_MAX)))
    replica_id: str | None = attrs.field(default=None, validator=optional(name))

    def __attrs_post_init__(self) -> None:
        if self.rank is not None and self.replica_id is not None:
            raise FieldProblem(("replica_id",), self.replica_id, "no replica_id where a rank is given")


@attrs.frozen(kw_only=True)
class NodeLoss:
    """A node goes down, and comes back empty after `back_after_s`, or never."""

    kind: ClassVar[str] = "node_loss"
    at: Moment
    node: str = attrs.field(validator=name)
    back_after_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))


@attrs.frozen(kw_only=True)
class ControllerCrash:
    """The controller of all deployments dies and comes back after `restart_after_s`."""

    kind: ClassVar[str] = "controller_crash"
    at: Moment
    restart_after_s: float = attrs.field(validator=number(above=0.0))


Fault: TypeAlias = ReplicaCrash | NodeLoss | ControllerCrash
FAULTS: dict[str, type[ReplicaCrash] | type[NodeLoss] | type[ControllerCrash]] = {
    cls.kind: cls for cls in (ReplicaCrash, NodeLoss, ControllerCrash)
}


@attrs.frozen(kw_only=True)
class Change:
    """Somebody wants something else of a deployment.

    Attributes:
        delete: Whether they want it gone.
        stop_first: Ids of the replicas that a downscale should stop before any other.
        fields: The fields of the spec that change; written beside the others in the file.
    """

    at: Moment
    deployment: str = attrs.field(validator=name)
    delete: bool = attrs.field(default=False, validator=flag)
    stop_first: tuple[str, ...] = ()
    fields: Mapping[str, Any] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        if self.delete and (self.fields or self.stop_first):
            raise FieldProblem(("delete",), True, "no other change together with delete")
        if not self.delete and not self.fields:
            raise FieldProblem((), {}, "delete: true, or fields of the deployment such as target_replicas")
        for index, replica_id in enumerate(self.stop_first):
            if not isinstance(replica_id, str) or not replica_id.isprintable() or not replica_id.strip():
                raise FieldProblem(("stop_first", index), replica_id, "a replica id")

    def apply(self, spec: DeploymentSpec) -> DeploymentSpec:
        """What is wanted after it."""
        return attrs.evolve(spec, **self.fields)


@attrs.frozen(kw_only=True)
class Scenario:
    """A world and what happens in it.

    Attributes:
        seed: Of all randomness.
        duration_s: How long to run; None: until all requests are done and all deployments have settled.
        settle_s: Without a duration: how long to wait for that after the last thing that the scenario says.
    """

    name: str = attrs.field(default="scenario", validator=name)
    seed: int = attrs.field(default=0, validator=integer(0, 2**63 - 1))
    duration_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    settle_s: float = attrs.field(default=600.0, validator=number(least=0.0))
    network: NetworkModel = NetworkModel()
    nodes: tuple[NodeGroup, ...]
    deployments: tuple[Deployment, ...]
    faults: tuple[Fault, ...] = ()
    changes: tuple[Change, ...] = ()

    def __attrs_post_init__(self) -> None:
        self._check_nodes()
        self._check_deployments()
        self._check_faults()
        self._check_changes()

    @property
    def node_gpus(self) -> dict[str, int]:
        """GPUs of each node, in the order of the file."""
        return {node_id: group.gpus for group in self.nodes for node_id in group.node_ids}

    def _check_nodes(self) -> None:
        if not self.nodes:
            raise FieldProblem(("nodes",), [], "at least one group of nodes")
        if sum(group.count or 1 for group in self.nodes) > NODES_MAX:
            raise FieldProblem(("nodes",), sum(group.count or 1 for group in self.nodes), f"at most {NODES_MAX} nodes")
        seen: set[str] = set()
        for index, group in enumerate(self.nodes):
            for node_id in group.node_ids:
                if node_id in seen:
                    raise FieldProblem(("nodes", index, "name"), node_id, "a node name that no other group makes")
                seen.add(node_id)

    def _check_deployments(self) -> None:
        if not self.deployments:
            raise FieldProblem(("deployments",), [], "at least one deployment")
        names: set[str] = set()
        most = max(group.gpus for group in self.nodes)
        for index, deployment in enumerate(self.deployments):
            if deployment.spec.name in names:
                raise FieldProblem(("deployments", index, "name"), deployment.spec.name, "a name that no other deployment has")
            names.add(deployment.spec.name)
            if deployment.gpus_per_replica > most:
                allowed = f"an integer from 1 to {most}, the GPUs of the largest node"
                raise FieldProblem(("deployments", index, "gpus_per_replica"), deployment.gpus_per_replica, allowed)

    def _check_faults(self) -> None:
        nodes = self.node_gpus
        for index, fault in enumerate(self.faults):
            if isinstance(fault, NodeLoss) and fault.node not in nodes:
                allowed = f"one of the nodes {_listed(nodes)}"
                raise FieldProblem(("faults", index, "node"), fault.node, allowed)
            if isinstance(fault, ReplicaCrash):
                self._check_deployment_name(("faults", index, "deployment"), fault.deployment)
            self._check_moment(("faults", index, "at"), fault.at)

    def _check_changes(self) -> None:
        specs = {deployment.spec.name: deployment.spec for deployment in self.deployments}
        for index, change in enumerate(self.changes):
            self._check_deployment_name(("changes", index, "deployment"), change.deployment)
            self._check_moment(("changes", index, "at"), change.at)
            try:
                change.apply(specs[change.deployment])
            except InvalidSpecError as error:
                key = error.field.rpartition(".")[2]
                raise FieldProblem(("changes", index, key), error.found, error.allowed) from None

    def _check_deployment_name(self, keys: tuple[str | int, ...], found: str) -> None:
        names = [deployment.spec.name for deployment in self.deployments]
        if found not in names:
            raise FieldProblem(keys, found, f"one of the deployments {_listed(names)}")

    def _check_moment(self, keys: tuple[str | int, ...], moment: Moment) -> None:
        if moment.anchor is not None and not any(deployment.requests for deployment in self.deployments):
            raise FieldProblem(keys, moment.anchor, "a number of seconds: no deployment has requests, so none is busiest")


def _listed(names: Any) -> str:
    shown = list(names)
    return ", ".join(shown[:8]) + (f", ... ({len(shown)} in all)" if len(shown) > 8 else "")
