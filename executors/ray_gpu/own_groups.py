"""A placement group of its own for each replica: `placement_group_bundles`, as in Ray Serve.

It is made with the replica's actor, which runs on its first bundle; what the actor starts runs in the group too, unless it says
otherwise. It outlives the controller, and is removed once the actor is gone: by who watches it, or, where that happens while
there is no controller, by the next one at its start (`sweep`). Cordoned nodes get no bundle of a new one.

Its name says whose it is, and no group of anybody else's is removed for what it is called like: the name begins with `PREFIX`,
and reads back to a replica of this namespace, which is escaped there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group, validate_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from executors.ray_gpu import names
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.placement_groups import GONE, GroupState, group_of
from executors.ray_gpu.room import NODE_ID, demands, elsewhere
from rankcore.values import NodeId, ReplicaId

OPTIONS = ("placement_group_bundles", "placement_group_strategy", "placement_group_bundle_label_selector")
NOT_WITH = ("_placement_info", "placement", "residency", "max_replicas_per_node")
"""Options that say otherwise where replicas are."""
AMOUNT_MAX = 1e12
"""As the machine of ranks counts what a replica asks of its node."""
NOWHERE = {NODE_ID: "in(none)"}
"""Labels that no node has."""
PREFIX = "rankcore-replica:"


def group_wanted(settings: Mapping[str, Any], actor_options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The group that each replica gets, by the options of a deployment; None: none.

    Raises:
        InvalidDeploymentError: An option is not what it may be, or is too much.
    """
    bundles, strategy, labels = (settings.get(option) for option in OPTIONS)
    if bundles is None:
        for option, value in zip(OPTIONS, (bundles, strategy, labels), strict=True):
            if value is not None:
                raise InvalidDeploymentError(f"{option} needs placement_group_bundles beside it")
        return None
    for option in NOT_WITH:
        if settings.get(option) is not None:
            raise InvalidDeploymentError(f"placement_group_bundles cannot be had with {option}: both say where replicas are")
    if labels is not None and (isinstance(labels, (str, Mapping)) or not isinstance(labels, Sequence)):
        raise InvalidDeploymentError(f"{OPTIONS[2]} must be a list of dicts of labels, got {labels!r:.80}")
    selectors = list(labels or ())
    if len(selectors) == 1:
        selectors *= len(bundles)
    try:
        validate_placement_group(bundles=bundles, strategy=strategy or "PACK", bundle_label_selector=selectors or None)
    except (ValueError, TypeError) as error:
        raise InvalidDeploymentError(f"placement_group_bundles: {' '.join(str(error).split())}") from None
    _check_amounts(bundles)
    _check_room(demands(actor_options), bundles[0])
    return {"bundles": [dict(each) for each in bundles], "strategy": strategy or "PACK", "labels": selectors}


def _check_amounts(bundles: Sequence[Mapping[str, Any]]) -> None:
    """Ray itself takes amounts here that no node can have."""
    for index, bundle in enumerate(bundles):
        for name, amount in bundle.items():
            if isinstance(amount, bool) or not 0 <= amount <= AMOUNT_MAX:
                found = f"{name} {amount!r:.80}"
                raise InvalidDeploymentError(
                    f"placement_group_bundles[{index}] must have finite amounts from 0 to {AMOUNT_MAX:g}, got {found}"
                )


def _check_room(asked: Mapping[str, float], first: Mapping[str, float]) -> None:
    for name, amount in asked.items():
        if amount > first.get(name, 0.0):
            raise InvalidDeploymentError(
                f"placement_group_bundles[0] must have room for the replica's actor, which asks for {name} {amount:g}; "
                f"it has {first.get(name, 0.0):g}"
            )


def name_of(namespace: str, deployment: str, replica_id: ReplicaId) -> str:
    """What the group of a replica is called."""
    return f"{PREFIX}{quote(namespace, safe='')}/{names.actor_name(deployment, replica_id)}"


def replica_of(name: str) -> tuple[str, str, ReplicaId] | None:
    """Namespace, deployment and replica whose group is called so; None: it is no replica's."""
    namespace, _, actor = name.removeprefix(PREFIX).partition("/")
    found = names.replica_of(actor)
    if found is None or name != name_of(unquote(namespace), *found):
        return None
    return unquote(namespace), *found


def made(name: str, wanted: Mapping[str, Any], cordoned: frozenset[NodeId]) -> PlacementGroupSchedulingStrategy:
    """Make a group, and say how to ask Ray for an actor on its first bundle. Blocks for a round trip, and not for room."""
    labels: Sequence[Mapping[str, str]] = wanted["labels"] or [{}] * len(wanted["bundles"])
    selectors = [elsewhere(each, cordoned) for each in labels]
    group = placement_group(
        wanted["bundles"],
        strategy=wanted["strategy"],
        name=name,
        lifetime="detached",
        bundle_label_selector=[NOWHERE if each is None else each for each in selectors] if any(selectors) else None,
    )
    return PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
    )


def is_made(group_id: str) -> bool:
    """Whether a group has all its room. Blocks for a round trip."""
    return bool(placement_group_table(group_of(group_id)).get("state") == GroupState.CREATED)


def remove(group_id: str) -> None:
    """Remove a group with all that runs there. Blocks for a round trip."""
    remove_placement_group(group_of(group_id))


def sweep(namespace: str, replicas: Mapping[str, Iterable[ReplicaId]]) -> dict[str, str]:
    """Remove the groups of all replicas of a namespace but these, which are named by deployment. Blocks for some round trips.

    Returns:
        The ids of the groups of these, by their names.
    """
    there = groups_of(namespace)
    kept = {name_of(namespace, deployment, each) for deployment, ids in replicas.items() for each in ids}
    for name in there.keys() - kept:
        remove(there[name])
    return {name: group_id for name, group_id in there.items() if name in kept}


def groups_of(namespace: str) -> dict[str, str]:
    """The ids of the groups of a namespace's replicas, by their names; those that were removed are left out."""
    found = {}
    table: dict[str, Any] = placement_group_table()
    for group_id, each in table.items():
        replica = replica_of(each["name"])
        if replica is not None and replica[0] == namespace and each["state"] not in GONE:
            found[each["name"]] = group_id
    return found
