"""Nodes and bundles: told to the cluster once, handed on to the deployments that they concern (amendment 21).

Who is on a node is known by index (`ClusterState.members`), so the loss of one costs as much as the deployments there, not as
all. A deployment whose replicas the core places by ranks, or that stands on bundles, gets all such news (`ranked`). One that
had nobody there is told of a loss when news of a replica there comes, since that may be older than the loss.

A cordon is such news too: remembered here, and told to who has replicas there, or gets one there later. Weights that may
be COLD are left alone by it for now: where they are loaded is for their planner to say, which knows nothing of cordons.

A node offers resources, and each deployment's capacity is counted from them: what is left beside the replicas of others, by
what one replica of its own asks for. So it is counted anew when one of the others comes or goes.
"""

import attrs
from msgspec.structs import replace

from rankcore.checks import COUNT_MAX
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.events import CordonNews, NodeJoined
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.state import Entry, NodeOffer
from rankcore.events import (
    BundleLost,
    BundleRestored,
    Event,
    NodeChanged,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
)
from rankcore.evictions import deadline_of_both
from rankcore.frozen import EMPTY
from rankcore.placement import StaticPlacement
from rankcore.residency.events import NodeJoined as NodeMemory
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState
from rankcore.values import NodeId

SHARE_SLACK = 1e-9
"""Amounts such as 0.1 are not exact: ten of them still fit into 1."""


def on_node_joined(draft: ClusterDraft, event: NodeJoined) -> None:
    """A node came, came back, or offers something else."""
    known = draft.nodes.get(event.node_id, NodeOffer())
    if event.at < max(known.at, known.lost_at):
        draft.note(ClusterNoteKind.LATE, "2", because=f"NodeJoined of {event.node_id}, which was lost or has changed since")
        return
    memory = None
    found = any(worker.node_id == event.node_id for worker in draft.weights.found.values())
    if event.gpu_bytes or event.cpu_bytes or known.memory is not None or found:
        memory = NodeMemory(
            node_id=event.node_id,
            gpu_bytes=event.gpu_bytes,
            cpu_bytes=event.cpu_bytes,
            labels=event.labels,
            at=event.at,
        )
    draft.nodes = draft.nodes.set(event.node_id, replace(known, resources=event.resources, at=event.at, memory=memory))
    if known.resources is None or known.memory is None or memory != replace(known.memory, at=event.at):
        draft.renewed[event.node_id] = None
    for deployment in draft.ranked:
        tell_capacity(draft, deployment, event.node_id)


def memory_of(draft: ClusterDraft, node_id: NodeId) -> object:
    """What of a node may be planned for weights, whenever it was told."""
    memory = draft.nodes.get(node_id, NodeOffer()).memory
    return memory and (memory.gpu_bytes, memory.cpu_bytes, memory.labels)


def on_node_lost(draft: ClusterDraft, event: NodeLost) -> None:
    """A node is gone: told to those who had replicas there, and those whose placement follows nodes."""
    known = draft.nodes.get(event.node_id, NodeOffer())
    if event.at > known.lost_at:
        resources = known.resources if event.at < known.at else None
        memory = known.memory if event.at < known.at else None
        cordon = known.cordon if known.cordon is not None and event.at < known.cordon.at else None
        draft.nodes = draft.nodes.set(event.node_id, NodeOffer(resources, known.at, event.at, memory, cordon))
        draft.renewed[event.node_id] = None
    for deployment in sorted({*draft.members.get(event.node_id, EMPTY), *draft.ranked}):
        draft.worklist.add(deployment, event)


def on_cordon(draft: ClusterDraft, event: CordonNews) -> None:
    """A node is cordoned, drained, or neither any more: told to those on it, and to those who take it for cordoned."""
    known = draft.nodes.get(event.node_id, NodeOffer())
    if event.at <= known.lost_at or (known.cordon is not None and event.at < known.cordon.at):
        because = f"{type(event).__name__} of {event.node_id}, of which there is later news"
        draft.note(ClusterNoteKind.LATE, "2", because=because)
        return
    cordon = event
    if isinstance(event, NodeCordoned) and isinstance(known.cordon, NodeDrainRequested):
        cordon = attrs.evolve(known.cordon, at=event.at)  # that says more, and goes on
    elif isinstance(event, NodeDrainRequested) and isinstance(known.cordon, NodeDrainRequested):
        final = event.final or known.cordon.final
        cordon = attrs.evolve(event, deadline_at=deadline_of_both(known.cordon, event), final=final)
    draft.nodes = draft.nodes.set(event.node_id, replace(known, cordon=cordon))
    listed = {*draft.members.get(event.node_id, EMPTY), *draft.ranked}
    for deployment in sorted(draft.state.deployments):
        entry = draft.find(deployment)
        if entry is not None and entry.residency is None:
            node = entry.ranks.nodes.get(event.node_id)
            if deployment in listed or (node is not None and node.cordoned):
                draft.worklist.add(deployment, event)


