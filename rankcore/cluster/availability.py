"""How a deployment with residency stands for those who call it: READY, on its way, waiting, or not to be had (Q11).

It is worked out anew from ranks and planner wherever either has changed, and published where it differs: what is published is
state, so the newest counts and any may be skipped.

Whoever is first in line has a place, though those who are there may serve on until their turns are over (T12): PROVISIONING,
behind those. QUEUED are all others for whom there is no room.

UNAVAILABLE makes routers decline whoever waits, so it is published only where there is no route *and* nothing of the deployment
is on its way (amendment 10): no worker of it is HOT, loads, or has a place. A deployment whose newest version has failed while
the one before serves is READY.

It has an end, but where nothing is placed at all: who is declined asks for nothing, and of what nobody asks nothing is tried
again. Where that is over there is nothing to say, so that calls wait, which is the demand that has it tried (D7). An apply ends
it early, which is said, and so does a node that could hold what no other could ever hold (T18).
"""

from rankcore.cluster.commands import Availability, Standing
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import deployment_of, model_id
from rankcore.cluster.state import Entry, Residency
from rankcore.cluster.tenures import is_serving
from rankcore.residency.levels import Phase
from rankcore.residency.state import Resident
from rankcore.values import DEPLOY_FAILED

FURTHEST = (Phase.LOADING, Phase.RESERVING, Phase.WAITING)


def availability_of(draft: ClusterDraft, deployment: DeploymentId, entry: Entry, residency: Residency) -> Availability | None:
    """How it stands; None: nobody wants it, so there is nothing to say."""
    if entry.frozen:
        return None
    if any(replica.routed for replica in entry.ranks.replicas.values()):
        return Availability(Standing.READY)
    weights = draft.weights
    if any(each in weights.found or is_serving(weights.planner, each) for each in residency.tenures.values()):
        return Availability(Standing.LOADING, "it is HOT, and waits for its rank", percent=100)
    first = _furthest(draft, deployment, residency)
    if first is not None and first.phase is Phase.LOADING:
        percent = int(100 * weights.progress.get(first.replica_id, 0.0))
        return Availability(Standing.LOADING, f"{first.replica_id} on {first.node_id}", percent=percent)
    if first is not None and first.phase is Phase.RESERVING:
        behind = tuple(sorted({deployment_of(each) for each in first.waits_for}))
        return Availability(Standing.PROVISIONING, first.because, behind)
    if residency.failed_until > draft.clock:
        is_failed = entry.ranks.status is DEPLOY_FAILED and not residency.claims
        because = residency.unfit or (first.because if first is not None else "there was no place for it")
        because = (entry.trouble or "it has failed to start") if is_failed else because
        return Availability(Standing.UNAVAILABLE, because, retry_after_s=residency.failed_until - draft.clock)
    if not weights.placing:
        return Availability(Standing.UNAVAILABLE, "the planner of weights has failed too often: nothing is placed")
    if residency.claims or (residency.tenures and entry.target.replicas):
        return Availability(Standing.QUEUED, first.because if first is not None else "it is planned")
    told = residency.availability
    if told is not None and told.standing is Standing.UNAVAILABLE and not residency.failed_until:
        return Availability(Standing.QUEUED, "it is tried again")  # before the end that those who refuse calls were told
    return None


def _furthest(draft: ClusterDraft, deployment: DeploymentId, residency: Residency) -> Resident | None:
    planner = draft.weights.planner
    wanted = [
        planner.replicas[worker_id]
        for version in residency.versions
        for worker_id in planner.wanted_replicas(model_id(deployment, version))
    ]
    return min((each for each in wanted if each.phase in FURTHEST), key=lambda each: FURTHEST.index(each.phase), default=None)
