"""How a model stands, for those who wait for it: what the planner's records of it amount to (D3)."""

from rankcore.dispatching.commands import Status, StatusKind
from rankcore.dispatching.draft import Draft
from rankcore.dispatching.loads import percent_done, seconds_left
from rankcore.residency import Phase, Resident

ON_THE_WAY = frozenset({Phase.SERVING, Phase.LOADING, Phase.RESERVING, Phase.LEAVING})
"""Wanted, and nothing but time is missing: it waits for its rank, has a place, or leaves one to be planned anew."""
NODES_NAMED = 5
"""In a reason for callers; the planner's note has 20, and counts the others."""
_FURTHEST = (Phase.SERVING, Phase.LOADING, Phase.RESERVING, Phase.WAITING, Phase.LEAVING)


def wanted(draft: Draft, model: str) -> list[Resident]:
    """The replicas of a model that are to be HOT and are not, the furthest on its way first. Ask where none is routed."""
    replicas = draft.residency.replicas
    found = [replicas[each] for each in draft.residency.wanted_replicas(model)]
    return sorted(found, key=lambda each: (_FURTHEST.index(each.phase), each.replica_id))


def is_on_the_way(draft: Draft, model: str) -> bool:
    """Whether a replica of it is being loaded, or waits only until somebody has left."""
    return any(each.phase in ON_THE_WAY for each in wanted(draft, model))


def has_given_up(draft: Draft, model: str) -> bool:
    """Whether the planner has given up every replica of it that is wanted: it cannot be loaded."""
    most = draft.residency.policy.max_load_failures
    return all(each.phase is Phase.WAITING and each.failures >= most for each in wanted(draft, model))


def cannot_start(draft: Draft, model: str) -> bool:
    """Whether its replicas come to the GPU and fail to start there, again and again (D12)."""
    ranking = draft.models[model].ranking
    return ranking is not None and ranking.failures >= draft.residency.policy.max_load_failures


def reason_of(draft: Draft, model: str) -> str:
    """Why it is not HOT, in the planner's words: why its load failed, or why it fits on none of the nodes."""
    first, cant = wanted(draft, model)[0], draft.models[model].cant
    if first.failures or cant is None:
        return first.because
    nodes = [f"{each.node_id}: {each.because}" for each in cant.reasons[:NODES_NAMED]]
    others = len(cant.reasons) - len(nodes) + sum(each.nodes for each in cant.others)
    return "; ".join([*nodes, *([f"and {others} nodes more"] if others else [])]) or first.because


def status_of(draft: Draft, model: str) -> Status:
    """What those who wait for a model are told."""
    routed = draft.models[model].routed
    if routed:
        return Status(StatusKind.QUEUED, model, because=f"its {len(routed)} replicas have as much to do as they may")
    first = wanted(draft, model)[0]
    if first.phase is Phase.SERVING:
        return Status(StatusKind.LOADING, model, (), 100, None, f"{first.replica_id} is HOT, and waits for its rank")
    if first.phase is Phase.LOADING:
        return _loading(draft, first)
    if first.phase is Phase.RESERVING:
        behind = tuple(sorted(first.waits_for))
        gone = ", ".join(behind) or f"its copy on {first.copy_node_id}"
        why = f"its place on {first.node_id} is its own once {gone} is gone"
        return Status(StatusKind.PROVISIONING, model, behind, because=why)
    return Status(StatusKind.PROVISIONING, model, because=reason_of(draft, model))


def _loading(draft: Draft, resident: Resident) -> Status:
    move = draft.moves[resident.replica_id]
    left_s = seconds_left(draft, move)
    percent = percent_done(draft, move)
    return Status(StatusKind.LOADING, resident.model, (), percent, left_s, f"{resident.replica_id} on {resident.node_id}")


def tell_waiting(draft: Draft, model: str) -> None:
    """Tell whoever waits for a model how it stands: all when that has changed, else those who have just begun to wait (D5)."""
    served = draft.models[model]
    newcomers = draft.newcomers.pop(model, set())
    if not served.waiting:
        if served.status is not None:
            draft.update(model, status=None)
        return
    status = status_of(draft, model)
    if status != served.status:
        draft.update(model, status=status)
        newcomers = set(served.waiting)
    for serial in sorted(newcomers):
        draft.tell(served.waiting[serial], status)
