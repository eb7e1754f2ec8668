"""`rankcore swarm`: run seeds, make short what fails, and say what was seen."""

import json
import os
import shlex
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from executors.cli.bars import runs_bar
from executors.cli.commands.simulate import SEED_MAX
from executors.cli.outputs import OutputError, Outputs
from executors.cli.problems import INTERRUPTED, PROMISE_BROKEN, Refusal, told_in_one_line, warn
from executors.cli.screen import answers
from executors.swarm.batches import Batch, Came, Failing, batches_of, run_batch
from executors.swarm.coverage import KINDS
from executors.swarm.shrinking import Short, shorten
from executors.workers import Results, in_processes

SHORTENED_MAX = 3
SHOWN_MAX = 4


@attrs.frozen
class Asked:
    """What the command line asks for."""

    parts: tuple[str, ...]
    first: int
    seeds: int
    jobs: int
    on: str
    coverage: bool
    out: Path
    as_json: bool
    quiet: bool


@attrs.define
class Swarm:
    """What has been seen so far.

    Attributes:
        came: By part.
        shorts: Failing seeds, each as short as it could be made, and where that was written.
    """

    came: dict[str, Came]
    shorts: list[tuple[Failing, Short, Path]] = attrs.Factory(list)

    @property
    def failing(self) -> list[Failing]:
        """All of them, part after part."""
        return [each for came in self.came.values() for each in came.failing]

    @property
    def counts(self) -> Counter[str]:
        """How often each was seen, by name."""
        return sum((came.counts for came in self.came.values()), Counter())


def run(asked: Asked) -> None:
    """What `rankcore swarm` does, errors and exit status included."""
    swarm = Swarm({part: Came(part) for part in asked.parts})
    interrupted = False
    with told_in_one_line("interrupted"):
        if asked.first + asked.seeds - 1 > SEED_MAX:
            most = SEED_MAX - asked.seeds + 1
            raise Refusal(f"--from: expected at most {most}, so that {asked.seeds} seeds follow, found {asked.first}")
        try:
            _run_all(asked, swarm)
            _shorten(asked, swarm)
        except KeyboardInterrupt:
            interrupted = True
        except ConnectionError as error:
            raise Refusal(f"--on ray: no cluster answers at RAY_ADDRESS={os.environ.get('RAY_ADDRESS')}: {error}") from None
        if asked.as_json:
            typer.echo(json.dumps(_as_json(swarm), indent=2))
        else:
            _print(answers(), asked, swarm, interrupted)
    if interrupted:
        done = ", ".join(f"{came.seeds:,} of {asked.seeds:,} seeds ({part})" for part, came in swarm.came.items())
        typer.echo(f"rankcore: interrupted after {done}", err=True)
        raise typer.Exit(INTERRUPTED)
    if swarm.failing:
        raise typer.Exit(PROMISE_BROKEN)


def _run_all(asked: Asked, swarm: Swarm) -> None:
    work = batches_of(asked.parts, range(asked.first, asked.first + asked.seeds))
    done, total = 0, asked.seeds * len(asked.parts)
    with runs_bar("swarm: seeds", asked.quiet or asked.as_json) as bar, closing(_workers(asked, work)) as results:
        bar.show(0, total)
        for _, came in results:
            swarm.came[came.part] += came
            done += came.seeds
            bar.show(done, total)


def _workers(asked: Asked, work: list[Batch]) -> Results[Came]:
    if asked.on == "processes":
        return in_processes(work, run_batch, asked.jobs)
    from executors.ray_workers import LOCAL, on_ray  # the one way from here to a cluster library, taken only when asked for

    return on_ray(work, run_batch, asked.jobs, os.environ.get("RAY_ADDRESS", LOCAL))


def _shorten(asked: Asked, swarm: Swarm) -> None:
    """The first of each promise and part; more would mostly be the same again."""
    chosen: dict[tuple[str, str], Failing] = {}
    for failing in swarm.failing:
        chosen.setdefault((failing.part, failing.rule), failing)
    for failing in list(chosen.values())[:SHORTENED_MAX]:
        with runs_bar(f"making seed {failing.seed} short: tries", asked.quiet or asked.as_json) as bar:
            short = shorten(failing, bar.show)
        if short is not None:
            swarm.shorts.append((failing, short, _write(asked.out, short)))


