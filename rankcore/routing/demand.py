"""Who waits, and for what: when a process reports it, and what its reports add up to (Q13).

Requests wait in the processes that call. Only the controller can start something for them, and it knows of them by reports.
Both halves are here, each as a value that a function turns into the next: `Reporting` in each process, `Demands` where they
are heard.

When to report. A process looks whenever what waits has changed, and at the moment that the look before has asked for.

1. *At once*: the first request that waits for a deployment is what a cold start waits for, so it is reported in that look.
2. *At most every `REPORT_EVERY_S`*, whatever happens: a hundred processes are two hundred messages a second, and no more. What
   changes sooner is due when that time is over. So only an edge that follows a report within it is late, by less than it.
3. *Zero after `ZERO_FOR_S`*: a replica that is just fast enough lets its line run empty a hundred times a second. That a line
   is empty is reported only once it has been so for that long; until then it counts as it was reported.
4. *Again after `AGAIN_S`* while anything waits, since a report counts for `COUNTS_S` and messages get lost: two in a row have
   to be, for demand to be forgotten that is there. A controller that has begun again knows nothing: what waits is due at once.
5. *Samples* are what an autoscaler averages: how many wait for a deployment that has replicas, zero too. They are due by the
   clock and not by edges, which would weigh the peaks; whatever is reported has those of that moment with it.

What they add up to. Of one reporter the newest (incarnation, seq) counts, whatever arrives last: a process that has begun
again speaks for itself alone, and an older report never brings demand back. An entry counts for `COUNTS_S` by the clock of who
hears it, so that a process which has died is forgotten. The order is remembered for `KEPT_S`, which is longer than any message
is under way. It costs O(entries) a look, O(reporters) a report and a sum.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from rankcore.frozen import EMPTY, PMap

REPORT_EVERY_S = 0.5
ZERO_FOR_S = 0.1
AGAIN_S = 4.0
COUNTS_S = 10.0
KEPT_S = 600.0
NEVER = float("inf")


class Reporting(Struct, frozen=True):
    """What a process has reported, and since when which line has been empty.

    Attributes:
        reported: How many requests wait for a deployment, as was reported last; those for which none did are left out.
        empty_since: Of these, the lines that are empty by now.
        seq: Of the newest report.
        at: When that was; before all times: never.
    """

    reported: PMap[str, int] = EMPTY
    empty_since: PMap[str, float] = EMPTY
    seq: int = 0
    at: float = -NEVER


class DemandReport(Struct, frozen=True):
    """What a process says, for deployments for which something waits, or did when it last reported.

    Attributes:
        seq: Grows with each report of this incarnation of the process.
        waiting: By deployment; one that is not among them is as it was.
    """

    seq: int
    waiting: Mapping[str, int]


class WaitingSample(Struct, frozen=True):
    """How many requests wait for a deployment, and how often that is asked for."""

    waiting: int
    every_s: float


def look(
    reporting: Reporting, waiting: Mapping[str, int], at: float, samples: Mapping[str, WaitingSample] = EMPTY
) -> tuple[Reporting, DemandReport | None, float]:
    """See what waits now.

    Args:
        reporting: As the look before has left it.
        waiting: By deployment, how many requests wait where there is no replica; none: it may be left out.
        at: Now.
        samples: Of deployments that are asked for, whether there is a replica or not.

    Returns:
        For the next look; what to report, None: nothing; and when to look again if nothing changes before, infinity: never.
    """
    empty_since, shown, due_at = EMPTY, dict(reporting.reported), NEVER
    for deployment in sorted({*waiting, *reporting.reported}):
        count, before = waiting.get(deployment, 0), reporting.reported.get(deployment, 0)
        if count:
            shown[deployment] = count
            due_at = min(due_at, reporting.at + (AGAIN_S if count == before else REPORT_EVERY_S))  # 1, 2, 4
        elif before:
            since = reporting.empty_since.get(deployment, at)
            zero_at = since + ZERO_FOR_S
            if at >= zero_at:  # 3
                shown[deployment] = 0
                due_at = min(due_at, reporting.at + REPORT_EVERY_S)
            else:
                due_at = min(due_at, max(zero_at, reporting.at + REPORT_EVERY_S), reporting.at + AGAIN_S)
            empty_since = empty_since.set(deployment, since)
    due_at = min([due_at, *(reporting.at + max(each.every_s, REPORT_EVERY_S) for each in samples.values())])  # 5
    if due_at > at:
        return replace(reporting, empty_since=empty_since), None, due_at
    kept = {deployment: count for deployment, count in shown.items() if count}
    empty = {deployment: since for deployment, since in empty_since.items() if deployment in kept}
    shown.update((deployment, each.waiting) for deployment, each in samples.items() if deployment not in kept)
    report = DemandReport(reporting.seq + 1, shown)
    told = Reporting(PMap(kept), PMap(empty), report.seq, at)
    return told, report, look(told, waiting, at, samples)[2]


def again(reporting: Reporting) -> Reporting:
    """Who hears it has begun again: what waits is due at once (4)."""
    return replace(reporting, at=-NEVER)


class Heard(Struct, frozen=True):
    """The newest that a reporter has said, and of each deployment how many wait, and when that was heard."""

    incarnation: int
    seq: int
    at: float
    waiting: PMap[str, tuple[int, float]] = EMPTY


class Demands(Struct, frozen=True):
    """What was heard of every reporter."""

    reporters: PMap[str, Heard] = EMPTY


def hear(demands: Demands, reporter: str, incarnation: int, report: DemandReport, at: float) -> Demands:
    """A report has arrived; the same demands, unchanged, where it is late."""
    known = demands.reporters.get(reporter)
    if known is not None and (incarnation, report.seq) <= (known.incarnation, known.seq):
        return demands
    waiting = known.waiting if known is not None and known.incarnation == incarnation else EMPTY
    for deployment, count in report.waiting.items():
        if count:
            waiting = waiting.set(deployment, (count, at))
        elif deployment in waiting:
            waiting = waiting.delete(deployment)
    reporters = demands.reporters.set(reporter, Heard(incarnation, report.seq, at, waiting))
    for name in [name for name, heard in reporters.items() if heard.at < at - KEPT_S]:
        reporters = reporters.delete(name)
    return Demands(reporters)


def forget(demands: Demands, deployment: str) -> Demands:
    """Without a deployment that is gone: who called it has had an answer, and one of its name is another."""
    found = {name: heard for name, heard in demands.reporters.items() if deployment in heard.waiting}
    reporters = demands.reporters
    for name, heard in found.items():
        reporters = reporters.set(name, replace(heard, waiting=heard.waiting.delete(deployment)))
    return Demands(reporters) if found else demands


def demand_for(demands: Demands, deployment: str, at: float) -> int:
    """How many requests wait for a deployment, as far as anybody has said so of late."""
    return sum(waiting_in(demands, deployment, at).values())


def waiting_in(demands: Demands, deployment: str, at: float) -> dict[str, int]:
    """The same by reporter, of those where any wait."""
    said = {reporter: heard.waiting.get(deployment, (0, -NEVER)) for reporter, heard in sorted(demands.reporters.items())}
    return {reporter: count for reporter, (count, heard_at) in said.items() if count and at < heard_at + COUNTS_S}
