"""Runs a scenario with residency to its end and sums it up."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import attrs

from executors.checking import Checking
from executors.engine.clusters import CLUSTER, ClusterResumed
from executors.engine.journal import Journal
from executors.simulator.cluster.outages import Outage
from executors.simulator.load.arrivals import Arrivals, busiest_minute
from executors.simulator.motion import Motion, Progress
from executors.simulator.record.happenings import Failure, Happening
from executors.simulator.record.series import Bucket
from executors.simulator.residency.figures import (
    AllFigures,
    MemoryFigures,
    ResidencyFigures,
    misses_of,
    moves_of,
    requests_of,
    share,
)
from executors.simulator.residency.notebook import Noted
from executors.simulator.residency.record import Span
from executors.simulator.residency.world import ClusterWorld
from executors.simulator.scenario.entries import id_of, shown
from executors.simulator.scenario.faults import (
    ControllerCrash,
    Fault,
    LoadFailure,
    MemoryShrinks,
    NodeLoss,
    ReplicaCrash,
    ReplicaUnready,
)
from executors.simulator.scenario.gpu_nodes import NodeShape
from executors.simulator.scenario.model import Change, Scenario
from executors.simulator.scenario.weights import GB


@attrs.frozen(kw_only=True)
class MemorySeries:
    """All nodes and all models along the time of a run: bytes, requests that wait, seconds from misses to first answers."""

    used: tuple[Bucket, ...]
    fragmented: tuple[Bucket, ...]
    cached: tuple[Bucket, ...]
    waiting: tuple[Bucket, ...]
    first_answer_s: tuple[Bucket, ...]


@attrs.frozen(kw_only=True)
class ResidencyResult:
    """A finished run.

    Attributes:
        ended_at: Virtual seconds.
        checking: When promises were checked.
        failure: The broken promise that ended the run; None: all held that were checked.
        spans: Who held which memory when.
        decisions: What the planner decided; `decisions_left_out` says how much of that is not there.
        outages: When nodes were down.
        nodes: All nodes, in the order of the scenario.
    """

    PICTURE: ClassVar[frozenset[str]] = frozenset(
        {"checking", "spans", "series", "decisions", "decisions_left_out", "outages", "nodes"}
    )
    """The fields that a picture needs and that are no figures."""

    scenario: str
    seed: int
    ended_at: float
    happened: int
    busiest_minute_at: float | None
    checking: Checking
    failure: Failure | None
    all_deployments: AllFigures
    deployments: tuple[ResidencyFigures, ...]
    happenings: tuple[Happening, ...]
    spans: tuple[Span, ...]
    series: MemorySeries
    decisions: tuple[Noted, ...]
    decisions_left_out: int
    outages: tuple[Outage, ...]
    nodes: tuple[NodeShape, ...]


class ResidencyRun(Motion[Journal]):
    """A scenario with residency in motion.

    Attributes:
        world: The simulated world; tests look into it, and break it.
        busiest_minute_at: When the minute with most requests begins; None: there are none.
    """

    def __init__(
        self,
        scenario: Scenario,
        arrivals: Mapping[str, Arrivals],
        journal: Journal | None = None,
        checking: Checking = Checking.EACH,
    ) -> None:
        self.world = ClusterWorld(scenario, arrivals)
        self.world.story.checking = checking
        super().__init__(self.world.loop, self.world.story, scenario.duration_s, scenario.settle_s)
        self.world.control.write_to(journal)
        self.busiest_minute_at = busiest_minute(arrivals.values(), scenario.duration_s)
        self._arrivals = arrivals
        self._latest = max((each.at_s[-1] for each in arrivals.values() if each.at_s), default=0.0)
        self._has_begun = False
        for happens in (*scenario.faults, *scenario.changes):
            self._schedule(happens)

    def go(self, progress: Progress | None = None) -> ResidencyResult:
        """Run to the end, or up to the first broken promise. Call it once."""
        self._to_the_end(progress)
        if self.world.story.failure is None:
            self.world.check()
        return self._result()

    def inject(self, happens: Fault | Change) -> None:
        """Let a fault or change come that the scenario does not have; one whose time has passed comes now.

        Raises:
            FieldProblem: The world has no such node or deployment.
        """
        self.world.scenario.check_fault((), happens)
        self._schedule(happens)
        self._is_over = False

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.world.start()

    @property
    def _at_rest(self) -> bool:
        return self.world.control.machine is not None and all(queue.idle for queue in self.world.queues.values())

    @property
    def _last_at(self) -> float:
        return self._latest

    @property
    def _unchanging(self) -> Iterable[object]:
        scenario = self.world.scenario
        return (scenario, *scenario.shapes, self._arrivals, *self._arrivals.values(), CLUSTER, *self.world.control.unchanging)

    def _write_to(self, journal: Journal | None) -> Journal | None:
        return self.world.control.write_to(journal)

    def _resume_in(self, journal: Journal) -> None:
        control = self.world.control
        control.write_to(journal)
        if control.state is not None:
            how = ClusterResumed(state=control.state)
            journal.begin(how, how.step())

    def _schedule(self, happens: Fault | Change) -> None:
        world, loop = self.world, self.world.loop
        at = max(loop.now, happens.at.seconds(self.busiest_minute_at))
        self._latest = max(self._latest, at)
        match happens:
            case Change():
                loop.at(at, world.change, happens)
            case NodeLoss():
                loop.at(at, world.lose_node, happens.node)
                if happens.back_after_s is not None:
                    self._latest = max(self._latest, at + happens.back_after_s)
                    loop.at(at + happens.back_after_s, world.bring_node_back, happens.node)
            case ReplicaCrash():
                loop.at(at, world.crash, id_of(happens.deployment))
            case ReplicaUnready():
                loop.at(at, world.keep_from_requests, id_of(happens.deployment), happens.for_s)
                self._latest = max(self._latest, at + (happens.for_s or 0.0))
            case LoadFailure():
                loop.at(at, world.fail_loads, id_of(happens.deployment), happens.count)
            case MemoryShrinks():
                loop.at(at, world.shrink, happens.node, happens.gpu_gb)
            case ControllerCrash():
                self._latest = max(self._latest, at + happens.restart_after_s)
                loop.at(at, world.crash_controller, happens.restart_after_s)
            case _:
                raise AssertionError(f"{happens.kind} is refused where deployments have residency")

    def _result(self) -> ResidencyResult:
        world = self.world
        now, scenario, gauges = world.loop.now, world.scenario, world.watch.gauges
        tallies = list(world.tallies.values())
        for tally in tallies:
            tally.levels.finish(now)
        return ResidencyResult(
            scenario=scenario.name,
            seed=scenario.seed,
            ended_at=now,
            happened=world.loop.done,
            busiest_minute_at=self.busiest_minute_at,
            checking=world.story.checking,
            failure=world.story.failure,
            all_deployments=AllFigures(
                memory=self._memory(now),
                misses=misses_of(tallies),
                moves=moves_of(tallies),
                requests=requests_of(world.queues.values()),
            ),
            deployments=tuple(map(self._figures_of, world.tallies)),
            happenings=tuple(world.story.happenings),
            spans=world.watch.spans.until(now),
            series=MemorySeries(
                used=gauges.used.buckets(now),
                fragmented=gauges.fragmented.buckets(now),
                cached=gauges.cached.buckets(now),
                waiting=world.together.waiting.buckets(now),
                first_answer_s=world.together.answers.buckets(),
            ),
            decisions=tuple(world.notebook.kept),
            decisions_left_out=world.notebook.left_out,
            outages=world.watch.outages.until(now),
            nodes=scenario.shapes,
        )

    def _figures_of(self, deployment: str) -> ResidencyFigures:
        world = self.world
        tally, size = world.tallies[deployment], world.scenario.sizes[shown(deployment)]
        seconds = tally.levels.seconds
        return ResidencyFigures(
            name=shown(deployment),
            weight_gb=size.weight_bytes / GB,
            replica_gb=(size.weight_bytes + size.working_bytes) / GB,
            hot_s=seconds["HOT"],
            warm_s=seconds["WARM"],
            cold_s=seconds["COLD"],
            misses=misses_of([tally]),
            moves=moves_of([tally]),
            requests=requests_of([world.queues[deployment]]),
        )

    def _memory(self, end: float) -> MemoryFigures:
        gauges, shapes = self.world.watch.gauges, self.world.scenario.shapes
        capacity = gauges.capacity.buckets(end)
        used, used_most = share(gauges.used.buckets(end), capacity, end)
        fragmented, fragmented_most = share(gauges.fragmented.buckets(end), capacity, end)
        cpu_bytes = sum(shape.cpu_bytes for shape in shapes)
        cached = sum(bucket.mean * (min(bucket.until, end) - bucket.since) for bucket in gauges.cached.buckets(end))
        return MemoryFigures(
            gpu_gb=sum(sum(shape.gpu_bytes) for shape in shapes) / GB,
            gpu_used=used,
            gpu_used_most=used_most,
            gpu_fragmented=fragmented,
            gpu_fragmented_most=fragmented_most,
            cpu_gb=cpu_bytes / GB,
            cpu_used=cached / (cpu_bytes * end) if cpu_bytes and end else 0.0,
        )
