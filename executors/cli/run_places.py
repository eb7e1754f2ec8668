"""Where the runs of a sweep or a search are made: in processes of this machine, or as tasks of a local Ray cluster."""

from executors.simulator.questions.cells import Workers, in_processes, run_cell


def workers_at(on: str, jobs: int) -> Workers:
    """What makes so many runs at once, on `processes` or on `ray`."""
    if on == "processes":
        return in_processes(jobs)
    from executors.ray_workers import (  # the one way from here to a cluster library, taken only when it is asked for
        LOCAL,
        on_ray,
    )

    return lambda cells: on_ray(cells, run_cell, jobs, LOCAL)
