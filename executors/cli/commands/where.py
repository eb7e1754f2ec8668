"""`rankcore where`: what `rankcore status` was called for weights that may be COLD, for one release more."""

from typing import Annotated

import typer

from executors.cli.backends import RayAddress, choose_cluster


def where(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this application or deployment.", show_default=False)
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    address: RayAddress = None,
) -> None:
    """The same as `rankcore status`, which is the word for it; this one goes with the next release.

    \b
      rankcore where
      rankcore status

    Exit status: 0 shown, 2 nothing runs or it cannot be reached, or nothing has that name.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    typer.echo("rankcore: warning: `rankcore where` goes with the next release: it is `rankcore status` now", err=True)
    from executors.cli.verbs import status

    status(namespace, as_json, name)
