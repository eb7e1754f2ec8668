"""`rankcore sweep`: run a grid of settings, keep what is done, and show what it came to."""

import math
import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from executors.checking import Checking
from executors.cli.bars import runs_bar
from executors.cli.outputs import Outputs
from executors.cli.problems import Refusal, tell, told_in_one_line
from executors.cli.run_places import workers_at
from executors.cli.screen import answers
from executors.cli.sweep_table import table_of, told_of
from executors.simulator.load.sources import Source, read_source
from executors.simulator.questions.cellfile import CellFile
from executors.simulator.questions.cells import Workers
from executors.simulator.questions.settings import parse_setting, parse_variation
from executors.simulator.questions.sweeping import CELLS_MAX, Sweep, as_csv, as_multiples, sources_of, sweep
from executors.simulator.report.multiples import render_multiples

SEED_MAX = 2**63 - 1


def run(
    scenario: Path,
    vary: list[str],
    fixed: list[str],
    runs: int,
    seed: int | None,
    jobs: int,
    on: str,
    out: Path | None,
    fresh: bool,
    checking: Checking,
    quiet: bool,
) -> None:
    """What `rankcore sweep` does, errors and exit status included."""
    folder = out if out is not None else Path(f"{scenario.stem}.sweep")
    again = f"the same command goes on with what is kept in {folder}"
    with told_in_one_line(f"interrupted; {again}"):
        if not vary:
            raise Refusal("expected --vary KEY=VALUE,VALUE,... such as --vary target_replicas=8,12,16, found nothing to vary")
        settings = tuple(parse_setting("--set", text) for text in fixed)
        variations = [parse_variation("--vary", text) for text in vary]
        if len({variation[0].key for variation in variations}) < len(variations):
            raise Refusal("--vary: expected each key once: all its values go into one --vary, separated by commas")
        combinations = math.prod(len(variation) for variation in variations)
        if combinations * runs > CELLS_MAX:
            raise Refusal(f"--vary: expected at most {CELLS_MAX:,} runs, found {combinations:,} combinations x {runs:,} runs")
        source = read_source(scenario, settings)
        grid, notes = sources_of(source, variations)
        begin = seed if seed is not None else source.scenario().seed
        if begin + runs - 1 > SEED_MAX:
            raise Refusal(f"--seed: expected at most {SEED_MAX - runs + 1}, so that {runs} seeds follow, found {begin}")
        workers = workers_at(on, jobs)
        found = _sweep(grid, len(settings), range(begin, begin + runs), workers, folder, fresh, checking, quiet)
        rerun = _rerun(scenario, vary, fixed, runs, begin)
        _write(found, source, folder, rerun)
        if not quiet:
            tell(notes)
            _print(found, source, folder, rerun)


def _sweep(
    grid: list[Source], fixed: int, seeds: range, workers: Workers, folder: Path, fresh: bool, checking: Checking, quiet: bool
) -> Sweep:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cells.jsonl"
    if fresh:
        path.unlink(missing_ok=True)
    with CellFile(path) as kept, runs_bar("sweeping", quiet) as bar:
        return sweep(grid, fixed, seeds, kept, workers, bar.show, checking)


def _rerun(scenario: Path, vary: list[str], fixed: list[str], runs: int, seed: int) -> str:
    options = [*(word for text in fixed for word in ("--set", text)), *(word for text in vary for word in ("--vary", text))]
    return shlex.join(["rankcore", "sweep", str(scenario), *options, "--runs", str(runs), "--seed", str(seed)])


def _write(found: Sweep, source: Source, folder: Path, rerun: str) -> None:
    with Outputs() as outputs:
        table, page = outputs.open("--out", folder / "sweep.csv"), outputs.open("--out", folder / "sweep.html")
        outputs.write(table, as_csv(found))
        outputs.keep(besides=page)
        outputs.write(page, render_multiples(source.scenario().name, as_multiples(found), rerun))
        outputs.keep()


def _print(found: Sweep, source: Source, folder: Path, rerun: str) -> None:
    console = answers()
    console.print(Text(source.scenario().name, style="bold"))
    runs = len(found.seeds)
    seeds = f"seed {found.seeds[0]}" if runs == 1 else f"seeds {found.seeds[0]} to {found.seeds[-1]}"
    what = "" if runs == 1 else "; means, and half the width of their 95 % intervals"
    console.print(
        Text(
            f"{len(found.combinations)} combination{'' if len(found.combinations) == 1 else 's'}, each on {seeds}{what}",
            style="dim",
        )
    )
    for deployment in told_of(found.deployments):
        _print_deployment(console, found, deployment)
    for name, file in (("figures", "sweep.csv"), ("page", "sweep.html"), ("runs", "cells.jsonl")):
        console.print(Text(f"{name + ':':<9}{folder / file}"), soft_wrap=True)
    console.print(Text(f"again:   {rerun}"), soft_wrap=True)


def _print_deployment(console: Console, found: Sweep, deployment: str) -> None:
    shown = table_of(found, deployment, console.width)
    if shown.table is None:
        console.print(Text(f"{deployment}: no figure of the table differs between any two runs"), soft_wrap=True)
        return
    console.print(shown.table)
    if shown.left_out:
        text = f"No room for: {', '.join(shown.left_out)}; see the page and the CSV."
        console.print(Text(text, style="dim"), soft_wrap=True)
    if shown.never_known:
        text = f"Never in any run, or not known: {', '.join(shown.never_known)}; it is of requests that were not done too."
        console.print(Text(text, style="dim"), soft_wrap=True)
