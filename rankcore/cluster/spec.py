"""What users want of a cluster: applications, and the deployments of each."""

from collections.abc import Mapping

import attrs

from rankcore import checks
from rankcore.autoscaling.spec import AutoscalingSpec, check_scalable
from rankcore.cluster.names import DeploymentId, check_name
from rankcore.cluster.residency import ResidencySpec, check_plannable
from rankcore.errors import FieldError, InvalidSpecError
from rankcore.frozen import FrozenDict, FrozenJson, freeze_json
from rankcore.routing.spec import RoutingSpec
from rankcore.spec import NOTHING, DeploymentSpec

GPUS = ("GPU", "num_gpus")
"""What executors call whole GPUs that are a replica's own."""
NO_RESOURCES: Mapping[str, float] = FrozenDict()


def frozen_amounts(amounts: object) -> object:
    """A copy that cannot change; what is no mapping stays, for the check."""
    return FrozenDict(amounts) if isinstance(amounts, Mapping) else amounts


def check_amounts(error: type[FieldError], field: str, amounts: object) -> None:
    """Raise unless these are amounts of resources by name."""
    if not isinstance(amounts, Mapping):
        raise error(field, amounts, "amounts by the names of resources")
    for name, amount in amounts.items():
        checks.identifier(error, f"{field}[...]", name)
        if not checks.is_number(amount) or not 0.0 <= amount <= checks.SECONDS_MAX:
            raise error(f"{field}[{name!r}]", amount, f"a number from 0 to {checks.SECONDS_MAX:g}")


def check_number(target_replicas: int) -> None:
    """Raise `InvalidSpecError` unless a deployment in a cluster may have so many replicas."""
    checks.count(InvalidSpecError, "DeploymentSpec.target_replicas", target_replicas, 0, checks.REPLICAS_MAX)


