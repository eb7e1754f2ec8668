"""What a scenario says, as typed values.

Each class checks its own fields, and `Scenario` what they say of each other.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from executors.simulator.engines.spec import Engine
from executors.simulator.fields import PERIOD_MIN_S, FieldProblem, Text, choice, flag, integer, name, number, optional
from executors.simulator.load.distributions import Constant, Distribution
from executors.simulator.scenario.engines import RequestSlo, ScenarioEngine, engines_by_node
from executors.simulator.scenario.faults import (
    OF_WEIGHTS,
    WITH_RESIDENCY,
    BundleLoss,
    Fault,
    FaultRate,
    FaultTrace,
    ReplicaCrash,
    ReplicaSlow,
    ReplicaUnready,
)
from executors.simulator.scenario.gpu_nodes import NodeList, NodeShape
from executors.simulator.scenario.hardware import MEMORY_GB_MAX, NODES_MAX, NetworkModel, NodeGroup
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.objectives import (
    COSTS,
    ENGINE,
    SLO_WINDOW_S,
    WINDOW_LEAST_S,
    Reading,
    check_reading,
    parse_goal,
)
from executors.simulator.scenario.placements import PlacementGroup, check_fits, check_groups
from executors.simulator.scenario.prices import NODES, REPLICAS, check_prices
from executors.simulator.scenario.requests import ClosedRequests, Requests, TraceRequests, check_engine
from executors.simulator.scenario.traffic import Traffic
from executors.simulator.scenario.weights import COLD, WARM, DisplacementRule, Loading, ScenarioResidency, Size, WeightSizes
from rankcore import DeploymentSpec, StaticPlacement
from rankcore.autoscaling import AutoscalingSpec
from rankcore.checks import COUNT_MAX, SECONDS_MAX
from rankcore.errors import InvalidSpecError
from rankcore.routing import RoutingSpec
from rankcore.routing.spec import POLICIES, Policy

SPEC_FIELDS = tuple(field.name for field in attrs.fields(DeploymentSpec) if field.init)
ROUTING = ("max_ongoing_requests", "max_queued_requests", "idempotent", "max_retries", "request_timeout_s")
POLICY = "routing_policy"
NOT_KNOWN = "nobody knows when closed requests come before they do"
CHANGEABLE = tuple(field for field in SPEC_FIELDS if field != "name")
REPLICAS_MAX = 100_000
"""Of all deployments together: each takes some kilobytes, and every one of them is started at once."""
FAULTS_MAX = 1_000_000
"""So many faults of one rate take minutes to simulate, and mean a mistake in a unit."""
DEFAULT_START = Constant(value=1.0)
DEFAULT_INIT = Constant(value=10.0)
DEFAULT_RECONFIGURE = Constant(value=0.1)
DEFAULT_DRAIN = Constant(value=0.0)


@attrs.frozen(kw_only=True)
class Deployment:
    """One deployment: what the user wants of it, and how its replicas behave in this world.

    Attributes:
        spec: Its fields are written beside the others in the file, under the names that `DeploymentSpec` has for them.
        gpus_per_replica, memory_gb_per_replica: What a replica takes of its node.
        start_s: From room on a node to a process that is up.
        init_s: How long the user's start-up takes, such as loading weights.
        reconfigure_s: How long the user's `reconfigure` takes.
        drain_s: What a stopping replica still does once its requests are done.
        max_ongoing_requests: How many requests a replica works on at once.
        max_queued_requests: How many may wait; more are turned away.
        routing_policy: Which of the replicas that have room gets a request; "affinity" needs `sessions`.
        idempotent: Whether a request may be done twice: what a replica had in flight when it ended is done again.
        max_retries: How often one request is done again.
        request_timeout_s: How long after its arrival a request that is not done is given up; None: never.
        sessions: Requests are of so many sessions in turn, and "affinity" sends those of one to one replica; None: of none.
        engine: The engine by which its replicas serve requests; None: each takes its `service_s`, whatever else is served.
        request_slo: With an engine: when a request counts as good; None: always, once it is done.
        requests: Where its requests come from; None: it has none.
        autoscaling: How the target follows the load, in place of `target_replicas`; None: it does not.
        residency: Its weights, where they are on GPUs only while they are wanted; None: each replica has its own for life. With
            it `target_replicas` is 0 unless it is given, and the first request asks for a replica; how long a start takes
            `loading` says, and a node offers `gpu_gb`.
    """

    spec: DeploymentSpec
    gpus_per_replica: int = attrs.field(default=1, validator=integer(1, 1024))
    memory_gb_per_replica: float = attrs.field(default=0.0, validator=number(least=0.0, most=MEMORY_GB_MAX))
    max_ongoing_requests: int = attrs.field(default=8, validator=integer(1, 100_000))
    max_queued_requests: int = attrs.field(default=1_000_000, validator=integer(0, COUNT_MAX))
    routing_policy: Policy = attrs.field(default="least_loaded", validator=choice(*POLICIES))
    idempotent: bool = attrs.field(default=False, validator=flag)
    max_retries: int = attrs.field(default=3, validator=integer(0, COUNT_MAX))
    request_timeout_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=SECONDS_MAX)))
    sessions: int | None = attrs.field(default=None, validator=optional(integer(1, COUNT_MAX)))
    start_s: Distribution = DEFAULT_START
    init_s: Distribution = DEFAULT_INIT
    reconfigure_s: Distribution = DEFAULT_RECONFIGURE
    drain_s: Distribution = DEFAULT_DRAIN
    engine: str | None = attrs.field(default=None, validator=optional(name))
    request_slo: RequestSlo | None = None
    requests: Requests | None = None
    autoscaling: AutoscalingSpec | None = None
    residency: ScenarioResidency | None = None

    @property
    def served_requests(self) -> Requests | None:
        """Its requests, as whoever serves them reads them."""
        requests = self.requests
        return requests.for_engine() if self.engine is not None and isinstance(requests, TraceRequests) else requests

    @property
    def most_replicas(self) -> int:
        """How many it may want, as far as nobody changes that."""
        return self.spec.target_replicas if self.autoscaling is None else self.autoscaling.max_replicas

    def __attrs_post_init__(self) -> None:
        has_sessions = isinstance(self.requests, TraceRequests) and "session" in self.requests.columns
        if self.sessions is not None and has_sessions:
            raise FieldProblem(("sessions",), self.sessions, "nothing, as the trace has a column of sessions")
        if (self.routing_policy == "affinity") != (self.sessions is not None) and not has_sessions:
            allowed = 'a number where routing_policy is "affinity", and left out elsewhere'
            raise FieldProblem(("sessions",), self.sessions, allowed)
        if self.request_slo is not None and self.engine is None:
            raise FieldProblem(("request_slo",), "a mapping", "nothing, as the deployment has no engine")
        if self.requests is not None:
            check_engine(self.requests, self.engine)

    @property
    def routing(self) -> RoutingSpec:
        """What its router goes by."""
        return RoutingSpec(
            name=self.spec.name,
            max_ongoing_requests=self.max_ongoing_requests,
            max_queued_requests=self.max_queued_requests,
            policy=self.routing_policy,
            idempotent=self.idempotent,
            max_retries=self.max_retries,
            request_timeout_s=self.request_timeout_s,
        )


def with_target(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that a spec is to have; with a static placement the target follows from it, unless it is named."""
    follows = isinstance(fields.get("placement"), StaticPlacement)
    return {"target_replicas": None, **fields} if follows else dict(fields)


