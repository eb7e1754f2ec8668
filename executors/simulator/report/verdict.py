"""A run in one sentence."""

import attrs

from executors.simulator.record.figures import DeploymentFigures
from executors.simulator.report.words import duration, failure, promises, share
from executors.simulator.run import RunResult


@attrs.frozen
class Verdict:
    """What to tell first.

    Attributes:
        grade: "good": nobody noticed anything; "hurt": somebody did; "broken": a promise did not hold.
    """

    grade: str
    text: str


def verdict_of(result: RunResult) -> Verdict:
    """The worst that happened, and whether the promises held."""
    broken = failure(result)
    if broken is not None:
        return Verdict("broken", f"The run was stopped: {broken}.")
    hurts = _hurts(result.deployments)
    unsettled = [figures for figures in result.deployments if figures.status not in ("HEALTHY", "DELETED")]
    for figures in unsettled[:3]:
        hurts.append(f"{figures.name} ended {figures.status}")
    if hurts:
        told = listed(hurts)
        return Verdict("hurt", f"{promises(result.checking)}; {told}.")
    served = sum(figures.requests.done for figures in result.deployments)
    requests = f", and all {served:,} requests were served without waiting over 1 s" if served else ""
    return Verdict("good", f"{promises(result.checking)}: no rank lost its holder{requests}.")


def _hurts(deployments: tuple[DeploymentFigures, ...]) -> list[str]:
    found = []
    for figures in deployments:
        if figures.ranks_without_room:
            of = f" of {figures.name}" if len(deployments) > 1 else ""
            found.append(f"{figures.ranks_without_room:,} of {figures.world_size_most:,} ranks{of} never fitted on the nodes")
    gaps = [(figures, figures.longest_gap) for figures in deployments if figures.longest_gap is not None]
    if gaps:
        figures, gap = max(gaps, key=lambda pair: pair[1].length_s)
        whose = f" of {figures.name}" if len(deployments) > 1 else ""
        ranks = sum(len(each.unserved) for each in deployments)
        others = f" ({ranks - 1:,} other{'s' if ranks > 2 else ''} for less)" if ranks > 1 else ""
        found.append(f"rank {gap.rank}{whose} had no running replica for {duration(gap.length_s)}{others}")
    done = sum(figures.requests.done for figures in deployments)
    waited = sum(figures.requests.waited_over_1_s for figures in deployments)
    if waited:
        found.append(f"{waited:,} of {done:,} requests{share(waited, done)} waited over 1 s")
    for count, word in (
        (sum(figures.requests.lost for figures in deployments), "lost"),
        (sum(figures.requests.expired for figures in deployments), "expired"),
        (sum(figures.requests.failed for figures in deployments), "turned away"),
        (sum(figures.requests.unfinished for figures in deployments), "unfinished at the end"),
    ):
        if count:
            found.append(f"{count:,} {'was' if count == 1 else 'were'} {word}")
    return found


def listed(parts: list[str]) -> str:
    """In a sentence."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