def _write(folder: Path, short: Short) -> Path:
    path = folder / short.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Outputs() as outputs:
            outputs.write(outputs.open("--out", path), short.text)
            outputs.keep()
    except (OSError, OutputError) as error:
        warn(f"{path} cannot be written: {error}")  # what was found is told all the same
    return path


def _print(console: Console, asked: Asked, swarm: Swarm, interrupted: bool) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("part")
    for column in ("seeds", "events, each checked", "per minute and core", "run twice", "failing"):
        table.add_column(column, justify="right")
    for part, came in swarm.came.items():
        rate = f"{came.per_minute:,.0f}"
        table.add_row(part, f"{came.seeds:,}", f"{came.events:,}", rate, f"{came.twice:,}", f"{len(came.failing):,}")
    console.print(table)
    console.print()
    _print_coverage(console, asked, swarm.counts)
    if not swarm.failing:
        console.print("\nNo promise was broken so far." if interrupted else "\nAll promises held.")
        return
    for _, short, path in swarm.shorts:
        _print_short(console, short, path)
    shortened = [failing for failing, _, _ in swarm.shorts]
    others = [each for each in swarm.failing if each not in shortened]
    for failing in others[:SHOWN_MAX]:
        again = f"rankcore swarm --part {failing.part} --seed {failing.seed}"
        console.print(Text(f"\n{failing.part} seed {failing.seed}: {failing.rule}, see: {again}"), soft_wrap=True)
        console.print(Text(f"  {failing.text}", style="dim"), soft_wrap=True)
    if len(others) > SHOWN_MAX:
        seeds = ", ".join(f"{each.part} {each.seed} ({each.rule})" for each in others[SHOWN_MAX : SHOWN_MAX + 20])
        console.print(Text(f"\nand {len(others) - SHOWN_MAX} more: {seeds}"), soft_wrap=True)


def _print_short(console: Console, short: Short, path: Path) -> None:
    failing = short.failing
    console.print(
        Text(f"\nBROKEN in the {failing.part} part, seed {failing.seed}: {failing.text}", style="bold red"), soft_wrap=True
    )
    console.print(Text(f"again: {_command(short, path)}"), soft_wrap=True)
    console.print()
    console.print(short.text, markup=False, soft_wrap=True)


def _command(short: Short, path: Path) -> str:
    return short.command.format(file=shlex.quote(str(path)))


def _print_coverage(console: Console, asked: Asked, counts: Counter[str]) -> None:
    for kind, names in KINDS.items():
        of_part = kind.rpartition(", ")[2]
        if of_part in ("pure", "simulator") and of_part not in asked.parts:
            continue
        missing = [name for name in names if not counts[name]]
        line = f"{kind + ':':<28}{len(names) - len(missing):>4} of {len(names)} seen"
        if asked.coverage:
            console.print(Text(line, style="bold"))
            for name in names:
                console.print(Text(f"  {counts[name]:>10,}  {name}"), soft_wrap=True)
            continue
        shown = "; ".join(name.rpartition(": ")[2] for name in missing[:SHOWN_MAX])
        more = f"; and {len(missing) - SHOWN_MAX} more" if len(missing) > SHOWN_MAX else ""
        console.print(Text(line + (f", not yet: {shown}{more}" if missing else "")), soft_wrap=True)


def _as_json(swarm: Swarm) -> dict[str, Any]:
    counts = swarm.counts
    return {
        "holds": not swarm.failing,
        "parts": {
            part: {
                "seeds": came.seeds,
                "events": came.events,
                "events_per_minute_and_core": round(came.per_minute),
                "run_twice": came.twice,
            }
            for part, came in swarm.came.items()
        },
        "failing": [attrs.asdict(each) for each in swarm.failing],
        "short": [{**attrs.asdict(short), "command": _command(short, path)} for _, short, path in swarm.shorts],
        "seen": {kind: {name: counts[name] for name in names} for kind, names in KINDS.items()},
    }
