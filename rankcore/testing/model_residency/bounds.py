"""What an adversary may do in one world of models, and the small series that is explored whole."""

from typing import TypeAlias

import attrs

from rankcore.residency import Level, ModelSpec
from rankcore.residency.spec import ResidencyPolicy
from rankcore.testing.explorable import expression

Wish: TypeAlias = tuple[str, tuple[tuple[str, int], ...]]
"""("deploy", models and replicas, more or fewer), or ("WARM" or "COLD", one of these): evict, and keep so much."""


@attrs.frozen
class NodeBounds:
    """A node: the bytes of each GPU, and those for WARM copies."""

    gpu_bytes: tuple[int, ...]
    cpu_bytes: int = 0


@attrs.frozen(kw_only=True)
class ResidencyBounds:
    """The system, and how often something may happen on one path.

    Attributes:
        nodes: Named n0, n1, ...
        models: What wishes may be about.
        wishes: What may be wished for.
        asks: How many wishes there are.
        failures: Loads and copies that fail.
        deaths: Processes that end, with the weights that they have.
        node_losses: Nodes that are lost; each may come back.
        repeats: Answers that come again.
        replacements: Replicas that are let go so that another one of their model takes their place, in a world of ticks.
        in_ticks: Time passes in whole ticks, and all keep to the planner's estimates: `ticks`.
        policy: The planner's; None: as usual.
    """

    nodes: tuple[NodeBounds, ...]
    models: tuple[ModelSpec, ...]
    wishes: tuple[Wish, ...]
    asks: int = 2
    failures: int = 0
    deaths: int = 0
    node_losses: int = 0
    repeats: int = 0
    replacements: int = 0
    in_ticks: bool = False
    policy: ResidencyPolicy | None = None

    def spec(self, model: str) -> ModelSpec:
        """Of the model with this name."""
        return next(each for each in self.models if each.model == model)

    def __str__(self) -> str:
        """What differs from the defaults, ready to paste."""
        return expression(self)


def _wishes(*models: str) -> tuple[Wish, ...]:
    deploys = tuple(("deploy", ((model, 1),)) for model in models)
    return (*deploys, *((str(Level.WARM), ((model, 0),)) for model in models))


_SMALL, _LARGE = ModelSpec(model="small", weight_bytes=4), ModelSpec(model="large", weight_bytes=6)
_STAYS = ModelSpec(model="large", weight_bytes=6, min_hot_s=5.0)
_WIDE = ModelSpec(model="wide", weight_bytes=12, gpus=2)
_URGENT = ModelSpec(model="urgent", weight_bytes=6, priority=1)
_OTHER = ModelSpec(model="other", weight_bytes=4, min_hot_s=5.0)
_SPLIT = ModelSpec(model="split", weight_bytes=9, shard_bytes=((1, 9), (2, 6), (3, 4)))
_OWNED = ModelSpec(model="owned", weight_bytes=6, dedicated=True)
_BOTH = _wishes("small", "large")
_ONE, _TWO = (NodeBounds((8,), 6),), (NodeBounds((8,), 6), NodeBounds((8,), 4))
_PAIR = (NodeBounds((8, 8), 6),)
_PAIR_AND_TRIO = (*_PAIR, NodeBounds((4, 4, 4), 6))
_BY_TICKS = ResidencyPolicy(
    disk_bytes_per_s=1,
    host_bytes_per_s=10**9,
    drain_timeout_s=1.0,
    turn_factor=1.0,
    recent_use_s=1.0,
    recent_cost_bytes=0,
    in_flight_cost_bytes=1,
)


def in_turns(*sizes: int, **budgets: int) -> ResidencyBounds:
    """One GPU of 4 units, for which models of so many units take turns, in ticks."""
    models = tuple(ModelSpec(model=f"m{size}", weight_bytes=size, keeps_copy=False) for size in sizes)
    wishes = tuple(("deploy", ((each.model, 1),)) for each in models)
    return ResidencyBounds(nodes=(NodeBounds((4,)),), models=models, wishes=wishes, in_ticks=True, policy=_BY_TICKS, **budgets)


SYSTEMS: dict[str, ResidencyBounds] = {
    "residency-two": ResidencyBounds(nodes=_ONE, models=(_SMALL, _STAYS), wishes=_BOTH, asks=3, failures=2, repeats=1),
    "residency-deaths": ResidencyBounds(nodes=_ONE, models=(_SMALL, _LARGE), wishes=_BOTH, asks=3, failures=1, deaths=2),
    "residency-nodes": ResidencyBounds(nodes=_TWO, models=(_SMALL, _LARGE), wishes=_BOTH, asks=3, node_losses=2, repeats=1),
    "residency-request": ResidencyBounds(
        nodes=_TWO,
        models=(_SMALL, _LARGE),
        wishes=(
            ("deploy", (("small", 2), ("large", 1))),
            ("deploy", (("large", 2),)),
            ("deploy", (("small", 1),)),
            ("deploy", (("large", 0),)),
            (str(Level.COLD), (("large", 0),)),
        ),
        asks=3,
        failures=1,
    ),
    "residency-wide": ResidencyBounds(
        nodes=_PAIR,
        models=(_SMALL, _WIDE),
        wishes=(("deploy", (("small", 2),)), ("deploy", (("wide", 1),)), ("deploy", (("small", 1),))),
        asks=3,
        failures=1,
        deaths=1,
    ),
    "residency-owned": ResidencyBounds(
        nodes=_TWO,
        models=(_SMALL, _LARGE, _OWNED),
        wishes=_wishes("small", "large", "owned"),
        asks=3,
        deaths=1,
    ),
    "residency-priorities": ResidencyBounds(
        nodes=_ONE,
        models=(_LARGE, _OTHER, _URGENT),
        wishes=_wishes("large", "other", "urgent"),
        asks=4,
        failures=1,
        policy=ResidencyPolicy(aging_s=2.0),
    ),
    "residency-shards": ResidencyBounds(
        nodes=_PAIR_AND_TRIO,
        models=(_SMALL, _SPLIT),
        wishes=(
            ("deploy", (("small", 2),)),
            ("deploy", (("split", 1),)),
            ("deploy", (("small", 1),)),
            ("deploy", (("split", 2),)),
        ),
        failures=1,
        repeats=1,
    ),
    "residency-unreserved": ResidencyBounds(
        nodes=_ONE,
        models=(_SMALL, _STAYS, _OTHER),
        wishes=_wishes("small", "large", "other"),
        asks=3,
        failures=1,
        policy=ResidencyPolicy(reserves=False),
    ),
    "residency-turns": in_turns(1, 3, 4, asks=4),
    "residency-heirs": in_turns(3, 4, asks=3, replacements=2),
}
"""The series of `rankcore check --residency`."""
