"""Specs for schedules: small ones with every policy, each chosen by a number, and what may follow them."""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import attrs

from rankcore.frozen import FrozenDict, FrozenJson
from rankcore.placement import StaticPlacement
from rankcore.spec import DeploymentSpec, HandOver, VictimPolicy

GROUPS = ("g", "h")
BUNDLES = 8
RANKS_MAX = 4
TIMINGS: tuple[dict[str, float | int], ...] = (
    {},
    {"repeat_period_s": 90.0},
    {"repeat_period_s": 0.5, "start_timeout_s": 2.0, "start_backoff_s": 0.25, "start_backoff_max_s": 1.0},
    {"graceful_shutdown_timeout_s": 0.0, "health_check_timeout_s": 1.0, "max_start_failures": 1},
    {"start_backoff_s": 40.0, "start_backoff_max_s": 600.0, "max_start_failures": 6},
    {"min_ready_s": 3.0, "stable_after_s": 10.0, "start_backoff_s": 0.5, "progress_deadline_s": 4.0},
)
"""Time-outs that are far apart, or the other way round than usual."""


@lru_cache(maxsize=256)
def placement_from(number: int, ranks: int | None = None) -> StaticPlacement:
    """A static placement of up to four ranks: the same few bundles over and over, so that they change hands."""
    ranks = ranks or 1 + number % RANKS_MAX
    bundles = _shuffled(range(BUNDLES), number) if number % 3 else list(range(BUNDLES))
    width = 1 + number // 4 % 2
    group = GROUPS[0] if number % 5 else GROUPS[1]
    mapping = {rank: bundles[rank * width : (rank + 1) * width] for rank in range(ranks)}
    return StaticPlacement(mapping, BUNDLES, group=group)


def _shuffled(items: Sequence[int], number: int) -> list[int]:
    """One of all their orders: the one that this number, written with factorials for digits, stands for."""
    left, found = list(items), []
    number *= 7919  # neighbours among the numbers are then no neighbours among the orders
    while left:
        number, index = divmod(number, len(left))
        found.append(left.pop(index))
    return found


FIELDS = tuple(field.name for field in attrs.fields(DeploymentSpec) if field.init)
PLACES = {name: place for place, name in enumerate(FIELDS)}
_values_of = attrgetter(*FIELDS)


def changed(spec: DeploymentSpec, **changes: Any) -> DeploymentSpec:
    """A spec with these changes, and whatever a static placement, or a hand-over without overlap, asks for beside them."""
    placement = changes.get("placement", spec.placement)
    if isinstance(placement, StaticPlacement):
        target = changes.get("target_replicas")
        if isinstance(target, int):
            placement = _resized(placement, max(1, min(target, RANKS_MAX)))
        changes |= {"placement": placement, "target_replicas": None, "compaction": "when_healthy"}
        changes |= {"max_surge": 0, "hand_over": "none"}
    if changes.get("max_unavailable", spec.max_unavailable) == 0 and changes.get("hand_over", spec.hand_over) != "overlap":
        changes["max_unavailable"] = None
    values = list(_values_of(spec))
    for name, value in changes.items():
        values[PLACES[name]] = FrozenDict(value) if isinstance(value, dict) else value
    return _made(tuple(values))


@lru_cache(maxsize=128)
def _made(values: tuple[Any, ...]) -> DeploymentSpec:
    """A world changes its mind between few specs, and comes back to most of them."""
    return DeploymentSpec(**dict(zip(FIELDS, values, strict=True)))


@lru_cache(maxsize=64)
def _resized(placement: StaticPlacement, ranks: int) -> StaticPlacement:
    """The same places for the ranks that stay, and bundles that are free for those that come."""
    kept = {rank: placement.bundles[rank] for rank in range(min(ranks, len(placement)))}
    free = [bundle for bundle in range(BUNDLES) if all(bundle not in used for used in kept.values())]
    return StaticPlacement({rank: kept.get(rank) or [free.pop()] for rank in range(ranks)}, BUNDLES, group=placement.group)


def static_spec_from(number: int, timing: int = 0) -> DeploymentSpec:
    """The same policies with a static placement."""
    return changed(spec_from(number, timing), placement=placement_from(number))


@lru_cache(maxsize=64)
def spec_from(number: int, timing: int = 0) -> DeploymentSpec:
    """A spec for a schedule: small, with every policy."""
    fields: dict[str, Any] = {"start_timeout_s": 60.0, **TIMINGS[timing % len(TIMINGS)]}
    configs: tuple[FrozenJson, ...] = (None, FrozenDict(), FrozenDict(c=1))
    victims: tuple[VictimPolicy, ...] = ("any", "highest_rank", "newest")
    max_surge = number // 8 % 3
    hand_over: HandOver = "none" if not max_surge or not number & 32 else "overlap" if number & 128 else "prepared"
    return DeploymentSpec(
        name="llm",
        target_replicas=1 + number % 5,
        user_config=configs[number % 3],
        compaction="immediate" if number & 1 else "when_healthy",
        victims=victims[number // 2 % 3],
        placement="pack_ranks" if number % 11 == 0 else None,
        max_unavailable=0 if hand_over == "overlap" and number & 1 else (None, 1, 2)[number // 4 % 3],
        max_surge=max_surge,
        hand_over=hand_over,
        update_order="highest_rank" if number & 64 else "lowest_rank",
        rollback=bool(number & 16),
        **fields,
    )
