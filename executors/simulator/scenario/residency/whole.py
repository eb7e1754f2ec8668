"""A residency scenario: models, nodes, traffic, and what happens, as typed values.

Each class checks its own fields, and `ResidencyScenario.check` what they say of each other and of the files.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

import attrs

from executors.simulator.fields import FieldProblem, integer, name, number, optional
from executors.simulator.scenario.faults import NodeLoss
from executors.simulator.scenario.hardware import NODES_MAX
from executors.simulator.scenario.residency.happens import MemoryShrinks, ModelChange, ModelFault
from executors.simulator.scenario.residency.hardware import GpuNodes, Loading, ModelNetwork, NodeList, NodeShape
from executors.simulator.scenario.residency.models import GB, MODEL_GB_MAX, MODELS_MAX, EveryModel, Model, ModelSizes, Size
from executors.simulator.scenario.residency.traffic import Traffic
from rankcore.checks import COUNT_MAX
from rankcore.dispatching import DispatchPolicy
from rankcore.residency import ResidencyPolicy

KEYS_OF_THE_KIND = ("models", "model_sizes")
"""A scenario with one of these is about models and memory, any other about ranks."""
REPLICAS_MAX = 100_000
_NOT_IN_FILE = {"in_file": False}


@attrs.frozen(kw_only=True)
class Policy:
    """What the planner goes by: the options of `ResidencyPolicy`.

    Attributes:
        in_flight_cost_gb: What a request in flight on a victim weighs, in GB to load again.
        recent_use_s: Used within this time, a victim weighs more.
        recent_cost_gb: By so much if used just now, and less as time goes by.
        max_load_failures: After so many in a row a replica is not tried again until it is asked for.
        retry_s: Until a failed load is tried again, doubled each time.
        drain_timeout_s: So long a replica that leaves may finish what it has in flight.
        idle_to_warm_s: A replica unused for so long leaves the GPU; None: never.
        idle_to_cold_s: A copy in CPU memory unused for so long is dropped; None: never.
    """

    in_flight_cost_gb: float = attrs.field(default=10.0, validator=number(least=0.0, most=MODEL_GB_MAX))
    recent_use_s: float = attrs.field(default=300.0, validator=number(above=0.0))
    recent_cost_gb: float = attrs.field(default=50.0, validator=number(least=0.0, most=MODEL_GB_MAX))
    max_load_failures: int = attrs.field(default=3, validator=integer(1, COUNT_MAX))
    retry_s: float = attrs.field(default=5.0, validator=number(above=0.0))
    drain_timeout_s: float = attrs.field(default=20.0, validator=number(least=0.0))
    idle_to_warm_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    idle_to_cold_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    @property
    def for_planner(self) -> ResidencyPolicy:
        """The same for the planner."""
        return ResidencyPolicy(
            in_flight_cost_bytes=round(self.in_flight_cost_gb * GB),
            recent_use_s=self.recent_use_s,
            recent_cost_bytes=round(self.recent_cost_gb * GB),
            max_load_failures=self.max_load_failures,
            retry_s=self.retry_s,
            drain_timeout_s=self.drain_timeout_s,
            idle_to_warm_s=self.idle_to_warm_s,
            idle_to_cold_s=self.idle_to_cold_s,
        )


@attrs.frozen(kw_only=True)
class Dispatching:
    """How those are treated who wait for a model: the options of `DispatchPolicy`.

    Attributes:
        wait_for_room_s: How long the requests for a model that has no place wait for one, before they are turned away.
        failed_for_s: How long requests for a model that could not be loaded are turned away at once.
        turn_s: A model that was loaded stays for so long at least, before another may take its place.
    """

    wait_for_room_s: float = attrs.field(default=60.0, validator=number(least=0.0))
    failed_for_s: float = attrs.field(default=30.0, validator=number(least=0.0))
    turn_s: float = attrs.field(default=5.0, validator=number(above=0.0))

    @property
    def for_fleet(self) -> DispatchPolicy:
        """The same for the fleet."""
        return DispatchPolicy(wait_for_room_s=self.wait_for_room_s, failed_for_s=self.failed_for_s, turn_s=self.turn_s)


@attrs.frozen(kw_only=True)
class ResidencyScenario:
    """Models that share GPUs, and requests for them. `rankcore simulate` takes it as it takes any other scenario.

    Attributes:
        name: What the report is called.
        seed: Of all randomness; the same scenario and seed give the same run.
        duration_s: How long to run; None: until every request has been answered or given up.
        settle_s: Without a duration: how long to wait for that after the last request.
        nodes: GPU nodes, as groups of equal ones.
        node_list: And more of them, out of a list of real nodes.
        model_sizes: Where sizes stand that models do not say themselves.
        every_model: What holds for every model that says nothing else.
        models: The models, the most popular first; left out: all of `model_sizes`.
        traffic: Requests for models that have none of their own.
        loading: How long it takes to move weights.
        network: How long commands and news take between the controller and the nodes; left out: no time.
        policy: What the planner goes by.
        dispatch: How those are treated who wait for a model.
        faults: What goes wrong, each once.
        changes: What users ask for.
    """

    name: str = attrs.field(default="scenario", validator=name)
    seed: int = attrs.field(default=0, validator=integer(0, 2**63 - 1))
    duration_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    settle_s: float = attrs.field(default=600.0, validator=number(least=0.0))
    nodes: tuple[GpuNodes, ...] = ()
    node_list: NodeList | None = None
    model_sizes: ModelSizes | None = None
    every_model: EveryModel = attrs.Factory(EveryModel)
    models: tuple[Model, ...] = ()
    traffic: Traffic | None = None
    loading: Loading = attrs.Factory(Loading)
    network: ModelNetwork | None = None
    policy: Policy = attrs.Factory(Policy)
    dispatch: Dispatching = attrs.Factory(Dispatching)
    faults: tuple[ModelFault, ...] = ()
    changes: tuple[ModelChange, ...] = ()
    shapes: tuple[NodeShape, ...] = attrs.field(default=(), metadata=_NOT_IN_FILE)
    sizes: Mapping[str, Size] = attrs.field(factory=dict, metadata=_NOT_IN_FILE)

    @cached_property
    def entries(self):
        from rankcore.cluster import EntrySpec
        from rankcore.cluster.residency import ResidencySpec
        from rankcore.routing import RoutingSpec
        from rankcore import DeploymentSpec
        found=[]
        for m in self.models:
            size=self.sizes[self.id_of(m.name)]
            name=self.id_of(m.name)
            found.append(EntrySpec(ranks=DeploymentSpec(name=name,target_replicas=m.replicas, start_backoff_s=self.policy.retry_s, max_start_failures=self.policy.max_load_failures),
              autoscaling=m.autoscaling, routing=RoutingSpec(name=name,max_ongoing_requests=m.max_ongoing_requests,max_queued_requests=m.max_queued_requests,request_timeout_s=m.request_timeout_s,idempotent=True),
              residency=ResidencySpec(weight_bytes=size.weight_bytes,working_bytes=size.working_bytes,gpus=m.gpus,priority=m.priority,dedicated=m.dedicated,
                 min_hot_s=max(m.min_hot_s,self.dispatch.turn_s),spread=m.spread,node_labels=dict(m.node_labels),wait_for_room_s=self.dispatch.wait_for_room_s,failed_for_s=self.dispatch.failed_for_s,
                 idle_to_warm_s=self.policy.idle_to_warm_s,idle_to_cold_s=self.policy.idle_to_cold_s)))
        return tuple(found)
    @property
    def applications(self):
        from rankcore.cluster import ApplicationSpec
        return (ApplicationSpec(name="default",deployments=self.entries),)
    def id_of(self,name): return f"default/{name}"
    def shown(self,d): return d.removeprefix("default/")

    @cached_property
    def node_ids(self) -> tuple[str, ...]:
        """All nodes, those that are written out first."""
        return tuple(shape.node_id for shape in self.shapes)

    @cached_property
    def model_names(self) -> tuple[str, ...]:
        """All models, in their order."""
        return tuple(model.name for model in self.models)

    def check(self) -> None:
        """What only the whole can say, once the files are read.

        Raises:
            FieldProblem: With the key path.
        """
        if not self.shapes:
            raise FieldProblem(("nodes",), [], "at least one group of nodes, or node_list")
        if len(self.shapes) > NODES_MAX:
            raise FieldProblem(("nodes",), len(self.shapes), f"at most {NODES_MAX} nodes")
        twice = _twice(self.node_ids)
        if twice is not None:
            raise FieldProblem(("nodes",), twice, "node names of which none stands for two nodes")
        self._check_models()
        for index, fault in enumerate(self.faults):
            self.check_names(("faults", index), fault)
        for index, change in enumerate(self.changes):
            self.check_names(("changes", index), change)
        self._check_last()

    def check_names(self, keys: tuple[str | int, ...], fault: ModelFault | ModelChange) -> None:
        """Raise `FieldProblem` for a fault of a node or model that this scenario does not have."""
        if isinstance(fault, NodeLoss | MemoryShrinks):
            if fault.node not in self.node_ids:
                raise FieldProblem((*keys, "node"), fault.node, f"one of the nodes {_listed(self.node_ids)}")
        elif fault.model not in self.model_names:
            raise FieldProblem((*keys, "model"), fault.model, f"one of the models {_listed(self.model_names)}")

    def _check_models(self) -> None:
        if not self.models:
            raise FieldProblem(("models",), [], "at least one model, or model_sizes with a file that has some")
        if len(self.models) > MODELS_MAX:
            raise FieldProblem(("models",), len(self.models), f"at most {MODELS_MAX} models")
        twice = _twice(self.model_names)
        if twice is not None:
            index = len(self.model_names) - 1 - self.model_names[::-1].index(twice)
            raise FieldProblem(("models", index, "name"), twice, "a name that no other model has")
        replicas = sum(model.replicas for model in self.models)
        if replicas > REPLICAS_MAX:
            raise FieldProblem(("models",), replicas, f"at most {REPLICAS_MAX} replicas of all models together")

    def _check_last(self) -> None:
        """A run without an end would go on for ever."""
        requested = self.traffic is not None or any(model.requests for model in self.models)
        if self.duration_s is None and not requested:
            allowed = "a number of seconds, as there are no requests after whose end the run could end"
            raise FieldProblem(("duration_s",), None, allowed)


def _twice(names: Iterable[str]) -> str | None:
    """The first that stands there for a second time."""
    seen: set[str] = set()
    for each in names:
        if each in seen:
            return each
        seen.add(each)
    return None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
