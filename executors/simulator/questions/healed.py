"""Whether everything is well again at the end of a run: what is demanded once the faults of a scenario are over."""

from collections.abc import Iterator

import attrs

from executors.simulator.motion import Progress
from executors.simulator.record.happenings import Failure
from executors.simulator.run import Run, RunResult
from rankcore import DeploymentState
from rankcore.values import DeploymentStatus

RULE = "liveness"


def go_and_heal(run: Run, progress: Progress | None = None) -> RunResult:
    """Run to the end, and demand that everything is well then; what is not is the failure of the run."""
    result = run.go(progress)
    return attrs.evolve(result, failure=unhealed(run, result)) if result.failure is None else result


def unhealed(run: Run, result: RunResult) -> Failure | None:
    """The first thing that is wrong at the end of a run in which no promise was broken; None: all is well.

    Well is: healthy, with replicas that are and believe what the book says, ranks 0..N-1 served, no request left over. Or
    deleted, with nobody left; or given up, since a build failed too often before it was ever ready. Who wants no replicas
    has nobody who could take requests.
    """
    for figures in result.deployments:
        driver = run.controller.drivers.get(figures.name)
        wrong = next(_wrong(run, result, figures.name, driver.state), None) if driver is not None else _away(figures.status)
        served = wrong is None and driver is not None and driver.state.available > 0
        if served and figures.requests.unfinished:
            wrong = f"{figures.requests.unfinished} requests are not done"
        if wrong is not None:
            return Failure(result.ended_at, figures.name, "the end of the run", RULE, f"{figures.name}: {wrong}")
    return None


def _away(status: str) -> str | None:
    return None if status == DeploymentStatus.DELETED else "no controller is there"


def _wrong(run: Run, result: RunResult, name: str, state: DeploymentState) -> Iterator[str]:
    processes = run.world.deployments[name].processes
    if state.status is DeploymentStatus.DELETED:
        if processes:
            yield f"DELETED, and {sorted(processes)} live on"
        return
    if state.status is DeploymentStatus.DEPLOY_FAILED:
        return
    if state.status is not DeploymentStatus.HEALTHY:
        yield f"still {state.status} {result.ended_at:g} s after the beginning"
        return
    if sorted(processes) != sorted(state.replicas):
        yield f"there are {sorted(processes)}, the book has {sorted(state.replicas)}"
        return
    for replica_id, process in processes.items():
        replica, booked = process.replica, state.rank_of(replica_id)
        believed = replica.rank if replica is not None else None
        if believed != booked:
            yield f"{replica_id} believes {believed}, the book says {booked}"
        elif replica is not None and (replica.world_size, replica.version) != (state.world_size, state.spec.version):
            yield f"{replica_id} runs {replica.version!r} in a world of {replica.world_size}"
    held = [hold for hold in result.holds[name] if hold.running and hold.until == result.ended_at]
    served = sorted(hold.rank for hold in held)
    if served != list(range(state.world_size)):
        yield f"ranks {served} are served, of {state.world_size}"
