"""Nodes whose files are not the weights of a version: it is loaded elsewhere, for as long as there is an elsewhere.

**What.** A load that has failed since the node has other weights (`MoveFailed.wrong_weights`) would fail there again, and would
displace others for it. So the planner avoids the node for that version (`ModelSpec.avoids`).

**Why nobody waits for ever.** A node is avoided only while another one that is not could hold the version once it is empty. The
refusal of the last one clears all, and they are tried anew, after the back-off of the slot: so a version that is wrong
everywhere counts its failures, and is given up or rolled back as any other, and one that has been mended is found. That a node
came, went or has other memory clears all refusals too: it may be the one that the others waited for.

**What it costs.** A refusal looks at all nodes. Nothing is saved: a new controller tries each node once.
"""

from msgspec.structs import replace

from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.planner import PLANNER
from rankcore.frozen import EMPTY
from rankcore.residency.events import DeployRequested
from rankcore.residency.ever import why_not
from rankcore.residency.spec import Wanted
from rankcore.values import NodeId


def refuse(draft: ClusterDraft, model: str, node_id: NodeId) -> None:
    """A node has other weights than a version of a deployment."""
    weights = draft.weights
    spec, nodes = weights.planner.models[model], weights.planner.nodes
    refused = {*weights.refused.get(model, ()), node_id}
    elsewhere = any(each not in refused and why_not(node, spec, spec.total_bytes) is None for each, node in nodes.items())
    kept = tuple(sorted(refused)) if elsewhere else ()
    draft.weights = replace(weights, refused=weights.refused.set(model, kept))


def forget(draft: ClusterDraft) -> None:
    """Nodes are others than they were: all may be tried again, by who waits too."""
    refused, planner = draft.weights.refused, draft.weights.planner
    draft.weights = replace(draft.weights, refused=EMPTY)
    for model in sorted(refused):
        spec = planner.models.get(model)
        if spec is not None and spec.avoids:
            wanted = Wanted(spec=replace(spec, avoids=()), replicas=planner.target(model))
            draft.worklist.add(PLANNER, DeployRequested(wanted=(wanted,), at=draft.clock))
