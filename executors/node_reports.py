"""Nodes of which something was said, for who has said it: which one a name means, and what becomes of each replica there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import attrs

from executors.ray_gpu.errors import UnknownNameError, not_one
from executors.ray_gpu.overview import CordonedNode, ReplicaOnNode
from rankcore import ReplicaState
from rankcore.cluster.state import ClusterState, Entry
from rankcore.events import NodeDrainRequested, NodeUncordoned
from rankcore.state import Replica
from rankcore.values import NodeId, ReplicaId, age_key


@attrs.frozen
class Place:
    """What an executor knows of a node, and the machine does not.

    Attributes:
        address: "": it has none, or is not alive any more.
        is_head: Whether Ray's head is there, which stays.
    """

    address: str = ""
    is_head: bool = False


Shown: TypeAlias = tuple[Entry, Callable[[ReplicaId], str]]
"""A deployment, and what its replicas are called outside."""


def node_meant(name: str, addresses: Mapping[NodeId, str]) -> NodeId:
    """The node with this id, with this address, or whose id begins so.

    Raises:
        UnknownNameError: There is none, or there are several; says which there are.
    """
    found = [name] if name in addresses else sorted(each for each, address in addresses.items() if name and address == name)
    found = found or sorted(each for each in addresses if name and each.startswith(name))
    if len(found) != 1:
        there_are = (f"{each} ({address})" if address else each for each, address in addresses.items())
        raise UnknownNameError(not_one("node", name, found, there_are))
    return found[0]


def report(node_id: NodeId, place: Place, state: ClusterState, now: float, deployments: Iterable[Shown]) -> CordonedNode:
    """How it stands with a node, and who is there."""
    offer = state.nodes.get(node_id)
    cordon = offer.cordon if offer is not None and not isinstance(offer.cordon, NodeUncordoned) else None
    drain = cordon if isinstance(cordon, NodeDrainRequested) else None
    deadline_at = drain.deadline_at if drain is not None else None
    return CordonedNode(
        node_id=node_id,
        address=place.address,
        is_head=place.is_head,
        state="open" if cordon is None else "cordoned" if drain is None else "draining",
        left_s=max(0.0, deadline_at - now) if deadline_at is not None else None,
        reason=drain.reason if drain is not None else "",
        replicas=tuple(_replicas_on(node_id, drain, deployments)),
    )


def _replicas_on(node_id: NodeId, drain: NodeDrainRequested | None, deployments: Iterable[Shown]) -> Iterator[ReplicaOnNode]:
    for entry, shown in sorted(deployments, key=lambda each: each[0].spec.deployment):
        here = (each for each in entry.ranks.replicas.values() if each.node_id == node_id)
        for replica in sorted(here, key=lambda each: (_rank_of(each) is None, _rank_of(each) or 0, age_key(each.replica_id))):
            what = _what_becomes(entry, replica, drain)
            yield ReplicaOnNode(replica_id=shown(replica.replica_id), rank=_rank_of(replica), what=what)


def _rank_of(replica: Replica) -> int | None:
    return replica.rank.rank if replica.rank is not None else None


def _what_becomes(entry: Entry, replica: Replica, drain: NodeDrainRequested | None) -> str:
    if replica.state is ReplicaState.DRAINING:
        return "stops"
    if entry.residency is not None:
        return "stays: cordons and drains do not move weights that may be COLD"
    if replica.replica_id not in entry.ranks.tables.evictions.asked:
        return "stays"
    in_time = drain is not None and drain.deadline_at is not None
    if not replica.bundles:
        by_then = in_time or entry.ranks.tables.evictions.asked[replica.replica_id].deadline_at is not None
        return f"moves, once its successor has a place elsewhere{', or at its deadline' if by_then else ''}"
    return f"{'stops by then' if in_time else 'stays'}: its placement group has no other place for its rank"
