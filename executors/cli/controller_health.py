"""`rankcore controller-health`: how the controller keeps up."""

import json
from typing import Any

import typer

from executors.cli.asked import asked
from executors.cli.backends import RAY, api_of


def controller_health(namespace: str | None, as_json: bool) -> None:
    """Do what `commands/controller_health.py` says."""
    found: dict[str, Any] = asked(lambda: api_of(RAY).controller_health(namespace=namespace))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    import yaml

    typer.echo(yaml.safe_dump(found, sort_keys=False), nl=False)
