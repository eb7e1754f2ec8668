"""`rankcore fork`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.cli.commands.simulate import SEED_MAX, simulate


def fork(
    recorded: Annotated[
        Path, typer.Argument(help="A journal: of `simulate --journal`, or of what ran for real.", metavar="JOURNAL")
    ],
    at: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="When the fork begins: 120s, 2m, 1h30m, 0:02:00; where a trace has times of day, 2023-11-16T18:40Z.",
            show_default=False,
        ),
    ],
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="WORDS", help="What happens in the fork, such as 'node n2 lost for 60s'; repeatable."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=SEED_MAX, help="Of the simulated world that a real run goes on in.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of that world; repeatable.")
    ] = None,
    traces: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the traces are. [default: where they were]")] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - prints them.")
    ] = None,
    journal: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the fork's own journal.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the page of both goes.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """What if something else had happened from then on?

    A recorded run is made again up to --at, checked line by line; then the faults come, and the answer stands beside that of
    the run as it was recorded. It is `rankcore simulate --from JOURNAL`, whose help has the faults in words.

    \b
      rankcore simulate examples/node-failure-at-peak.yaml --journal run.jsonl
      rankcore fork run.jsonl --at 0:17:15 --fault 'node node-5 lost'

    Exit status: 0 all promises held, 1 one was broken, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    simulate(
        None,
        seed,
        settings,
        recorded,
        at,
        faults,
        traces,
        json_file=json_file,
        journal=journal,
        report=report,
        quiet=quiet,
    )
