"""`rankcore fidelity`: simulate a recording, and print how far the simulation is from it."""

import json
from pathlib import Path
from typing import Any

import attrs
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from executors.cli.bars import runs_bar
from executors.cli.outputs import Outputs
from executors.cli.problems import DIFFERS, Refusal, told_in_one_line, warn
from executors.cli.screen import answers
from executors.engine.request_reading import beside
from executors.simulator.from_journal.calibration import NO_CALLS, RecordedWorld, read_recorded
from executors.simulator.from_journal.fidelity import Fidelity, FigureError, compare_with_recorded, compare_with_simulated


def run(
    journal: Path, runs: int, against: Path | None, drawn: bool, tolerance: float, json_file: str | None, quiet: bool
) -> None:
    """What `rankcore fidelity` does, errors and exit status included."""
    with told_in_one_line("interrupted, nothing was written"), Outputs() as outputs:
        journals = (journal, *(() if against is None else (against,)))
        inputs = (*journals, *(file for each in journals for file in beside(each)))
        part = outputs.open("--json", Path(json_file), inputs) if json_file not in (None, "-") else None
        world = _read(journal)
        noise = None if against is None else compare_with_recorded(world, _read_again(against, world))
        with runs_bar("simulating", quiet) as bar:
            found = compare_with_simulated(world, runs, lambda done: bar.show(done, runs), drawn=drawn)
        beyond = found.beyond(tolerance)
        figures = json.dumps(as_json(world, found, noise, beyond), indent=2, allow_nan=False) + "\n"
        if part is not None:
            outputs.write(part, figures)
        outputs.keep()
    if json_file == "-":
        typer.echo(figures, nl=False)
    elif not quiet:
        _print(answers(), world, found, noise, runs)
    for text in beyond:
        typer.echo(f"rankcore: {text}", err=True)
    if beyond:
        raise typer.Exit(DIFFERS)


def _read(journal: Path) -> RecordedWorld:
    world = read_recorded(journal)
    if not world.calls:
        raise Refusal(f"{journal}: {NO_CALLS}")
    for text in world.warnings:
        warn(text)
    return world


def _read_again(journal: Path, first: RecordedWorld) -> RecordedWorld:
    """Another recording, which has to be one of the same run."""
    world = _read(journal)
    expected, found = (", ".join(sorted(each.history.states)) for each in (first, world))
    if expected != found:
        raise Refusal(f"--against: expected a recording of {expected}, found one of {found} in {journal}")
    return world


def as_json(world: RecordedWorld, found: Fidelity, noise: Fidelity | None, beyond: tuple[str, ...]) -> dict[str, Any]:
    """All of it as plain data."""
    return {
        "journal": str(world.path),
        "calls": len(world.calls),
        "dropped": world.dropped,
        "clock_error_s": world.clock_error_s,
        "simulated": _plain(found),
        "recorded_again": None if noise is None else _plain(noise),
        "beyond_tolerance": list(beyond),
    }


def _plain(found: Fidelity) -> dict[str, Any]:
    apart_s = found.history.apart_s
    history = {
        "changes": found.history.changes,
        "equal": found.history.difference is None,
        "difference": found.history.difference,
        "swapped": found.history.swapped,
        "apart_s_max": max(apart_s, default=0.0),
        "apart_s_mean": sum(apart_s) / len(apart_s) if apart_s else 0.0,
    }
    return {"history": history, "figures": [attrs.asdict(each) for each in found.figures]}


def _print(console: Console, world: RecordedWorld, found: Fidelity, noise: Fidelity | None, runs: int) -> None:
    console.print(Text(str(world.path), style="bold"), soft_wrap=True)
    dropped = f", {world.dropped} dropped" if world.dropped else ""
    clock = f"clocks within {world.clock_error_s * 1000:.2g} ms of each other"
    console.print(Text(f"{len(world.calls)} calls{dropped}; {clock}; {runs} simulated run{'s' if runs > 1 else ''}"))
    console.print(Text(f"history of ranks: {_history(found)}"), soft_wrap=True)
    if noise is not None:
        console.print(Text(f"recorded again:   {_history(noise)}", style="dim"), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    again = () if noise is None else ("again", "error of that")
    for header in ("deployment", "figure", "recorded", "simulated", "95 % interval", "error", *again):
        table.add_column(header, justify="left" if header in ("deployment", "figure") else "right", no_wrap=True)
    others = noise.figures if noise is not None else (None,) * len(found.figures)
    for each, other in zip(found.figures, others, strict=True):
        cells = [each.deployment, f"{each.share} {each.figure}", _ms(each.recorded), _ms(each.found.mean), _interval(each)]
        beside = [] if other is None else [_ms(other.found.mean), _share(other.error)]
        table.add_row(*(Text(cell) for cell in (*cells, _share(each.error), *beside)))
    console.print(table)


def _history(found: Fidelity) -> str:
    history = found.history
    if history.difference is not None:
        return f"differs: {history.difference}"
    swapped = f", {history.swapped} near each other in another order" if history.swapped else ""
    return f"equal, {history.changes} changes{swapped}; at most {max(history.apart_s, default=0.0) * 1000:.3g} ms apart"


def _ms(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds * 1000:,.1f} ms"


def _interval(each: FigureError) -> str:
    low, high = each.found.low, each.found.high
    return "-" if low is None or high is None else f"{low * 1000:,.1f} to {high * 1000:,.1f}"


def _share(error: float | None) -> str:
    return "-" if error is None else f"{error:.1%}"
