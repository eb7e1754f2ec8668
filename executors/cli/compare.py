"""`rankcore compare`: run two scenarios on the same seeds and print how they differ."""

import json
import shlex
from pathlib import Path
from typing import Any

import attrs
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from executors.checking import Checking
from executors.cli.bars import runs_bar
from executors.cli.outputs import Outputs
from executors.cli.problems import Refusal, tell, told_in_one_line
from executors.cli.run_files import RunFiles
from executors.cli.screen import answers
from executors.cli.sweep_table import told_of
from executors.simulator.load.sources import read_source
from executors.simulator.questions.cells import in_processes
from executors.simulator.questions.comparison import Comparison, DeploymentComparison, FigureComparison
from executors.simulator.questions.comparison import compare as compare_sources
from executors.simulator.questions.settings import read_settings
from executors.simulator.report.comparison import HEADERS, cells_of, equal_in_words, is_equal, render_comparison
from executors.simulator.report.together import NamedRun

SEED_MAX = 2**63 - 1


def run(
    first: Path,
    second: Path | None,
    policy: Path | None,
    runs: int,
    seed: int | None,
    jobs: int,
    json_file: str | None,
    html: Path | None,
    checking: Checking,
    quiet: bool,
) -> None:
    """What `rankcore compare` does, errors and exit status included."""
    outputs = Outputs()
    with told_in_one_line(outputs.interrupted), outputs:
        if second is None and policy is None:
            raise Refusal("expected B, what it is compared with, or --policy FILE, what is otherwise in A then, found neither")
        sources = read_source(first), read_source(second or first, () if policy is None else read_settings(policy))
        begin = seed if seed is not None else sources[0].scenario().seed
        if begin + runs - 1 > SEED_MAX:
            raise Refusal(f"--seed: expected at most {SEED_MAX - runs + 1}, so that {runs} seeds follow, found {begin}")
        inputs = (*(path for source in sources for path in source.inputs), *([policy] if policy is not None else []))
        if html is not None and any(source.scenario(begin).has_residency for source in sources):
            raise Refusal("--html: expected deployments without residency, found some with it: the page shows their ranks")
        files = RunFiles.open(outputs, page=html, json_file=json_file, journal=None, inputs=inputs, page_option="--html")
        with runs_bar("comparing", quiet) as bar:
            seeds = range(begin, begin + runs)
            found = compare_sources(*sources, seeds, in_processes(jobs), bar.show, checking, is_drawn=html is not None)
        asked = [str(first), *([str(second)] if second is not None else []), *(["--policy", str(policy)] if policy else [])]
        names = sources[0].name, sources[1].name + (f" with {policy}" if policy is not None else "")
        again = shlex.join(["rankcore", "compare", *asked, "--runs", str(runs), "--seed", str(begin)])
        figures = json.dumps(_as_json(found, names, again), indent=2, allow_nan=False) + "\n"
        named = [NamedRun(name, result) for name, result in zip(names, found.drawn, strict=False)]
        files.keep(figures, lambda: render_comparison(found, named, again))
        if not quiet:
            tell(found.notes)
        if json_file == "-":
            typer.echo(figures, nl=False)
        elif not quiet:
            _print(found, names, again, files.page)
        files.tell_of_page(None)


def _as_json(found: Comparison, names: tuple[str, str], again: str) -> dict[str, Any]:
    return {
        "rerun": again,
        "a": names[0],
        "b": names[1],
        "seeds": list(found.seeds),
        "only_in_a": list(found.only_first),
        "only_in_b": list(found.only_second),
        "deployments": [
            {"name": each.name, "figures": {figure.key: _figure_as_json(figure) for figure in each.figures}}
            for each in found.deployments
        ],
    }


def _figure_as_json(figure: FigureComparison) -> dict[str, Any]:
    return {
        "a": figure.first_mean,
        "b": figure.second_mean,
        "difference": {**attrs.asdict(figure.difference), "distinguishable": figure.difference.excludes_zero},
        "a_runs": list(figure.first),
        "b_runs": list(figure.second),
    }


def _print(found: Comparison, names: tuple[str, str], again: str, page: Path | None) -> None:
    console = answers()
    runs = len(found.seeds)
    console.print(Text(f"A: {names[0]}\nB: {names[1]}", style="bold"))
    seeds = f"seed {found.seeds[0]}" if runs == 1 else f"the same seeds, {found.seeds[0]} to {found.seeds[-1]}"
    console.print(Text(f"{runs} {'run' if runs == 1 else 'runs'} of each, on {seeds}", style="dim"))
    told = told_of([deployment.name for deployment in found.deployments])
    for deployment in found.deployments:
        if deployment.name in told:
            _print_deployment(console, deployment)
    if len(told) < len(found.deployments):
        console.print(
            Text(f"Of each of the {len(found.deployments) - 1} deployments: see --json.", style="dim"), soft_wrap=True
        )
    for name, others in zip(names, (found.only_first, found.only_second), strict=True):
        if others:
            console.print(Text(f"only in {name}, compared with nothing: {', '.join(others)}"), soft_wrap=True)
    if runs == 1:
        console.print(Text("One pair says nothing of chance, so there is no interval: more --runs give one."), soft_wrap=True)
    else:
        text = "Where the interval holds 0, the runs cannot tell the difference from chance; alone it makes 1 of 20 look real."
        console.print(Text(text, style="dim"), soft_wrap=True)
    if page is not None:
        console.print(Text(f"page:  {page}"), soft_wrap=True)
    console.print(Text(f"again: {again}"), soft_wrap=True)


def _print_deployment(console: Console, deployment: DeploymentComparison) -> None:
    table = Table(title=Text(deployment.name), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    first, *numbers, last = HEADERS
    table.add_column(first, style="dim")
    for header in numbers:
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column(last, no_wrap=True)
    for figure in deployment.figures:
        if not is_equal(figure):
            name, *cells, said = cells_of(figure)
            table.add_row(Text(name), *cells, Text(said, style="bold" if figure.difference.excludes_zero else "dim"))
    if table.row_count:
        console.print(table)
    equal = equal_in_words(deployment)
    if equal:
        console.print(Text(equal, style="dim"), soft_wrap=True)
