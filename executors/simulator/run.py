"""Runs a scenario to its end and sums it up."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, Self

import attrs

from executors.checking import Checking
from executors.engine.journal import Journal, JournalWriter
from executors.simulator.cluster.outages import Outage
from executors.simulator.controller import SimulatedController
from executors.simulator.deployment import DeploymentWorld
from executors.simulator.engines.pages import EnginePages
from executors.simulator.faults.schedule import Schedule
from executors.simulator.load.arrivals import Arrivals, busiest_minute
from executors.simulator.load.engine_queue import EngineQueue
from executors.simulator.motion import Motion, Progress
from executors.simulator.record.costs import bills, cost_figures
from executors.simulator.record.engine_figures import engine_figures
from executors.simulator.record.figures import DeploymentFigures, figures_of, request_figures
from executors.simulator.record.happenings import Failure, Happening
from executors.simulator.record.notebook import Decisions
from executors.simulator.record.series import Bucket
from executors.simulator.record.timeline import Gap, Hold, Timeline, gaps
from executors.simulator.record.windows import FeltRequests, felt_of
from executors.simulator.replicas.life import RecordedTimes
from executors.simulator.scenario.faults import Fault
from executors.simulator.scenario.model import Change, Scenario
from executors.simulator.wall_clock import unix_s_at_0
from executors.simulator.world import SimulatedWorld
from rankcore import DeploymentState
from rankcore.autoscaling import AutoscalingNote


@attrs.frozen(kw_only=True)
class Series:
    """One deployment along the time of a run; empty buckets of `wait_s` and `latency_s` are left out."""

    running: tuple[Bucket, ...]
    waiting: tuple[Bucket, ...]
    wait_s: tuple[Bucket, ...]
    latency_s: tuple[Bucket, ...]
    engine: EnginePages | None = attrs.field(default=None, eq=False)


@attrs.frozen(kw_only=True)
class RunResult:
    """A finished run.

    Attributes:
        ended_at: Virtual seconds.
        busiest_minute_at: When the minute with most requests began; None: there were none.
        checking: When promises were checked.
        failure: The broken promise that ended the run; None: all held that were checked.
        holds: Who held which rank, by deployment.
        gaps: Which rank had no running holder when, by deployment.
        world_sizes: (since, N), by deployment.
        series: What the requests felt and how many replicas ran along the time, by deployment.
        felt: What each request felt, by deployment.
        decisions: What the core decided, with what the list leaves out.
        scaling_notes: What autoscalers decided and why, with the time of each note, by deployment.
        outages: When nodes and the controller were away.
        nodes: All nodes, in the order of the scenario.
        unix_s_at_0: What time of day it was when the run began, since 1970; None: no trace says that.
    """

    PICTURE: ClassVar[frozenset[str]] = frozenset(
        {
            "checking",
            "holds",
            "gaps",
            "world_sizes",
            "series",
            "felt",
            "decisions",
            "scaling_notes",
            "outages",
            "nodes",
            "unix_s_at_0",
        }
    )
    """The fields that a picture needs and that are no figures."""

    scenario: str
    seed: int
    ended_at: float
    happened: int
    busiest_minute_at: float | None
    checking: Checking
    failure: Failure | None
    deployments: tuple[DeploymentFigures, ...]
    happenings: tuple[Happening, ...]
    holds: Mapping[str, tuple[Hold, ...]]
    gaps: Mapping[str, tuple[Gap, ...]]
    world_sizes: Mapping[str, tuple[tuple[float, int], ...]]
    series: Mapping[str, Series]
    felt: Mapping[str, FeltRequests] = attrs.field(eq=False)
    decisions: Decisions
    scaling_notes: Mapping[str, tuple[tuple[float, AutoscalingNote], ...]]
    outages: tuple[Outage, ...]
    nodes: tuple[str, ...]
    unix_s_at_0: float | None = None


class Run(Motion[Journal]):
    """A scenario in motion.

    Attributes:
        world: The simulated world; tests look into it, and break it.
        controller: The simulated controller.
        busiest_minute_at: When the minute with most requests begins; None: there are none.
    """

    def __init__(
        self,
        scenario: Scenario,
        arrivals: Mapping[str, Arrivals],
        journal: Journal | None = None,
        checking: Checking = Checking.EACH,
        recorded: RecordedTimes | None = None,
    ) -> None:
        self.world = SimulatedWorld(scenario, arrivals, recorded)
        self.world.story.checking = checking
        super().__init__(self.world.loop, self.world.story, scenario.duration_s, scenario.settle_s)
        self.controller = SimulatedController(self.world, journal)
        self.busiest_minute_at = busiest_minute(arrivals.values(), scenario.duration_s)
        self._arrivals = arrivals
        self._has_users = any(each.users is not None for each in arrivals.values())
        self._last_arrival = self._last_request
        self._schedule = Schedule(self.world, self.controller, self.busiest_minute_at, self._last_arrival)
        self._begun_at = 0.0

    @classmethod
    def resumed(
        cls,
        scenario: Scenario,
        states: Iterable[DeploymentState],
        at: float,
        timelines: Mapping[str, Timeline] = MappingProxyType({}),
        arrivals: Mapping[str, Arrivals] = MappingProxyType({}),
    ) -> Self:
        """A run that begins at a later time, with a controller that has come to these states.

        Args:
            scenario: Its deployments are those of the states, its nodes all that they name; what it says besides comes
                after `at`.
            states: One for each deployment, none of which waits for reports.
            at: Virtual seconds.
            timelines: Who held which rank until then, by deployment; the run goes on with these very ones.
            arrivals: Requests from then on, by deployment; none where there is none.
        """
        names = [deployment.spec.name for deployment in scenario.deployments]
        run = cls(scenario, {name: arrivals.get(name, Arrivals()) for name in names})
        run.world.loop.move_to(at)
        run._begun_at = at
        for name, timeline in timelines.items():
            run.world.deployments[name].follow(timeline)
        run.controller.resume(states)
        return run

    def go(self, progress: Progress | None = None) -> RunResult:
        """Run to the end, or up to the first broken promise. Call it once."""
        self._to_the_end(progress)
        self.controller.check_all()
        return self._result()

    def inject(self, fault: Fault | Change) -> None:
        """Let a fault or change come that the scenario does not have; one whose time has passed comes now.

        Raises:
            FieldProblem: The world has no such node or deployment.
        """
        self.world.scenario.check_fault((), fault)  # a change names its deployment as a fault does
        self._schedule.add(fault)
        self._is_over = False

    def _begin(self) -> None:
        if not self.controller.epoch:
            self.controller.start()

    @property
    def _last_at(self) -> float:
        if self._has_users:
            self._last_arrival = self._last_request
        return max(self._begun_at, self._schedule.last_at, self._last_arrival)

    @property
    def _last_request(self) -> float:
        return max((port.requests.last_at for port in self.world.deployments.values()), default=0.0)

    @property
    def _unchanging(self) -> Iterable[object]:
        return (*self.world.scenario.parts, self._arrivals, *self._arrivals.values(), *self.controller.states)

    def _write_to(self, journal: Journal | None) -> Journal | None:
        before = self.controller.journal
        self.controller.write_to(journal)
        return before

    def _resume_in(self, journal: Journal) -> None:
        self.controller.resume_in(journal)

    @property
    def _at_rest(self) -> bool:
        ports = self.world.deployments.values()
        return self.controller.settled and all(port.requests.idle and port.is_quiet for port in ports)

    def _result(self) -> RunResult:
        now = self.world.loop.now
        ports = self.world.deployments
        for port in ports.values():
            port.finish()
        outages = self.world.outages.until(now)
        costs = (
            bills(self.world.scenario, {name: port.tally.gpu_seconds_of for name, port in ports.items()}, outages, now) or {}
        )
        return RunResult(
            scenario=self.world.scenario.name,
            seed=self.world.scenario.seed,
            ended_at=now,
            happened=self.world.loop.done,
            busiest_minute_at=self.busiest_minute_at,
            checking=self.world.story.checking,
            failure=self.world.story.failure,
            deployments=tuple(
                attrs.evolve(
                    figures_of(
                        name,
                        self.controller.status_of(name),
                        port.tally,
                        port.timeline,
                        request_figures(port.requests.counts, port.requests.so_far()),
                        now,
                        autoscaled=port.deployment.autoscaling is not None,
                    ),
                    engine=engine_figures(port.requests, now),
                    cost=cost_figures(costs.get(name), port.requests),
                )
                for name, port in ports.items()
            ),
            happenings=tuple(self.world.story.happenings),
            holds={name: tuple(port.timeline.holds) for name, port in ports.items()},
            gaps={name: tuple(gaps(port.timeline, now)) for name, port in ports.items()},
            world_sizes={name: tuple(port.timeline.world_sizes) for name, port in ports.items()},
            series={name: _series_of(port, now) for name, port in ports.items()},
            felt={name: felt_of(port.requests) for name, port in ports.items()},
            decisions=self.controller.notebook.decisions,
            scaling_notes={name: tuple(notes) for name, notes in self.controller.scaling_notes.items()},
            outages=outages,
            nodes=tuple(self.world.cluster.nodes),
            unix_s_at_0=unix_s_at_0(self._arrivals),
        )


def _series_of(port: DeploymentWorld, end: float) -> Series:
    felt = port.requests.series
    return Series(
        running=port.timeline.running.buckets(end),
        waiting=felt.waiting.buckets(end),
        wait_s=felt.ended.buckets(port.requests.counts.waits_s),
        latency_s=felt.ended.buckets(port.requests.counts.latencies_s),
        engine=port.requests.along if isinstance(port.requests, EngineQueue) else None,
    )


def simulate(
    scenario: Scenario,
    arrivals: Mapping[str, Arrivals],
    journal: JournalWriter | None = None,
    progress: Progress | None = None,
    checking: Checking = Checking.EACH,
) -> RunResult:
    """Run a scenario, with the requests that `load_arrivals` found, to its end."""
    return Run(scenario, arrivals, journal, checking).go(progress)
