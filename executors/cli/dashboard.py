"""`rankcore dashboard`: the REST server of a cluster is found or started, and where its live page is is printed."""

import webbrowser
from functools import partial
from pathlib import Path
from typing import Any

import typer

from executors.cli.asked import asked
from executors.cli.rest import starting, token_in, url_of


def dashboard(port: int | None, token_file: Path | None, in_browser: bool, namespace: str | None) -> None:
    """Do what `commands/dashboard.py` says."""
    options: dict[str, Any] = {"port": port} if port is not None else {}
    if token_file is not None:
        options["bearer_token"] = token_in(token_file)
    there = asked(partial(starting().rest_there, namespace)) if not options else None
    served = there or asked(partial(starting().start_rest, options, namespace=namespace))
    url = f"{url_of(served)}/dashboard"
    token = "; it asks for the server's token" if served.bearer_token is not None else ""
    typer.echo(f"{url} is the live page{token}; `rankcore rest --stop` ends it")
    if in_browser and not webbrowser.open(url):
        typer.echo("there is no browser here: open it where there is one", err=True)
