"""`rankcore status --executor local`: what the controllers of this machine wrote down last, and which of them are gone."""

import msgspec
import typer
from rich.console import Console

from executors.cli.ray_view import view

BAD_INPUT = 2


def status_locally(namespace: str, as_json: bool) -> None:
    """Do what `commands/status.py` says."""
    from executors.local.controller import STATUS, read_status
    from executors.local.folders import is_locked, namespace_folder
    from executors.local.places import DamagedFileError
    from executors.private_folder import PlaceError

    try:
        files = sorted(namespace_folder(namespace).glob(f"*/{STATUS}"))
    except PlaceError as error:
        typer.echo(f"rankcore: error: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None
    if not files:
        typer.echo(
            f"rankcore: error: nothing runs on this machine in namespace {namespace!r}: see `rankcore run --help`", err=True
        )
        raise typer.Exit(BAD_INPUT)
    damaged = False
    for file in files:
        try:
            status = read_status(file)
        except FileNotFoundError:  # it has ended since
            continue
        except DamagedFileError as error:
            typer.echo(f"rankcore: error: {error}", err=True)
            damaged = True
            continue
        if as_json:
            typer.echo(msgspec.json.encode(status).decode())
            continue
        Console(highlight=False).print(view(status))
        if not is_locked(file.parent):
            typer.echo(
                "its controller is gone, and this is how it was: `rankcore run --executor local` takes the replicas over; "
                "they end by themselves after 10 minutes"
            )
    if damaged:
        raise typer.Exit(BAD_INPUT)
