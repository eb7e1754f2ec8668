"""`rankcore replay`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer


def replay(
    journal: Annotated[Path, typer.Argument(help="A journal, as `simulate --journal` writes it.")],
    complete: Annotated[
        bool,
        typer.Option(
            "--complete", help="Refuse one that is not whole: without its end marker, with a gap, or of an older layout."
        ),
    ] = False,
) -> None:
    """Run a journal again through the core; fail at the first line that it answers differently.

    \b
      rankcore simulate examples/node-failure-at-peak.yaml --journal run.jsonl
      rankcore replay run.jsonl

    A line that is missing, repeated, moved or changed is found by the lines' numbers and hashes.

    Exit status: 0 all lines agree, 1 a line differs, 2 the file is not a journal, or was damaged.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.replay import run

    run(journal, complete)
