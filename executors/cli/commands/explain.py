"""`rankcore explain`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

RANK_MAX = 10_000_000


def explain(
    journal: Annotated[Path, typer.Argument(help="A journal, as `simulate --journal` writes it.", show_default=False)],
    replica: Annotated[str | None, typer.Option(metavar="ID", help="Why is it, or a worker, where it is?")] = None,
    rank: Annotated[int | None, typer.Option(min=0, max=RANK_MAX, help="Who had it, and why did it change hands?")] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="What went on then? 812, 13m32s, 0:13:32 or 2023-11-16T18:40Z. With the others: their last change.",
        ),
    ] = None,
    deployment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose rank or moment. Alone: how it changed, why it is HOT, WARM or COLD."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the story as JSON.")] = False,
) -> None:
    """Why did it happen?

    Tells from the journal alone what changed, by which rule, and because of what: back to the change, the crash or the
    lost node that it follows from.

    \b
      rankcore simulate examples/node-failure-at-peak.yaml --journal run.jsonl
      rankcore explain run.jsonl --rank 3
      rankcore explain run.jsonl --replica 'llama-70b#1.4'
      rankcore explain run.jsonl --replica 'llama-70b#1.4' --at 812    why did it move just then?
      rankcore explain run.jsonl --at 0:13:32                          what was going on?

    Of a deployment whose weights may be COLD it says too why they are on GPUs, in CPU memory or on disk, who took their place,
    and what it waits for; --at alone shows the memory of all nodes:

    \b
      rankcore explain cluster.jsonl --deployment shop/chat
      rankcore explain cluster.jsonl --replica 'shop/chat@1#1.0'       a worker, which holds weights
      rankcore explain cluster.jsonl --at 7:30:00

    Exit status: 0 done, 2 bad input, such as a replica that the journal does not know.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.explain import run

    run(journal, replica, rank, at, deployment, as_json)
