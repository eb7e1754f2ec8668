"""`StaticPlacementConfig`: which bundles of a placement group, which the user owns, each replica stands on."""

from collections.abc import Mapping, Sequence

import attrs
from ray.util.placement_group import PlacementGroup

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.placement_groups import GONE, GroupInfo, look_up
from rankcore import StaticPlacement
from rankcore.errors import PlacementError


@attrs.frozen
class StaticPlacementConfig:
    """What `@deployment(_placement_info=...)` takes.

    Each rank's replica runs on the first bundle of its list, and on no other; `get_replica_context().bundle_indices` has the
    whole list. The group is never created, changed or removed by us.

    Attributes:
        placement_group: Of Ray; it may be still pending, the replicas then wait for it.
        replica_bundle_mapping: Indices of bundles by rank: ranks 0..N-1, no bundle twice. N is the number of replicas.
        capture_child_tasks: Whether actors and tasks that a replica starts run in the group too, unless they say otherwise.

    Raises:
        InvalidDeploymentError: Names rank, bundle and group. The group is asked for when the config is made.
    """

    placement_group: PlacementGroup
    replica_bundle_mapping: Mapping[int, Sequence[int]]
    capture_child_tasks: bool = True
    _info: GroupInfo = attrs.field(init=False, eq=False, repr=False)
    _placement: StaticPlacement = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.placement_group, PlacementGroup):
            raise InvalidDeploymentError(f"placement_group must be a PlacementGroup of Ray, got {self.placement_group!r:.80}")
        if type(self.capture_child_tasks) is not bool:
            raise InvalidDeploymentError(f"capture_child_tasks must be True or False, got {self.capture_child_tasks!r:.80}")
        info = look_up(self.placement_group.id.hex())
        if info.state in GONE:
            raise InvalidDeploymentError(f"{info.shown} does not exist (any more): Ray says {info.state}")
        object.__setattr__(self, "_info", info)
        object.__setattr__(self, "_placement", self._checked(info))

    @property
    def placement(self) -> StaticPlacement:
        """The same for the core."""
        return self._placement

    def check_room(self, demand: Mapping[str, float]) -> None:
        """Whether the first bundle of every rank is large enough for a replica.

        Args:
            demand: Resources that a replica asks for, by Ray's names.

        Raises:
            InvalidDeploymentError: Names rank, bundle and group, what is asked for and what the bundle has.
        """
        for rank, bundles in enumerate(self._placement.bundles):
            has = self._info.bundles[bundles[0]]
            for name, amount in demand.items():
                if has.get(name, 0.0) < amount:
                    raise InvalidDeploymentError(
                        f"bundle {bundles[0]} of rank {rank} in {self._info.shown} has {name} {has.get(name, 0.0):g}, "
                        f"and a replica asks for {amount:g}: see ray_actor_options"
                    )

    def _checked(self, info: GroupInfo) -> StaticPlacement:
        try:
            return StaticPlacement(
                bundles=dict(self.replica_bundle_mapping) if isinstance(self.replica_bundle_mapping, Mapping) else {},
                bundle_count=len(info.bundles),
                group=info.name or info.group_id,
                group_id=info.group_id,
            )
        except PlacementError as error:
            raise InvalidDeploymentError(str(error)) from None
