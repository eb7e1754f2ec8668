"""Options of commands that say whether objectives hold."""

from typing import Annotated

import typer

SloOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        metavar="GOAL",
        help="Say whether it holds, such as 'p99 latency_s < 2 @ 99%'; repeatable. [default: slo of the scenario]",
    ),
]
SloWindowOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How wide the windows are of which a GOAL with @ P% holds in a share. [default: the scenario's, or 300s]",
        show_default=False,
    ),
]
