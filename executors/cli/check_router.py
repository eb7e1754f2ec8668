"""`rankcore check --router`: explore the worlds of requests, and say what was found."""

import json
import time

import attrs
import typer
from rich.table import Table

from executors.cli.problems import PROMISE_BROKEN, Refusal, told_in_one_line
from executors.cli.screen import answers
from rankcore.testing.model_routing import SYSTEMS, Bounds, Found, search

WORLDS_MAX = 1_000_000


@attrs.frozen
class Outcome:
    """What has come of one system."""

    name: str
    found: Found
    took_s: float


def run(only: tuple[str, ...], states: int | None, as_json: bool) -> None:
    """What the command does, errors and exit status included."""
    with told_in_one_line("interrupted"):
        outcomes: list[Outcome] = []
        for name, bounds in _chosen(only).items():
            begun = time.monotonic()
            outcomes.append(Outcome(name, search(bounds, states or WORLDS_MAX), time.monotonic() - begun))
            if outcomes[-1].found.broken:
                break
        if as_json:
            typer.echo(json.dumps(_as_json(outcomes), indent=2))
        else:
            _print(outcomes)
        if outcomes[-1].found.broken:
            raise typer.Exit(PROMISE_BROKEN)


def _chosen(only: tuple[str, ...]) -> dict[str, Bounds]:
    for name in only:
        if name not in SYSTEMS:
            raise Refusal(f'--only: expected one of {", ".join(SYSTEMS)}, found "{name}"')
    return {name: bounds for name, bounds in SYSTEMS.items() if not only or name in only}


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


def _print(outcomes: list[Outcome]) -> None:
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
        console.print("Q1 to Q10 and C1 to C4 hold in every state, and every request gets its answer.")
        return
    for violation in broken.broken:
        console.print(f"{outcomes[-1].name}: {violation}", highlight=False)
    for what, who, which in broken.path:
        console.print(f"  {what} {who} {which}", highlight=False)
