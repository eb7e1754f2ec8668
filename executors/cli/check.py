"""`rankcore check`: explore systems, keep what is explored, and say what was found."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from executors.cli.bars import runs_bar
from executors.cli.check_worlds import WORLDS, Worlds
from executors.cli.kept_search import KeptSearch
from executors.cli.problems import PROMISE_BROKEN, Refusal, told_in_one_line
from executors.cli.screen import answers
from rankcore.errors import RankcoreError
from rankcore.testing.explore import Allowance, Search, explore
from rankcore.testing.model import Bounds
from rankcore.testing.paths import as_test

KEPT_EVERY_S = 60.0


@attrs.frozen
class Asked:
    """What the command line asks for; `given` are the bounds of a system of one's own."""

    worlds: str
    small: bool
    deep: bool
    only: tuple[str, ...]
    given: dict[str, Any]
    states: int | None
    time_s: float | None
    keep: Path | None
    fresh: bool
    as_json: bool
    quiet: bool


@attrs.frozen
class SystemOutcome:
    """What has come of one system.

    Attributes:
        took_s: How long it has taken, in all sessions.
    """

    name: str
    search: Search[Any, Any, Any]
    took_s: float


def run(asked: Asked) -> None:
    """What `rankcore check` does, errors and exit status included."""
    worlds = WORLDS[asked.worlds]
    folder = asked.keep if asked.keep is not None else Path("rankcore-check") if asked.deep else None
    again = f"; the same command goes on with what is kept in {folder}" if folder is not None else ""
    with told_in_one_line(f"interrupted{again}"):
        outcomes: list[SystemOutcome] = []
        for name, bounds in _chosen(worlds, asked).items():
            outcomes.append(_explore(asked, folder, name, Search(worlds.system(bounds))))
            if outcomes[-1].search.broken is not None:
                break
        if asked.as_json:
            typer.echo(json.dumps(_as_json(worlds, outcomes), indent=2))
        else:
            _print(answers(), worlds, outcomes)
        if outcomes[-1].search.broken is not None:
            raise typer.Exit(PROMISE_BROKEN)


def _chosen(worlds: Worlds, asked: Asked) -> dict[str, Any]:
    if asked.given:
        if asked.small or asked.deep or asked.only:
            raise Refusal("expected a series (--small, --deep, --only) or bounds of your own, found both")
        try:
            return {"yours": Bounds(**asked.given)}
        except RankcoreError as error:
            raise Refusal(str(error)) from None
    if asked.small and asked.deep:
        raise Refusal("expected --small or --deep, found both")
    series = worlds.deep if asked.deep else worlds.series
    for name in asked.only:
        if name not in series:
            raise Refusal(f'--only: expected one of {", ".join(series)}, found "{name}"')
    return {name: bounds for name, bounds in series.items() if not asked.only or name in asked.only}


def _explore(asked: Asked, folder: Path | None, name: str, search: Search[Any, Any, Any]) -> SystemOutcome:
    kept = KeptSearch(folder / name, search, fresh=asked.fresh) if folder is not None else None
    begun, took_s = time.monotonic(), kept.took_s if kept is not None else 0.0
    saved = begun
    with runs_bar(f"{name}: states explored, of those found", asked.quiet or asked.as_json) as bar:

        def progress(_: object) -> None:
            nonlocal saved
            bar.show(search.explored, search.worlds)
            if kept is not None and time.monotonic() - saved > KEPT_EVERY_S:
                saved = time.monotonic()
                kept.save(took_s + saved - begun)

        try:
            explore(search, Allowance(states=asked.states, time_s=asked.time_s, clock=time.monotonic), progress)
        finally:
            if kept is not None and search.broken is None:
                kept.save(took_s + time.monotonic() - begun)
    return SystemOutcome(name, search, took_s + time.monotonic() - begun)


def _exercised(outcomes: Iterable[SystemOutcome]) -> Counter[str]:
    exercised: Counter[str] = Counter()
    for outcome in outcomes:
        exercised.update(outcome.search.exercised)
    return exercised


def _print(console: Console, worlds: Worlds, outcomes: list[SystemOutcome]) -> None:
    console.print(_table(outcomes))
    broken = outcomes[-1].search.broken
    if broken is not None:
        what = "; ".join(map(str, broken.violations))
        where = f"after {len(broken.moves)} moves" + (" and then without another fault" if broken.settles else "")
        console.print(Text(f"\nBROKEN {where}: {what}", style="bold red"), soft_wrap=True)
        console.print(Text("Save this as a test; it fails until the promise holds:\n", style="dim"))
        console.print(as_test(outcomes[-1].search.system, broken), markup=False, soft_wrap=True)
        return
    states, moves = sum(each.search.worlds for each in outcomes), sum(each.search.edges for each in outcomes)
    console.print(f"\nAll promises hold: {states:,} states, {moves:,} moves, {sum(each.took_s for each in outcomes):.1f} s.")
    for line in (worlds.holds, *_left_open(outcomes)):
        console.print(Text(line), soft_wrap=True)
    exercised = _exercised(outcomes)
    for what, names in worlds.exercised.items():
        missing = [name for name in names if not exercised[name]]
        console.print(
            Text(f"{len(names) - len(missing)} of {len(names)} {what} were exercised" + (", but not" * bool(missing)))
        )
        for name in missing:
            console.print(Text(f"  {name}"))


def _table(outcomes: list[SystemOutcome]) -> Table:
    table = Table("system", box=None, pad_edge=False, header_style="bold")
    for column in ("states", "moves", "depth", "to rest", "time"):
        table.add_column(column, justify="right")
    table.add_column("bounds", overflow="fold")
    for each in outcomes:
        search = each.search
        states = f"{search.worlds:,}" if search.complete else f"{search.explored:,} of {search.worlds:,}+"
        cells = (states, f"{search.edges:,}", str(search.depth), str(search.rest), f"{each.took_s:.1f} s")
        table.add_row(each.name, *cells, str(search.system.bounds).partition("(")[2].removesuffix(")"))
    return table


def _left_open(outcomes: Iterable[SystemOutcome]) -> Iterator[str]:
    for each in outcomes:
        waiting, sampled = each.search.worlds - each.search.explored, each.search.sampled
        if waiting:
            yield f"{each.name}: {waiting:,} states found and not explored; {sampled:,} of them were followed to rest."


def _as_json(worlds: Worlds, outcomes: list[SystemOutcome]) -> dict[str, Any]:
    exercised = _exercised(outcomes)
    search = outcomes[-1].search
    broken = search.broken
    return {
        "holds": broken is None,
        "broken": None
        if broken is None
        else {
            "system": outcomes[-1].name,
            "violations": [str(each) for each in broken.violations],
            "moves": list(broken.moves),
            "settles": broken.settles,
            "test": as_test(search.system, broken),
        },
        "systems": [
            {
                "name": each.name,
                "bounds": msgspec.to_builtins(each.search.system.bounds),
                "states": each.search.worlds,
                "explored": each.search.explored,
                "complete": each.search.complete,
                "moves": each.search.edges,
                "depth": each.search.depth,
                "moves_to_rest": each.search.rest,
                "sampled": each.search.sampled,
                "time_s": round(each.took_s, 3),
            }
            for each in outcomes
        ],
        "exercised": {what: {name: exercised[name] for name in names} for what, names in worlds.exercised.items()},
    }
