"""Which replicas find no room: those for which Ray still queues, and no node has what they ask for.

Ray says of no actor whether it queues, or has its resources while its process starts and its runtime_env is installed, which
may take minutes. What it has given such an actor counts as used on its node: by what is free alone, one that has taken the last
room itself would be without. But Ray says how many requests of each shape queue anywhere in the cluster.

Ray serves requests of one shape in the order in which they came: of the replicas that ask for the same the newest queue. Where
others ask for it as well, more of ours are taken to queue than do, for as long as no node has room.

Who gets a placement group of its own is in no line: the group queues, and whether it has its room Ray says (`own_groups`).
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import ray
from ray.core.generated.common_pb2 import LABEL_OPERATOR_NOT_IN

from executors.ray_gpu.room import OWN_GROUP, demands, obstacle, values_of
from executors.ray_gpu.world import NodeInfo, World, live_nodes
from rankcore.values import NodeId

if TYPE_CHECKING:
    from ray.core.generated.autoscaler_pb2 import ResourceRequest

Label: TypeAlias = tuple[str, bool, tuple[str, ...]]
"""A label that is asked of a node: its name, whether it may have any value but these, and these, in order."""
Shape: TypeAlias = tuple[tuple[tuple[str, float], ...], tuple[Label, ...]]
"""What is asked of a node: resources and labels, each in the order of the names."""

LOOK_AGAIN_S = 1.0
"""Ray counts its queues about as often."""
PARTS = 1e4
"""Ray counts resources in parts of this size."""


@attrs.frozen
class Sight:
    """What Ray has said.

    Attributes:
        at: When, on the event loop's clock.
        nodes: Those that are alive.
        queued: How many requests of each shape wait for resources.
    """

    at: float
    nodes: Mapping[NodeId, NodeInfo]
    queued: Mapping[Shape, int]


def shape_of(demand: Mapping[str, float], labels: Iterable[Label] = ()) -> Shape:
    """A demand, as it is compared with another."""
    return tuple(sorted((name, round(amount * PARTS) / PARTS) for name, amount in demand.items())), tuple(sorted(labels))


def labels_of(actor_options: Mapping[str, Any]) -> Iterator[Label]:
    """Those that an actor asks of its node."""
    for name, wanted in (actor_options.get("label_selector") or {}).items():
        yield name, wanted.startswith("!"), tuple(sorted(values_of(wanted)))


def _labels_asked(request: "ResourceRequest") -> Iterator[Label]:
    for selector in request.label_selectors:
        for each in selector.label_constraints:
            yield each.label_key, each.operator == LABEL_OPERATOR_NOT_IN, tuple(sorted(each.label_values))


def see() -> tuple[Mapping[NodeId, NodeInfo], Mapping[Shape, int]]:
    """The nodes that are alive, and how many requests of each shape wait for resources. Blocks for some round trips."""
    from ray.autoscaler.v2 import sdk  # only where somebody waits: it takes a tenth of a controller's start

    queued: Counter[Shape] = Counter()
    state = sdk.get_cluster_resource_state(ray._private.worker.global_worker.gcs_client)
    for each in state.pending_resource_requests:
        queued[shape_of(each.request.resources_bundle, _labels_asked(each.request))] += each.count
    return live_nodes(), queued


class WaitingLine:
    """The replicas of a controller that have no process yet, in the order in which Ray was asked for them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._shapes: dict[Hashable, Shape] = {}
        self._line: defaultdict[Shape, dict[Hashable, None]] = defaultdict(dict)
        self._look: asyncio.Task[Sight] | None = None

    def enter(self, who: Hashable, actor_options: Mapping[str, Any]) -> None:
        """Ray is about to be asked for it, with these options."""
        if OWN_GROUP in actor_options:
            return
        shape = self._shapes[who] = shape_of(demands(actor_options), labels_of(actor_options))
        self._line[shape][who] = None

    def leave(self, who: Hashable) -> None:
        """It has its process, or is not wanted any more."""
        shape = self._shapes.pop(who, None)
        if shape is not None:
            del self._line[shape][who]
            if not self._line[shape]:
                del self._line[shape]

    async def obstacle(self, who: Hashable, actor_options: Mapping[str, Any]) -> str:
        """Why one finds no room; "": it has what it asks for, or some node has it.

        Raises:
            Exception: Whatever Ray's connection raises.
        """
        sight = await self._sight()
        if who in self._shapes and not self._is_queued(who, sight):
            return ""
        labels = actor_options.get("label_selector")
        return obstacle(sight.nodes, demands(actor_options), self._world.cordoned, labels) if sight.nodes else ""

    def _is_queued(self, who: Hashable, sight: Sight) -> bool:
        shape = self._shapes[who]
        newest = islice(reversed(self._line[shape]), sight.queued.get(shape, 0))
        return who in newest

    async def _sight(self) -> Sight:
        """What Ray says now, or has said just before: all who wait at one time look once."""
        loop = asyncio.get_running_loop()
        look = self._look
        if look is None or (look.done() and (look.exception() is not None or look.result().at + LOOK_AGAIN_S <= loop.time())):
            look = self._look = loop.create_task(self._see())
        return await asyncio.shield(look)

    async def _see(self) -> Sight:
        nodes, queued = await self._world.call(see)
        return Sight(asyncio.get_running_loop().time(), nodes, queued)
