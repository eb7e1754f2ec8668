"""`rankcore upgrade`: rewrite stored specs and records, and scenarios, of an older release."""

import os
from pathlib import Path

import typer

from executors.cli.problems import refuse, told_in_one_line
from executors.engine.deployments import Recovered
from executors.whole_files import write_all
from rankcore import DeploymentSpec
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.records import Record
from rankcore.codec import FORMAT, from_json, read_object
from rankcore.errors import CodecError, shown
from rankcore.routing import RoutingSpec
from rankcore.upgrade import upgraded

READABLE = {cls.__name__: cls for cls in (DeploymentSpec, AutoscalingSpec, RoutingSpec, Recovered, Record)}
SCENARIOS = (".yaml", ".yml")


def run(files: list[Path]) -> None:
    """What `rankcore upgrade` does, errors and exit status included."""
    done: list[Path] = []

    def so_far() -> str:
        return f"upgraded: {', '.join(map(str, done))}; the others are as they were" if done else "no file was changed"

    with told_in_one_line(lambda: f"interrupted; {so_far()}"):
        texts = {path: _upgraded(path) for path in files}  # all of them, before the first is written
        try:
            write_all({path.resolve(): text for path, text in texts.items() if text is not None}, done.append)  # links stay
        except OSError as error:
            refuse(f"{error.filename} cannot be written: {error.strerror}; {so_far()}")
        for path, text in texts.items():
            now = "is {} now" if text is not None else "is {} already, and left as it is"
            kind = "a scenario of deployments" if path.suffix in SCENARIOS else f"of format {'.'.join(map(str, FORMAT))}"
            typer.echo(f"{path}: {now.format(kind)}")


def _upgraded(path: Path) -> str | None:
    """What the file is to hold; None: it is of this format."""
    if path.suffix in SCENARIOS:
        return _upgraded_scenario(path)
    try:
        text = path.read_text(encoding="utf-8")
        _refuse_journal(path, text)
        new = upgraded(text)
        named = read_object(new).get("type")
        if named not in tuple(READABLE):
            raise CodecError(f"type must be one of {', '.join(READABLE)}, got {shown(named)}")
        from_json(new, READABLE[named])
    except (CodecError, UnicodeDecodeError) as error:
        refuse(f"{path}: {error}")
    if new != text and not os.access(path, os.W_OK):
        refuse(f"{path} is read-only: make it writable, or give a copy of it")
    return None if new == text else new + "\n"


def _upgraded_scenario(path: Path) -> str | None:
    """A scenario of models as one of deployments with residency; its comments go, but for those at its beginning."""
    from executors.simulator.load.sources import read_source
    from executors.simulator.scenario.errors import ScenarioError
    from executors.simulator.scenario.models import upgraded_text

    try:
        source = read_source(path)
        source.scenario()
        return upgraded_text(source.text, source.name) if source.is_old else None
    except ScenarioError as error:
        refuse(str(error))


def _refuse_journal(path: Path, text: str) -> None:
    first, _, rest = text.partition("\n")
    if rest.strip() and first.startswith(('{"journal":', '{"fleet_journal":')):
        refuse(f"{path} is a journal, which only the release of rankcore that wrote it replays: its first line names it")