def tell_cordon(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, node_id: NodeId) -> None:
    """Before news of a replica on a node: that node may have been cordoned when the deployment had nobody there."""
    offer = draft.nodes.get(node_id)
    if offer is None or offer.cordon is None or isinstance(offer.cordon, NodeUncordoned) or entry.residency is not None:
        return
    known = entry.ranks.nodes.get(node_id)
    if known is None or known.cordon_at < offer.cordon.at:
        draft.worklist.add(deployment, offer.cordon)


def on_bundles(draft: ClusterDraft, event: BundleLost | BundleRestored) -> None:
    """Bundles of a placement group: told to the deployments that stand on that group."""
    for deployment in draft.ranked:
        entry = draft.find(deployment)
        assert entry is not None, f"{deployment} is ranked, and there is no such deployment"
        group_id = entry.ranks.tables.bundles.group_id
        if group_id == event.group_id and (group_id is not None or entry.ranks.spec.static_placement is not None):
            draft.worklist.add(deployment, event)


def has_group(entry: Entry) -> bool:
    """Whether it stands on a placement group, or did: what is known of one lasts until a spec names another."""
    return entry.ranks.tables.bundles.group_id is not None


def tell_loss(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, node_id: NodeId) -> None:
    """Before news of a replica on a node: that node may have been lost when the deployment had nobody there."""
    offer = draft.nodes.get(node_id)
    if offer is None or offer.lost_at < 0.0:
        return
    known = entry.ranks.nodes.get(node_id)
    if known is None or known.lost_at < offer.lost_at:
        draft.worklist.add(deployment, NodeLost(node_id=node_id, at=offer.lost_at))


def follow_spec(draft: ClusterDraft, deployment: DeploymentId, spec: DeploymentSpec | None) -> None:
    """Which news of nodes and bundles a deployment gets from now on; None: it is gone."""
    listed, entry = deployment in draft.ranked, draft.find(deployment)
    if spec is not None and entry is not None and (spec.placement is not None or has_group(entry)):
        draft.ranked = draft.ranked if listed else tuple(sorted((*draft.ranked, deployment)))
        for node_id in sorted(draft.nodes):  # what one replica asks for may be another amount
            tell_cordon(draft, deployment, entry, node_id)
            tell_capacity(draft, deployment, node_id)
    elif listed:
        draft.ranked = tuple(each for each in draft.ranked if each != deployment)


def follow(
    draft: ClusterDraft, deployment: DeploymentId, before: DeploymentState, after: DeploymentState, event: Event
) -> None:
    """Who is on which node, after news of a replica or of a node."""
    if before.tables.nodes is after.tables.nodes:
        return
    replica = before.replicas.get(getattr(event, "replica_id", ""))
    places = {getattr(event, "node_id", None), replica.node_id if replica is not None else None}
    for node_id in sorted(each for each in places if each is not None):
        node = after.nodes.get(node_id)
        count(draft, deployment, node_id, len(node.members) if node is not None else 0)


def count(draft: ClusterDraft, deployment: DeploymentId, node_id: NodeId, size: int) -> None:
    """So many replicas of a deployment are on a node; others that are placed by room may hold more there, or fewer."""
    here = draft.members.get(node_id, EMPTY)
    if here.get(deployment, 0) == size:
        return
    here = here.set(deployment, size) if size else here.delete(deployment)
    draft.members = draft.members.set(node_id, here) if here else draft.members.delete(node_id)
    for other in draft.ranked:
        if other != deployment:
            tell_capacity(draft, other, node_id)


def tell_capacity(draft: ClusterDraft, deployment: DeploymentId, node_id: NodeId) -> None:
    """How many replicas of a deployment a node can hold, if its placement follows that and it is not so already."""
    entry, offer = draft.find(deployment), draft.nodes[node_id] if node_id in draft.nodes else NodeOffer()
    if entry is None or offer.resources is None or isinstance(entry.ranks.spec.placement, StaticPlacement):
        return
    capacity = capacity_of(draft, entry, node_id, offer)
    known = entry.ranks.nodes.get(node_id)
    if known is None or known.capacity != capacity or known.capacity_at < offer.at:
        draft.worklist.add(deployment, NodeChanged(node_id=node_id, capacity=capacity, at=offer.at))


def capacity_of(draft: ClusterDraft, entry: Entry, node_id: NodeId, offer: NodeOffer) -> int:
    """How many replicas of a deployment fit on a node beside those of others."""
    demand, resources = entry.spec.demand, offer.resources or {}
    capacity = COUNT_MAX
    others = [(each, size) for each, size in draft.members.get(node_id, EMPTY).items() if each != entry.spec.deployment]
    for name, amount in demand.items():
        if amount:
            used = sum(size * found.spec.demand.get(name, 0.0) for each, size in sorted(others) if (found := draft.find(each)))
            capacity = min(capacity, int(max(0.0, resources.get(name, 0.0) - used) / amount + SHARE_SLACK))
    return capacity
