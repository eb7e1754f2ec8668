"""`rankcore notes`: what was decided, and why, a line for each decision."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import typer

from executors.cli.asked import BAD_INPUT, asked, end
from executors.cli.verbs import Said
from executors.deployment_ids import is_called
from executors.engine.recent_notes import BOOKKEEPING


def notes(said: Said, name: str | None, follow: bool) -> None:
    """Do what `commands/notes.py` says."""
    from rankcore.errors import RankcoreError

    found: Iterator[dict[str, Any]] = asked(lambda: said.api.notes(follow=follow, namespace=said.namespace))
    try:
        for each in found:
            if not is_of(each, name):
                continue
            if said.as_json:
                typer.echo(json.dumps(each))
            elif (line := line_of(each)) is not None:
                typer.echo(line)
    except (RankcoreError, TimeoutError) as error:
        end(str(error), BAD_INPUT)


def is_of(note: Mapping[str, Any], name: str | None) -> bool:
    """Whether a note is of the application or deployment of this name; None: of any."""
    return name is None or "missed" in note or is_called(str(note.get("deployment") or ""), name)


def line_of(note: Mapping[str, Any]) -> str | None:
    """A note for people; None: it is bookkeeping."""
    at = f"{datetime.fromtimestamp(note['time']):%H:%M:%S}"
    if "missed" in note:
        return f"{at}  {note['missed']} notes came too fast to be kept"
    inner = note.get("of") or note
    if inner["kind"] in BOOKKEEPING:
        return None
    whose = inner.get("replica_id") or note.get("deployment") or "cluster"
    before, after = (_rank(inner.get(key)) for key in ("before", "after"))
    before, after = (before, after) if after is not None else (None, inner.get("rank"))
    ranks = f" rank {before} -> {after}" if before not in (None, after) else f" rank {after}" if after is not None else ""
    because = f": {inner['because']}" if inner.get("because") else ""
    return f"{at}  {whose}  {inner['kind']}{ranks} ({inner['rule']}){because}"


def _rank(found: Any) -> int | None:
    return None if found is None else int(found["rank"] if isinstance(found, Mapping) else found[0])
