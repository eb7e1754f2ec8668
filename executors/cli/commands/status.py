"""`rankcore status`: its arguments and its help."""

from typing import Annotated

import typer


def status(
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """What runs on Ray: deployments, ranks, nodes, states, and what is wrong.

    \b
      rankcore status
      rankcore status --json | jq '.deployments[].replicas[] | [.rank.rank, .state]'

    Exit status: 0 shown, 2 nothing runs or it cannot be reached.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.status import status

    status(namespace, as_json)
