"""`python -m bench [--quick] [NAME]`: run the benchmarks, or only one: those that `--help` names."""

import argparse

from bench import gang, rank_table, residency, simulator, step, swarm, update

BENCHMARKS = {
    "rank_table": rank_table.run,
    "step": step.run,
    "update": update.run,
    "simulator": simulator.run,
    "swarm": swarm.run,
    "residency": residency.run,
    "gang": gang.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure speed; see bench/README.md.")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer, in less than a minute; ratios are rough")
    parser.add_argument("benchmark", nargs="?", choices=list(BENCHMARKS), help="which; all unless named")
    chosen = parser.parse_args()
    for name in [chosen.benchmark] if chosen.benchmark else BENCHMARKS:
        BENCHMARKS[name](chosen.quick)
        print()


main()
