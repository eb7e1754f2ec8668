"""`rankcore logs`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose

LINES_MAX = 100_000


def logs(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="APP, APP/DEPLOYMENT, or that with # and a rank or the rest of a replica's id.",
            show_default=False,
        ),
    ],
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=LINES_MAX, help="Of each file, the last so many.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is printed, until Ctrl-C.")] = False,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Print what replicas have printed: standard output and error of their processes, with rank and replica on each line.

    On Ray the files are read on the node where the replica runs. Local replicas of one deployment print to one file. With
    --json each line is an object.

    \b
      rankcore logs my_app
      rankcore logs 'my_app/Model#3' --follow
      rankcore logs 'my_app/Model#1.0' -n 20

    Exit status: 0 printed, 2 nothing has that name, or nothing runs, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.logs import logs
    from executors.cli.verbs import Said

    logs(Said(namespace, executor, as_json), name, lines, follow)
