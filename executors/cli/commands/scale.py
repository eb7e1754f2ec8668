"""`rankcore scale`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import Address, choose_cluster


def scale(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Of a deployment, APP/DEPLOYMENT or bare, or of a model as `rankcore where` shows it.",
            show_default=False,
        ),
    ],
    replicas: Annotated[int, typer.Argument(metavar="N", min=0, help="How many replicas are wanted.", show_default=False)],
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    address: Address = None,
) -> None:
    """Change how many replicas a deployment has, or how many of a model are on GPUs (HOT).

    The command does not wait for them. The bare name of a deployment will do where one application has it; else the error lists
    those that do.

    Of a model. More: they are loaded when there is room. Fewer: those that wait for room are given up
    first, then those that are cheapest to load again; they finish their requests, and stay in the node's memory if there is
    room. 0: none, until a request asks for the model.

    \b
      rankcore scale my_app/Model 4
      rankcore scale tiny-a 2

    Exit status: 0 taken, 2 nothing has that name, several deployments have it, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    from executors.cli.fleet import scale

    scale(name, replicas, namespace)
