"""The promises about weights in a cluster, checked on states, beside those of the planner (T1 to T9).

P3   demand, of however many processes, asks for one replica, and ends with the deployment that it was of
P4   a tenure that is not draining is one worker that is HOT and does not leave, and no worker is two; of one that drains the
     worker leaves, or is to be killed: its memory stays its own until its process has ended (amendment 3)
P5   whoever calls are routed to has a worker that is HOT
T10  of each version as many workers are wanted HOT as there are replicas that have one or wait for one, fewer only by
     those that were found HOT or loading where their node is not known yet, and those that wait and are about to be let go
T11  nothing is known of a node before every worker that was found there has reported or ended
D7   UNAVAILABLE has an end: who is declined asks for nothing, and of what nobody asks for nothing is tried again
Q11  UNAVAILABLE only while there is no route and nothing is on its way
T18  what is told to fit on no node for ever fits on none, and all nodes are known; what demand asks for could be held by one
"""

from collections.abc import Iterator

from rankcore.cluster import never
from rankcore.cluster.availability import FURTHEST
from rankcore.cluster.commands import Standing
from rankcore.cluster.demand import LOOK_EVERY_S
from rankcore.cluster.records import Cause
from rankcore.cluster.residency import deployment_of, model_id
from rankcore.cluster.state import ClusterState, Entry, Residency
from rankcore.cluster.tenures import stopping, to_be_adopted
from rankcore.commands import KillReplica
from rankcore.kernel import Violation
from rankcore.residency.invariants import check as check_planner
from rankcore.residency.levels import Phase
from rankcore.values import DRAINING


def check_weights(state: ClusterState) -> Iterator[Violation]:
    """What is wrong with the workers of a cluster."""
    weights = state.weights
    residents = {each: entry for each, entry in sorted(state.deployments.items()) if entry.residency is not None}
    if residents or weights.planner.replicas:
        yield from check_planner(weights.planner)
    for name in sorted({name for heard in weights.demands.reporters.values() for name in heard.waiting} - {*residents}):
        yield Violation("P3", f"calls wait for {name}, which does not exist")
    for node_id in sorted({worker.node_id for worker in weights.found.values()}):
        if node_id in weights.planner.nodes:
            yield Violation("T11", f"{node_id} is planned, and workers found there have not reported")
    for deployment, entry in residents.items():
        assert entry.residency is not None, f"{deployment} has residency"
        if not entry.frozen and weights.placing:
            yield from _demand(entry)
            yield from _tenures(state, entry, entry.residency)
            yield from _balance(state, entry, entry.residency)
            yield from _availability(state, entry, entry.residency)
            yield from _fits_ever(state, entry, entry.residency)


def _demand(entry: Entry) -> Iterator[Violation]:
    if entry.target.cause is Cause.DEMAND and entry.target.replicas > 1:
        yield Violation("P3", f"demand asks for {entry.target.replicas} replicas of {entry.spec.deployment}")


def _tenures(state: ClusterState, entry: Entry, residency: Residency) -> Iterator[Violation]:
    planner, found = state.weights.planner, state.weights.found
    let_go = stopping(entry)
    if len(set(residency.tenures.values())) != len(residency.tenures):
        yield Violation("P4", f"two replicas of {entry.spec.deployment} have one worker")
    for replica_id, worker_id in sorted(residency.tenures.items()):
        replica, record = entry.ranks.replicas.get(replica_id), planner.replicas.get(worker_id)
        if deployment_of(worker_id) != entry.spec.deployment or replica is None:
            yield Violation("P4", f"{worker_id} is {replica_id}, which its deployment does not know")
        elif record is None:
            if worker_id not in found:
                yield Violation("P4", f"{replica_id} is {worker_id}, which nobody knows")
        elif (record.phase is Phase.SERVING) is (replica.state is DRAINING) and replica_id not in let_go:
            is_adopted = record.phase is Phase.LEAVING and _was_adopted(replica.state)
            if not is_adopted and type(replica.pending) is not KillReplica:
                yield Violation("P4", f"{replica_id} is {replica.state}, and {worker_id} is {record.phase.value}")
    for replica_id, replica in sorted(entry.ranks.replicas.items()):
        if replica.routed and replica_id not in residency.tenures:
            yield Violation("P5", f"calls are routed to {replica_id}, which has no worker")


def _was_adopted(state: str) -> bool:
    """Whether a replica has not said yet that it drains."""
    return state == "RECOVERING"


def _balance(state: ClusterState, entry: Entry, residency: Residency) -> Iterator[Violation]:
    planner = state.weights.planner
    versions = {*residency.versions, *(each.version for each in residency.claims)}
    models = {model_id(entry.spec.deployment, each) for each in versions}
    unlisted = sorted(each for each in planner.models if deployment_of(each) == entry.spec.deployment and each not in models)
    if unlisted:
        yield Violation("T10", f"{unlisted} have workers, and nobody wants them")
    if state.weights.unknown_until is not None:
        return
    let_go = stopping(entry)
    for version in sorted(versions):
        model = model_id(entry.spec.deployment, version)
        serving = [each for each in residency.tenures.values() if each in planner.replicas and each.rpartition("#")[0] == model]
        held = sum(planner.replicas[each].phase is Phase.SERVING for each in serving)
        claimed = sum(each.version == version for each in residency.claims)
        expected, wanted = to_be_adopted(state.weights, residency, model), planner.target(model)
        expected += sum(each.version == version and each.replica_id in let_go for each in residency.claims)
        if not held + claimed - expected <= wanted <= held + claimed:
            yield Violation("T10", f"{wanted} workers of {model} are wanted, for {held} replicas and {claimed} claims")
        if claimed and len(planner.hot_replicas(model)) > held:
            yield Violation("P4", f"a worker of {model} is HOT and no replica, and {claimed} wait for one")


def _fits_ever(state: ClusterState, entry: Entry, residency: Residency) -> Iterator[Violation]:
    deployment, planner = entry.spec.deployment, state.weights.planner
    if entry.deleting:
        return
    unfit = never.why(state.weights, state.clock, deployment, entry, residency)
    if residency.unfit and not unfit:
        yield Violation("T18", f"{deployment} is said to fit nowhere ever, and a node could hold it, or is not known yet")
    if not unfit or residency.tenures or state.clock < state.weights.judged_from + LOOK_EVERY_S:
        return
    models = [model_id(deployment, each) for each in residency.versions]
    wanted = [planner.replicas[each] for model in models for each in planner.wanted_replicas(model)]
    if entry.target.cause is Cause.DEMAND and wanted and all(each.phase is Phase.WAITING for each in wanted):
        yield Violation("T18", f"{deployment} is wanted by those who call, and no node could ever hold it")


def _availability(state: ClusterState, entry: Entry, residency: Residency) -> Iterator[Violation]:
    published = residency.availability
    if published is None or published.standing is not Standing.UNAVAILABLE:
        return
    if published.retry_after_s is None:
        yield Violation("D7", f"{entry.spec.deployment} is UNAVAILABLE, and would be for ever")
    if any(replica.routed for replica in entry.ranks.replicas.values()):
        yield Violation("Q11", f"{entry.spec.deployment} is UNAVAILABLE, and has a route")
    planner = state.weights.planner
    models = [model_id(entry.spec.deployment, each) for each in residency.versions]
    wanted = [planner.replicas[each] for model in models for each in planner.wanted_replicas(model)]
    if any(each.phase in FURTHEST[:2] for each in wanted):
        yield Violation("Q11", f"{entry.spec.deployment} is UNAVAILABLE, and on its way")
