"""The figures of a run: what the table, the JSON and the report show."""

import math

import attrs

from executors.simulator.load.requests import RequestCounts, SoFar
from executors.simulator.record.costs import CostFigures
from executors.simulator.record.engine_figures import EngineFigures
from executors.simulator.record.percentiles import Percentiles, percentiles_of_all
from executors.simulator.record.timeline import Gap, Timeline, Unserved, gaps, ranks_without_room, unserved, unserved_at_first_s
from rankcore.values import NodeId

LONG_WAIT_S = 1.0


@attrs.frozen(kw_only=True)
class RequestFigures:
    """What became of the requests; arrived = done + failed + lost + expired + unfinished.

    Attributes:
        waited_over_1_s: Of the done ones, those that waited longer than a second for a replica.
        failed: Turned away, because the queue was full or the deployment deleted.
        rejected: Of those, because the queue was full (503).
        lost: On a replica that ended before it was done, and not done again.
        expired: Not done before their deadline (504).
        retried: How often one was done again, since the replica that worked on it had ended.
        unfinished: Still waiting or in flight when the run ended.
        not_done: All that came and were not done: what percentiles that are not known are to be compared by.
        wait_s, latency_s: Of all: until a replica took it, and until it was done.
    """

    arrived: int
    done: int
    waited_over_1_s: int
    failed: int
    rejected: int
    lost: int
    expired: int
    retried: int
    unfinished: int
    not_done: int
    wait_s: Percentiles
    latency_s: Percentiles


@attrs.frozen(kw_only=True)
class ScalingFigures:
    """What an autoscaler did.

    Attributes:
        scale_events: How often it changed the target.
        replica_hours: Of all replicas, from placement to end.
    """

    scale_events: int
    replica_hours: float


@attrs.frozen(kw_only=True)
class DeploymentFigures:
    """One deployment's run in numbers.

    Attributes:
        status: At the end.
        world_size: At the end.
        world_size_most: The largest that it was.
        ranks_without_room: Ranks that nobody ever ran with, of those for which replicas waited for room in vain.
        ranks_moved: How often an initialised replica was given another global rank.
        other_ranks_moved: How often only its node rank or local rank changed.
        reconfigures: How many `ReconfigureReplica` replicas accepted.
        reconfigures_sent: How many their controllers sent: lost ones, and those that were sent once more, count as well.
        rank_gap_s: How long the ranks of the k running replicas were not exactly 0..k-1, from the first that was ready.
        incomplete_s: How long they were not exactly 0..N-1, from when it was deployed.
        least_running: The fewest replicas that ran at once, each time from when all N had come up; None: they never had.
        below_floor_s: How long fewer than N - max_unavailable ran, each time from when as many had come up.
        update_s: How long another version, user_config, restart token or partition was wanted and not in place.
        longest_gap: The longest time that one rank had no running holder; None: no rank ever lost its holder.
        unserved_rank_s: Rank-seconds in which ranks below the world size had no running holder, after each first had one.
        unserved_at_first_rank_s: The same before each first had one, of those that never had one included.
        unserved: What of it each rank had, by rank.
        replica_starts: Processes that came up.
        replica_crashes: Replicas that ended without having been told to, with their node or alone; failed starts apart.
        replicas_unready: How often one that was up, or came up, took no requests for a while.
        start_failures: Replicas whose start-up code failed.
        controller_messages_refused: Commands of a replaced controller that the executor or a replica refused.
        gpu_hours: GPUs that replicas occupied, from placement to end.
        scaling: None: the target does not follow the load.
        engine: None: its requests take their time, whatever else is served.
        cost: None: GPUs have no prices.
    """

    name: str
    status: str
    world_size: int
    world_size_most: int
    ranks_without_room: int
    ranks_moved: int
    other_ranks_moved: int
    reconfigures: int
    reconfigures_sent: int
    rank_gap_s: float
    incomplete_s: float
    least_running: int | None
    below_floor_s: float
    update_s: float
    longest_gap: Gap | None
    unserved_rank_s: float
    unserved_at_first_rank_s: float
    unserved: tuple[Unserved, ...]
    replica_starts: int
    replica_crashes: int
    replicas_unready: int
    start_failures: int
    controller_messages_refused: int
    gpu_hours: float
    scaling: ScalingFigures | None
    requests: RequestFigures
    engine: EngineFigures | None = None
    cost: CostFigures | None = None


@attrs.define
class Tally:
    """What is counted while a deployment runs; the meaning is that of `DeploymentFigures`."""

    ranks_moved: int = 0
    other_ranks_moved: int = 0
    reconfigures: int = 0
    reconfigures_sent: int = 0
    replica_starts: int = 0
    replica_crashes: int = 0
    replicas_unready: int = 0
    start_failures: int = 0
    refused: int = 0
    gpu_seconds: float = 0.0
    gpu_seconds_of: dict[NodeId, float] = attrs.Factory(dict)
    """By node."""
    replica_seconds: float = 0.0
    scale_events: int = 0


def figures_of(
    name: str, status: str, tally: Tally, timeline: Timeline, requests: RequestFigures, end: float, *, autoscaled: bool = False
) -> DeploymentFigures:
    """Sum up a finished run."""
    scaling = ScalingFigures(scale_events=tally.scale_events, replica_hours=tally.replica_seconds / 3600.0)
    by_rank = unserved(gaps(timeline, end))
    return DeploymentFigures(
        name=name,
        status=status,
        world_size=timeline.world_size,
        world_size_most=max((size for _, size in timeline.world_sizes), default=0),
        ranks_without_room=ranks_without_room(timeline),
        ranks_moved=tally.ranks_moved,
        other_ranks_moved=tally.other_ranks_moved,
        reconfigures=tally.reconfigures,
        reconfigures_sent=tally.reconfigures_sent,
        rank_gap_s=timeline.rank_gap.total_s,
        incomplete_s=timeline.incomplete.total_s,
        least_running=timeline.availability.least,
        below_floor_s=timeline.availability.below.total_s,
        update_s=timeline.availability.updating.total_s,
        longest_gap=max((rank.longest for rank in by_rank), key=lambda gap: gap.length_s, default=None),
        unserved_rank_s=math.fsum(rank.total_s for rank in by_rank),
        unserved_at_first_rank_s=unserved_at_first_s(timeline, end),
        unserved=by_rank,
        replica_starts=tally.replica_starts,
        replica_crashes=tally.replica_crashes,
        replicas_unready=tally.replicas_unready,
        start_failures=tally.start_failures,
        controller_messages_refused=tally.refused,
        gpu_hours=tally.gpu_seconds / 3600.0,
        scaling=scaling if autoscaled else None,
        requests=requests,
    )


def request_figures(counts: RequestCounts, so_far: SoFar) -> RequestFigures:
    """Sum up what became of the requests."""
    never = counts.failed + counts.lost + counts.expired
    return RequestFigures(
        arrived=counts.arrived,
        done=counts.done,
        waited_over_1_s=sum(1 for wait_s in counts.waits_s if wait_s > LONG_WAIT_S),
        failed=counts.failed,
        rejected=counts.rejected,
        lost=counts.lost,
        expired=counts.expired,
        retried=counts.retried,
        unfinished=counts.arrived - counts.done - never,
        not_done=counts.arrived - counts.done,
        wait_s=percentiles_of_all(counts.waits_s, so_far.waits_s, never),
        latency_s=percentiles_of_all(counts.latencies_s, so_far.latencies_s, never),
    )
