"""`rankcore check --router` and `--residency`: explore the worlds of requests, or of models, and say what was found."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import typer
from rich.table import Table

from executors.cli.bars import time_bar
from executors.cli.problems import PROMISE_BROKEN, Refusal, told_in_one_line
from executors.cli.screen import answers
from rankcore.testing import model_residency, model_routing

WORLDS_MAX = 1_000_000


@attrs.frozen
class Series:
    """What is explored.

    Attributes:
        systems: By name.
        search: Explores one.
        holds: What to say where all promises hold.
    """

    systems: Mapping[str, Any]
    search: Callable[[Any, int], Any]
    holds: str


ROUTER = Series(
    model_routing.SYSTEMS,
    model_routing.search,
    "Q1 to Q10 and C1 to C4 hold in every state, and every request gets its answer.",
)
RESIDENCY = Series(
    model_residency.SYSTEMS,
    model_residency.search,
    "T1 to T10 hold in every state, no memory is ever over its capacity, and everything comes to rest.",
)


@attrs.frozen
class Outcome:
    """What has come of one system."""

    name: str
    found: Any
    took_s: float


def run(series: Series, only: tuple[str, ...], states: int | None, as_json: bool, quiet: bool) -> None:
    """What the command does, errors and exit status included."""
    with told_in_one_line("interrupted"):
        outcomes: list[Outcome] = []
        chosen = _chosen(series, only)
        for number, (name, bounds) in enumerate(chosen.items(), 1):
            begun = time.monotonic()
            with time_bar(f"exploring {name}, system {number} of {len(chosen)}", quiet or as_json):
                found = series.search(bounds, states or WORLDS_MAX)
            outcomes.append(Outcome(name, found, time.monotonic() - begun))
            if outcomes[-1].found.broken:
                break
        if as_json:
            typer.echo(json.dumps(_as_json(outcomes), indent=2))
        else:
            _print(series, outcomes)
        if outcomes[-1].found.broken:
            raise typer.Exit(PROMISE_BROKEN)


def _chosen(series: Series, only: tuple[str, ...]) -> dict[str, Any]:
    for name in only:
        if name not in series.systems:
            raise Refusal(f'--only: expected one of {", ".join(series.systems)}, found "{name}"')
    return {name: bounds for name, bounds in series.systems.items() if not only or name in only}


def _as_json(outcomes: list[Outcome]) -> dict[str, object]:
    systems = [
        {
            "name": each.name,
            "states": each.found.worlds,
            "moves": each.found.edges,
            "depth": each.found.depth,
            "complete": each.found.complete,
            "broken": [str(violation) for violation in each.found.broken],
            "path": [list(move) for move in each.found.path],
        }
        for each in outcomes
    ]
    return {"holds": not outcomes[-1].found.broken, "systems": systems}


def _print(series: Series, outcomes: list[Outcome]) -> None:
    console, table = answers(), Table(box=None, pad_edge=False)
    table.add_column("system")
    for heading in ("states", "moves tried", "depth", "seconds"):
        table.add_column(heading, justify="right")
    for each in outcomes:
        found = each.found
        more = "" if found.complete or found.broken else "+"
        table.add_row(each.name, f"{found.worlds:,}{more}", f"{found.edges:,}", str(found.depth), f"{each.took_s:.1f}")
    console.print(table)
    broken = outcomes[-1].found
    if not broken.broken:
        console.print(series.holds)
        return
    for violation in broken.broken:
        console.print(f"{outcomes[-1].name}: {violation}", highlight=False)
    for move in broken.path:
        console.print("  " + " ".join(map(str, move)), highlight=False)
