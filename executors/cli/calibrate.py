"""`rankcore calibrate`: read a recording, and write the scenario and the calls that it had."""

import json
import math
from pathlib import Path
from typing import Any

import typer

from executors.cli.outputs import Outputs
from executors.cli.problems import Refusal, told_in_one_line, warn
from executors.engine.request_reading import beside
from executors.simulator.from_journal.calibration import NO_CALLS, RecordedWorld, read_recorded
from executors.simulator.from_journal.calibration_text import calls_text, scenario_text
from executors.simulator.from_journal.scenario import DURATIONS


def run(journal: Path, output: Path, requests: list[Path] | None, as_json: bool, quiet: bool) -> None:
    """What `rankcore calibrate` does, errors and exit status included."""
    with told_in_one_line("interrupted, nothing was written"), Outputs() as outputs:
        files_read = beside(journal) if requests is None else requests
        if twice := [each for number, each in enumerate(files_read) if each.resolve() in _resolved(files_read[:number])]:
            raise Refusal(f"--requests: expected each file once, found {twice[0]} twice")
        world = read_recorded(journal, files_read)
        if not world.history.states:
            raise Refusal(f"{journal}: expected a deployment, found none")
        if not world.calls:
            raise Refusal(f"{journal}: {NO_CALLS}")
        inputs = (journal, *files_read)
        files = {name: output.with_name(f"{output.stem}.requests-{number}.csv") for number, name in enumerate(_called(world))}
        part = outputs.open("--output", output, inputs)
        outputs.write(part, scenario_text(world, {name: file.name for name, file in files.items()}))
        for name, file in files.items():
            outputs.write(outputs.open("--output", file, inputs), calls_text(world, name))
        outputs.keep()
    for text in world.warnings:
        warn(text)
    if world.dropped:
        warn(f"{world.dropped} calls were dropped while it was recorded: the scenario has fewer than there were")
    if as_json:
        typer.echo(json.dumps(_measured(world), indent=2, allow_nan=False))
    elif not quiet:
        for name, each in _measured(world).items():
            samples = ", ".join(f"{field} {found['samples']}" for field, found in each["durations"].items())
            typer.echo(f"{name}: {each['calls']} calls; samples: {samples}")
        typer.echo(f"scenario: {output}")


def _resolved(files: list[Path]) -> set[Path]:
    return {each.resolve() for each in files}


def _called(world: RecordedWorld) -> list[str]:
    called = {call.deployment for call in world.calls}
    return [name for name in sorted(world.history.states) if name in called]


def _measured(world: RecordedWorld) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted(world.history.states):
        durations = {}
        for field in DURATIONS:
            values = [each.took_s for each in world.measured if (each.deployment, each.field) == (name, field)]
            durations[field] = {"samples": len(values), "mean_s": math.fsum(values) / len(values) if values else None}
        found[name] = {"calls": sum(1 for call in world.calls if call.deployment == name), "durations": durations}
    return found
