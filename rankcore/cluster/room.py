"""Ranks are told which of their claims no room is found for in the memory of GPUs: nobody else knows it (V18).

A worker that is WAITING fits nowhere. The oldest claims get those that have a place, so as many of the newest as wait go
without. Each is the holder of its slot: nobody is started early where a replacement takes the memory of its predecessor.
"""

from collections.abc import Iterator

from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import model_id
from rankcore.cluster.state import Entry, Residency
from rankcore.events import ReplicaPending
from rankcore.residency.roster import Group
from rankcore.values import REQUESTED, ReplicaId

NO_ROOM = "its weights fit on no GPU"


def tell_of_room(draft: ClusterDraft) -> bool:
    """Tell the ranks that this step touches where that has changed; whether there was anything to tell."""
    news = [(each, said) for each, entry in draft.entries.items() for said in _unsaid(draft, each, entry)]
    for deployment, said in news:
        draft.worklist.add(deployment, said)
    return bool(news)


def _unsaid(draft: ClusterDraft, deployment: DeploymentId, entry: Entry) -> Iterator[ReplicaPending]:
    residency = entry.residency
    if residency is None or entry.frozen or not residency.claims:
        return
    without = _without_room(draft, deployment, residency)
    for start in residency.claims:
        replica, no_room = entry.ranks.replicas.get(start.replica_id), start.replica_id in without
        if replica is None or replica.state is not REQUESTED or replica.slot is None:
            continue
        if (replica.no_room_since is not None) is not no_room:
            reason = NO_ROOM if no_room else ""
            yield ReplicaPending(replica_id=start.replica_id, reason=reason, no_room=no_room, at=draft.clock)


def _without_room(draft: ClusterDraft, deployment: DeploymentId, residency: Residency) -> set[ReplicaId]:
    groups, without = draft.weights.planner.index.roster.groups, set()
    for version in residency.versions:
        claims = [each.replica_id for each in residency.claims if each.version == version]
        waiting = len(groups.get((model_id(deployment, version), Group.WAITING), ()))
        without.update(claims[max(0, len(claims) - waiting) :])
    return without
