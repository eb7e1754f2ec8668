"""What a journal says of each deployment: lines about its ranks alone, whichever machine the journal is of.

A line of a cluster's journal is about as many deployments as its step has told something: each of these has a line here, with
what its ranks were told and what they decided. A command stands where it was decided, which is before it was given out where
it had to wait for a record.
"""

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from executors.engine.clusters import CLUSTER, ClusterEntry, ClusterRecovered, ClusterResumed
from executors.engine.deployments import Beginning, Deployed, Entry, Recovered, Resumed
from executors.engine.kinds import JournalLine
from executors.engine.reading import JournalError, machine_in
from executors.engine.replay import ReplayResult, replay
from rankcore import DeploymentState, Step
from rankcore.cluster import ClusterState, ClusterStep, cluster_step
from rankcore.cluster.draft import RankStep
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.records import newest

Look = Callable[[Entry, DeploymentState | None, Step], None]
"""Shown each line of a deployment, the state that it found (None: it had not begun) and the step that came of it."""


def replay_deployments(
    path: str | os.PathLike[str],
    *,
    until: float = math.inf,
    look: Look | None = None,
    progress: Callable[[int], None] | None = None,
) -> ReplayResult:
    """Run a journal of deployments again, or one of a cluster as one of its deployments.

    Args:
        path, until, progress: As `replay` has them.
        look: Is shown each line of each deployment that agrees.

    Returns:
        As `replay`; its states are those of the deployments, by their ids.

    Raises:
        JournalError: The file is no journal of either, or a line before the last is broken.
        OSError: It cannot be read.
    """
    if not is_of_cluster(path):
        return replay(path, until=until, look=look, progress=progress)
    traced = _Traced(look)
    kind = attrs.evolve(CLUSTER, begin=traced.begin, step=traced.step)
    result = replay(path, kind, until=until, look=traced.look, progress=progress)
    return attrs.evolve(result, states=traced.states)


def is_of_cluster(path: str | os.PathLike[str]) -> bool:
    """Whether a file says of itself that it is a journal of a cluster.

    Raises:
        OSError: It cannot be read.
    """
    return machine_in(path) == CLUSTER.name


def refuse_difference(result: ReplayResult) -> None:
    """Raise for a journal that the core does not agree with.

    Raises:
        JournalError: Names the first line that differs.
    """
    if result.difference is not None:
        difference = result.difference
        raise JournalError(difference.path, difference.line, f"this core decides otherwise ({difference.what} differs)")


class _Traced:
    """Takes the steps of a cluster, and shows those of its deployments.

    Attributes:
        states: Of the deployments, by id; of one that is gone the last one.
    """

    def __init__(self, look: Look | None) -> None:
        self.states: dict[DeploymentId, DeploymentState] = {}
        self._look = look
        self._trace: list[RankStep] = []

    def begin(self, how: ClusterRecovered | ClusterResumed) -> ClusterStep:
        return how.step(self._trace)

    def step(self, state: ClusterState, event: Any) -> ClusterStep:
        return cluster_step(state, event, self._trace)

    def look(self, line: ClusterEntry, _before: ClusterState | None, _step: ClusterStep) -> None:
        beginnings = dict(_beginnings(line.cause))
        for deployment, event, step in self._trace:
            how = beginnings.get(deployment, Deployed(spec=step.state.spec, at=step.state.clock, epoch=step.state.epoch))
            cause = how if event is None else event
            entry: Entry = JournalLine(
                line=line.line,
                deployment=deployment,
                cause=cause,
                commands=step.commands,
                notes=step.notes,
                fingerprint=None,
            )
            if self._look is not None:
                self._look(entry, self.states.get(deployment), step)
            self.states[deployment] = step.state


def _beginnings(cause: Any) -> Iterator[tuple[DeploymentId, Beginning]]:
    """How deployments begin that do not begin new."""
    if isinstance(cause, ClusterResumed):
        yield from ((each, Resumed(state=entry.ranks)) for each, entry in cause.state.deployments.items())
    elif isinstance(cause, ClusterRecovered):
        for deployment, record in newest(cause.records).items():
            yield (
                deployment,
                Recovered(
                    spec=record.spec,
                    replica_ids=tuple(each for each in cause.replica_ids if each.rpartition("#")[0] == deployment),
                    at=cause.at,
                    epoch=cause.epoch,
                    previous=record.previous,
                    deleting=record.deleting,
                    failed=record.failed,
                ),
            )
