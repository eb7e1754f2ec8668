"""What a journal says of its deployments at a moment, of how long things took, and of what happened afterwards."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from executors.engine.clusters import ClusterEntry
from executors.engine.deployment_lines import Part, is_of_cluster, refuse_difference, replay_cluster
from executors.engine.deployments import DEPLOYMENTS, Deployed, Entry
from executors.engine.reading import JournalError
from executors.engine.replay import Look, replay
from executors.engine.run_id import run_of
from executors.simulator.from_journal.aftermath import Aftermath
from executors.simulator.from_journal.durations import Durations, Measured
from executors.simulator.from_journal.past import Past
from executors.simulator.record.timeline import Timeline
from executors.simulator.times import moment
from rankcore import DeploymentState, DeploymentStatus, Step
from rankcore.cluster import ClusterState, ClusterStep
from rankcore.cluster.spec import EntrySpec
from rankcore.events import NodeLost
from rankcore.state import Node
from rankcore.values import NodeId


@attrs.frozen
class History:
    """What a journal says.

    Attributes:
        states: Of the deployments that exist at the moment, by name.
        durations: How long what was asked for took in the whole journal, in seconds: by deployment and field of a scenario.
        lost: Nodes that are gone at the moment.
        timelines: Who held which rank until the moment, by deployment.
        later_nodes: Nodes that the journal names for the first time after the moment, as it knows them then.
        aftermath: What users and faults did after the moment.
        ends_at: When the last line was written, in seconds on the executor's clock.
        warning: What was left out of the journal; None: nothing.
        measured: The same durations with the replicas, in the order in which they ended.
        wanted: In a journal of a cluster: what users want of these deployments besides, such as how calls are routed.
        left_out: Deployments that cannot be gone on with here, and why.
        at: The moment.
        run: The id of the run; None: the journal has none.
    """

    states: Mapping[str, DeploymentState]
    durations: Mapping[str, Mapping[str, Sequence[float]]]
    lost: frozenset[str]
    timelines: Mapping[str, Timeline]
    later_nodes: Mapping[NodeId, Node]
    aftermath: Aftermath
    ends_at: float
    warning: str | None
    measured: Sequence[Measured] = ()
    wanted: Mapping[str, EntrySpec] = attrs.Factory(dict)
    left_out: Mapping[str, str] = attrs.Factory(dict)
    at: float = 0.0
    run: str | None = None


WHOLE = "a recording that begins with the deployment"


class _HistoryReader:
    """Looks at the lines of a journal one after the other."""

    def __init__(self, path: Path, at: float | None, leave_out: bool = False, also: Look | None = None) -> None:
        self.wanted: dict[str, EntrySpec] = {}
        self.left_out: dict[str, str] = {}
        self._leaves_out = leave_out
        self.states: dict[str, DeploymentState] = {}
        self.durations = Durations()
        self.lost: set[str] = set()
        self.past = Past()
        self.later_nodes: dict[NodeId, Node] = {}
        self.aftermath = Aftermath()
        self.ends_at = 0.0
        self._path = path
        self.at = at if at is not None else math.inf
        self._begins = at is None
        self._also = also
        self._is_after = False
        self._wait_for_reports = False

    def look(self, entry: Entry, before: DeploymentState | None, step: Step) -> None:
        """One line that the core agrees with, and the state that it found."""
        if self._begins:
            self._begin(entry)
        if self._also is not None:
            self._also(entry, before, step)
        self.ends_at = max(self.ends_at, entry.at)
        self.durations.look(entry)
        if not self._is_after and entry.at > self.at:
            self._is_after = True
            self._check(entry)
        if self._wait_for_reports and not step.state.unreported:
            raise _not_known(self._path, entry, self.at)
        node_id = getattr(entry.cause, "node_id", None)
        if self._is_after:
            self.aftermath.look(entry, before, step)
            if node_id is not None and node_id in step.state.nodes:
                self.later_nodes.setdefault(node_id, step.state.nodes[node_id])
            return
        self.aftermath.last_at = entry.at
        self.states[entry.deployment] = step.state
        self.past.look(entry, step)
        if isinstance(entry.cause, NodeLost):
            self.lost.add(entry.cause.node_id)
        elif node_id is not None:
            self.lost.discard(node_id)

    def look_at_line(self, line: ClusterEntry, _before: ClusterState | None, step: ClusterStep, parts: list[Part]) -> None:
        """One line of a cluster that the core agrees with."""
        for part in parts:
            name = part.entry.deployment
            entry = step.state.deployments.get(name)
            if entry is not None and entry.residency is not None:
                problem = "has weights that may be COLD, and a journal does not say how long they move"
                if not self._leaves_out:
                    raise JournalError(str(self._path), line.line, f"{name} {problem}: write a scenario with residency instead")
                self.left_out[name] = problem
            elif name not in self.left_out:
                if entry is not None and not self._is_after:
                    self.wanted[name] = entry.spec
                self.look(*part)

    def _begin(self, entry: Entry) -> None:
        """The moment is that of the first deployment."""
        if not isinstance(entry.cause, Deployed):
            raise JournalError(str(self._path), entry.line, f"expected {WHOLE}, found one that goes on")
        self.at, self._begins = entry.at, False

    def finish(self) -> None:
        """The journal has ended."""
        if self._begins:
            raise JournalError(str(self._path), 1, "no deployment ever begins in it")
        if not self._is_after:
            self._check(None)
        if self._wait_for_reports:
            raise _not_known(self._path, None, self.at)

    def _check(self, first_after: Entry | None) -> None:
        """Whether the moment can be gone on from; what lies after it begins with this line."""
        if not self.states:
            begins = (
                "no deployment ever begins in it" if first_after is None else f"it begins at {moment(first_after.at, None)}"
            )
            raise JournalError(str(self._path), 1, f"there is nothing to go on from at {moment(self.at, None)}: {begins}")
        self.states = {name: state for name, state in self.states.items() if state.status is not DeploymentStatus.DELETED}
        self._wait_for_reports = any(state.unreported for state in self.states.values())
        self.aftermath.begin(self.states.values(), self.at)


def _not_known(path: Path, entry: Entry | None, at: float) -> JournalError:
    when = (
        "the journal never says where they all are"
        if entry is None
        else f"choose a time from {moment(math.ceil(entry.at * 10) / 10, 1)} on"
    )
    problem = f"at {moment(at, None)} the restarted controller had not heard from all its replicas: {when}"
    return JournalError(str(path), 1 if entry is None else entry.line, problem)


def read_history(
    path: Path,
    at: float | None,
    progress: Callable[[int], None] | None = None,
    *,
    leave_out: bool = False,
    exact: bool = True,
    also: Look | None = None,
) -> History:
    """Read a journal to its end, for a run that is to go on from a moment of it.

    Args:
        path: The journal, of any executor.
        at: The moment, in seconds on the executor's clock; what has not happened by the first line that is about a later
            time is after it. None: when the first deployment was asked for, with which the journal has to begin.
        progress: Told now and then how many bytes have been read.
        exact: As `replay` has it.
        leave_out: Whether deployments with weights that may be COLD are left out, where others can be gone on with.
        also: Is shown each line too.

    Raises:
        JournalError: It is no journal, the core decides otherwise by now, or nobody knows where the replicas are then.
        OSError: It cannot be read.
    """
    reader = _HistoryReader(path, at, leave_out, also)
    if is_of_cluster(path):
        result = replay_cluster(path, reader.look_at_line, progress=progress, exact=exact)
    else:
        result = replay(path, DEPLOYMENTS, look=reader.look, progress=progress, exact=exact)
    refuse_difference(result)
    reader.finish()
    return History(
        states=reader.states,
        durations=reader.durations.measured,
        measured=reader.durations.each,
        lost=frozenset(reader.lost),
        timelines=reader.past.timelines,
        later_nodes=reader.later_nodes,
        aftermath=reader.aftermath,
        ends_at=reader.ends_at,
        warning=result.warning,
        wanted={name: spec for name, spec in reader.wanted.items() if name in reader.states},
        left_out=reader.left_out,
        at=reader.at,
        run=run_of(result.about),
    )
