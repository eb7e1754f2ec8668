"""What Ray says of a placement group that somebody else owns. Nothing here creates, changes or removes one."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs
from ray._raylet import PlacementGroupID
from ray.util.placement_group import PlacementGroup, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rankcore.values import NodeId


class GroupState(StrEnum):
    """As Ray has them, and UNKNOWN for a group of which it knows nothing."""

    PENDING = "PENDING"
    PREPARED = "PREPARED"
    CREATED = "CREATED"
    RESCHEDULING = "RESCHEDULING"
    REMOVED = "REMOVED"
    UNKNOWN = "UNKNOWN"


GONE = (GroupState.REMOVED, GroupState.UNKNOWN)


@attrs.frozen
class GroupInfo:
    """One placement group.

    Attributes:
        group_id: As hexadecimal digits.
        name: As its owner called it; "" if they did not.
        bundles: Resources of each bundle, by its index.
        nodes: Where each bundle is; left out: nowhere, at the moment.
    """

    group_id: str
    name: str
    state: GroupState
    bundles: Mapping[int, Mapping[str, float]]
    nodes: Mapping[int, NodeId]

    @property
    def shown(self) -> str:
        """For messages."""
        return f"placement group {self.name or self.group_id!r}"


def look_up(group_id: str) -> GroupInfo:
    """What Ray knows of a group now. Blocks for a round trip."""
    table: dict[str, Any] = placement_group_table(group_of(group_id)) or {}
    return GroupInfo(
        group_id=group_id,
        name=str(table.get("name", "")),
        state=GroupState(table.get("state", "UNKNOWN")),
        bundles={int(index): dict(resources) for index, resources in table.get("bundles", {}).items()},
        nodes={int(index): node_id for index, node_id in table.get("bundles_to_node_id", {}).items() if node_id},
    )


def group_of(group_id: str) -> PlacementGroup:
    """Ray's handle of a group, from its id."""
    return PlacementGroup(PlacementGroupID(bytes.fromhex(group_id)))


def strategy(group_id: str, bundle: int, capture_child_tasks: bool) -> PlacementGroupSchedulingStrategy:
    """How to ask Ray for an actor on one bundle."""
    return PlacementGroupSchedulingStrategy(
        placement_group=group_of(group_id),
        placement_group_bundle_index=bundle,
        placement_group_capture_child_tasks=capture_child_tasks,
    )
