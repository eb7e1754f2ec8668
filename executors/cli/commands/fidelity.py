"""`rankcore fidelity`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

RUNS_MAX = 10_000


def fidelity(
    journal: Annotated[
        Path, typer.Argument(help="A recording, as `record` or `simulate --journal` writes it.", metavar="JOURNAL")
    ],
    runs: Annotated[int, typer.Option(min=1, max=RUNS_MAX, help="How often it is simulated, on the seeds from 0 on.")] = 20,
    against: Annotated[
        Path | None,
        typer.Option(metavar="JOURNAL", help="Another recording of the same run: how much does a run differ from itself?"),
    ] = None,
    drawn: Annotated[
        bool, typer.Option("--drawn", help="Draw durations from all that were measured, as the scenario of `calibrate` does.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Errors above this share of p95 and p99 fail, and of half of it at p50.")
    ] = 0.1,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - prints them.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Is a simulated run like the recorded one?

    Calibrates a recording, simulates it with the same calls, faults and changes, each replica taking as long as it took
    then, and prints: whether the history of ranks is equal, and where it first differs; how far changes are apart; p50, p95
    and p99 of the wait for a replica and of the whole call, with the error and its 95 % interval. With --against another
    recording of the same run stands beside it, which no simulation has to be nearer to than that is. With --drawn each replica
    takes a time out of those that were measured, as in what `calibrate` writes: other ranks are to be expected then.

    Waits and calls below 10 ms in both count as equal: what differs there is the way of a few messages.

    \b
      rankcore record examples/sharded_embedding.py:app --requests trace.csv -o run.jsonl
      rankcore fidelity run.jsonl --runs 20
      rankcore fidelity run.jsonl --against second.jsonl --tolerance 0.05 --json - | jq .simulated.history

    Exit status: 0 alike, 1 another history of ranks or beyond the tolerance, 2 bad input, no calls or those of another run,
    a damaged recording, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.fidelity import run

    run(journal, runs, against, drawn, tolerance, json_file, quiet)
