"""What a user wants of a fleet: how one model is served, and how the fleet treats those who wait."""

import attrs

from rankcore import checks
from rankcore.autoscaling import AutoscalingSpec
from rankcore.dispatching.seats import RankSpec, check_ranks
from rankcore.errors import InvalidSpecError
from rankcore.routing import RoutingSpec


@attrs.frozen(kw_only=True)
class ServingSpec:
    """How the requests for one model are served.

    Attributes:
        routing: Its `name` is the model; a fleet has one router a model, so `by_credits` must be False.
        autoscaling: How the number of HOT replicas follows the load; None: it is what is deployed, scaled and asked for.
        ranks: Its HOT replicas have ranks (D12); None: they have none. A model that has them keeps them.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    routing: RoutingSpec
    autoscaling: AutoscalingSpec | None = None
    ranks: RankSpec | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.routing, RoutingSpec):
            raise InvalidSpecError("ServingSpec.routing", self.routing, "a RoutingSpec")
        if self.routing.by_credits:
            raise InvalidSpecError("ServingSpec.routing.by_credits", True, "false: a fleet has one router a model")
        if self.autoscaling is not None and not isinstance(self.autoscaling, AutoscalingSpec):
            raise InvalidSpecError("ServingSpec.autoscaling", self.autoscaling, "an AutoscalingSpec, or None")
        check_ranks(self.routing.name, self.ranks)

    @property
    def model(self) -> str:
        """Whose requests they are."""
        return self.routing.name


@attrs.frozen(kw_only=True)
class DispatchPolicy:
    """How a fleet treats requests that wait for a model.

    Attributes:
        wait_for_room_s: How long the requests for a model of which nothing has a place wait for one, before they fail with
            the reason (D7); 0: not at all.
        failed_for_s: How long requests for a model whose load has failed for good fail at once; the next one after that
            has it loaded again (D7).
        turn_s: How long a model that was loaded serves at least, before another may take its place: what
            `ModelSpec.min_hot_s` is raised to. Without it models that displace each other would never answer anybody (D4).
        progress_percent: A load is told of in steps of so many percent.
        newest_weight: How much the newest load counts in the mean bytes/s of a node and a source, above 0 to 1 (D9).

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    wait_for_room_s: float = 60.0
    failed_for_s: float = 30.0
    turn_s: float = 5.0
    progress_percent: int = 5
    newest_weight: float = 0.3

    def __attrs_post_init__(self) -> None:
        for field in ("wait_for_room_s", "failed_for_s"):
            checks.seconds(InvalidSpecError, f"DispatchPolicy.{field}", getattr(self, field))
        checks.seconds(InvalidSpecError, "DispatchPolicy.turn_s", self.turn_s, above=0.0)
        checks.count(InvalidSpecError, "DispatchPolicy.progress_percent", self.progress_percent, 1, 100)
        weight: object = self.newest_weight
        if not checks.is_number(weight) or not 0.0 < weight <= 1.0:  # type: ignore[operator]
            raise InvalidSpecError("DispatchPolicy.newest_weight", weight, "a number above 0, and at most 1")
