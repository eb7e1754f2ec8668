"""What the journal of a cluster says of each deployment: lines about its ranks alone.

A line of a cluster's journal is about as many deployments as its step has told something: each of these has a line here, with
what its ranks were told and what they decided. A command stands where it was decided, which is before it was given out where
it had to wait for a record.
"""

import math
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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


class Part(NamedTuple):
    """What a line of a cluster says of the ranks of one deployment; `before` is None where it had not begun."""

    entry: Entry
    before: DeploymentState | None
    step: Step


ClusterLook = Callable[[ClusterEntry, ClusterState | None, ClusterStep, list[Part]], None]
"""Shown each line of a cluster, the state that it found, the step that came of it, and its parts in the order of decision."""


def replay_cluster(
    path: str | os.PathLike[str],
    look: ClusterLook,
    *,
    until: float = math.inf,
    progress: Callable[[int], None] | None = None,
    exact: bool = True,
) -> ReplayResult:
    """Run a journal of a cluster again, and show each line that agrees with what it says of each deployment's ranks.

    Args:
        path, until, progress, exact: As `replay` has them.
        look: Is shown each line that agrees.

    Raises:
        JournalError: The file is no journal of a cluster, or a line before the last is broken.
        OSError: It cannot be read.
    """
    traced = _Traced(look)
    kind = attrs.evolve(CLUSTER, begin=traced.begin, step=traced.step)
    return replay(path, kind, until=until, look=traced.look, progress=progress, exact=exact)


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
    """Takes the steps of a cluster, and shows those of its deployments."""

    def __init__(self, look: ClusterLook) -> None:
        self._look = look
        self._states: dict[DeploymentId, DeploymentState] = {}
        self._trace: list[RankStep] = []

    def begin(self, how: ClusterRecovered | ClusterResumed) -> ClusterStep:
        return how.step(self._trace)

    def step(self, state: ClusterState, event: Any) -> ClusterStep:
        return cluster_step(state, event, self._trace)

    def look(self, line: ClusterEntry, before: ClusterState | None, step: ClusterStep) -> None:
        beginnings = dict(_beginnings(line.cause))
        parts = []
        for deployment, event, taken in self._trace:
            began = Deployed(spec=taken.state.spec, at=taken.state.clock, epoch=taken.state.epoch)
            entry: Entry = JournalLine(
                line=line.line,
                deployment=deployment,
                cause=beginnings.get(deployment, began) if event is None else event,
                commands=taken.commands,
                notes=taken.notes,
                fingerprint=None,
            )
            parts.append(Part(entry, self._states.get(deployment), taken))
            self._states[deployment] = taken.state
        self._look(line, before, step, parts)


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
