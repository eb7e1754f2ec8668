"""`rankcore check`: explore systems, keep what is explored, and say what was found."""

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from executors.cli.bars import runs_bar
from executors.cli.kept_search import KeptSearch
from executors.cli.problems import PROMISE_BROKEN, Refusal, told_in_one_line
from executors.cli.screen import answers
from rankcore.errors import RankcoreError
from rankcore.testing.model import Bounds, Coverage, Search, as_test
from rankcore.testing.model.coverage import NOTE_NAMES, REPLICA_ROW_NAMES, STATUS_NAMES
from rankcore.testing.model.systems import DEEP, SMALL

SHOWN_EVERY = 200
KEPT_EVERY_S = 60.0
SAMPLE = 1000
KINDS = (
    ("moves of a replica", REPLICA_ROW_NAMES),
    ("moves of the deployment", STATUS_NAMES),
    ("kinds of notes", NOTE_NAMES),
)


@attrs.frozen
class Asked:
    """What the command line asks for; `given` are the bounds of a system of one's own."""

    small: bool
    deep: bool
    only: tuple[str, ...]
    given: dict[str, Any]
    states: int | None
    keep: Path | None
    fresh: bool
    as_json: bool
    quiet: bool


@attrs.frozen
class Outcome:
    """What has come of one system.

    Attributes:
        took_s: How long it has taken, in all sessions.
        rest: The longest way to where nothing is left to do, in moves without a fault.
        sampled: How many of the unexplored states were followed to there.
    """

    name: str
    search: Search
    took_s: float
    rest: int
    sampled: int


def run(asked: Asked) -> None:
    """What `rankcore check` does, errors and exit status included."""
    folder = asked.keep if asked.keep is not None else Path("rankcore-check") if asked.deep else None
    again = f"; the same command goes on with what is kept in {folder}" if folder is not None else ""
    with told_in_one_line(f"interrupted{again}"):
        systems = _systems(asked)
        outcomes: list[Outcome] = []
        for name, bounds in systems.items():
            outcomes.append(_explore(asked, folder, name, bounds))
            if outcomes[-1].search.broken is not None:
                break
        if asked.as_json:
            typer.echo(json.dumps(_as_json(outcomes), indent=2))
        else:
            _print(answers(), outcomes)
        if outcomes[-1].search.broken is not None:
            raise typer.Exit(PROMISE_BROKEN)


def _systems(asked: Asked) -> dict[str, Bounds]:
    if asked.given:
        if asked.small or asked.deep or asked.only:
            raise Refusal("expected a series (--small, --deep, --only) or bounds of your own, found both")
        try:
            return {"yours": Bounds(**asked.given)}
        except RankcoreError as error:
            raise Refusal(str(error)) from None
    if asked.small and asked.deep:
        raise Refusal("expected --small or --deep, found both")
    series = DEEP if asked.deep else SMALL
    for name in asked.only:
        if name not in series:
            raise Refusal(f'--only: expected one of {", ".join(series)}, found "{name}"')
    return {name: bounds for name, bounds in series.items() if not asked.only or name in asked.only}


def _explore(asked: Asked, folder: Path | None, name: str, bounds: Bounds) -> Outcome:
    search = Search(bounds)
    kept = KeptSearch(folder / name, search, fresh=asked.fresh) if folder is not None else None
    begun, took_s = time.monotonic(), kept.took_s if kept is not None else 0.0
    saved = begun
    limit = asked.states if asked.states is not None else float("inf")
    try:
        with runs_bar(f"{name}: states explored, of those found", asked.quiet or asked.as_json) as bar:
            while not search.done and search.explored < limit:
                search.expand(min(SHOWN_EVERY, int(min(limit - search.explored, SHOWN_EVERY))))
                bar.show(search.explored, search.worlds)
                if kept is not None and time.monotonic() - saved > KEPT_EVERY_S:
                    saved = time.monotonic()
                    kept.save(took_s + saved - begun)
    finally:
        if kept is not None and search.broken is None:
            kept.save(took_s + time.monotonic() - begun)
    rest = search.longest_rest() if search.broken is None else 0
    sampled = search.sample(SAMPLE) if search.broken is None and not search.done else 0
    return Outcome(name, search, took_s + time.monotonic() - begun, rest, sampled)


def _coverage(outcomes: Iterable[Outcome]) -> Coverage:
    coverage = Coverage()
    for outcome in outcomes:
        coverage.counts.update(outcome.search.coverage.counts)
    return coverage


def _print(console: Console, outcomes: list[Outcome]) -> None:
    table = Table("system", box=None, pad_edge=False, header_style="bold")
    for column in ("states", "moves", "depth", "to rest", "time"):
        table.add_column(column, justify="right")
    table.add_column("bounds", overflow="fold")
    for each in outcomes:
        search = each.search
        states = f"{search.worlds:,}" if search.explored == search.worlds else f"{search.explored:,} of {search.worlds:,}+"
        cells = (states, f"{search.edges:,}", str(search.depth), str(each.rest), f"{each.took_s:.1f} s")
        table.add_row(each.name, *cells, str(search.bounds).removeprefix("Bounds(").removesuffix(")"))
    console.print(table)
    broken = outcomes[-1].search.broken
    if broken is not None:
        what = "; ".join(map(str, broken.violations))
        where = f"after {len(broken.moves)} moves" + (" and then without another fault" if broken.settles else "")
        console.print(Text(f"\nBROKEN {where}: {what}", style="bold red"), soft_wrap=True)
        console.print(Text("Save this as a test; it fails until the promise holds:\n", style="dim"))
        console.print(as_test(broken), markup=False, soft_wrap=True)
        return
    worlds, edges = sum(each.search.worlds for each in outcomes), sum(each.search.edges for each in outcomes)
    console.print(f"\nAll promises hold: {worlds:,} states, {edges:,} moves, {sum(each.took_s for each in outcomes):.1f} s.")
    for line in _left_open(outcomes):
        console.print(Text(line), soft_wrap=True)
    coverage = _coverage(outcomes)
    for what, names in KINDS:
        missing = coverage.missing(names)
        console.print(
            Text(f"{len(names) - len(missing)} of {len(names)} {what} were exercised" + (", but not" * bool(missing)))
        )
        for name in missing:
            console.print(Text(f"  {name}"))


def _left_open(outcomes: Iterable[Outcome]) -> Iterator[str]:
    for each in outcomes:
        waiting = each.search.worlds - each.search.explored
        if waiting:
            yield f"{each.name}: {waiting:,} states found and not explored; {each.sampled:,} of them were followed to rest."


def _as_json(outcomes: list[Outcome]) -> dict[str, Any]:
    coverage = _coverage(outcomes)
    broken = outcomes[-1].search.broken
    return {
        "holds": broken is None,
        "broken": None
        if broken is None
        else {
            "system": outcomes[-1].name,
            "violations": [str(each) for each in broken.violations],
            "moves": list(broken.moves),
            "settles": broken.settles,
            "test": as_test(broken),
        },
        "systems": [
            {
                "name": each.name,
                "bounds": attrs.asdict(each.search.bounds),
                "states": each.search.worlds,
                "explored": each.search.explored,
                "moves": each.search.edges,
                "depth": each.search.depth,
                "moves_to_rest": each.rest,
                "sampled": each.sampled,
                "time_s": round(each.took_s, 3),
            }
            for each in outcomes
        ],
        "exercised": {what: {name: coverage.counts[name] for name in names} for what, names in KINDS},
    }
