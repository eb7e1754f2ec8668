"""`rankcore status`: what runs on Ray, and how it is."""

import json

import attrs
import typer
from rich.console import Console

from executors.cli.ray_view import view

BAD_INPUT = 2


def status(namespace: str | None, as_json: bool, name: str | None = None) -> None:
    """Do what `commands/status.py` says."""
    from executors.ray_gpu import api
    from executors.ray_gpu.errors import RayExecutorError

    try:
        found = api.status(namespace=namespace)
        found = found if name is None else found.only(name)
    except (RayExecutorError, TimeoutError) as error:
        typer.echo(f"rankcore: error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2))
    else:
        Console(highlight=False).print(view(found))
