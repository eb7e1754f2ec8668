"""Replicas leave for good, and the target falls by as many: they are preempted, evicted or idle (R9, R11).

A downscale names a number, and the rules choose who goes: what is vacant or not up yet before anybody who runs. Here somebody
else has chosen, and a serving replica goes although a slot is vacant; the vacant slot stays, and so does its rank (R6).
"""

import attrs

from rankcore import checks
from rankcore.book import slots
from rankcore.draft import Draft
from rankcore.errors import InvalidEventError
from rankcore.events import ReplicasLeave
from rankcore.lifecycle import Milestone
from rankcore.notes import LATE, NoteKind
from rankcore.rules import leaving, requests
from rankcore.rules.bind import dismiss_surplus
from rankcore.values import DRAINING, RECOVERING, REFILL, RELEASE, ReplicaId, ReplicaState


def on_replicas_leave(draft: Draft, event: ReplicasLeave) -> None:
    """Stop exactly these, and lower the target by as many as were counted in it."""
    static = draft.spec.static_placement
    if static is not None:
        allowed = f"of a deployment that is not placed statically: there are as many replicas as ranks in {static.group_shown}"
        raise InvalidEventError("ReplicasLeave.replica_ids", event.replica_ids, allowed)
    for index, replica_id in enumerate(event.replica_ids):
        checks.of_deployment(draft.spec.name, f"ReplicasLeave.replica_ids[{index}]", replica_id)
    if draft.status in requests.GOING:
        draft.note(LATE, "2.3", because=f"ReplicasLeave while {draft.status}")
        return
    fewer = sum(_leave(draft, replica_id) for replica_id in dict.fromkeys(event.replica_ids))
    before = draft.spec
    after = max(0, before.target_replicas - fewer)
    if after == before.target_replicas:  # 0 already, while whoever is left was to report first, perhaps
        return
    draft.spec = attrs.evolve(before, target_replicas=after)
    because = f"target {before.target_replicas} -> {after}: {fewer} replicas leave"
    requests.announce(draft, because)
    if draft.status is not RECOVERING:
        draft.reach(Milestone.TARGET_LOWERED, because)
    if draft.spec.surge_max < before.surge_max:
        dismiss_surplus(draft)


def _leave(draft: Draft, replica_id: ReplicaId) -> bool:
    """Returns whether the target counted it."""
    replica = draft.replicas.get(replica_id)
    if replica is None:
        draft.note(NoteKind.UNKNOWN_REPLICA, "R9", replica_id, "ReplicasLeave of a replica that is not in the book")
        return False
    if replica.state is ReplicaState.RECOVERING or (replica.state is DRAINING and replica.leaving is not REFILL):
        draft.note(LATE, "R9", replica_id, f"ReplicasLeave of a replica that is {replica.state}")
        return False
    if replica.state is DRAINING:
        leaving.release(draft, replica, "it was to be replaced, and leaves for good")
        return True
    counted = not slots.is_successor(draft, replica) and replica_id not in draft.recovery.prepared
    leaving.stop(draft, replica, RELEASE, "R9", "it leaves for good")
    return counted
