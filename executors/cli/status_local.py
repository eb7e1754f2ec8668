"""`rankcore status --executor local`: what the controllers of this machine say, and how it was with those that are gone."""

import msgspec
import typer
from rich.console import Console

from executors.cli.asked import BAD_INPUT, end
from executors.cli.ray_view import view

GONE = (
    "its controller is gone, and this is how it was: `rankcore run --executor local` takes the replicas over; "
    "they end by themselves after 10 minutes"
)


SILENT = "its command does not answer, and this is how it was when that was written down last: it may begin, end, or be stopped"
OF_SPEAKER = {"is gone": GONE, "is silent": SILENT}


def status_locally(namespace: str, as_json: bool, name: str | None = None) -> None:
    """Do what `commands/status.py` says."""
    from executors.local.api import last_statuses
    from executors.local.places import DamagedFileError
    from executors.private_folder import PlaceError
    from executors.ray_gpu.errors import UnknownNameError, not_one

    try:
        found = last_statuses(namespace)
    except PlaceError as error:
        end(str(error), BAD_INPUT)
    if not found:
        end(f"nothing runs on this machine in namespace {namespace!r}: see `rankcore run --help`", BAD_INPUT)
    damaged, shown = False, 0
    for status, speaker in found:
        if isinstance(status, DamagedFileError):
            typer.echo(f"rankcore: error: {status}", err=True)
            damaged = True
            continue
        if name is not None:
            try:
                status = status.only(name)
            except UnknownNameError:
                continue
        shown += 1
        if as_json:
            typer.echo(msgspec.json.encode(status).decode())
        else:
            Console(highlight=False).print(view(status))
        if speaker in OF_SPEAKER:
            typer.echo(OF_SPEAKER[speaker], err=as_json)
    if damaged:
        raise typer.Exit(BAD_INPUT)
    if not shown:
        there_are = [each for status, _ in found if not isinstance(status, DamagedFileError) for each in status.deployments]
        end(not_one("application or deployment", str(name), (), there_are), BAD_INPUT)
