"""`rankcore where`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import Address, choose_cluster


def where(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Only this one.", show_default=False)] = None,
    namespace: Annotated[str | None, typer.Option(help="Of the fleet. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    address: Address = None,
) -> None:
    """Show where models are, why, and what they displaced.

    HOT: on these GPUs; WARM: a copy in the memory of that node; COLD: on disk only.

    \b
      rankcore where
      rankcore where tiny-a
      rankcore where --json | jq '.models[].replicas[] | [.replica_id, .level, .node_id]'

    Exit status: 0 shown, 2 there is no such model, or no fleet.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    from executors.cli.fleet import where

    where(model, namespace, as_json)
