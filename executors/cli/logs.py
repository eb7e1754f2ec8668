"""`rankcore logs`: what replicas have printed, with rank and replica on each line."""

import json

import attrs
import typer

from executors.cli.asked import BAD_INPUT, end
from executors.cli.verbs import Said


def logs(said: Said, name: str, lines: int, follow: bool) -> None:
    """Do what `commands/logs.py` says."""
    from rankcore.errors import RankcoreError

    try:
        for each in said.api.replica_logs(name, lines=lines, follow=follow, namespace=said.namespace):
            rank = "" if each.rank is None else f" rank {each.rank}"
            typer.echo(json.dumps(attrs.asdict(each)) if said.as_json else f"{each.replica_id}{rank}  {each.text}")
    except RankcoreError as error:
        end(str(error), BAD_INPUT)
    except ModuleNotFoundError as error:
        end(f"{error.name} is not installed: pip install 'rankcore[ray,torch]'", BAD_INPUT)
