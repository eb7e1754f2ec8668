"""The story of weights: who is HOT, WARM or COLD and why, who has to leave for whom, and what those who call are told.

A line of a cluster's journal is told in the order in which it was decided, the ranks of the deployment that is asked about
among the rest. Facts of other deployments are told too, since what is asked about may follow from them. What is remembered
from line to line is the last facts of each live worker: what it is about, the machine's own state says.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from executors.engine.clusters import ClusterEntry, ClusterRecovered, ClusterResumed
from executors.engine.deployment_lines import Part
from executors.engine.deployments import Entry
from executors.explain.facts import Fact
from executors.explain.pictures import phase_of, records_of, tenure_of, where_shown, who_shown
from executors.explain.tracing import Tracer
from executors.explain.wording import gpus_shown, listed, plural
from executors.simulator.times import TENTHS, moment
from rankcore.cluster import ClusterState, ClusterStep
from rankcore.cluster.commands import MoveWeights, PublishAvailability, Standing, WeightsMove
from rankcore.cluster.events import LoadReported, MoveFailed, MoveFinished, WorkerLost, WorkerReported
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNote, ClusterNoteKind
from rankcore.cluster.residency import WorkerId, deployment_of
from rankcore.events import NodeLost
from rankcore.residency import Level, ResidencyNote
from rankcore.residency.commands import DropFromCpu, LoadToGpu
from rankcore.residency.events import EvictRequested
from rankcore.residency.levels import Phase
from rankcore.residency.notes import ResidencyNoteKind as Kind
from rankcore.residency.state import Resident
from rankcore.values import ReplicaId

REASONS_MAX = 3
"""So many nodes are named of those where a worker does not fit; the journal has more."""

TEXTS: Mapping[Kind, str] = {
    Kind.PLACED: "{who} is to be HOT on {node}: {because}",
    Kind.PROMOTED: "{who} is to be HOT on {node}: {because}",
    Kind.DISPLACED: "{who} has to leave {node}, displaced {because}",
    Kind.BECAME_WARM: "{who} became WARM on {node}: {because}",
    Kind.BECAME_COLD: "{who} has no copy on {node} any more: {because}",
    Kind.CANT_ACCOMMODATE: "{who} fits nowhere: {reasons}",
    Kind.RETRIED: "{who} is tried again: {because}",
    Kind.EVICTED: "{who} is taken off its GPUs, {because}",
    Kind.LOAD_FAILED: "the load of {who} failed: {because}",
    Kind.REPLICA_LOST: "{who} is lost: {because}",
    Kind.IDLE: "{who} has to leave {node}: {because}",
    Kind.NODE_JOINED: "node {node} can be used: {because}",
    Kind.MEASURED: "{what}: {because}",
}
"""What a note of the planner says. Those of other kinds change nothing, or are told with what they follow from."""

CHANGES = frozenset({Kind.PLACED, Kind.PROMOTED, Kind.DISPLACED, Kind.BECAME_WARM, Kind.BECAME_COLD, Kind.CANT_ACCOMMODATE})
CHANGES |= {Kind.EVICTED, Kind.LOAD_FAILED, Kind.REPLICA_LOST, Kind.IDLE}
"""What somebody may ask the reason of."""

LEAVES = frozenset({Kind.DISPLACED, Kind.EVICTED, Kind.IDLE, Kind.REPLICA_LOST})
PLACES = frozenset({Kind.PLACED, Kind.PROMOTED})
AT_REST = (Phase.SERVING, Phase.RESTING)
CAME_TO_REST = frozenset({Kind.BECAME_WARM, Kind.BECAME_COLD})

WRITERS: Mapping[str, str] = {
    "user": "somebody asked for it",
    "autoscaler": "its autoscaler wants it",
    "demand": "nobody waits for it, or it cannot be had",
}
"""Who wrote a target, in words; calls that wait are counted."""

OF_CLUSTER: Mapping[ClusterNoteKind, str] = {
    ClusterNoteKind.APPLIED: "somebody applied {deployment}: {because}",
    ClusterNoteKind.WITHDRAWN: "{deployment} is asked for no longer: {because}",
    ClusterNoteKind.CANT_EVER: "{deployment} cannot be had: {because}",
    ClusterNoteKind.MAY_FIT: "{deployment} is no longer refused: {because}",
    ClusterNoteKind.TRIED_AGAIN: "{deployment}, whose loads have failed for good, is tried again with one replica: {because}",
    ClusterNoteKind.WORKER_KILLED: "the worker {because}, and is killed",
    ClusterNoteKind.FROZEN: "nothing about {deployment} is decided any more: {because}",
    ClusterNoteKind.POLICY_FAILED: "{deployment} is not scaled by its policy: {because}",
    ClusterNoteKind.DELETION_BEGUN: "somebody asked for the end of {deployment}",
    ClusterNoteKind.DEPLOYMENT_GONE: "{deployment} is gone",
}
"""What a note of the cluster itself says."""
TOLD_BY_RANKS = frozenset({ClusterNoteKind.APPLIED, ClusterNoteKind.DELETION_BEGUN})
"""What the ranks that are followed say themselves."""


@attrs.define
class Lately:
    """The last facts of a worker.

    Attributes:
        placed: Why it was to be HOT.
        left: Why it left the GPUs.
        last: The newest of all.
    """

    placed: Fact | None = None
    left: Fact | None = None
    last: Fact | None = None


class ClusterTracer:
    """Follows a cluster through its journal, and the ranks of one of its deployments. Feed it every line.

    Attributes:
        ranks: Follows that deployment; None: nobody asks about one, or it has not come yet.
        state: After the last line; None: there was none.
    """

    def __init__(self) -> None:
        self.ranks: Tracer | None = None
        self.state: ClusterState | None = None
        self._workers: dict[WorkerId, Lately] = {}
        self._wanted: dict[DeploymentId, Fact] = {}
        self._shown: dict[DeploymentId, tuple[Standing, tuple[str, ...], str, Fact]] = {}
        self._decided: dict[DeploymentId, str] = {}
        self._facts: list[Fact] = []
        self._root: Fact | None = None
        self._returned: Fact | None = None
        self._number = 0
        self._at = 0.0

    @property
    def _followed(self) -> DeploymentId | None:
        return self.ranks.memory.name if self.ranks is not None else None

    @property
    def unsettled(self) -> list[Fact]:
        """The last facts of the workers that are on their way somewhere, or wait for a place."""
        assert self.state is not None, "it follows a line"
        records = records_of(self.state)
        moving = [each for each in records.values() if each.phase not in AT_REST]
        last = [self._workers[each.replica_id].last for each in moving if each.replica_id in self._workers]
        return [each for each in last if each is not None]

    def is_at_rest(self, deployment: DeploymentId) -> bool:
        """Whether no worker of a deployment is on its way somewhere, nor waits for a place."""
        assert self.state is not None, "it follows a line"
        records = records_of(self.state).values()
        return all(each.phase in AT_REST for each in records if deployment_of(each.replica_id) == deployment)

    def facts_of(self, line: ClusterEntry, before: ClusterState | None, step: ClusterStep, parts: Sequence[Part]) -> list[Fact]:
        """What one line tells."""
        self._facts, self._root, self._number, self._at = [], None, line.line, step.state.clock
        self.state = step.state
        followed = self._followed
        mine = deque(part.entry for part in parts if part.entry.deployment == followed)
        self._tell_cause(line.cause, before, step.state)
        due = 0
        for note in step.notes:
            if note.kind is not ClusterNoteKind.RANKS:
                self._tell_note(note, line, before, step.state)
            elif note.deployment == followed:
                while not due:  # the notes of a step of ranks stand together
                    due = self._follow(mine.popleft())
                due -= 1
        for entry in mine:
            self._follow(entry)
        for command in step.commands:
            if isinstance(command, MoveWeights):
                self._tell_move(command.command, before if before is not None else step.state)
            elif isinstance(command, PublishAvailability):
                self._tell_standing(command)
        records = records_of(step.state)
        if len(self._workers) > len(records):
            self._workers = {each: lately for each, lately in self._workers.items() if each in records}
        for place, fact in enumerate(self._facts):
            fact.place = place
        return self._facts

    def _follow(self, entry: Entry) -> int:
        """Tell what the ranks that are followed have decided; returns how many notes that took."""
        assert self.ranks is not None, "only what is followed has entries"
        self.ranks.facts_of(entry, self._facts)
        return len(entry.notes)

    def _tell(self, text: str, of: Iterable[str] = (), ids: Iterable[ReplicaId | None] = (), **known: Any) -> Fact:
        causes = tuple(each for each in known.pop("causes", ()) if each is not None)
        about = tuple(each for each in ids if each is not None)
        fact = Fact(line=self._number, at=self._at, text=text, deployments=tuple(of), replica_ids=about, causes=causes, **known)
        self._facts.append(fact)
        for worker_id in about[:1]:
            self._lately(worker_id).last = fact
        return fact

    def _lately(self, worker_id: WorkerId) -> Lately:
        return self._workers.setdefault(worker_id, Lately())

    def _why_wanted(self, deployment: DeploymentId) -> Fact | None:
        if self.ranks is not None and deployment == self._followed:
            return self.ranks.memory.wanted()
        return self._wanted.get(deployment)

    # -- what happened

    def _tell_cause(self, cause: Any, before: ClusterState | None, after: ClusterState) -> None:
        match cause:
            case ClusterRecovered() if cause.workers:
                found = plural(len(cause.workers), "worker")
                self._returned = self._tell(f"the controller came back in epoch {cause.epoch} and found {found}")
            case ClusterResumed():
                self._root = self._tell("the journal goes on from a state, and says nothing of what was before")
            case NodeLost(node_id=node_id):
                self._root = self._tell(f"node {node_id} was lost", short=f"the loss of node {node_id}")
            case EvictRequested():
                self._root = self._tell(f"somebody wants {cause.replica_id or cause.model} off the GPUs")
            case WorkerLost() if before is not None and cause.worker_id in records_of(before):
                self._lost(cause, before)
            case MoveFailed() if before is not None and phase_of(before, cause.worker_id) is Phase.LEAVING:
                text = f"{cause.worker_id} left without its copy: {cause.reason}"
                self._root = self._tell(text, (deployment_of(cause.worker_id),), (cause.worker_id,))
            case MoveFinished(worker_id=worker_id) | WorkerReported(worker_id=worker_id):
                if before is not None and phase_of(before, worker_id) is Phase.LOADING:
                    self._hot(records_of(before)[worker_id], after)

    def _lost(self, event: WorkerLost, before: ClusterState) -> None:
        worker_id = event.worker_id
        text = f"the worker {who_shown(before, worker_id)} ended: {event.reason or 'nobody knows why'}"
        ids = (worker_id, tenure_of(before, worker_id))
        self._root = self._tell(text, (deployment_of(worker_id),), ids, is_change=True, short=f"the end of {worker_id}")
        self._lately(worker_id).left = self._root

    def _hot(self, record: Resident, after: ClusterState) -> None:
        worker_id = record.replica_id
        now = records_of(after).get(worker_id)
        if now is None or now.hot_since is None:
            return  # late news, or the load was broken off
        placed = self._lately(worker_id).placed
        text = f"{worker_id} is HOT{where_shown(record)}"
        self._tell(text, (deployment_of(worker_id),), (worker_id,), causes=(placed,), is_change=True)
        if placed is not None:
            placed.later = f"HOT at {moment(self._at, TENTHS)}"

    # -- what was decided

    def _tell_note(self, note: ClusterNote, line: ClusterEntry, before: ClusterState | None, after: ClusterState) -> None:
        deployment, kind = note.deployment, note.kind
        if isinstance(note.of, ResidencyNote):
            self._planned(note.of, deployment, before if before is not None else after)
        elif kind is ClusterNoteKind.AUTOSCALER and deployment is not None:
            self._decided[deployment] = note.because
        elif kind is ClusterNoteKind.TARGET_WRITTEN and deployment is not None:
            self._target(note, deployment, line.cause)
        elif kind in (ClusterNoteKind.TENURE_GIVEN, ClusterNoteKind.TENURE_ENDED) and deployment is not None:
            self._tenure_changed(note, deployment)
        elif kind in OF_CLUSTER and not (kind in TOLD_BY_RANKS and deployment == self._followed):
            text = OF_CLUSTER[kind].format(deployment=deployment, because=note.because)
            of = () if deployment is None else (deployment,)
            shown = self._shown[deployment][3] if kind is ClusterNoteKind.TRIED_AGAIN and deployment in self._shown else None
            fact = self._tell(text, of, rule=note.rule, causes=(self._root or shown,), is_change=True)
            if kind in TOLD_BY_RANKS and deployment is not None:
                self._wanted[deployment] = fact

    def _target(self, note: ClusterNote, deployment: DeploymentId, cause: Any) -> None:
        move, _, writer = note.because.rpartition(" by ")
        was, _, wanted = move.partition(" -> ")
        why = WRITERS[writer]
        if writer == "demand" and wanted != "0":
            load = cause.entries.get(deployment) if isinstance(cause, LoadReported) else None
            waiting = "calls wait" if load is None else f"{load.waiting} call{'s wait' if load.waiting != 1 else ' waits'}"
            why = f"{waiting} for it, and it has no replica"
        elif writer == "autoscaler":
            why = f"{why}, since {self._decided[deployment]}" if deployment in self._decided else why
        elif writer == "user" and deployment == self._followed:
            return  # the ranks that are followed say it themselves, with whom it named
        withdrawn = next((each for each in reversed(self._facts) if each.rule == "D7" and deployment in each.deployments), None)
        fact = self._tell(
            f"the target of {deployment} goes from {was} to {wanted}: {why}",
            (deployment,),
            rule=note.rule,
            causes=(withdrawn,),
            is_change=True,
            short=f"the {'up' if int(wanted) > int(was) else 'down'}scale to {wanted}",
        )
        self._wanted[deployment] = fact
        if self.ranks is not None and deployment == self._followed:
            self.ranks.memory.retargeted = fact

    def _tenure_changed(self, note: ClusterNote, deployment: DeploymentId) -> None:
        is_given = note.kind is ClusterNoteKind.TENURE_GIVEN
        worker_id, _, replica_id = note.because.rpartition(" is " if is_given else " was ")
        lately = self._lately(worker_id)
        text = f"{worker_id} becomes {replica_id}" if is_given else f"{worker_id} is {replica_id} no more"
        cause = lately.last if is_given else lately.left or self._root
        self._tell(text, (deployment,), (worker_id, replica_id), rule=note.rule, causes=(cause,))

    def _planned(self, note: ResidencyNote, deployment: DeploymentId | None, state: ClusterState) -> None:
        """A note of the planner."""
        worker_id, kind = note.replica_id, note.kind
        if kind not in TEXTS or (kind is Kind.REPLICA_LOST and self._root is not None and worker_id in self._root.replica_ids):
            return
        who = worker_id if worker_id is None or kind not in LEAVES else who_shown(state, worker_id)
        what = worker_id or note.node_id
        reasons = _reasons(note)
        text = TEXTS[kind].format(who=who, what=what, node=note.node_id, because=note.because, reasons=reasons)
        causes = self._causes(note, deployment, state)
        of = () if deployment is None else (deployment,)
        tenure = None if worker_id is None or kind not in LEAVES else tenure_of(state, worker_id)
        fact = self._tell(text, of, (worker_id, tenure), rule=note.rule, causes=causes, is_change=kind in CHANGES)
        if worker_id is None:
            self._root = self._root or fact
            return
        lately = self._lately(worker_id)
        if kind is Kind.DISPLACED:
            newcomer = note.because.removeprefix("by ")
            fact.replica_ids = (*fact.replica_ids, newcomer)
            fact.deployments = tuple(dict.fromkeys((*of, deployment_of(newcomer))))
        if kind in PLACES:
            lately.placed, lately.left = fact, None
        elif kind in LEAVES:
            lately.left = fact
        elif kind in CAME_TO_REST and lately.left is not None and not lately.left.later:
            lately.left.later = f"{'WARM' if kind is Kind.BECAME_WARM else 'COLD'} at {moment(self._at, TENTHS)}"

    def _causes(self, note: ResidencyNote, deployment: DeploymentId | None, state: ClusterState) -> tuple[Fact | None, ...]:
        """What a note of the planner follows from: what was decided before in the same line, or what its worker was about."""
        if note.replica_id is None or deployment is None:
            return (self._root,)
        lately, kind = self._lately(note.replica_id), note.kind
        if note.rule == "T11":
            return (self._returned,)
        if kind is Kind.DISPLACED:
            return (self._lately(note.because.removeprefix("by ")).placed,)
        if kind in CAME_TO_REST:
            return (lately.left or self._root,)
        if kind is Kind.LOAD_FAILED:
            return (lately.placed,)
        if kind is Kind.RETRIED:
            return (lately.last, self._root)
        if kind is Kind.EVICTED:
            return (self._root or self._let_go(note.replica_id, deployment, state),)
        if kind in PLACES and lately.last is not None and lately.last.line == self._number:
            return (lately.last,)
        return (self._root, self._why_wanted(deployment)) if kind is not Kind.IDLE else (lately.placed,)

    def _let_go(self, worker_id: WorkerId, deployment: DeploymentId, state: ClusterState) -> Fact | None:
        """Why the ranks that are followed have let the replica go that a worker is; of others, what changed their target."""
        tenure = tenure_of(state, worker_id)
        if self.ranks is not None and deployment == self._followed and tenure in self.ranks.memory.lives:
            return self.ranks.memory.lives[tenure].leaving
        return self._why_wanted(deployment)

    # -- what it comes to

    def _tell_move(self, move: WeightsMove, state: ClusterState) -> None:
        worker_id, lately = move.replica_id, self._lately(move.replica_id)
        of = (deployment_of(worker_id),)
        if isinstance(move, LoadToGpu):
            source = "disk" if move.source is Level.COLD else "CPU memory"
            text = f"{worker_id} is loaded from {source} to {move.node_id}, {gpus_shown(move.gpus)}"
            self._tell(text, of, (worker_id,), causes=(lately.placed,))
        elif not isinstance(move, DropFromCpu) and lately.left is None:  # no note says why it leaves
            because = _because(self.state, worker_id)
            ids = (worker_id, tenure_of(state, worker_id))
            text = f"{who_shown(state, worker_id)} has to leave {move.node_id}{because}"
            lately.left = self._tell(text, of, ids, causes=(self._root,), is_change=True)

    def _tell_standing(self, published: PublishAvailability) -> None:
        deployment, found = published.deployment, published.availability
        before = self._shown.get(deployment)
        if before is not None and before[:3] == (found.standing, found.behind, found.because):
            before[3].later = f"{found.percent} % at {moment(self._at, TENTHS)}" if found.percent else before[3].later
            return
        behind = f" behind {listed(found.behind)}" if found.behind else ""
        because = f": {found.because}" if found.because else ""
        again = f"; it is tried again after {found.retry_after_s:g} s" if found.retry_after_s is not None else ""
        text = f"who calls {deployment} is told {found.standing.name}{behind}{because}{again}"
        cause = next((each for each in reversed(self._facts) if deployment in each.deployments), self._wanted.get(deployment))
        rule = "Q11" if found.standing is Standing.UNAVAILABLE else None
        fact = self._tell(text, (deployment,), rule=rule, causes=(cause,))
        self._shown[deployment] = found.standing, found.behind, found.because, fact


def _because(state: ClusterState | None, worker_id: WorkerId) -> str:
    record = records_of(state).get(worker_id) if state is not None else None
    return f": {record.because}" if record is not None and record.because else ""


def _reasons(note: ResidencyNote) -> str:
    if note.cant is None:
        return note.because
    found = [f"{each.node_id}: {each.because}" for each in note.cant.reasons]
    found += [f"{each.nodes} nodes: {each.because}" for each in note.cant.others]
    return listed(found, REASONS_MAX) or note.because
