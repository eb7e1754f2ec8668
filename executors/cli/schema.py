"""`rankcore schema`: print the JSON Schema of scenario files, or of files of applications."""

import json
from typing import Any

import typer

from executors.cli.asked import asked


def run(of_apps: bool) -> None:
    """What `rankcore schema` does."""
    found = asked(_apps if of_apps else _scenario)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))


def _scenario() -> dict[str, Any]:
    from executors.simulator.scenario.schema import scenario_schema

    return scenario_schema()


def _apps() -> dict[str, Any]:
    from executors.apps.schema import apps_schema

    return apps_schema()
