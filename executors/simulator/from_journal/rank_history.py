"""Who held which rank, and how far it was with it, in two runs: is it the same, and if not, where does it first differ?

**What.** The history of a run is the sequence of its changes: (rank, the n-th replica of the deployment, state). Replicas are
counted, and not called by their ids, of which the number of the controller is a part. Both histories are made by the same
code (`Past`) of the same thing, the steps of the core: of a journal, which is run again, and of a simulated run as it goes on.

**When they are equal.** Each change of one has its counterpart, the k-th of its kind, in the other; and two changes stand in
the same order in both, unless they lie so near each other that their order is chance: within the time that a message may take,
`near_s`. What is swapped so is counted. Times are not compared: how far they are apart is told.

**What it costs.** The counterparts' places are sorted by insertion, which moves only what is swapped: about O(changes), as two
runs that are swapped far have long been found to differ.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs

from executors.engine.deployments import Entry
from executors.engine.kinds import AnyStep, JournalLine
from executors.simulator.from_journal.past import Past
from rankcore.values import ReplicaId

GONE = "gone"


class RankChange(NamedTuple):
    """At `at`, the n-th replica of a deployment came to be in this state with this rank."""

    at: float
    deployment: str
    rank: int
    nth: int
    state: str

    @property
    def what(self) -> tuple[str, int, int, str]:
        """All of it but the time."""
        return self[1:]

    def __str__(self) -> str:
        return f"replica {self.nth} with rank {self.rank} of {self.deployment} is {self.state} at {self.at:.3f} s"


@attrs.frozen(kw_only=True)
class HistoryComparison:
    """Two histories beside each other.

    Attributes:
        changes: How many the first has.
        difference: Where they first differ, in words; None: they are equal.
        differs_at: When that is; None: never.
        swapped: How many pairs that lie near each other stand in another order.
        apart_s: How far the time of each change of the first is from that of its counterpart, as far as they are equal.
    """

    changes: int
    difference: str | None
    differs_at: float | None
    swapped: int
    apart_s: Sequence[float]


class HistoryRecorder:
    """A journal that keeps the changes of ranks and nothing else."""

    def __init__(self) -> None:
        self._past = Past()
        self._last_at = 0.0

    def begin(self, how: Any, first: AnyStep) -> None:
        """A deployment begins."""
        self.append(how, first)

    def append(self, event: Any, result: AnyStep) -> None:
        """A step is taken."""
        entry: Entry = JournalLine(
            line=0,
            deployment=result.state.spec.name,
            cause=event,
            commands=result.commands,
            notes=result.notes,
            fingerprint=None,
        )
        self.look(entry, None, result)

    def look(self, entry: Entry, _before: object, step: AnyStep) -> None:
        """One line of a journal."""
        self._last_at = max(self._last_at, entry.at)
        self._past.look(entry, step)

    def changes(self, begun_at: float = 0.0) -> list[RankChange]:
        """All of them, in the order of their times, which count from `begun_at`. Call it once: it ends the history."""
        found: list[RankChange] = []
        for deployment, timeline in sorted(self._past.timelines.items()):
            there = set(timeline.held_now)
            timeline.finish(self._last_at + 1.0)
            by_replica = defaultdict(list)
            for hold in timeline.holds:
                by_replica[hold.replica_id].append(hold)
            for nth, replica_id in enumerate(sorted(by_replica, key=_number)):
                holds = sorted(by_replica[replica_id], key=lambda hold: hold.since)
                found += [RankChange(each.since - begun_at, deployment, each.rank, nth, each.phase.value) for each in holds]
                if replica_id not in there:
                    found.append(RankChange(holds[-1].until - begun_at, deployment, holds[-1].rank, nth, GONE))
        return sorted(found, key=lambda change: change.at)


def compare_histories(first: Sequence[RankChange], second: Sequence[RankChange], near_s: float) -> HistoryComparison:
    """Are they the same, but for what lies near each other?"""
    places: defaultdict[tuple[str, int, int, str], list[int]] = defaultdict(list)
    for place in range(len(second) - 1, -1, -1):
        places[second[place].what].append(place)
    ordered: list[int] = []
    swapped, apart_s = 0, []
    difference = differs_at = None
    for index, change in enumerate(first):
        left = places[change.what]
        if not left:
            there = f"the other has {second[index]}" if index < len(second) else "the other has ended"
            difference, differs_at = f"{change}; {there}", change.at
            break
        place = left.pop()
        at = len(ordered)
        while at and ordered[at - 1] > place:
            at -= 1
            if abs(second[ordered[at]].at - second[place].at) > near_s:
                difference, differs_at = f"{change}; in the other that comes before {second[ordered[at]]}", change.at
                break
            swapped += 1
        if difference is not None:
            break
        ordered.insert(at, place)
        apart_s.append(abs(change.at - second[place].at))
    if difference is None and len(second) > len(first):
        known = set(ordered)
        more = next(each for place, each in enumerate(second) if place not in known)
        difference, differs_at = f"only the other has that {more}", more.at
    return HistoryComparison(changes=len(first), difference=difference, differs_at=differs_at, swapped=swapped, apart_s=apart_s)


def _number(replica_id: ReplicaId) -> tuple[int, int]:
    epoch, _, number = replica_id.rpartition("#")[2].partition(".")
    return int(epoch), int(number)
