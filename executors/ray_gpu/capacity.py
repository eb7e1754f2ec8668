"""A share of the replicas that a file asks for: `target_capacity`, as in Ray Serve, of all applications of the file.

A number becomes its share, rounded half up, and at least 1 where the share is above 0. Of a deployment that scales itself
both bounds and `initial_replicas` do; while a share grows, which is while this cluster takes over from another one, there are
at least `initial_replicas`. What was asked for is kept beside what is in force: `rankcore config` says that again. Where
somebody has scaled meanwhile it says a number of which the share is what they have asked for; for each number there is one.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

import attrs

from rankcore.frozen import thaw_json

if TYPE_CHECKING:
    from executors.ray_gpu.packing import Package
    from executors.ray_gpu.ray_deployment import RayDeployment
    from rankcore.autoscaling import AutoscalingSpec

WHOLE = 100.0
BOUNDS = ("min_replicas", "max_replicas", "initial_replicas")


@attrs.frozen
class Capacity:
    """The share that a file asks for.

    Attributes:
        percent: From 0 to 100.
        grows: Whether there was less before, or nothing.
    """

    percent: float
    grows: bool = False

    def of(self, replicas: int) -> int:
        """The share of a number."""
        if replicas == 0 or self.percent == 0:
            return 0
        share = Decimal(replicas * self.percent) / Decimal(WHOLE)
        return max(1, int(share.to_integral_value(rounding=ROUND_HALF_UP)))

    def whole(self, replicas: int, said: int | None) -> int:
        """Of which this is the share: what was said, as long as it is that."""
        if said is not None and (self.of(said) == replicas or self.percent == 0):
            return said
        return int((Decimal(replicas) * Decimal(WHOLE) / Decimal(self.percent)).to_integral_value(rounding=ROUND_HALF_UP))

    def bounds_of(self, scaling: "AutoscalingSpec") -> "AutoscalingSpec":
        """The share of the bounds, of a share above 0."""
        initial = scaling.initial_replicas
        least = initial if self.grows and initial is not None else scaling.min_replicas
        return attrs.evolve(
            scaling,
            min_replicas=self.of(least),
            max_replicas=self.of(scaling.max_replicas),
            initial_replicas=None if initial is None else self.of(initial),
        )

    def of_package(self, package: "Package") -> "Package":
        """The same deployment with the share of its replicas."""
        if package.residency is not None or package.spec.static_placement is not None:
            return package  # as many as callers or bundles call for
        said: dict[str, Any] = {"percent": self.percent, "grows": self.grows, "num_replicas": package.spec.target_replicas}
        scaling = package.autoscaling
        if scaling is None:
            spec = attrs.evolve(package.spec, target_replicas=self.of(package.spec.target_replicas))
            return attrs.evolve(package, spec=spec, capacity=said)
        said |= {bound: getattr(scaling, bound) for bound in BOUNDS}
        if self.percent == 0:
            return attrs.evolve(package, spec=attrs.evolve(package.spec, target_replicas=0), autoscaling=None, capacity=said)
        scaled = self.bounds_of(scaling)
        spec = attrs.evolve(package.spec, target_replicas=scaled.first_target)
        return attrs.evolve(package, spec=spec, autoscaling=scaled, capacity=said)


def unscaled(said: Mapping[str, Any], options: dict[str, Any], target: int) -> None:
    """Put into the options of a deployment what a file says for what is in force.

    Args:
        said: `Package.capacity` as it was deployed.
        options: As they are in force; those of numbers are changed.
        target: In force.
    """
    share = Capacity(said["percent"], said["grows"])
    config = options.get("autoscaling_config")
    if config is not None or "max_replicas" in said:
        bounds = {bound: said[bound] for bound in BOUNDS if said.get(bound) is not None}
        options["autoscaling_config"] = {**(config or {}), **bounds}
        options.pop("num_replicas", None)
    elif "num_replicas" in options:
        options["num_replicas"] = share.whole(target, said["num_replicas"])


def grows(wanted: float, names: Iterable[str], before: "ShareInForce | None") -> bool:
    """Whether a share is more than that of before, as Ray Serve has it: of the same applications; of others it begins to grow.

    Args:
        names: Of the applications of the file.
        before: None: nothing runs.
    """
    if before is None or set(before.applications) != set(names):
        return True
    if before.percent is None:
        return False
    return before.grows if before.percent == wanted else before.percent < wanted


@attrs.frozen
class ShareInForce:
    """What was asked for last.

    Attributes:
        applications: Their names.
        percent: None: nobody has asked for a share.
        grows: As of `Capacity`.
    """

    applications: tuple[str, ...]
    percent: float | None
    grows: bool


def share_in_force(applications: Iterable[str], deployments: "Mapping[str, RayDeployment]") -> ShareInForce:
    """Of the replicas of all deployments."""
    shares = (thaw_json(each.extras.capacity) for each in deployments.values())
    largest = max((each for each in shares if each is not None), key=lambda each: float(each["percent"]), default=None)
    names = tuple(sorted(applications))
    if largest is None:
        return ShareInForce(names, None, False)
    return ShareInForce(names, largest["percent"], largest["grows"])
