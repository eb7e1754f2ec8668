"""`rankcore schema`: print the JSON Schema of scenario files."""

import json

import typer

from executors.simulator.scenario.schema import scenario_schema


def run() -> None:
    """What `rankcore schema` does."""
    typer.echo(json.dumps(scenario_schema(), indent=2, ensure_ascii=False, allow_nan=False))
