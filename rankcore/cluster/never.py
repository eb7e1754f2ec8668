"""What no node could ever hold is told at once, and nobody waits for it (T18).

A deployment whose replicas fit nowhere now may wait for room (`demand`). Where they would not fit on an empty node either
(`residency.ever`), who calls is told so in the step in which it is known. It is known once each node is, and not before:

1. The executor lists the nodes that there are (`NodesListed`). `Weights.missing` has those whose memory the planner does not
   know yet: they have not joined, or a worker found there has not reported. Without a list nothing is known, for ever.
2. A controller that comes back judges nobody for `RECOVERING_S`: nodes come back too, and are not listed at first
   (amendment 16). Nor does one that has lost the last node of its shape, for `LOST_S`: it may come back, and what fitted there
   waits as long as it would for room. Nothing wakes the machine then, since who waits is looked at every few seconds.
3. It is known anew where a node comes, goes or is another, and where one is listed that has not joined. Who was refused and
   could be held then is tried again in that step. That is looked for by one pass over the deployments, once no node is missing.
"""

from msgspec import Struct
from msgspec.structs import replace

from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.events import NodesListed
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import deployment_of, model_id, model_of
from rankcore.cluster.state import Entry, Residency, Weights
from rankcore.ordered import ordered
from rankcore.residency.ever import why_never
from rankcore.residency.roster import Group
from rankcore.residency.state import replica_id_of
from rankcore.values import NodeId

RECOVERING_S = 30.0
LOST_S = 60.0


class LookAtFit(Struct, frozen=True, gc=False):
    """For a deployment with residency: it is to be seen whether any node could hold it."""


def on_nodes_listed(draft: ClusterDraft, event: NodesListed) -> None:
    """The executor says which nodes there are (1)."""
    missing = None if event.node_ids is None else ordered(sorted(set(event.node_ids)))
    draft.weights = replace(draft.weights, missing=missing, expected=event.expected_shapes)
    draft.renewed.update(dict.fromkeys(event.node_ids or ()))
    draft.is_relisted = True


def look_again(draft: ClusterDraft) -> None:
    """Nodes have come, gone or changed in this step: who waits, or was refused, is judged by those that there are now (3)."""
    renewed, is_relisted, missing = draft.renewed, draft.is_relisted, draft.weights.missing
    draft.renewed, draft.is_relisted = {}, False
    if any(each in draft.nodes and draft.nodes[each].resources is None for each in renewed) and _a_shape_is_gone(draft):
        draft.weights = replace(draft.weights, judged_from=max(draft.weights.judged_from, draft.clock + LOST_S))
    if missing is not None and renewed:
        for node_id in renewed:
            if not _is_awaited(draft, node_id):
                missing = missing.discard(node_id)
        draft.weights = replace(draft.weights, missing=missing)
    if not is_relisted and (missing is None or missing or not renewed):
        return
    waiting = {deployment_of(each) for each in draft.weights.planner.index.queue.lacks}
    refused = {each for each, entry in draft.state.deployments.items() if entry.residency is not None and entry.residency.unfit}
    for deployment in sorted(each for each in waiting | refused if draft.find(each) is not None):
        draft.worklist.add(deployment, LookAtFit())


def _is_awaited(draft: ClusterDraft, node_id: NodeId) -> bool:
    """Whether a node has not joined, or the planner is to hear of its memory yet."""
    offer = draft.nodes.get(node_id)
    if offer is None or offer.resources is None:
        return True
    return offer.memory is not None and node_id not in draft.weights.planner.nodes


def _a_shape_is_gone(draft: ClusterDraft) -> bool:
    before, now = draft.state.weights.planner.index.room.shapes, draft.weights.planner.index.room.shapes
    return any(each not in now for each in before)


def why(weights: Weights, clock: float, deployment: DeploymentId, entry: Entry, residency: Residency) -> str:
    """Why no node could ever hold a replica of a deployment; "": one could, or it is too early to say (1, 2)."""
    assert entry.spec.residency is not None, f"{deployment} has no residency"
    if weights.missing is None or weights.missing or (clock < weights.judged_from and not residency.unfit):
        return ""
    planner = weights.planner
    spec = model_of(entry.spec.residency, deployment, entry.ranks.spec.version, timeout_s=entry.spec.request_timeout_s)
    waiting = [
        planner.replicas[replica_id_of(model, serial)]
        for model in [model_id(deployment, each) for each in residency.versions]
        for serial in planner.index.roster.groups.get((model, Group.WAITING), ())
    ]
    least = min((each.size_bytes for each in waiting), default=0)
    return why_never(planner, spec, max(spec.total_bytes, least), weights.expected)