@attrs.frozen(kw_only=True)
class Change:
    """Somebody wants something else of a deployment.

    Attributes:
        delete: Whether they want it gone.
        stop_first: Ids of the replicas that a downscale should stop before any other.
        evict: With residency: all its replicas leave the GPUs for good, and are kept in CPU memory if there is room (WARM), or
            not at all (COLD).
        fields: The fields of the spec that change; written beside the others in the file.
    """

    at: Moment
    deployment: str = attrs.field(validator=name)
    delete: bool = attrs.field(default=False, validator=flag)
    stop_first: tuple[str, ...] = ()
    evict: str | None = attrs.field(default=None, validator=optional(choice(WARM, COLD)))
    fields: Mapping[str, Any] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        for key, asked in (("delete", self.delete), ("evict", self.evict)):
            if asked and (self.fields or self.stop_first or (self.delete and self.evict)):
                raise FieldProblem((key,), asked, f"no other change together with {key}")
        if not self.delete and not self.evict and not self.fields:
            raise FieldProblem((), {}, "delete: true, or fields of the deployment such as target_replicas, or evict: WARM")
        for index, replica_id in enumerate(self.stop_first):
            if not isinstance(replica_id, str) or not replica_id.isprintable() or not replica_id.strip():
                raise FieldProblem(("stop_first", index), replica_id, "a replica id")

    def apply(self, spec: DeploymentSpec) -> DeploymentSpec:
        """What is wanted after it: another mapping of ranks brings its own number of them.

        Raises:
            InvalidSpecError: This cannot be had of that spec.
        """
        return attrs.evolve(spec, **with_target(self.fields))


