"""`rankcore defragment`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose


def defragment(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Of a deployment with residency. [default: the largest that waits]",
            show_default=False,
        ),
    ] = None,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Say which moves of weights between GPUs would let those of a deployment fit, and what they cost. Nothing is moved.

    `rankcore evict` and `rankcore scale` carry such moves out.

    \b
      rankcore defragment
      rankcore defragment my_app/large --json

    Exit status: 0 printed, 2 nothing has that name, it has no residency, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, propose_defragmentation

    propose_defragmentation(Said(namespace, executor, as_json), name)
