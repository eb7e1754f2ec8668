"""Who gets a request that is for no particular rank: one class a policy, each an index of the replicas that have room."""

from collections.abc import Callable

from rankcore.routing.policies.affinity import Affinity
from rankcore.routing.policies.choice import Choice
from rankcore.routing.policies.least_loaded import LeastLoaded
from rankcore.routing.policies.power_of_two import PowerOfTwo
from rankcore.routing.policies.proposed import Proposed
from rankcore.routing.policies.turns import RoundRobin, SharedQueue
from rankcore.routing.spec import Policy, RoutingSpec

__all__ = ["Choice", "choice_for"]

_CHOICES: dict[Policy, Callable[[RoutingSpec], Choice]] = {
    "least_loaded": LeastLoaded,
    "shared_queue": SharedQueue,
    "round_robin": RoundRobin,
    "power_of_two": PowerOfTwo,
    "affinity": Affinity,
}


def choice_for(spec: RoutingSpec) -> Choice:
    """The index of this spec's policy, with nobody in it."""
    return Proposed(spec) if spec.router else _CHOICES[spec.policy](spec)
