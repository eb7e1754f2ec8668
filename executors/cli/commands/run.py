"""`rankcore run`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:APP", help="Where the application is: package.module:app or path/file.py:app.", show_default=False
        ),
    ],
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every event, command and note, for `rankcore replay`.")
    ] = None,
    detach: Annotated[bool, typer.Option(help="Return when it is healthy, and leave it running in the cluster.")] = False,
    replace: Annotated[bool, typer.Option(help="Replace deployments of other classes that have the same names.")] = False,
) -> None:
    """Deploy an application on Ray, and show its ranks, nodes and states until Ctrl-C stops it.

    APP is what `bind` returned, or a function that returns it. It runs in the cluster that RAY_ADDRESS names, else in the
    one on this machine; where there is none, one is started that can be reached from this machine alone. What an
    earlier version of APP deployed, and this one does not have, is deleted.

    \b
      rankcore run examples/sharded_embedding.py:app
      rankcore run my_package.models:app --detach && rankcore status

    Exit status: 0 stopped as asked, 1 it did not come up, 2 bad input, 130 interrupted while stopping.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.run import run

    run(target, namespace, journal, detach, replace)
