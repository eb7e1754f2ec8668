"""`rankcore calibrate`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    journal: Annotated[
        Path, typer.Argument(help="A recording, as `record` or `simulate --journal` writes it.", metavar="JOURNAL")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the scenario goes, as YAML.")],
    requests: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Its request file; repeatable. [default: those beside it, JOURNAL.requests*.jsonl]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was measured, as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Make a scenario of a recorded run.

    It has the run's deployments, nodes, faults and changes at their times, each call with the time that a replica took for
    it (in a file beside it, SCENARIO.requests-0.csv), and how long replicas took to start, to initialise, to be reconfigured
    and to drain, as lists of what was measured. Of fewer than 5 samples their mean stands there, and says so; what was not
    measured stands under `# not measured`, with what scenarios have where they say nothing.

    \b
      rankcore record examples/sharded_embedding.py:app --requests trace.csv -o run.jsonl
      rankcore calibrate run.jsonl -o scenario.yaml
      rankcore simulate scenario.yaml --set target_replicas=8

    Exit status: 0 done, 2 bad input, no calls or those of another run, a recording that was damaged, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.calibrate import run

    run(journal, output, requests, as_json, quiet)