@attrs.frozen(kw_only=True)
class EntrySpec:
    """What a user wants of one deployment in a cluster.

    Attributes:
        ranks: Its replicas and their ranks; `ranks.name` is `application/deployment`.
        autoscaling: How the target follows the load; None: `ranks.target_replicas` is the target.
        policy: Name of the user's function that says how many replicas a load calls for; None: the usual policy.
        routing: How its calls are routed; None: as the executor does by default.
        demand: What one replica asks of its node, by the names of resources: what the capacity of nodes is counted in.
        residency: Its weights, where they are on GPUs only while they are wanted; None: each replica has its own for life.
        extras: What the executor needs beside that, such as where the user's code is. Kept with the record, not looked at.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    ranks: DeploymentSpec
    autoscaling: AutoscalingSpec | None = None
    policy: str | None = None
    routing: RoutingSpec | None = None
    demand: Mapping[str, float] = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    extras: FrozenJson = attrs.field(default=None, hash=False)
    residency: ResidencySpec | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.ranks, DeploymentSpec):
            raise InvalidSpecError("EntrySpec.ranks", self.ranks, "a DeploymentSpec")
        check_number(self.ranks.target_replicas)
        application, separator, deployment = self.ranks.name.partition("/")
        if not separator:
            raise InvalidSpecError("EntrySpec.ranks.name", self.ranks.name, "'application/deployment'")
        check_name("EntrySpec.ranks.name", application)
        check_name("EntrySpec.ranks.name", deployment)
        if self.autoscaling is not None:
            if not isinstance(self.autoscaling, AutoscalingSpec):
                raise InvalidSpecError("EntrySpec.autoscaling", self.autoscaling, "an AutoscalingSpec or None")
            check_scalable(self.ranks)
            most = self.autoscaling.max_replicas
            checks.count(InvalidSpecError, "AutoscalingSpec.max_replicas", most, 1, checks.REPLICAS_MAX)
        if self.policy is not None:
            checks.identifier(InvalidSpecError, "EntrySpec.policy", self.policy)
        if self.routing is not None and not isinstance(self.routing, RoutingSpec):
            raise InvalidSpecError("EntrySpec.routing", self.routing, "a RoutingSpec or None")
        check_amounts(InvalidSpecError, "EntrySpec.demand", self.demand)
        try:
            object.__setattr__(self, "extras", freeze_json(self.extras))
        except TypeError as error:
            raise InvalidSpecError("EntrySpec.extras", self.extras, f"JSON-like data ({error})") from None
        except RecursionError:
            raise InvalidSpecError("EntrySpec.extras", "a deeply nested value", "nested less deeply") from None
        if self.residency is not None:
            self._check_residency(self.residency)

    def _check_residency(self, residency: object) -> None:
        if not isinstance(residency, ResidencySpec):
            raise InvalidSpecError("EntrySpec.residency", residency, "a ResidencySpec or None")
        if self.ranks.placement is not None:
            allowed = "None with residency: the planner of weights chooses the nodes"
            raise InvalidSpecError("EntrySpec.ranks.placement", self.ranks.placement, allowed)
        if self.ranks.max_surge not in NOTHING:
            allowed = "0 with residency: a replacement takes the memory of its predecessor"
            raise InvalidSpecError("EntrySpec.ranks.max_surge", self.ranks.max_surge, allowed)
        if self.ranks.restart_token:
            allowed = "'' with residency: a replica is one stay of a process on GPUs; evict it to have another process"
            raise InvalidSpecError("EntrySpec.ranks.restart_token", self.ranks.restart_token, allowed)
        for name in GPUS:
            if self.demand.get(name):
                allowed = "nothing with residency: `ResidencySpec` says which part of GPUs a replica takes"
                raise InvalidSpecError(f"EntrySpec.demand[{name!r}]", self.demand[name], allowed)
        check_plannable(residency, self.deployment, self.ranks.version, InvalidSpecError)

    @property
    def deployment(self) -> DeploymentId:
        """Its id."""
        return self.ranks.name

    @property
    def request_timeout_s(self) -> float | None:
        """How long its calls wait before they are given up; None: for any time, or as each says itself."""
        return self.routing.request_timeout_s if self.routing is not None else None


def _entries(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class ApplicationSpec:
    """What a user wants of one application.

    Attributes:
        name: Of the application; printable, without '/', '#' and '@'.
        deployments: All of it; what is not among them any more is deleted.
        ingress: The deployment that requests from outside go to; None: there is none.
        route_prefix: Under which path HTTP requests reach the ingress; None: none do.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    name: str
    deployments: tuple[EntrySpec, ...] = attrs.field(converter=_entries)
    ingress: DeploymentId | None = None
    route_prefix: str | None = None

    def __attrs_post_init__(self) -> None:
        check_name("ApplicationSpec.name", self.name)
        found: object = self.deployments
        if not isinstance(found, tuple) or not found or not all(isinstance(each, EntrySpec) for each in found):
            raise InvalidSpecError("ApplicationSpec.deployments", found, "one EntrySpec or more")
        names = [each.deployment for each in self.deployments]
        for index, name in enumerate(names):
            field = f"ApplicationSpec.deployments[{index}].ranks.name"
            if name.partition("/")[0] != self.name:
                raise InvalidSpecError(field, name, f"'{self.name}/' and the name of a deployment")
            if name in names[:index]:
                raise InvalidSpecError(field, name, "a name that occurs once in its application")
        if self.ingress is not None and self.ingress not in names:
            raise InvalidSpecError("ApplicationSpec.ingress", self.ingress, f"one of {', '.join(names)}, or None")
        if self.route_prefix is not None:
            _check_prefix(self.route_prefix)
            if self.ingress is None:
                raise InvalidSpecError("ApplicationSpec.ingress", None, "one of the deployments, where there is a route_prefix")


def _check_prefix(prefix: object) -> None:
    checks.identifier(InvalidSpecError, "ApplicationSpec.route_prefix", prefix)
    if not checks.is_route_prefix(prefix):
        allowed = "'/', or a path such as '/a/b' without '?', '#', '{', and empty parts"
        raise InvalidSpecError("ApplicationSpec.route_prefix", prefix, allowed)
