"""`rankcore scale`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose


def _number(text: str) -> int:
    from rankcore.checks import COUNT_MAX

    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= COUNT_MAX):
        raise typer.BadParameter(f"expected a whole number from 0 to {COUNT_MAX:,}, found {text[:40]!r}")
    return int(text)


def scale(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Of a deployment, APP/DEPLOYMENT or bare.",
            show_default=False,
        ),
    ],
    replicas: Annotated[
        int, typer.Argument(metavar="N", help="How many replicas are wanted.", parser=_number, show_default=False)
    ],
    stop_first: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REPLICA", help="Whom to stop first, where fewer are wanted; an id, as `rankcore status` says; repeatable."
        ),
    ] = None,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Change how many replicas a deployment has; of one with residency: how many are on GPUs (HOT).

    The command does not wait for them. The bare name of a deployment will do where one application has it; else the error lists
    those that do.

    With residency. More: they are loaded when there is room. Fewer: those that leave finish their calls, and their weights
    stay in the node's memory if there is room. 0: none, until a call asks for one.

    \b
      rankcore scale my_app/Model 4
      rankcore scale tiny 2
      rankcore scale my_app/Model 3 --stop-first Model#1.2

    Exit status: 0 taken, 2 nothing has that name, several deployments have it, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, scale

    scale(Said(namespace, executor, as_json), name, replicas, tuple(stop_first or ()))
