"""What becomes of the bundles of a placement group, told to the core where a deployment stands on them."""

import asyncio
import logging
from collections.abc import Callable

from executors.ray_gpu.placement_groups import GONE, GroupInfo, GroupState, look_up
from executors.ray_gpu.world import World
from rankcore import DeploymentSpec, StaticPlacement
from rankcore.events import BundleLost, BundleRestored, Event
from rankcore.values import NodeId

LOG = logging.getLogger(__name__)

PERIOD_S = 1.0


class GroupNews:
    """Tells which bundles are lost and which are back, while a deployment has a static placement.

    A bundle is lost when its node is, until Ray has put it elsewhere, and for good when the group is removed. One that
    has no node yet because the group waits for room is not lost.
    """

    def __init__(self, world: World, tell: Callable[[Event], None]) -> None:
        self._world = world
        self._tell = tell
        self._placement: StaticPlacement | None = None
        self._nodes: dict[int, NodeId] = {}
        self._lost: set[int] = set()
        self._state = GroupState.CREATED
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def follow(self, spec: DeploymentSpec) -> None:
        """Begin or cease to tell, as the spec has it."""
        placement = spec.static_placement
        if placement is None:
            self.close()
        elif self._placement is None or placement.group_id != self._placement.group_id:
            self.close()
            self._placement = placement
            self._task = asyncio.get_running_loop().create_task(self._watch())

    @property
    def obstacle(self) -> str:
        """Why a replica on the group may not be placed; "": nothing is wrong with the group, or there is none."""
        if self._placement is None or self._state is GroupState.CREATED:
            return ""
        return f"it waits for its bundle: Ray says {self._state} of {self._placement.group_shown}"

    def close(self) -> None:
        """Tell nothing more."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._placement = None
        self._state = GroupState.CREATED
        self._nodes.clear()
        self._lost.clear()

    async def look(self, lost_node: NodeId | None = None) -> None:
        """Ask now: a replica has ended, and what is lost is to be told before that.

        Args:
            lost_node: Of which the core has just been told, so that it takes the bundles which it knew to be there for lost.
                Those that Ray has put elsewhere by now are back.
        """
        placement = self._placement
        if placement is None or placement.group_id is None:
            return
        async with self._looking:
            try:
                info = await self._world.call(look_up, placement.group_id)
            except Exception as error:  # it raises whatever its connection raises
                LOG.warning("Ray does not say how %s is: %s", placement.group_shown, error)
                return
            if self._placement is placement:
                self._compare(info, lost_node)

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(PERIOD_S)

    def _compare(self, info: GroupInfo, lost_node: NodeId | None) -> None:
        """Tell what has changed since the last look; a bundle that has moved in between was lost, and is back."""
        moved = {index for index, node_id in info.nodes.items() if self._nodes.get(index, node_id) != node_id}
        lost = self._lost_now(info)
        newly = (lost | moved) - self._lost
        if newly:
            for why, bundles in self._reasons(info, newly).items():
                self._tell(BundleLost(bundles=bundles, reason=why, group_id=info.group_id, at=self._world.now()))
        elsewhere = {index for index, node_id in info.nodes.items() if node_id != lost_node} if lost_node is not None else set()
        restored = (self._lost | newly | elsewhere) - lost
        if restored:
            self._tell(BundleRestored(bundles=sorted(restored), group_id=info.group_id, at=self._world.now()))
        self._lost = lost
        self._nodes = dict(info.nodes)
        self._state = info.state

    def _lost_now(self, info: GroupInfo) -> set[int]:
        if info.state in GONE:
            # Of a group that Ray has forgotten altogether, nobody says how many bundles it had.
            count = self._placement.bundle_count if self._placement is not None else 0
            return set(range(count))
        missing = set(info.bundles) - set(info.nodes)
        never_there = info.state in (GroupState.PENDING, GroupState.PREPARED)
        return missing & (self._nodes.keys() | self._lost) if never_there else missing

    def _reasons(self, info: GroupInfo, lost: set[int]) -> dict[str, list[int]]:
        """Why each bundle was lost; they go node by node, or all at once."""
        found: dict[str, list[int]] = {}
        for bundle in sorted(lost):
            node_id = self._nodes.get(bundle)
            where = f"node {node_id}" if node_id is not None else "its node"
            why = "the group was removed" if info.state in GONE else f"{where} was lost"
            found.setdefault(why, []).append(bundle)
        return found
