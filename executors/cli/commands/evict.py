"""`rankcore evict`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import Address, choose_cluster


def evict(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="All its replicas.", show_default=False)] = None,
    replica: Annotated[str | None, typer.Option(metavar="ID", help="This replica only.", show_default=False)] = None,
    keep: Annotated[
        str, typer.Option(metavar="WARM|COLD", help="WARM: the weights stay in the node's memory if there is room.")
    ] = "WARM",
    namespace: Annotated[str | None, typer.Option(help="Of the fleet. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    address: Address = None,
) -> None:
    """Take a model, or one replica, off the GPUs.

    Its requests are finished first; the command does not wait for that. It comes back when somebody deploys, scales or asks for
    it; requests that wait for it have it loaded again.

    \b
      rankcore evict tiny-a
      rankcore evict --replica 'tiny-a#3' --keep COLD

    Exit status: 0 taken, 2 there is no such model or replica, or no fleet.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    from executors.cli.fleet import evict

    evict(model, replica, keep, namespace)
