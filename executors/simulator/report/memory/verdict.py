"""A run with residency in one sentence."""

from executors.simulator.report.verdict import Verdict, listed
from executors.simulator.report.words import duration, failure, promises, share
from executors.simulator.residency.run import ResidencyResult


def verdict_of_residency(result: ResidencyResult) -> Verdict:
    """The worst that happened, and whether the promises held."""
    broken = failure(result)
    if broken is not None:
        return Verdict("broken", f"The run was stopped: {broken}.")
    hurts = _hurts(result)
    if hurts:
        return Verdict("hurt", f"{promises(result.checking)}; {listed(hurts)}.")
    done = result.all_deployments.requests.done
    answered = f"all {done:,} requests were answered by deployments that were HOT already"
    return Verdict("good", f"{promises(result.checking)}, and {answered}.")


def _hurts(result: ResidencyResult) -> list[str]:
    requests, misses = result.all_deployments.requests, result.all_deployments.misses
    found = []
    never = [figures.name for figures in result.deployments if figures.requests.arrived and not figures.hot_s]
    if never:
        more = f" and {len(never) - 3} more" if len(never) > 3 else ""
        found.append(f"{', '.join(never[:3])}{more} {'was' if len(never) == 1 else 'were'} never HOT")
    if misses.count:
        answer = misses.first_answer_s.p50
        after = f", and the first answer came after {duration(answer)} in half of the cases" if answer is not None else ""
        found.append(f"{misses.count:,} times a request found its deployment not HOT{after}")
    for count, word in (
        (requests.lost, "lost"),
        (requests.expired, "expired"),
        (requests.failed, "turned away"),
        (requests.unfinished, "unfinished at the end"),
    ):
        if count:
            found.append(f"{count:,} of {requests.arrived:,} requests{share(count, requests.arrived)} were {word}")
    return found
