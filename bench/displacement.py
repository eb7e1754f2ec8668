"""Who makes room for whom: the planner and other rules on measured traffic, as a table: who waits how long, and how many loads.

python -m bench.displacement [--quick]

Each rule is a file of a few lines in `bench/policies/`, each workload a scenario there or in `examples/`; a single pair is
`rankcore compare SCENARIO --policy FILE`.
"""

import sys
from pathlib import Path

from bench.measure import print_table
from executors.checking import Checking
from executors.simulator.load.sources import read_source
from executors.simulator.questions.cells import Cell, in_processes
from executors.simulator.questions.settings import read_settings
from executors.simulator.record.flat_figures import Numbers, quantity
from executors.simulator.residency.figures import ALL_DEPLOYMENTS

ROOT = Path(__file__).resolve().parents[1]
RULES = ("least-recently-used", "greedy", "fixed-turns")
WORKLOADS = ("bench/policies/image-service.yaml", "bench/policies/four-services.yaml", "examples/residency-23-models.yaml")
JOBS = 2
COLUMNS = {
    "answered": "requests.done",
    "waited over 1 s": "requests.waited_over_1_s",
    "wait p95": "requests.wait_s.p95",
    "wait p99": "requests.wait_s.p99",
    "loads from disk": "moves.loads_from_disk",
    "from CPU memory": "moves.loads_from_cpu",
    "moved": "moves.moved_gb",
}


def run(quick: bool) -> None:
    """A table for each workload; quick: of the first alone."""
    for workload in WORKLOADS[: 1 if quick else None]:
        rules = [(), *(read_settings(ROOT / "bench" / "policies" / f"{rule}.yaml") for rule in RULES)]
        sources = [read_source(ROOT / workload, settings) for settings in rules]
        found: dict[int, Numbers] = {}
        for index, outcome in in_processes(JOBS)([Cell(source, source.scenario().seed, Checking.OFF) for source in sources]):
            found[index] = outcome.figures[ALL_DEPLOYMENTS]
        print(f"\n{workload}: {found[0]['requests.arrived']:,.0f} requests\n")
        rows = [
            [rule, *(quantity(key, found[index][key]) for key in COLUMNS.values())]
            for index, rule in enumerate(("the planner", *RULES))
        ]
        print_table(["", *COLUMNS], rows)


if __name__ == "__main__":
    run("--quick" in sys.argv[1:])
