"""`rankcore evict`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose


def evict(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Of a deployment, APP/DEPLOYMENT or bare, or of one of its replicas.", show_default=False
        ),
    ],
    keep: Annotated[
        str, typer.Option(metavar="WARM|COLD", help="WARM: the weights stay in the node's memory if there is room.")
    ] = "WARM",
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Take the weights of a deployment with residency off the GPUs, or those of one replica.

    Its calls are finished first; the command does not wait for that. It comes back when somebody scales it; calls that wait
    for it have it loaded again.

    \b
      rankcore evict my_app/tiny
      rankcore evict 'my_app/tiny#7.3' --keep COLD

    Exit status: 0 taken, 2 nothing has that name, it has no residency, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, evict

    evict(Said(namespace, executor, as_json), name, keep)
