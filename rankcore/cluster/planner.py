"""The planner of weights as a part of the cluster: what it is told, and what comes of its steps.

It is one part, whoever's weights an event is about, since memory is everybody's. What it decides is a command up, to the
backend, in the outbox of the deployment that it moves, behind the routes that were taken away there; or, where it makes
a replica leave the GPUs, `ReplicasLeave` for the ranks of that deployment (amendment 1).

**If it raises**, nobody knows which of the deployments it was, and an event that is taken back would be memory that nobody
ever frees. So the step is discarded with `PlannerFailedError`, and the loop that runs the machine ends its process: the
successor learns the books from the workers (`adoption`). A bug that comes again would end one controller after the other: the
third time in ten minutes nothing is placed any more (`may_place`), and what is HOT goes on.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from rankcore import checks
from rankcore.cluster.commands import KillWorker, MoveWeights, WeightsMove
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.never import LookAtFit
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.residency import WorkerId, deployment_of, model_id
from rankcore.cluster.state import Entry, Residency
from rankcore.errors import InvalidEventError, PlannerFailedError
from rankcore.events import ReplicasLeave, StopRequested
from rankcore.residency.commands import OffloadToCpu, UnloadFromGpu
from rankcore.residency.levels import Phase
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.state import ResidencyState, Resident
from rankcore.residency.step import carried_out
from rankcore.values import DRAINING, NodeId, ReplicaId

PLANNER: DeploymentId = "@planner"
"""The planner among the parts of the worklist: no deployment has this id."""
OF_THE_LINE = (ResidencyNoteKind.RESERVED, ResidencyNoteKind.SLIPPED)
"""Whoever has got the reservation, or lost it, or has it for behind whom it waits: its callers are told."""
FAILURES_MAX = 3
FAILURES_WITHIN_S = 600.0


def may_place(failures_s_ago: Iterable[float]) -> bool:
    """Whether a controller that begins is to place anything.

    Args:
        failures_s_ago: How many seconds ago each of its predecessors ended because the planner had failed.

    Raises:
        InvalidEventError: Something else than numbers of seconds is given.
    """
    known = list(failures_s_ago)
    for index, each in enumerate(known):
        checks.seconds(InvalidEventError, f"may_place.failures_s_ago[{index}]", each)
    return sum(each < FAILURES_WITHIN_S for each in known) < FAILURES_MAX


def tell(draft: ClusterDraft, event: Any) -> None:
    """Tell the planner what happened, and hand on what it decides."""
    weights = draft.weights
    if not weights.placing:
        return
    try:
        ledger = carried_out(weights.planner, event)
        planner = ledger.close()
    except Exception as error:
        raise PlannerFailedError(f"{type(event).__name__}: {type(error).__name__}: {error}") from error
    draft.weights = replace(weights, planner=planner)
    for note in ledger.notes:
        owner = deployment_of(note.model) if note.model is not None else None
        draft.note(ClusterNoteKind.PLANNER, note.rule, owner, note.because, note)
    for worker_id, returns in ledger.departed:
        _leaves(draft, worker_id, returns)
    placed = [record.replica_id for record, *_ in ledger.places]
    unplaced = [note.replica_id for note in ledger.notes if note.cant is not None and note.replica_id is not None]
    waiting = dict.fromkeys(map(deployment_of, unplaced))
    in_line = [note.replica_id for note in ledger.notes if note.kind in OF_THE_LINE and note.replica_id is not None]
    concerned = [*map(deployment_of, placed), *waiting, *map(deployment_of, in_line)]
    for deployment, entry in [(each, found) for each in concerned if (found := draft.find(each)) is not None]:
        draft.put(deployment, entry)  # who waits for it is told behind whom, or that there is no room
        if deployment in waiting:
            draft.worklist.add(deployment, LookAtFit())
    commands: dict[DeploymentId, list[WeightsMove]] = {}
    for command in ledger.commands:
        if isinstance(command, WeightsMove):
            commands.setdefault(deployment_of(command.replica_id), []).append(command)
    for deployment, moves in commands.items():
        draft.worklist.add(deployment, WeightsPlanned(tuple(moves)))


def tenure_of(draft: ClusterDraft, worker_id: WorkerId) -> ReplicaId | None:
    """The replica that a worker is; None: it is none."""
    entry = draft.find(deployment_of(worker_id))
    if entry is None or entry.residency is None:
        return None
    return next((replica_id for replica_id, each in entry.residency.tenures.items() if each == worker_id), None)


def _leaves(draft: ClusterDraft, worker_id: WorkerId, returns: bool) -> None:
    """The planner makes a worker leave the GPUs: its replica leaves for good, unless its ranks have let it go already.

    Who has to leave because there is less memory than was said is replaced. Who leaves before it is a replica was to be
    the one that waits for longest.
    """
    deployment = deployment_of(worker_id)
    draft.unbalanced[deployment] = None
    entry = draft.find(deployment)
    if entry is None or entry.residency is None:
        return
    leaver = tenure_of(draft, worker_id) or _first_without_worker(draft, entry.residency, worker_id.rpartition("#")[0])
    replica = entry.ranks.replicas.get(leaver) if leaver is not None else None
    if leaver is not None and replica is not None and replica.state is not DRAINING:
        kind = StopRequested if returns else ReplicasLeave
        draft.worklist.add(deployment, kind(replica_ids=(leaver,), at=draft.clock))


def _first_without_worker(draft: ClusterDraft, residency: Residency, model: str) -> ReplicaId | None:
    """The oldest claim on a version of which fewer workers are wanted than there are claims; None: there are enough."""
    planner, deployment = draft.weights.planner, deployment_of(model)
    claims = [each.replica_id for each in residency.claims if model_id(deployment, each.version) == model]
    taken = set(residency.tenures.values())
    spare = sum(each not in taken for each in planner.wanted_replicas(model))
    return claims[0] if len(claims) > spare else None


class WeightsPlanned(NamedTuple):
    """For a deployment: commands of the planner, which go behind what its ranks have commanded by now."""

    commands: tuple[WeightsMove, ...]


def on_planned(draft: ClusterDraft, deployment: DeploymentId, planned: WeightsPlanned) -> None:
    """Commands of the planner go out with those of the deployment that they are about, frozen or gone as it may be."""
    entry = draft.find(deployment)
    commands = planned.commands if entry is None else [_in_its_time(each, entry) for each in planned.commands]
    moves = [MoveWeights(deployment, tenure_of(draft, each.replica_id), each, draft.epoch) for each in commands]
    if entry is None:
        draft.released.setdefault(deployment, []).extend(moves)
    else:
        draft.put(deployment, entry)
        draft.carry_out(deployment, moves)


def _in_its_time(move: WeightsMove, entry: Entry) -> WeightsMove:
    """What leaves the GPUs has as long for its calls as the deployment says, as a pinned replica has."""
    if not isinstance(move, (OffloadToCpu, UnloadFromGpu)):
        return move
    return replace(move, timeout_s=entry.ranks.spec.graceful_shutdown_timeout_s)


def workers_on(planner: ResidencyState, node_id: NodeId) -> Sequence[WorkerId]:
    """Who has anything in the memory of a node."""
    roster = planner.index.roster
    return sorted({*roster.on_gpus.get(node_id, ()), *roster.copies.get(node_id, ())})


def is_moving(record: Resident) -> bool:
    """Whether a command about its weights is not answered."""
    return record.phase is Phase.LOADING or record.dropping or (record.phase is Phase.LEAVING and not record.waits_for)


def kill(draft: ClusterDraft, worker_id: WorkerId, because: str) -> None:
    """A worker's process is to end, unless the move that it is about ends before."""
    deployment = deployment_of(worker_id)
    draft.note(ClusterNoteKind.WORKER_KILLED, "T11", deployment, f"{worker_id}: {because}")
    record = draft.weights.planner.replicas.get(worker_id)
    move, is_over = (record.move, not is_moving(record)) if record is not None else (None, False)
    draft.released.setdefault(deployment, []).append(KillWorker(deployment, worker_id, move, is_over, draft.epoch, because))
