"""Nodes, the room on them and the bundles on them: how they are lost and come back, and what the controller is told of it.

The executor's half of the contract for them: news of bundles is never lost, and of the group that the spec names; a controller
that begins, and one whose spec names another group, is told what is lost by then. How much room there is it is told until it
knows.
"""

from collections.abc import Iterable, Iterator

import attrs
from msgspec.structs import replace

from rankcore.commands import StartReplica
from rankcore.events import BundleLost, BundleRestored, NodeChanged, NodeCordoned, NodeDrainRequested, NodeLost
from rankcore.testing.model.bounds import GROUPS
from rankcore.testing.model.world import LOST, RankWorld, ended, next_instant, said
from rankcore.values import NodeId


def group_of(world: RankWorld, index: int) -> str:
    """The placement group of a bundle, by its index among all."""
    return GROUPS[index // world.bounds.bundles]


def index_of(world: RankWorld, group: str | None, bundle: int) -> int:
    """The index among all bundles of this one of a placement group."""
    return GROUPS.index(group or "") * world.bounds.bundles + bundle


def lost_bundles(world: RankWorld) -> tuple[int, ...]:
    """What is lost of the placement group that the controller is told of."""
    lost = (index for index, node in enumerate(world.bundles) if node == LOST and group_of(world, index) == world.group)
    return tuple(index % world.bounds.bundles for index in lost)


def node_lost(world: RankWorld, node: int) -> RankWorld:
    """A node is gone with all that is on it, and back empty: whoever comes there later comes after the loss."""
    node_id = world.bounds.node_ids[node]
    there = [replica for replica in world.replicas if replica.node_id == node_id]
    world, at = next_instant(ended(world, *there))
    world = said(world, NodeLost(node_id=node_id, at=at))  # the executor passes over it until it is uncordoned
    world = _without(world, (index for index, on in enumerate(world.bundles) if on == node), at)
    # The controller takes the first bundle of each for lost. Of who had outlived its bundle, that may be elsewhere by now.
    firsts = {
        index_of(world, each.group_id, each.bundles[0]) for each in there if each.group_id == world.group and each.bundles
    }
    for index in sorted(index for index in firsts if world.bundles[index] != LOST):
        world = bundle_restored(world, index, world.bundles[index])
    return told_of_room(world, node)


def bundle_lost(world: RankWorld, index: int) -> RankWorld:
    """One bundle is gone. Who stands on it lives on until it is killed."""
    world, at = next_instant(world)
    return _without(world, (index,), at)


def _without(world: RankWorld, indices: Iterable[int], at: float) -> RankWorld:
    gone = set(indices)
    if not gone:
        return world
    left = tuple(LOST if index in gone else node for index, node in enumerate(world.bundles))
    told = tuple(index % world.bounds.bundles for index in sorted(gone) if group_of(world, index) == world.group)
    world = replace(world, bundles=left)
    return said(world, BundleLost(bundles=told, group_id=world.group, at=at)) if told else world


def bundle_restored(world: RankWorld, index: int, node: int) -> RankWorld:
    """A bundle is there again, on this node."""
    world, at = next_instant(world)
    world = replace(world, bundles=(*world.bundles[:index], node, *world.bundles[index + 1 :]))
    if group_of(world, index) != world.group:
        return world
    return said(world, BundleRestored(bundles=(index % world.bounds.bundles,), group_id=world.group, at=at))


def resized(world: RankWorld, node: int, room: int) -> RankWorld:
    """A node can hold so many replicas from now on. Those that are there stay."""
    return told_of_room(replace(world, rooms=(*world.rooms[:node], room, *world.rooms[node + 1 :])), node)


def told_of_room(world: RankWorld, node: int) -> RankWorld:
    """The controller is told how many replicas a node can hold, if it is told that at all."""
    if not world.bounds.room_is_told:
        return world
    world, at = next_instant(world)
    return said(world, NodeChanged(node_id=world.bounds.node_ids[node], capacity=world.rooms[node], at=at))


def unknown_rooms(world: RankWorld) -> Iterator[int]:
    """The nodes of which the controller does not know how much room they have."""
    known = world.state.nodes
    for node, room in enumerate(world.rooms):
        record = known.get(world.bounds.node_ids[node])
        if record is None or record.capacity != room:
            yield node


def introduced(world: RankWorld) -> RankWorld:
    """A controller has begun: it is told which nodes are cordoned, and what is lost of the placement group of its spec."""
    for cordon in world.cordons:
        if cordon is not None:
            world, at = next_instant(world)
            world = said(world, attrs.evolve(cordon, at=at))
    return named(replace(world, group=None))


def named(world: RankWorld) -> RankWorld:
    """The spec names a placement group: of another one than before, the controller is told what is lost."""
    static = world.state.spec.static_placement
    if static is None or static.identity == world.group:
        return world
    world = replace(world, group=static.identity)
    world, at = next_instant(world)
    lost = lost_bundles(world)
    return said(world, BundleLost(bundles=lost, group_id=world.group, at=at)) if lost else world


def nodes_for(world: RankWorld, command: StartReplica) -> Iterator[int]:
    """The nodes where a replica may come up now: that of its first bundle, or one that has room. None: it waits.

    Where there is any room, one of the nodes where nothing has ever been stands for all.
    """
    if command.replica_id in world.gone or world.find(command.replica_id) is not None:
        yield 0
    elif command.bundles:
        node = world.bundles[index_of(world, command.group_id, command.bundles[0])]
        if node != LOST:
            yield node
    elif world.rooms:
        wanted = world.bounds.node_ids if command.node_id is None else (command.node_id,)
        yield from (world.bounds.node_ids.index(node_id) for node_id in wanted if _has_room(world, node_id))
    else:
        yield from (node for node in any_node(world) if not _is_cordoned(world, node))


def parked(world: RankWorld) -> Iterator[tuple[int, StartReplica]]:
    """The commands to start a replica for which no node has room, with their index. To give one once more changes nothing."""
    for index, command in enumerate(world.commands):
        if isinstance(command, StartReplica) and next(nodes_for(world, command), None) is None:
            yield index, command


def _has_room(world: RankWorld, node_id: NodeId) -> bool:
    there, node = sum(replica.node_id == node_id for replica in world.replicas), world.bounds.node_ids.index(node_id)
    return there < world.rooms[node] and not _is_cordoned(world, node)


def _is_cordoned(world: RankWorld, node: int) -> bool:
    return bool(world.cordons) and world.cordons[node] is not None


def is_parked(world: RankWorld) -> bool:
    """Whether a start waits for a node where it may come up."""
    starts = [each for each in world.commands if isinstance(each, StartReplica)]
    return bool(world.cordons) and any(next(nodes_for(world, start), None) is None for start in starts)


def cordoned(world: RankWorld, node: int, cordon: NodeCordoned | NodeDrainRequested | None) -> RankWorld:
    """A node is cordoned or drained from now on, or neither."""
    return replace(world, cordons=(*world.cordons[:node], cordon, *world.cordons[node + 1 :]))


def any_node(world: RankWorld) -> Iterator[int]:
    """The nodes; of those where nothing has ever been, one stands for all."""
    used = {replica.node_id for replica in world.replicas}
    fresh = False
    for index, node_id in enumerate(world.bounds.node_ids):
        known = node_id in world.state.nodes or node_id in used or index in world.bundles or _is_cordoned(world, index)
        if known or not fresh:
            yield index
        fresh = fresh or not known
