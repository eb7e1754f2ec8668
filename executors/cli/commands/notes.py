"""`rankcore notes`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose


def notes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only of this application or deployment.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with each that comes, until Ctrl-C.")] = False,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Print what the controller decided lately, and why: a line for each decision, with the promise or rule that it follows.

    Kept are the last some thousand decisions of the controller that runs; the journal has all of them (`rankcore explain`).
    With --json each line is an object.

    \b
      rankcore notes --follow
      rankcore notes my_app/Model --json | jq .kind

    Exit status: 0 printed, 2 nothing runs, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.notes import notes
    from executors.cli.verbs import Said

    notes(Said(namespace, executor, as_json), name, follow)
