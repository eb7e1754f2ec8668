"""What a residency scenario came to in numbers: of each model, and of all of them on all nodes."""

from collections.abc import Iterable, Sequence

import attrs

from executors.simulator.load.requests import RequestCounts, RequestQueue, SoFar
from executors.simulator.record.figures import RequestFigures, request_figures
from executors.simulator.record.percentiles import Percentiles, percentiles_of_finished
from executors.simulator.record.series import Bucket
from executors.simulator.residency.record import DeploymentTally
from executors.simulator.scenario.weights import GB

ALL_DEPLOYMENTS = "all deployments"
"""The name of the figures of all models together, where tables have a column for names."""


@attrs.frozen(kw_only=True)
class Moves:
    """What was moved, and why.

    Attributes:
        loads_from_disk: Loads that began, of COLD replicas.
        loads_from_cpu: Of WARM ones.
        load_failures: Loads that failed.
        displaced: Replicas that left their GPUs for another one.
        evicted: Replicas that left them because somebody asked for that, or nobody used them.
        cant_accommodate: How often a replica was found to fit nowhere.
        from_disk_gb: Bytes that came from disk, of failed loads too.
        from_cpu_gb: Bytes that came from CPU memory to a GPU, other than those from disk.
        to_cpu_gb: Bytes that went from a GPU to CPU memory.
        moved_gb: All bytes that were moved.
    """

    loads_from_disk: int
    loads_from_cpu: int
    load_failures: int
    displaced: int
    evicted: int
    cant_accommodate: int
    from_disk_gb: float
    from_cpu_gb: float
    to_cpu_gb: float
    moved_gb: float


@attrs.frozen(kw_only=True)
class Misses:
    """Times when a request came, or was left over, and no replica of its model was HOT.

    Attributes:
        count: How often. A miss lasts until the first answer, or until nobody waits any more.
        answered: Those that ended with an answer.
        first_answer_s: Of these: from the miss to the first answer.
    """

    count: int
    answered: int
    first_answer_s: Percentiles


@attrs.frozen(kw_only=True)
class ResidencyFigures:
    """One model's run in numbers.

    Attributes:
        weight_gb: Of its weights.
        replica_gb: Of a replica on the GPUs, as far as was said.
        hot_s: How long a replica of it was HOT.
        warm_s: How long none was, but one was WARM.
        cold_s: The rest: hot_s + warm_s + cold_s is the length of the run.
    """

    name: str
    weight_gb: float
    replica_gb: float
    hot_s: float
    warm_s: float
    cold_s: float
    misses: Misses
    moves: Moves
    requests: RequestFigures


@attrs.frozen(kw_only=True)
class MemoryFigures:
    """The GPUs of all nodes together, and their CPU caches; shares are of the memory of all nodes that were up.

    Attributes:
        gpu_gb: Of all nodes.
        gpu_used: Mean share that was held.
        gpu_used_most: The highest.
        gpu_fragmented: Mean share that was free, but where no replica that somebody might want next had room.
        gpu_fragmented_most: The highest.
        cpu_gb: Of all caches.
        cpu_used: Mean share that was held.
    """

    gpu_gb: float
    gpu_used: float
    gpu_used_most: float
    gpu_fragmented: float
    gpu_fragmented_most: float
    cpu_gb: float
    cpu_used: float


@attrs.frozen(kw_only=True)
class AllFigures:
    """All models together."""

    memory: MemoryFigures
    misses: Misses
    moves: Moves
    requests: RequestFigures


def misses_of(tallies: Sequence[DeploymentTally]) -> Misses:
    """Of one model, or of several."""
    answers = [seconds for tally in tallies for seconds in tally.first_answers_s]
    return Misses(
        count=sum(tally.misses for tally in tallies), answered=len(answers), first_answer_s=percentiles_of_finished(answers)
    )


def moves_of(tallies: Sequence[DeploymentTally]) -> Moves:
    """Of one model, or of several."""

    def total(name: str) -> int:
        return sum(getattr(tally, name) for tally in tallies)

    return Moves(
        loads_from_disk=total("loads_from_disk"),
        loads_from_cpu=total("loads_from_cpu"),
        load_failures=total("load_failures"),
        displaced=total("displaced"),
        evicted=total("evicted"),
        cant_accommodate=total("cant_accommodate"),
        from_disk_gb=total("from_disk_bytes") / GB,
        from_cpu_gb=total("from_cpu_bytes") / GB,
        to_cpu_gb=total("to_cpu_bytes") / GB,
        moved_gb=(total("from_disk_bytes") + total("from_cpu_bytes") + total("to_cpu_bytes")) / GB,
    )


def requests_of(queues: Iterable[RequestQueue]) -> RequestFigures:
    """Of one model, or of several."""
    together, so_far = RequestCounts(), SoFar()
    for queue in queues:
        counts, theirs = queue.counts, queue.so_far()
        for name in ("arrived", "failed", "rejected", "lost", "expired", "retried"):
            setattr(together, name, getattr(together, name) + getattr(counts, name))
        together.waits_s.extend(counts.waits_s)
        together.latencies_s.extend(counts.latencies_s)
        so_far.waits_s.extend(theirs.waits_s)
        so_far.latencies_s.extend(theirs.latencies_s)
    return request_figures(together, so_far)


def share(part: Sequence[Bucket], whole: Sequence[Bucket], end: float) -> tuple[float, float]:
    """The mean of one series in terms of the mean of another, and its highest value in terms of the other's."""
    total, most = mean(whole, end), max((bucket.high for bucket in whole), default=0.0)
    high = max((bucket.high for bucket in part), default=0.0)
    return (mean(part, end) / total if total else 0.0), (high / most if most else 0.0)


def mean(buckets: Sequence[Bucket], end: float) -> float:
    """Over the time up to the end of the run."""
    return sum(bucket.mean * (min(bucket.until, end) - bucket.since) for bucket in buckets) / end if end else 0.0
