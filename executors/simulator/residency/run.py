"""Runs a scenario of models to its end and sums it up."""

from collections.abc import Iterable, Mapping

import attrs

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
    ModelFigures,
    misses_of,
    moves_of,
    requests_of,
    share,
)
from executors.simulator.residency.notebook import Noted
from executors.simulator.residency.record import Span
from executors.simulator.residency.world import ClusterWorld
from executors.simulator.scenario.faults import NodeLoss
from executors.simulator.scenario.residency.happens import LoadFailure, MemoryShrinks, ModelChange, ModelCrash, ModelFault
from executors.simulator.scenario.residency.hardware import NodeShape
from executors.simulator.scenario.residency.models import GB
from executors.simulator.scenario.residency.whole import ResidencyScenario


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
        failure: The broken promise that ended the run; None: all held.
        spans: Who held which memory when.
        decisions: What the planner decided; `decisions_left_out` says how much of that is not there.
        outages: When nodes were down.
        nodes: All nodes, in the order of the scenario.
    """

    scenario: str
    seed: int
    ended_at: float
    happened: int
    busiest_minute_at: float | None
    failure: Failure | None
    all_models: AllFigures
    models: tuple[ModelFigures, ...]
    happenings: tuple[Happening, ...]
    spans: tuple[Span, ...]
    series: MemorySeries
    decisions: tuple[Noted, ...]
    decisions_left_out: int
    outages: tuple[Outage, ...]
    nodes: tuple[NodeShape, ...]


PICTURE = frozenset({"spans", "series", "decisions", "decisions_left_out", "outages", "nodes"})
"""The fields that a picture needs and that are no figures."""


class ResidencyRun(Motion[Journal]):
    """A scenario of models in motion.

    Attributes:
        world: The simulated world; tests look into it, and break it.
        busiest_minute_at: When the minute with most requests begins; None: there are none.
    """

    def __init__(
        self, scenario: ResidencyScenario, arrivals: Mapping[str, Arrivals], journal: Journal | None = None
    ) -> None:
        self.world = ClusterWorld(scenario, arrivals)
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

    def inject(self, happens: ModelFault | ModelChange) -> None:
        """Let a fault or change come that the scenario does not have; one whose time has passed comes now.

        Raises:
            FieldProblem: The world has no such node or model.
        """
        self.world.scenario.check_names((), happens)
        self._schedule(happens)
        self._is_over = False

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.world.start()

    @property
    def _at_rest(self) -> bool:
        return all(queue.idle for queue in self.world.queues.values())

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

    def _schedule(self, happens: ModelFault | ModelChange) -> None:
        world, loop = self.world, self.world.loop
        at = max(loop.now, happens.at.seconds(self.busiest_minute_at))
        self._latest = max(self._latest, at)
        match happens:
            case NodeLoss():
                loop.at(at, world.lose_node, happens.node)
                if happens.back_after_s is not None:
                    self._latest = max(self._latest, at + happens.back_after_s)
                    loop.at(at + happens.back_after_s, world.bring_node_back, happens.node)
            case ModelCrash():
                loop.at(at, world.crash, world.scenario.id_of(happens.model))
            case LoadFailure():
                loop.at(at, world.fail_loads, world.scenario.id_of(happens.model), happens.count)
            case MemoryShrinks():
                loop.at(at, world.shrink, happens.node, happens.gpu_gb)
            case ModelChange():
                loop.at(at, world.change, happens)

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
            failure=world.story.failure,
            all_models=AllFigures(
                memory=self._memory(now),
                misses=misses_of(tallies),
                moves=moves_of(tallies),
                requests=requests_of(queue.counts for queue in world.queues.values()),
            ),
            models=tuple(map(self._model, world.tallies)),
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

    def _model(self, deployment: str) -> ModelFigures:
        world = self.world
        tally, size = world.tallies[deployment], world.scenario.sizes[deployment]
        seconds = tally.levels.seconds
        return ModelFigures(
            name=world.scenario.shown(deployment),
            weight_gb=size.weight_bytes / GB,
            replica_gb=(size.weight_bytes + size.working_bytes) / GB,
            hot_s=seconds["HOT"],
            warm_s=seconds["WARM"],
            cold_s=seconds["COLD"],
            misses=misses_of([tally]),
            moves=moves_of([tally]),
            requests=requests_of([world.queues[deployment].counts]),
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


def simulate_models(
    scenario: ResidencyScenario, arrivals: Mapping[str, Arrivals], progress: Progress | None = None
) -> ResidencyResult:
    """Run a scenario of models, with the requests that `load_model_arrivals` found, to its end."""
    return ResidencyRun(scenario, arrivals).go(progress)
