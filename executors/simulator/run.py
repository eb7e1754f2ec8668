"""Runs a scenario to its end and sums it up."""

from collections.abc import Callable, Mapping

import attrs

from executors.journal import JournalWriter
from executors.simulator.arrivals import Arrivals, busiest_minute
from executors.simulator.controller import Controller
from executors.simulator.faults import Schedule
from executors.simulator.figures import DeploymentFigures, figures_of
from executors.simulator.happenings import Failure, Happening
from executors.simulator.scenario.model import Scenario
from executors.simulator.timeline import Gap, Hold, gaps
from executors.simulator.world import World

Progress = Callable[[float, float], None]
"""Called now and then with the virtual time, and the time at which the run is expected to end."""

PROGRESS_EVERY = 500


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
    """

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


class Run:
    """A scenario in motion.

    Attributes:
        world: The simulated world; tests look into it, and break it.
        controller: The simulated controller.
        expected_end: When everything that the scenario says has happened.
    """

    def __init__(self, scenario: Scenario, arrivals: Mapping[str, Arrivals], journal: JournalWriter | None = None) -> None:
        self.world = World(scenario, arrivals)
        self.controller = Controller(self.world, journal)
        self.busiest_minute_at = busiest_minute(arrivals.values())
        self._schedule = Schedule(self.world, self.controller, self.busiest_minute_at)
        last_arrival = max((each.at_s[-1] for each in arrivals.values() if each.at_s), default=0.0)
        self._last_at = max(self._schedule.last_at, last_arrival)
        self.expected_end = scenario.duration_s if scenario.duration_s is not None else self._last_at
        self._limit = scenario.duration_s if scenario.duration_s is not None else self._last_at + scenario.settle_s

    def go(self, progress: Progress | None = None) -> RunResult:
        """Run to the end, or up to the first broken promise."""
        loop = self.world.loop
        self.controller.start()
        while self.world.story.failure is None:
            if self.world.scenario.duration_s is None and loop.now >= self._last_at and self._at_rest:
                break
            next_at = loop.next_at
            if next_at is None or next_at > self._limit:
                loop.move_to(self._limit)
                break
            loop.step()
            if progress is not None and loop.done % PROGRESS_EVERY == 0:
                progress(loop.now, self.expected_end)
        self.controller.check_all()
        return self._result()

    @property
    def _at_rest(self) -> bool:
        requests = (port.requests for port in self.world.deployments.values())
        return self.controller.settled and all(queue.idle for queue in requests)

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
                figures_of(name, self.controller.status_of(name), port.tally, port.timeline, port.requests.counts, now)
                for name, port in ports.items()
            ),
            happenings=tuple(self.world.story.happenings),
            holds={name: tuple(port.timeline.holds) for name, port in ports.items()},
            gaps={name: tuple(gaps(port.timeline, now)) for name, port in ports.items()},
            world_sizes={name: tuple(port.timeline.world_sizes) for name, port in ports.items()},
        )


def simulate(
    scenario: Scenario,
    arrivals: Mapping[str, Arrivals],
    journal: JournalWriter | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Run a scenario, with the requests that `load_arrivals` found, to its end."""
    return Run(scenario, arrivals, journal).go(progress)
