"""`rankcore sweep`: its arguments and its help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from executors.checking import Checking
from executors.cli.commands.checking_option import CheckingOption
from executors.cli.commands.compare import JOBS_MAX, RUNS_MAX
from executors.cli.commands.simulate import SEED_MAX


class Where(StrEnum):
    """Where the runs are made."""

    PROCESSES = "processes"
    RAY = "ray"


def sweep(
    scenario: Annotated[Path, typer.Argument(help="A scenario file.", metavar="SCENARIO", show_default=False)],
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="KEY=V,V,...", help="What is varied, and to which values; repeatable."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="What is set in all runs; repeatable.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=RUNS_MAX, help="How often each combination is run.")] = 20,
    seed: Annotated[
        int | None, typer.Option(min=0, max=SEED_MAX, help="Of the first run; the others follow. [default: the scenario's]")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=JOBS_MAX, help="How many runs at once; the result is the same.")] = 1,
    on: Annotated[Where, typer.Option(help="Where runs are made; ray: tasks on a local Ray cluster.")] = Where.PROCESSES,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go. [default: <scenario>.sweep, in this directory]")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything again, also what is kept already.")] = False,
    checking: CheckingOption = Checking.END,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """How does it depend on ...?

    Runs every combination of the varied values, each with the same seeds, prints a table of means with their 95 %
    intervals, and writes all figures of all runs (sweep.csv) and a page of small charts (sweep.html). What is done is
    kept (cells.jsonl): after Ctrl-C the same command goes on where it was.

    A key is a path into the scenario, or a field of a deployment, which then is varied in all of them. A value is YAML.

    \b
      rankcore sweep examples/node-failure-at-peak.yaml --vary target_replicas=14,15,16 --runs 10 --jobs 2
      rankcore sweep s.yaml --vary 'deployments[0].target_replicas=8,12,16' \\
                            --vary compaction=when_healthy,immediate --runs 20 --jobs 2
      rankcore sweep s.yaml --vary network.latency_s=0.001,0.1,1 --on ray --out latency

    Exit status: 0 done, 1 a promise was broken in a run, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.sweep import run

    run(scenario, vary or [], settings or [], runs, seed, jobs, on.value, out, fresh, checking, quiet)
