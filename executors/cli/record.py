"""`rankcore record`: deploy an application on Ray, call it as a trace says, and keep what happened."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import typer

from executors.cli.asked import FAILED, asked, end
from executors.cli.problems import refuse, told_in_one_line
from executors.cli.run import load
from executors.deployment_ids import DEFAULT_APPLICATION
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.questions.described import arrivals_of
from executors.simulator.questions.settings import parse_setting


def run(
    target: str,
    output: Path,
    requests: Path | None,
    preset: str | None,
    settings: list[str],
    namespace: str,
    as_json: bool,
) -> None:
    """What `rankcore record` does, errors and exit status included."""
    calls = None if requests is None else asked(partial(_calls, requests, preset, settings))
    if not output.parent.is_dir():
        refuse(f"--output: expected a file in a folder that is there, found {output}")
    application = load(target, {}, None)
    from executors.ray_gpu.errors import DeploymentFailedError
    from executors.ray_gpu.recorded_run import Recorded, RecordedRun

    def recorded() -> Recorded:
        with RecordedRun(application, DEFAULT_APPLICATION, output, namespace=namespace) as going:
            if calls is None:
                typer.echo("nobody calls; Ctrl-C ends the recording", err=True)
                going.until_stopped()
            else:
                going.play(calls.at_s, [payload_of(calls, index) for index in range(len(calls))])
        return going.found

    with told_in_one_line("interrupted; what was recorded until then is kept"):
        found = asked(recorded, {DeploymentFailedError: FAILED})
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found, value_serializer=_plain), indent=2))
    else:
        typer.echo(f"{found.calls} calls, {found.failed} of them failed; clocks within {found.clock_error_s * 1000:.2g} ms")
        typer.echo(f"journal: {found.journal}\ncalls:   {found.requests}")
    if found.dropped:
        end(f"{found.dropped} calls were dropped{f': {found.problem}' if found.problem else ''}", FAILED)


def _calls(requests: Path, preset: str | None, settings: list[str]) -> Arrivals:
    keys = {setting.key: setting.value for setting in (parse_setting("--set", text) for text in settings)}
    return arrivals_of(requests, preset, keys)


def payload_of(calls: Arrivals, index: int) -> dict[str, float]:
    """What the trace says of a call."""
    return {"service_s": calls.service_s[index]}


def _plain(_instance: object, _field: object, value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
