"""Runs a scenario of models to its end and sums it up."""

from collections.abc import Mapping

import attrs

from executors.simulator.cluster.outages import Outage
from executors.simulator.load.arrivals import Arrivals, busiest_minute
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
from executors.simulator.residency.world import ModelWorld
from executors.simulator.run import PROGRESS_EVERY, Progress
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


class ResidencyRun:
    """A scenario of models in motion.

    Attributes:
        world: The simulated world; tests look into it, and break it.
    """

    def __init__(self, scenario: ResidencyScenario, arrivals: Mapping[str, Arrivals]) -> None:
        self.world = ModelWorld(scenario, arrivals)
        self.busiest_minute_at = busiest_minute(arrivals.values(), scenario.duration_s)
        self._last_at = max((each.at_s[-1] for each in arrivals.values() if each.at_s), default=0.0)
        for happens in (*scenario.faults, *scenario.changes):
            self._schedule(happens)

    def go(self, progress: Progress | None = None) -> ResidencyResult:
        """Run to the end, or up to the first broken promise. Call it once."""
        world = self.world
        world.start()
        duration_s = world.scenario.duration_s
        limit = duration_s if duration_s is not None else self._last_at + world.scenario.settle_s
        self._run_until(limit if duration_s is not None else self._last_at, limit, progress)
        if duration_s is None:
            self._settle(limit)
        if world.story.failure is None:
            world.check()
        return self._result()

    def _run_until(self, until: float, limit: float, progress: Progress | None) -> None:
        """Let everything happen that happens up to and including this time."""
        loop, story = self.world.loop, self.world.story
        while story.failure is None and loop.run(until, PROGRESS_EVERY):
            if progress is not None:
                progress(loop.now, limit)
        if story.failure is None:
            loop.move_to(until)

    def _settle(self, limit: float) -> None:
        """Go on until every request has been answered or given up, one happening at a time."""
        loop, story = self.world.loop, self.world.story
        while story.failure is None and not all(port.idle for port in self.world.ports.values()):
            if not loop.step(limit):
                loop.move_to(limit)
                return

    def _schedule(self, happens: ModelFault | ModelChange) -> None:
        world, loop, at = self.world, self.world.loop, happens.at.seconds(self.busiest_minute_at)
        self._last_at = max(self._last_at, at)
        match happens:
            case NodeLoss():
                loop.at(at, world.lose_node, happens.node)
                if happens.back_after_s is not None:
                    self._last_at = max(self._last_at, at + happens.back_after_s)
                    loop.at(at + happens.back_after_s, world.bring_node_back, happens.node)
            case ModelCrash():
                loop.at(at, world.crash, happens.model)
            case LoadFailure():
                loop.at(at, world.fail_loads, happens.model, happens.count)
            case MemoryShrinks():
                loop.at(at, world.shrink, happens.node, happens.gpu_gb)
            case ModelChange():
                loop.at(at, world.change, happens)

    def _result(self) -> ResidencyResult:
        world = self.world
        now, scenario, ports, gauges = world.loop.now, world.scenario, world.ports, world.watch.gauges
        for port in ports.values():
            port.tally.levels.finish(now)
        return ResidencyResult(
            scenario=scenario.name,
            seed=scenario.seed,
            ended_at=now,
            happened=world.loop.done,
            busiest_minute_at=self.busiest_minute_at,
            failure=world.story.failure,
            all_models=AllFigures(
                memory=self._memory(now),
                misses=misses_of([port.tally for port in ports.values()]),
                moves=moves_of([port.tally for port in ports.values()]),
                requests=requests_of(port.counts for port in ports.values()),
            ),
            models=tuple(self._model(name) for name in ports),
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

    def _model(self, name: str) -> ModelFigures:
        port, size = self.world.ports[name], self.world.scenario.sizes[name]
        seconds = port.tally.levels.seconds
        return ModelFigures(
            name=name,
            weight_gb=size.weight_bytes / GB,
            replica_gb=(size.weight_bytes + size.working_bytes) / GB,
            hot_s=seconds["HOT"],
            warm_s=seconds["WARM"],
            cold_s=seconds["COLD"],
            misses=misses_of([port.tally]),
            moves=moves_of([port.tally]),
            requests=requests_of([port.counts]),
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
