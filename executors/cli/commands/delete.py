"""`rankcore delete`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose


def delete(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Of an application, else of a deployment: APP/DEPLOYMENT, or bare.", show_default=False
        ),
    ],
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0.0, help="Wait no longer; the deletion goes on.", show_default=False),
    ] = None,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Delete an application with all its deployments, or one deployment, and wait until its replicas are gone.

    Calls under way may finish first. What other applications have deployed is not touched. The bare name of a deployment will
    do where one application has it; else the error lists those that do, and nothing is deleted.

    \b
      rankcore delete my_app
      rankcore delete my_app/Model

    Exit status: 0 deleted, 1 not within the time-out, 2 nothing has that name, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, delete

    delete(Said(namespace, executor, as_json), name, timeout_s)
