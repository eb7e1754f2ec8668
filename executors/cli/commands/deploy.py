"""`rankcore deploy`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import Address, choose_cluster


def deploy(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:MODEL",
            help="Where the model is, or a list of models: package.module:model or path/file.py:model.",
            show_default=False,
        ),
    ],
    replicas: Annotated[int, typer.Option(min=0, help="How many of each are to be on GPUs (HOT).")] = 1,
    replace: Annotated[bool, typer.Option(help="Replace models of other classes that have the same names.")] = False,
    namespace: Annotated[str | None, typer.Option(help="Of the fleet. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    address: Address = None,
) -> None:
    """Bring models onto the GPUs of a running Ray cluster.

    MODEL is an `executors.ray_gpu.residency.Model`, or a list of some, which are then placed as one request. The command does
    not wait for them: each is loaded when there is room, and what it displaces goes to memory or to disk; `rankcore where`
    shows how that comes on. Deploying the same again changes nothing.

    \b
      ray start --head
      rankcore deploy my_models.py:models
      rankcore where
      rankcore scale tiny-a 2
      rankcore evict tiny-a --keep COLD

    Exit status: 0 taken, 2 bad input, or there is no cluster.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    from executors.cli.fleet import deploy

    deploy(target, replicas, namespace, replace=replace)
