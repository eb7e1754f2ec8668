"""`rankcore rest`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.cli.backends import RayAddress, choose_cluster


def rest(
    host: Annotated[str, typer.Option(help="Address to listen on, of the cluster's head node.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Likewise.")] = 8280,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its first line is the token that requests must have.", show_default=False),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM file on the head node: serve TLS.", show_default=False)
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, likewise.", show_default=False)] = None,
    stop: Annotated[bool, typer.Option("--stop", help="End the REST server; what runs goes on.")] = False,
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    address: RayAddress = None,
) -> None:
    """Serve REST on the head node of a running Ray cluster: Ray Serve's paths, and ours under /api/v1/.

    It goes on when this command has ended, until --stop or `rankcore shutdown`. The same again changes nothing. It listens on
    that machine alone; any other --host needs a --token-file.

    \b
      rankcore rest
      curl http://127.0.0.1:8280/api/v1/ranks
      serve status --address http://127.0.0.1:8280
      rankcore rest --host 0.0.0.0 --token-file ~/rankcore.token

    Exit status: 0 it serves (with --stop: it has ended), 2 bad input, or there is no cluster.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    from executors.cli.rest import rest, stop_rest

    if stop:
        return stop_rest(namespace)
    rest(host, port, token_file, certificate, key, namespace)
