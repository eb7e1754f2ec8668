"""The tables of a static placement recomputed the slow way from the replicas and the slots."""

from collections.abc import Iterable

from rankcore.kernel import Violation
from rankcore.state import DeploymentState
from rankcore.values import DeploymentStatus, ReplicaState

GOING = (DeploymentStatus.DELETING, DeploymentStatus.DELETED)


def check_bundles(state: DeploymentState) -> Iterable[Violation]:
    """Compare who stands where, what is stranded, and what is to move, with what follows from the records."""
    tables, spec = state.tables, state.spec
    bundles, static = tables.bundles, spec.static_placement
    users: dict[int, set[int]] = {}
    for _, replica in tables.replicas.items():
        if replica.state is not ReplicaState.FAILED and replica.group_id == bundles.group_id:
            for bundle in replica.bundles:
                users.setdefault(bundle, set()).add(replica.birth)
    lost = {bundle for bundle, news in bundles.news.items() if news.lost}
    wanted = dict(enumerate(static.bundles)) if static is not None else {}
    misfits = {rank for rank in _staying(state) if _holder_place(state, rank) != spec.place_of(rank)}
    expected: dict[str, object] = {
        "users": users,
        "stranded": {rank for rank, indices in wanted.items() if lost.intersection(indices)},
        "misfits": misfits,
    }
    found: dict[str, object] = {
        "users": {bundle: set(births) for bundle, births in bundles.users.items()},
        "stranded": set(bundles.stranded) if bundles.stranded.size else set(),
        "misfits": set(bundles.misfits) if bundles.misfits.size else set(),
    }
    if not tables.unreported and state.status not in GOING:
        clear = {rank for rank in {*misfits, *tables.vacant} if _is_clear(state, rank)}
        expected["movable"], found["movable"] = clear & misfits, set(bundles.movable)
        if static is not None:
            # A slot that is forgotten here would wait for ever; one that backs off is looked at when that is over.
            waiting = {rank for rank in tables.vacant if tables.slots[rank].retry_at <= state.clock}
            forgotten = (waiting & clear) - set(tables.ready)
            expected["waiting without reason"], found["waiting without reason"] = set(), forgotten
    for name, value in expected.items():
        if found[name] != value:
            yield Violation("index", f"bundles: {name} is {found[name]}, expected {value}")


def _staying(state: DeploymentState) -> Iterable[int]:
    for rank, slot in state.tables.slots.items():
        holder = state.tables.replicas.get(slot.holder) if slot.holder is not None else None
        if holder is not None and holder.state not in (ReplicaState.DRAINING, ReplicaState.FAILED):
            yield rank


def _holder_place(state: DeploymentState, rank: int) -> object:
    return state.tables.replicas[state.tables.slots[rank].holder or ""].place


def _is_clear(state: DeploymentState, rank: int) -> bool:
    group_id, wanted = state.spec.place_of(rank)
    if not wanted:
        return True
    for bundle in wanted:
        news = state.tables.bundles.news.get(bundle)
        if news is not None and news.lost:
            return False
    others = [r for r in state.replicas.values() if r.state is not ReplicaState.FAILED and r.slot != rank]
    return not any(r.group_id == group_id and set(r.bundles) & set(wanted) for r in others)