@attrs.frozen(kw_only=True)
class ScenarioApplication:
    """Some deployments under one name: `application/deployment` is what each is called elsewhere in the scenario.

    Attributes:
        deployments: All of it.
    """

    name: str = attrs.field(validator=Text(without="/#@"))
    deployments: tuple[Deployment, ...] = ()


@attrs.frozen(kw_only=True)
class Scenario:
    """A world and what happens in it.

    Attributes:
        name: What the report is called.
        seed: Of all randomness; the same scenario and seed give the same run.
        network: Messages between controller, replicas and routers; None: as usual, and with residency they take no time.
        nodes: The machines, as groups of equal ones.
        expected_shapes: Nodes that may be added once somebody waits for them; what fits on none of `nodes` and on one of these
            waits for room, and what fits on none of either is refused at once.
        node_list: And more of them, out of a list of real nodes, for deployments with residency.
        placement_groups: What others have reserved on them, for deployments with a static placement.
        engines: What serves requests that share its iterations.
        gpu_prices_per_hour: USD for one GPU and hour, by `gpu_type` of the nodes: {H100: 2.5}. Left out: no costs.
        billing: Which hours: those of `replicas`, from placed to ended, or of `nodes`, all of them, as long as they are up.
        slo: Objectives, as `--slo` has them: `simulate` and `compare` say whether they hold, `optimize` looks for what meets
            them, each where it is given none.
        slo_window_s: How wide a window is in which an objective such as `p99 latency_s < 2 @ 99%` holds or does not.
        weight_sizes: Where sizes of weights stand that deployments do not say themselves.
        every_deployment: What holds for every deployment that says nothing else: any of its keys.
        deployments: What runs on them.
        applications: More deployments, by the applications that they are of.
        traffic: Requests for deployments that have none of their own.
        loading: How long it takes to move weights.
        displacement: Who makes room for whom, and for how long the first in line waits.
        faults: What goes wrong, each once.
        fault_rates: What goes wrong again and again.
        fault_trace: Node faults that were recorded elsewhere.
        changes: What users change in their deployments.
        duration_s: How long to run; None: until all requests are done and all deployments have settled.
        settle_s: Without a duration: how long to wait for that after the last thing that the scenario says.
    """

    name: str = attrs.field(default="scenario", validator=name)
    seed: int = attrs.field(default=0, validator=integer(0, 2**63 - 1))
    duration_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    settle_s: float = attrs.field(default=600.0, validator=number(least=0.0))
    network: NetworkModel | None = None
    nodes: tuple[NodeGroup, ...] = ()
    node_list: NodeList | None = None
    expected_shapes: tuple[NodeGroup, ...] = ()
    placement_groups: tuple[PlacementGroup, ...] = ()
    engines: tuple[ScenarioEngine, ...] = ()
    gpu_prices_per_hour: Mapping[str, Any] = attrs.Factory(dict)
    slo: tuple[str, ...] = ()
    slo_window_s: float = attrs.field(default=SLO_WINDOW_S, validator=number(least=WINDOW_LEAST_S))
    billing: str = attrs.field(default=REPLICAS, validator=choice(REPLICAS, NODES))
    weight_sizes: WeightSizes | None = None
    every_deployment: Mapping[str, Any] = attrs.Factory(dict)
    deployments: tuple[Deployment, ...] = ()
    applications: tuple[ScenarioApplication, ...] = ()
    traffic: Traffic | None = None
    loading: Loading = attrs.Factory(Loading)
    displacement: DisplacementRule = attrs.Factory(DisplacementRule)
    faults: tuple[Fault, ...] = ()
    fault_rates: tuple[FaultRate, ...] = ()
    fault_trace: FaultTrace | None = None
    changes: tuple[Change, ...] = ()
    shapes: tuple[NodeShape, ...] = attrs.field(default=(), metadata={"in_file": False})
    sizes: Mapping[str, Size] = attrs.field(factory=dict, metadata={"in_file": False})

    def __attrs_post_init__(self) -> None:
        if self.needs_files:
            return  # all is checked once they are read
        self._check_nodes()
        check_prices(self.gpu_prices_per_hour, self.nodes, self.billing)
        check_groups(self.placement_groups, self.nodes)
        self._check_deployments()
        self._check_residency()
        self._check_engines()
        self._check_slo()
        self._check_faults()
        self._check_fault_rates()
        self._check_fault_trace()
        self._check_changes()

    @property
    def has_users(self) -> bool:
        """Whether requests of some wait for the answers of others, so that nobody knows before when they come."""
        return any(isinstance(each.requests, ClosedRequests) for each in self.deployments)

    @property
    def has_residency(self) -> bool:
        """Whether it is about weights that may be COLD."""
        return self.weight_sizes is not None or any(each.residency is not None for each in self.deployments)

    @property
    def needs_files(self) -> bool:
        """Whether sizes and nodes are still to be read (`files.with_files`)."""
        return (self.has_residency or self.node_list is not None) and not self.shapes

    @property
    def usual_network(self) -> NetworkModel:
        """The network where each replica has its weights for life."""
        return self.network if self.network is not None else NetworkModel()

    @property
    def parts(self) -> tuple[object, ...]:
        """All that a run of it refers to, none of which ever changes."""
        trace = self.fault_trace
        events = (trace, trace.events) if trace is not None else ()
        specs = (each for deployment in self.deployments for each in (deployment.spec, deployment.autoscaling))
        happens = (*self.faults, *self.fault_rates, *self.changes, *events)
        return (self, self.network, *self.engines, *self.placement_groups, *self.deployments, *self.shapes, *specs, *happens)

    @cached_property
    def bundle_counts(self) -> dict[str, int]:
        """How many bundles each placement group has."""
        return {group.name: len(tuple(group.spread(self.nodes))) for group in self.placement_groups}

    @cached_property
    def node_gpus(self) -> dict[str, int]:
        """GPUs of each node, in the order of the file."""
        written = {node_id: group.gpus for group in self.nodes for node_id in group.node_ids}
        return written | {shape.node_id: len(shape.gpu_bytes) for shape in self.shapes if shape.node_id not in written}

    def node_ids_of(self, group: str | None) -> tuple[str, ...]:
        """The nodes of a group, or all of them, in the order of the file."""
        return tuple(node_id for each in self.nodes if group in (None, each.name) for node_id in each.node_ids)

    def targets_of(self, rate: FaultRate) -> tuple[str | int, ...]:
        """What a rate breaks, each on its own: ids of nodes, ranks, or the controller."""
        if rate.nodes is not None:
            return self.node_ids_of(rate.nodes)
        if rate.deployment is None:
            return ("controller",)
        # Ranks that a later change brings have theirs from the start: who wants more replicas meets the same faults.
        (target,) = (each.most_replicas for each in self.deployments if each.spec.name == rate.deployment)
        wanted = [change.fields.get("target_replicas", 0) for change in self.changes if change.deployment == rate.deployment]
        return tuple(range(max(target, *wanted, 0)))

    def end_of_rate(self, rate: FaultRate, last_arrival: float) -> float:
        """When the last fault of a rate may begin, if the last request comes then."""
        return rate.end_s or self.duration_s or last_arrival

    def check_rates(self, last_arrival: float) -> None:
        """Raise `FieldProblem` for a rate that brings more faults than anybody waits for, if the last request comes then."""
        for index, rate in enumerate(self.fault_rates):
            count, lasts_s = len(self.targets_of(rate)), self.end_of_rate(rate, last_arrival) - rate.begin_s
            repair_s = max(rate.mttr_s.mean if rate.mttr_s is not None else 0.0, PERIOD_MIN_S)
            if lasts_s * count / (rate.mtbf_s.mean + repair_s) > FAULTS_MAX:
                least = lasts_s * count / FAULTS_MAX
                allowed = f"a mean from {least:.3g}, as {count} that fail within {lasts_s:g} s have {FAULTS_MAX} faults then"
                raise FieldProblem(("fault_rates", index, "mtbf_s"), rate.mtbf_s.mean, allowed)

    def check_fault(self, keys: tuple[str | int, ...], fault: Fault | Change) -> None:
        """Raise `FieldProblem` for a fault of what this scenario does not have; `keys`: where the fault stands."""
        node, deployment = getattr(fault, "node", None), getattr(fault, "deployment", None)
        if node is not None and node not in self.node_gpus:
            raise FieldProblem((*keys, "node"), node, f"one of the nodes {_listed(self.node_gpus)}")
        if deployment is not None:
            self._check_deployment_name((*keys, "deployment"), deployment)
        self._check_sort(keys, fault)
        if isinstance(fault, BundleLoss):
            self._check_bundles(keys, fault)
        if isinstance(fault, ReplicaSlow):
            self._check_slow(keys, fault)
        if isinstance(fault, Change):
            self._check_target(keys, fault)
        self._check_moment((*keys, "at"), fault.at)

    def _check_slow(self, keys: tuple[str | int, ...], fault: ReplicaSlow) -> None:
        with_engine = [each.spec.name for each in self.deployments if each.engine is not None]
        if fault.deployment not in with_engine:
            allowed = f"one with an engine: {_listed(with_engine)}" if with_engine else "a deployment with an engine"
            raise FieldProblem((*keys, "deployment"), fault.deployment, allowed)

    def _check_sort(self, keys: tuple[str | int, ...], fault: Fault | Change) -> None:
        """What happens to weights that may be COLD, and what to others."""
        if isinstance(fault, Change):
            if fault.evict is not None and not self.has_residency:
                raise FieldProblem((*keys, "evict"), fault.evict, f"nothing, as {fault.deployment} has no residency")
        elif self.has_residency:
            if not isinstance(fault, WITH_RESIDENCY):
                kinds = ", ".join(cls.kind for cls in WITH_RESIDENCY)
                raise FieldProblem((*keys, "kind"), fault.kind, f"one of {kinds}, as deployments have residency")
            if isinstance(fault, ReplicaCrash | ReplicaUnready) and (fault.rank, fault.replica_id) != (None, None):
                allowed = "neither rank nor replica_id: with residency it is the oldest"
                raise FieldProblem((*keys, "rank"), fault.rank, allowed)
        elif isinstance(fault, OF_WEIGHTS):
            raise FieldProblem((*keys, "kind"), fault.kind, "another one, as no deployment has residency")

    def _check_nodes(self) -> None:
        if not self.nodes and self.node_list is None:
            raise FieldProblem(("nodes",), [], "at least one group of nodes, or node_list")
        if len(self.shapes) > NODES_MAX:
            raise FieldProblem(("nodes",), len(self.shapes), f"at most {NODES_MAX} nodes")
        if sum(group.count or 1 for group in self.nodes) > NODES_MAX:
            raise FieldProblem(("nodes",), sum(group.count or 1 for group in self.nodes), f"at most {NODES_MAX} nodes")
        seen: set[str] = set()
        for index, group in enumerate(self.nodes):
            for node_id in group.node_ids:
                if node_id in seen:
                    raise FieldProblem(("nodes", index, "name"), node_id, "a node name that no other group makes")
                seen.add(node_id)
        shapes = [shape.node_id for shape in self.shapes]
        if len(set(shapes)) < len(shapes):
            twice = next(each for place, each in enumerate(shapes) if each in shapes[:place])
            raise FieldProblem(("nodes",), twice, "node names of which none stands for two nodes")

    def _check_slo(self) -> None:
        for index, text in enumerate(self.slo):
            try:
                self.check_reading(parse_goal(text).reading)
            except FieldProblem as problem:
                raise problem.within(("slo", index)) from None

    def check_reading(self, reading: Reading) -> None:
        """Raise `FieldProblem` for a figure that no deployment has, or not the one that it names."""
        names = [each.spec.name for each in self.deployments]
        engined = [each.spec.name for each in self.deployments if each.engine is not None]
        check_reading(reading, names, {ENGINE: engined, COSTS: names if self.gpu_prices_per_hour else []})

    def _check_deployments(self) -> None:
        if not self.deployments:
            raise FieldProblem(("deployments",), [], "at least one deployment")
        names: set[str] = set()
        for index, deployment in enumerate(self.deployments):
            if deployment.spec.name in names:
                raise FieldProblem(("deployments", index, "name"), deployment.spec.name, "a name that no other deployment has")
            names.add(deployment.spec.name)
            field = "target_replicas" if deployment.autoscaling is None else "autoscaling.max_replicas"
            self._check_replicas(("deployments", index, *field.split(".")), deployment.spec.name, deployment.most_replicas)
            if deployment.residency is None:
                self._check_room(index, deployment)

    def _check_engines(self) -> None:
        names = [engine.name for engine in self.engines]
        for index, found in enumerate(names):
            if found in names[:index]:
                raise FieldProblem(("engines", index, "name"), found, "a name that no other engine has")
        for index, each in enumerate(self.deployments):
            if each.engine is None:
                continue
            keys = ("deployments", index, "engine")
            if each.engine not in names:
                raise FieldProblem(
                    keys, each.engine, f"one of the engines {_listed(names)}" if names else "an entry of engines"
                )
            if each.residency is not None:
                raise FieldProblem(keys, each.engine, "nothing, as the deployment has residency")
            if self.traffic is not None and each.requests is None:
                raise FieldProblem(keys, each.engine, "requests beside it, as those of traffic are for no engine")
            try:
                self.engines_of(each)
            except FieldProblem as problem:
                raise problem.within(keys) from None

    def engines_of(self, deployment: Deployment) -> dict[str, Engine]:
        """The engine of a replica on each node that may have one; empty: the deployment has no engine."""
        engine = next((each for each in self.engines if each.name == deployment.engine), None)
        if engine is None:
            return {}
        tp, memory_gb = deployment.gpus_per_replica, deployment.memory_gb_per_replica
        anywhere = deployment.spec.static_placement is not None
        return engines_by_node(engine, (each for each in self.nodes if anywhere or each.holds(tp, memory_gb)), tp)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed, and perhaps not meant."""
        seqs = {engine.name: engine.max_num_seqs for engine in self.engines}
        limited = [each for each in self.deployments if each.engine and each.max_ongoing_requests < seqs[each.engine]]
        return tuple(
            f"router_limits_batch: {each.spec.name} has {each.max_ongoing_requests} requests at most on a replica"
            f" (max_ongoing_requests), though engine {each.engine!r} batches {seqs[each.engine or '']} (max_num_seqs)"
            for each in limited
        )

    def _check_residency(self) -> None:
        """What only deployments with residency may have, and what they may not."""
        if not self.has_residency:
            for key in ("node_list", "weight_sizes"):
                if getattr(self, key) is not None:
                    raise FieldProblem((key,), "a mapping", "nothing, as no deployment has residency")
            if self.displacement != DisplacementRule():
                raise FieldProblem(("displacement",), "a mapping", "nothing, as no deployment has residency")
            return
        for index, each in enumerate(self.deployments):
            if each.residency is None:
                allowed = "weights too, as other deployments have them: one scenario is of one sort"
                raise FieldProblem(("deployments", index, "residency"), None, allowed)
            if isinstance(each.requests, ClosedRequests):
                raise FieldProblem(("deployments", index, "requests", "closed"), "a mapping", "another source, with residency")
        if self.node_list is None and self.nodes and not any(group.gpus and group.gpu_gb for group in self.nodes):
            allowed = "the memory of a GPU in GB, of one group of nodes at least: deployments have residency"
            raise FieldProblem(("nodes", 0, "gpu_gb"), self.nodes[0].gpu_gb, allowed)
        for key in ("placement_groups", "fault_rates", "gpu_prices_per_hour", "slo"):
            if getattr(self, key):
                found = "a mapping" if key == "gpu_prices_per_hour" else "a list"
                raise FieldProblem((key,), found, "nothing, as deployments have residency")
        if self.fault_trace is not None:
            raise FieldProblem(("fault_trace",), "a mapping", "nothing, as deployments have residency")
        for key in ("duplication", "reorder"):
            if self.network is not None and getattr(self.network, key):
                allowed = "0, as deployments have residency: connections to their nodes last"
                raise FieldProblem(("network", key), getattr(self.network, key), allowed)
        if self.duration_s is None and self.traffic is None and not any(each.requests for each in self.deployments):
            allowed = "a number of seconds, as there are no requests after whose end the run could end"
            raise FieldProblem(("duration_s",), None, allowed)

    def _check_replicas(self, keys: tuple[str | int, ...], name: str, wanted: int) -> None:
        others = sum(each.most_replicas for each in self.deployments if each.spec.name != name)
        if wanted and others + wanted > REPLICAS_MAX:
            beside = f" beside the {others} of the other deployments" if others else ""
            raise FieldProblem(keys, wanted, f"at most {max(0, REPLICAS_MAX - others)} replicas{beside}")

    def _check_target(self, keys: tuple[str | int, ...], change: Change) -> None:
        target = change.fields.get("target_replicas", 0)
        scaled = next(each for each in self.deployments if each.spec.name == change.deployment).autoscaling is not None
        if scaled and "target_replicas" in change.fields:
            allowed = f"nothing, as the target of {change.deployment} follows its load"
            raise FieldProblem((*keys, "target_replicas"), target, allowed)
        if scaled and isinstance(change.fields.get("placement"), StaticPlacement):
            allowed = f"pack_ranks or null, as the target of {change.deployment} follows its load"
            raise FieldProblem((*keys, "placement"), "a mapping to bundles", allowed)
        self._check_replicas((*keys, "target_replicas"), change.deployment, target)

    def _check_room(self, index: int, deployment: Deployment) -> None:
        gpus, memory_gb = deployment.gpus_per_replica, deployment.memory_gb_per_replica
        static = deployment.spec.static_placement
        if static is not None:
            self._check_fits(("deployments", index), deployment, static)
            return
        if any(group.holds(gpus, memory_gb) for group in self.nodes):
            return
        most = max(group.gpus for group in self.nodes)
        if gpus > most:
            allowed = f"an integer from 1 to {most}, the GPUs of the largest node"
            raise FieldProblem(("deployments", index, "gpus_per_replica"), gpus, allowed)
        most_gb = max(group.memory_gb or 0.0 for group in self.nodes if group.gpus >= gpus)
        allowed = f"a number from 0 to {most_gb:g}, the memory of the largest node with {gpus} GPUs"
        raise FieldProblem(("deployments", index, "memory_gb_per_replica"), memory_gb, allowed)

    def _check_fits(self, keys: tuple[str | int, ...], deployment: Deployment, static: StaticPlacement) -> None:
        group = next(each for each in self.placement_groups if each.name == static.group)
        rows = tuple(group.spread(self.nodes))
        check_fits(keys, static, rows, deployment.gpus_per_replica, deployment.memory_gb_per_replica)

    def _check_faults(self) -> None:
        for index, fault in enumerate(self.faults):
            self.check_fault(("faults", index), fault)

    def _check_fault_rates(self) -> None:
        has_requests = any(deployment.requests for deployment in self.deployments)
        for index, rate in enumerate(self.fault_rates):
            if rate.deployment is not None:
                self._check_deployment_name(("fault_rates", index, "deployment"), rate.deployment)
            if rate.nodes is not None:
                self._check_group_name(("fault_rates", index, "nodes"), rate.nodes)
            if rate.end_s is None and self.duration_s is None and (self.has_users or not has_requests):
                requests = f", as {NOT_KNOWN}" if self.has_users else ", or requests"
                allowed = f"seconds, or duration_s in the scenario{requests}: nothing else says when these faults end"
                raise FieldProblem(("fault_rates", index, "end_s"), None, allowed)

    def _check_fault_trace(self) -> None:
        if self.fault_trace is not None and self.fault_trace.group is not None:
            self._check_group_name(("fault_trace", "group"), self.fault_trace.group)
        if self.fault_trace is not None and self.fault_trace.map == "sample" and not self.fault_trace.replicate:
            nodes, most = len(self.node_ids_of(self.fault_trace.group)), self.fault_trace.cluster_size
            if most is not None and nodes > most:
                allowed = f"at least {nodes}, one for each node that has its faults, or replicate: true"
                raise FieldProblem(("fault_trace", "cluster_size"), most, allowed)

    def _check_changes(self) -> None:
        deployments = {deployment.spec.name: deployment for deployment in self.deployments}
        specs = {name: deployment.spec for name, deployment in deployments.items()}
        wanted = dict(specs)
        for index, change in enumerate(self.changes):
            self._check_sort(("changes", index), change)
            self._check_deployment_name(("changes", index, "deployment"), change.deployment)
            self._check_moment(("changes", index, "at"), change.at)
            try:
                wanted[change.deployment] = change.apply(wanted[change.deployment])
            except InvalidSpecError:
                # The list need not be in the order of time: it is enough that the change is possible at the beginning.
                try:
                    change.apply(specs[change.deployment])
                except InvalidSpecError as error:
                    key = error.field.rpartition(".")[2]
                    raise FieldProblem(("changes", index, key), error.found, error.allowed) from None
            self._check_target(("changes", index), change)
            if isinstance(placement := change.fields.get("placement"), StaticPlacement):
                self._check_fits(("changes", index, "placement"), deployments[change.deployment], placement)

    def _check_deployment_name(self, keys: tuple[str | int, ...], found: str) -> None:
        names = [deployment.spec.name for deployment in self.deployments]
        if found not in names:
            raise FieldProblem(keys, found, f"one of the deployments {_listed(names)}")

    def _check_bundles(self, keys: tuple[str | int, ...], fault: BundleLoss) -> None:
        if fault.group not in self.bundle_counts:
            raise FieldProblem((*keys, "group"), fault.group, f"one of the placement groups {_listed(self.bundle_counts)}")
        count = self.bundle_counts[fault.group]
        for place, bundle in enumerate(fault.bundles):
            if bundle >= count:
                allowed = f"a bundle of placement group {fault.group!r}, which has bundles 0..{count - 1}"
                raise FieldProblem((*keys, "bundles", place), bundle, allowed)

    def _check_group_name(self, keys: tuple[str | int, ...], found: str) -> None:
        names = [group.name for group in self.nodes]
        if found not in names:
            raise FieldProblem(keys, found, f"one of the groups of nodes {_listed(names)}")

    def _check_moment(self, keys: tuple[str | int, ...], moment: Moment) -> None:
        if moment.anchor is None:
            return
        if self.traffic is None and not any(deployment.requests for deployment in self.deployments):
            raise FieldProblem(keys, moment.anchor, "a number of seconds: no deployment has requests, so none is busiest")
        if self.has_users:
            raise FieldProblem(keys, moment.anchor, f"a number of seconds: {NOT_KNOWN}")


def _listed(names: Any) -> str:
    shown = list(names)
    return ", ".join(shown[:8]) + (f", ... ({len(shown)} in all)" if len(shown) > 8 else "")
