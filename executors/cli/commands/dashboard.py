"""`rankcore dashboard`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.cli.backends import Address, choose_cluster


def dashboard(
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Of the REST server. [default: of the one that serves, or 8280]", show_default=False
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its first line is the token that the page asks for.", show_default=False),
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser of this machine.")] = False,
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    address: Address = None,
) -> None:
    """Print where the live page is, which the REST server of a running Ray cluster has; it is started where there is none.

    The page shows who holds which rank along the time, calls that wait, p50 and p99, nodes, GPUs and weights, and notes as they
    come. Its box "what if ... now?" lets the present state go on in the simulator, with the rates of the last minutes: once
    with a lost node, another target or a dead replica, and once without. The predicted lanes stand beside the real ones.

    A server that is there already is left as it is, unless --port or --token-file say otherwise. It goes on when this command
    has ended, until `rankcore rest --stop`. It listens on the head node alone; elsewhere, `ssh -L 8280:127.0.0.1:8280 HEAD`.

    \b
      rankcore dashboard
      rankcore dashboard --open
      rankcore dashboard --port 9000 --token-file ~/rankcore.token

    Exit status: 0 it serves, 2 bad input, or there is no cluster.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    from executors.cli.dashboard import dashboard

    dashboard(port, token_file, open_, namespace)
