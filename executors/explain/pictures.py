"""How a deployment, its weights, or the memory of all nodes stood at a moment, in a few lines."""

from collections.abc import Callable, Iterator, Mapping

from executors.explain.memory import Life, Memory
from executors.explain.wording import gpus_shown, listed, plural
from executors.simulator.times import TENTHS, moment
from rankcore.cluster import ClusterState
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import WorkerId, deployment_of
from rankcore.residency.levels import Phase
from rankcore.residency.state import Resident
from rankcore.values import ReplicaId

SHOWN = 40
NODES_MAX = 20
"""So many nodes a picture of a moment shows."""

STAYS: Mapping[Phase, str] = {
    Phase.RESTING: "is WARM, in CPU memory",
    Phase.WAITING: "waits for a place",
    Phase.RESERVING: "is to be HOT",
    Phase.LOADING: "is being loaded",
    Phase.SERVING: "is HOT",
    Phase.LEAVING: "is leaving",
    Phase.DROPPING: "is WARM, and its copy is being dropped",
}
ON_GPUS = (Phase.SERVING, Phase.LOADING, Phase.LEAVING, Phase.RESERVING)


def picture(memory: Memory, at: float, replica_id: ReplicaId | None, rank: int | None) -> Iterator[str]:
    """Status, world size and who has which rank; only the replica or rank that is asked about, where one is."""
    size = memory.spec.target_replicas if memory.spec is not None else 0
    status = f"{memory.status or 'not there'} since {moment(memory.status_since, TENTHS)}"
    yield f"At {moment(at, TENTHS)}, {memory.name} has been {status}, with world size {size}."
    ranks = {who: life.global_rank for who, life in memory.lives.items()}
    holders = sorted((held, who) for who, held in ranks.items() if held is not None)
    asked = [(held, who) for held, who in holders if replica_id in (None, who) and rank in (None, held)]
    for held, who in asked[:SHOWN]:
        yield f"  rank {held}: {who}{_how(memory.lives[who])}"
    if len(asked) > SHOWN:
        yield f"  and {len(asked) - SHOWN} more"
    taken = {held for held, _ in holders}
    vacant = [each for each in range(size) if each not in taken and rank in (None, each)]
    if vacant and replica_id is None:
        kept = [each for each in vacant if each in memory.kept]
        yield f"  nobody has: {listed(map(str, vacant), SHOWN)}" + (f" (kept: {listed(map(str, kept), SHOWN)})" if kept else "")


def _how(life: Life) -> str:
    where = f" on {life.node_id}" if life.node_id is not None else ""
    if life.leaving is not None:
        return f"{where}, told to stop"
    if life.moving is not None:
        return f"{where}, told to move there"
    return where if life.rank is not None else f"{where}, on its way"


def records_of(state: ClusterState) -> Mapping[WorkerId, Resident]:
    """What the planner knows of each worker."""
    return state.weights.planner.replicas


def phase_of(state: ClusterState, worker_id: WorkerId) -> Phase | None:
    """What is going on with a worker; None: nobody knows it."""
    record = records_of(state).get(worker_id)
    return record.phase if record is not None else None


def tenure_of(state: ClusterState, worker_id: WorkerId) -> ReplicaId | None:
    """The replica that a worker is; None: it is none."""
    entry = state.deployments.get(deployment_of(worker_id))
    tenures = entry.residency.tenures if entry is not None and entry.residency is not None else {}
    return next((replica_id for replica_id, each in tenures.items() if each == worker_id), None)


def who_shown(state: ClusterState, worker_id: WorkerId) -> str:
    """A worker in words, with the replica that it is."""
    tenure = tenure_of(state, worker_id)
    return worker_id if tenure is None else f"{worker_id}, which is {tenure},"


def where_shown(record: Resident) -> str:
    """Its node and GPUs in words; "": nowhere."""
    gpus = f", {gpus_shown(record.gpus)}" if record.gpus else ""
    return f" on {record.node_id}{gpus}" if record.node_id is not None else ""


def worker_lines(state: ClusterState, is_asked: Callable[[WorkerId], bool]) -> list[str]:
    """How these workers stand, one a line."""
    found = []
    for record in sorted(records_of(state).values(), key=lambda each: each.replica_id):
        if is_asked(record.replica_id):
            because = f": {record.because}" if record.because else ""
            how = f"{who_shown(state, record.replica_id)} {STAYS[record.phase]}{where_shown(record)}"
            found.append(f"{how}, since {moment(record.since, TENTHS)}{because}")
    return found


def deployment_lines(state: ClusterState, deployment: DeploymentId) -> list[str]:
    """How the weights of a deployment stand, and what those who call it are told; nothing where they are always there."""
    entry = state.deployments.get(deployment)
    if entry is None or entry.residency is None:
        return []
    found = worker_lines(state, lambda each: deployment_of(each) == deployment)
    found = found or [f"{deployment} is COLD: its weights are on disk only"]
    claims = [each.replica_id for each in entry.residency.claims]
    if not claims or entry.residency.availability is None:
        return found
    told = entry.residency.availability.standing.name
    return [*found, f"without a worker that is HOT: {listed(claims)}; who calls is told {told}"]


def node_lines(state: ClusterState) -> list[str]:
    """What is on each node, and who waits."""
    found, records = [], sorted(records_of(state).values(), key=lambda each: each.replica_id)
    nodes = sorted(state.weights.planner.nodes)
    for node_id in nodes[:NODES_MAX]:
        there = [each for each in records if each.node_id == node_id and each.phase in ON_GPUS]
        on_gpus = [each.replica_id + ("" if each.phase is Phase.SERVING else f" ({STAYS[each.phase]})") for each in there]
        warm = [each.replica_id for each in records if each.copy_node_id == node_id and each.phase not in ON_GPUS]
        found.append(f"{node_id}: {listed(on_gpus) or 'nothing on its GPUs'}" + (f"; WARM: {listed(warm)}" if warm else ""))
    if len(nodes) > NODES_MAX:
        found.append(f"and {plural(len(nodes) - NODES_MAX, 'node')} more")
    waiting = [each.replica_id for each in records if each.phase is Phase.WAITING]
    return [*found, f"wait for a place: {listed(waiting)}"] if waiting else found
