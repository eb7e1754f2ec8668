"""Runs a scenario to its end and sums it up."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, Self

import attrs

from executors.journal import Journal, JournalWriter
from executors.simulator.cluster.outages import Outage
from executors.simulator.controller import Controller
from executors.simulator.deployment import DeploymentWorld
from executors.simulator.faults.schedule import Schedule
from executors.simulator.load.arrivals import Arrivals, busiest_minute
from executors.simulator.record.figures import DeploymentFigures, figures_of
from executors.simulator.record.happenings import Failure, Happening
from executors.simulator.record.notebook import Decisions
from executors.simulator.record.series import Bucket
from executors.simulator.record.timeline import Gap, Hold, Timeline, gaps
from executors.simulator.scenario.faults import Fault
from executors.simulator.scenario.model import Change, Scenario
from executors.simulator.world import World
from rankcore import DeploymentState
from rankcore.autoscaling import AutoscalingNote

Progress = Callable[[float, float], None]
"""Called now and then with the virtual time, and the time at which the run is expected to end."""

PROGRESS_EVERY = 500


@attrs.frozen(kw_only=True)
class Series:
    """One deployment along the time of a run; empty buckets of `wait_s` and `latency_s` are left out."""

    running: tuple[Bucket, ...]
    waiting: tuple[Bucket, ...]
    wait_s: tuple[Bucket, ...]
    latency_s: tuple[Bucket, ...]


@attrs.frozen(kw_only=True)
class RunResult:
    """A finished run.

    Attributes:
        ended_at: Virtual seconds.
        busiest_minute_at: When the minute with most requests began; None: there were none.
        failure: The broken promise that ended the run; None: all held.
        holds: Who held which rank, by deployment.
        gaps: Which rank had no running holder when, by deployment.
        world_sizes: (since, N), by deployment.
        series: What the requests felt and how many replicas ran along the time, by deployment.
        decisions: What the core decided, with what the list leaves out.
        scaling_notes: What autoscalers decided and why, with the time of each note, by deployment.
        outages: When nodes and the controller were away.
        nodes: All nodes, in the order of the scenario.
    """

    PICTURE: ClassVar[frozenset[str]] = frozenset(
        {"holds", "gaps", "world_sizes", "series", "decisions", "scaling_notes", "outages", "nodes"}
    )
    """The fields that a picture needs and that are no figures."""

    scenario: str
    seed: int
    ended_at: float
    happened: int
    busiest_minute_at: float | None
    failure: Failure | None
    deployments: tuple[DeploymentFigures, ...]
    happenings: tuple[Happening, ...]
    holds: Mapping[str, tuple[Hold, ...]]
    gaps: Mapping[str, tuple[Gap, ...]]
    world_sizes: Mapping[str, tuple[tuple[float, int], ...]]
    series: Mapping[str, Series]
    decisions: Decisions
    scaling_notes: Mapping[str, tuple[tuple[float, AutoscalingNote], ...]]
    outages: tuple[Outage, ...]
    nodes: tuple[str, ...]


class Run:
    """A scenario in motion.

    Attributes:
        world: The simulated world; tests look into it, and break it.
        controller: The simulated controller.
        busiest_minute_at: When the minute with most requests begins; None: there are none.
    """

    def __init__(self, scenario: Scenario, arrivals: Mapping[str, Arrivals], journal: Journal | None = None) -> None:
        self.world = World(scenario, arrivals)
        self.controller = Controller(self.world, journal)
        self.busiest_minute_at = busiest_minute(arrivals.values(), scenario.duration_s)
        self._arrivals = arrivals
        self._last_arrival = max((each.at_s[-1] for each in arrivals.values() if each.at_s), default=0.0)
        self._schedule = Schedule(self.world, self.controller, self.busiest_minute_at, self._last_arrival)
        self._begun_at = 0.0
        self._is_over = False

    @classmethod
    def resumed(
        cls,
        scenario: Scenario,
        states: Iterable[DeploymentState],
        at: float,
        timelines: Mapping[str, Timeline] = MappingProxyType({}),
    ) -> Self:
        """A run that begins at a later time, with a controller that has come to these states.

        Args:
            scenario: Its deployments are those of the states, its nodes all that they name; what it says besides comes
                after `at`.
            states: One for each deployment, none of which waits for reports.
            at: Virtual seconds.
            timelines: Who held which rank until then, by deployment; the run goes on with these very ones.
        """
        run = cls(scenario, {deployment.spec.name: Arrivals() for deployment in scenario.deployments})
        run.world.loop.move_to(at)
        run._begun_at = at
        for name, timeline in timelines.items():
            run.world.deployments[name].follow(timeline)
        run.controller.resume(states)
        return run

    @property
    def now(self) -> float:
        """Virtual seconds: when the last thing happened."""
        return self.world.loop.now

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end, or a promise was broken."""
        return self._is_over or self.world.story.failure is not None

    @property
    def expected_end(self) -> float:
        """When everything that the scenario says has happened, as far as is known by now."""
        duration_s = self.world.scenario.duration_s
        return duration_s if duration_s is not None else self._last_at

    def go(self, progress: Progress | None = None) -> RunResult:
        """Run to the end, or up to the first broken promise. Call it once."""
        self._advance(math.inf, progress)
        self.controller.check_all()
        return self._result()

    def until(self, at: float) -> None:
        """Let everything happen that happens up to and including this time, unless the run is over before.

        Whether a run is stopped on its way changes nothing of what happens in it.
        """
        self._advance(at, None)

    def inject(self, fault: Fault | Change) -> None:
        """Let a fault or change come that the scenario does not have; one whose time has passed comes now.

        Raises:
            FieldProblem: The world has no such node or deployment.
        """
        self.world.scenario.check_fault((), fault)  # a change names its deployment as a fault does
        self._schedule.add(fault)
        self._is_over = False

    def fork(self, journal: JournalWriter | None = None) -> "Run":
        """A second run that is where this one is, and that goes on as this one does unless something else happens in it.

        Neither is ever seen by the other. What cannot change is shared and not copied: the core's states, the requests
        that arrive, the scenario.

        Args:
            journal: Where the fork writes what happens in it; this run's journal goes on with this run.
        """
        shared = (*self.world.scenario.parts, self._arrivals, *self._arrivals.values(), *self.controller.states)
        own_journal = self.controller.journal
        self.controller.write_to(None)
        try:
            fork = copy.deepcopy(self, {id(each): each for each in shared})
        finally:
            self.controller.write_to(own_journal)
        if journal is not None:
            fork.controller.resume_in(journal)
        return fork

    @property
    def _last_at(self) -> float:
        return max(self._begun_at, self._schedule.last_at, self._last_arrival)

    @property
    def _limit(self) -> float:
        scenario = self.world.scenario
        return scenario.duration_s if scenario.duration_s is not None else self._last_at + scenario.settle_s

    def _advance(self, until: float, progress: Progress | None) -> None:
        loop, story = self.world.loop, self.world.story
        if not self.controller.epoch:
            self.controller.start()
        told = loop.done
        while story.failure is None and not self._is_over:
            if self._comes_to_rest():
                self._is_over = True
            elif self._happen(until):
                if progress is not None and loop.done >= told + PROGRESS_EVERY:
                    told = loop.done
                    progress(loop.now, self.expected_end)
            elif until < self._limit:
                return
            else:
                loop.move_to(self._limit)
                self._is_over = True

    def _happen(self, until: float) -> bool:
        """Let the next thing happen, and some of those after it that come too early for the run to be over before them."""
        loop, story = self.world.loop, self.world.story
        until = min(until, self._limit)
        if not loop.step(until):
            return False
        if self.world.scenario.duration_s is None:
            until = min(until, self._last_at)
        if story.failure is None:
            loop.run(until, PROGRESS_EVERY)
        return True

    def _comes_to_rest(self) -> bool:
        """Whether everything that the scenario says has happened and come to its end."""
        loop, last_at = self.world.loop, self._last_at
        if self.world.scenario.duration_s is not None or loop.now < last_at or not self._at_rest:
            return False
        next_at = loop.next_at
        return next_at is None or next_at > last_at

    @property
    def _at_rest(self) -> bool:
        ports = self.world.deployments.values()
        return self.controller.settled and all(port.requests.idle and port.is_quiet for port in ports)

    def _result(self) -> RunResult:
        now = self.world.loop.now
        ports = self.world.deployments
        for port in ports.values():
            port.finish()
        return RunResult(
            scenario=self.world.scenario.name,
            seed=self.world.scenario.seed,
            ended_at=now,
            happened=self.world.loop.done,
            busiest_minute_at=self.busiest_minute_at,
            failure=self.world.story.failure,
            deployments=tuple(
                figures_of(
                    name,
                    self.controller.status_of(name),
                    port.tally,
                    port.timeline,
                    port.requests.counts,
                    now,
                    autoscaled=port.deployment.autoscaling is not None,
                )
                for name, port in ports.items()
            ),
            happenings=tuple(self.world.story.happenings),
            holds={name: tuple(port.timeline.holds) for name, port in ports.items()},
            gaps={name: tuple(gaps(port.timeline, now)) for name, port in ports.items()},
            world_sizes={name: tuple(port.timeline.world_sizes) for name, port in ports.items()},
            series={name: _series_of(port, now) for name, port in ports.items()},
            decisions=self.controller.notebook.decisions,
            scaling_notes={name: tuple(notes) for name, notes in self.controller.scaling_notes.items()},
            outages=self.world.outages.until(now),
            nodes=tuple(self.world.cluster.nodes),
        )


def _series_of(port: DeploymentWorld, end: float) -> Series:
    felt = port.requests.series
    return Series(
        running=port.timeline.running.buckets(end),
        waiting=felt.waiting.buckets(end),
        wait_s=felt.ended.buckets(port.requests.counts.waits_s),
        latency_s=felt.ended.buckets(port.requests.counts.latencies_s),
    )


def simulate(
    scenario: Scenario,
    arrivals: Mapping[str, Arrivals],
    journal: JournalWriter | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Run a scenario, with the requests that `load_arrivals` found, to its end."""
    return Run(scenario, arrivals, journal).go(progress)
