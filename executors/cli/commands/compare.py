"""`rankcore compare`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.checking import Checking
from executors.cli.commands.checking_option import CheckingOption
from executors.cli.commands.simulate import SEED_MAX
from executors.cli.commands.slo_options import SloOption, SloWindowOption

RUNS_MAX = 100_000
JOBS_MAX = 1024


def compare(
    first: Annotated[Path, typer.Argument(help="A scenario file.", metavar="A", show_default=False)],
    others: Annotated[
        list[Path] | None,
        typer.Argument(
            help="One to three that it is compared with; left out, with --policy, A again.",
            metavar="B",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings of B in YAML, each as for `simulate --set`: KEY: VALUE.", show_default=False
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=RUNS_MAX, help="How often each is run.")] = 20,
    seed: Annotated[
        int | None, typer.Option(min=0, max=SEED_MAX, help="Of the first run; the others follow. [default: A's]")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=JOBS_MAX, help="How many runs at once; the result is the same.")] = 1,
    slo: SloOption = None,
    slo_window: SloWindowOption = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - prints them instead of the table."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with the runs of the first seed on one time axis.", show_default=False),
    ] = None,
    checking: CheckingOption = Checking.END,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Does it make a difference, and how sure is that?

    Runs two to four scenarios on the same seeds, so that requests, start-up times and faults are the same wherever the
    scenarios are, and prints for each figure both means, the mean difference B - A of the pairs, and its 95 % confidence
    interval; of more than two, each is compared with A. A difference whose interval holds 0 cannot be told from chance with
    so few runs.

    --html shows the runs of the first seed on one time axis: a line of each in every chart, the difference below it, and the
    lanes of ranks that differ.

    \b
      rankcore compare examples/node-failure-at-peak.yaml with-a-spare-node.yaml --runs 20 --jobs 2 --html both.html
      rankcore compare examples/sixty-and-sixty.yaml --policy bench/policies/least-recently-used.yaml
      rankcore compare ten.yaml twelve.yaml fourteen.yaml --html three.html
      rankcore compare a.yaml b.yaml --slo 'p99 latency_s < 5 @ 99%' --slo-window 10m
      rankcore compare a.yaml b.yaml --runs 100 --seed 1 --json - | jq '.deployments[0].figures.ranks_moved'

    With --slo GOAL (see `rankcore optimize --help`), or slo in A, it also says in how many runs of each an objective held,
    or in what share of their windows.

    Exit status: 0 done, 1 a promise was broken in a run, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.compare import run

    run(first, others or [], policy, runs, seed, jobs, json_file, html, checking, quiet, slo or [], slo_window)
