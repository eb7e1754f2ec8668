"""`rankcore compare`: run two to four scenarios on the same seeds and print how the others differ from the first."""

import json
import math
import shlex
from collections.abc import Sequence
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
from executors.cli.objectives import goals_of, window_s_of
from executors.cli.outputs import Outputs
from executors.cli.problems import Refusal, tell, told_in_one_line
from executors.cli.run_files import RunFiles
from executors.cli.screen import answers
from executors.cli.sweep_table import told_of
from executors.simulator.load.sources import read_source
from executors.simulator.questions.cells import in_processes
from executors.simulator.questions.comparison import (
    Comparison,
    DeploymentComparison,
    FigureComparison,
    GoalComparison,
    compare_each,
)
from executors.simulator.questions.goals import check_readings, shown
from executors.simulator.questions.held import held_objectives
from executors.simulator.questions.settings import read_settings
from executors.simulator.report.comparison import cells_of, equal_in_words, headers_of, is_equal, render_comparison
from executors.simulator.report.together import LETTERS, RUNS_MAX, NamedRun

SEED_MAX = 2**63 - 1


def run(
    first: Path,
    others: Sequence[Path],
    policy: Path | None,
    runs: int,
    seed: int | None,
    jobs: int,
    json_file: str | None,
    html: Path | None,
    checking: Checking,
    quiet: bool,
    slo: Sequence[str],
    slo_window: str | None,
) -> None:
    """What `rankcore compare` does, errors and exit status included."""
    outputs = Outputs()
    with told_in_one_line(outputs.interrupted), outputs:
        if not others and policy is None:
            raise Refusal("expected B, what it is compared with, or --policy FILE, what is otherwise in A then, found neither")
        if len(others) >= RUNS_MAX:
            raise Refusal(f"expected at most {RUNS_MAX} scenarios, found {len(others) + 1}")
        if policy is not None and len(others) > 1:
            raise Refusal(f"--policy: expected one scenario besides A at most, found {len(others)}")
        settings = () if policy is None else read_settings(policy)
        sources = read_source(first), *(read_source(other, settings) for other in others or [first])
        scenarios = [source.scenario() for source in sources]
        # Objectives are those of A; the others have to have their figures too.
        goals, window_s = goals_of(slo, scenarios[0]), window_s_of(slo_window, scenarios[0])
        for scenario in scenarios[1:]:
            check_readings(scenario, [goal.reading for goal in goals], "--slo" if slo else f"slo of {sources[0].name}")
        begin = seed if seed is not None else sources[0].scenario().seed
        if begin + runs - 1 > SEED_MAX:
            raise Refusal(f"--seed: expected at most {SEED_MAX - runs + 1}, so that {runs} seeds follow, found {begin}")
        inputs = (*(path for source in sources for path in source.inputs), *([policy] if policy is not None else []))
        if html is not None and any(source.scenario(begin).has_residency for source in sources):
            raise Refusal("--html: expected deployments without residency, found some with it: the page shows their ranks")
        files = RunFiles.open(outputs, page=html, json_file=json_file, journal=None, inputs=inputs, page_option="--html")
        with runs_bar("comparing", quiet) as bar:
            seeds, workers = range(begin, begin + runs), in_processes(jobs)
            found = compare_each(sources, seeds, workers, bar.show, checking, goals, window_s, is_drawn=html is not None)
        asked = [str(first), *map(str, others), *(["--policy", str(policy)] if policy else [])]
        names = [sources[0].name, *(source.name + (f" with {policy}" if policy is not None else "") for source in sources[1:])]
        asked += [word for text in slo for word in ("--slo", text)]
        asked += [] if slo_window is None else ["--slo-window", slo_window]
        again = shlex.join(["rankcore", "compare", *asked, "--runs", str(runs), "--seed", str(begin)])
        figures = json.dumps(_as_json(found, names, again), indent=2, allow_nan=False) + "\n"
        drawn = (*found[0].drawn, *(result for pair in found[1:] for result in pair.drawn[1:]))
        named = [NamedRun(name, each, held_objectives(goals, window_s, each)) for name, each in zip(names, drawn, strict=False)]
        files.keep(figures, lambda: render_comparison(found, named, again))
        if not quiet:
            tell(found[0].notes)
        if json_file == "-":
            typer.echo(figures, nl=False)
        elif not quiet:
            _print(found, names, again, files.page)
        files.tell_of_page(None)


def _as_json(found: Sequence[Comparison], names: Sequence[str], again: str) -> dict[str, Any]:
    """Two scenarios are a pair; of more, A and each of the others are one in `pairs`."""
    pairs = [_pair_as_json(pair, names[0], name) for pair, name in zip(found, names[1:], strict=True)]
    return {"rerun": again, **pairs[0]} if len(pairs) == 1 else {"rerun": again, "pairs": pairs}


def _pair_as_json(found: Comparison, first: str, second: str) -> dict[str, Any]:
    return {
        "a": first,
        "b": second,
        "seeds": list(found.seeds),
        "only_in_a": list(found.only_first),
        "only_in_b": list(found.only_second),
        **({"slo": [_goal_as_json(each) for each in found.goals]} if found.goals else {}),
        "deployments": [
            {"name": each.name, "figures": {figure.key: _figure_as_json(figure) for figure in each.figures}}
            for each in found.deployments
        ],
    }


def _goal_as_json(found: GoalComparison) -> dict[str, Any]:
    values = {
        "a": {"held_in_runs": found.first_held, "runs": [_finite(value) for value in found.first]},
        "b": {"held_in_runs": found.second_held, "runs": [_finite(value) for value in found.second]},
    }
    return {"text": found.goal.text, "of": "windows" if found.goal.in_windows else "run", **values}


def _finite(value: float) -> float | None:
    """JSON has no word for never."""
    return value if math.isfinite(value) else None


def _figure_as_json(figure: FigureComparison) -> dict[str, Any]:
    return {
        "a": figure.first_mean,
        "b": figure.second_mean,
        "difference": {**attrs.asdict(figure.difference), "distinguishable": figure.difference.excludes_zero},
        "a_runs": list(figure.first),
        "b_runs": list(figure.second),
    }


def _print(found: Sequence[Comparison], names: Sequence[str], again: str, page: Path | None) -> None:
    console = answers()
    seeds = found[0].seeds
    console.print(Text("\n".join(f"{letter}: {name}" for letter, name in zip(LETTERS, names, strict=False)), style="bold"))
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"the same seeds, {seeds[0]} to {seeds[-1]}"
    console.print(Text(f"{len(seeds)} {'run' if len(seeds) == 1 else 'runs'} of each, on {which}", style="dim"))
    for letter, name, pair in zip(LETTERS[1:], names[1:], found, strict=False):
        _print_pair(console, pair, letter, (names[0], name), alone=len(found) == 1)
    if len(seeds) == 1:
        console.print(Text("One pair says nothing of chance, so there is no interval: more --runs give one."), soft_wrap=True)
    else:
        text = "Where the interval holds 0, the runs cannot tell the difference from chance; alone it makes 1 of 20 look real."
        console.print(Text(text, style="dim"), soft_wrap=True)
    if page is not None:
        console.print(Text(f"page:  {page}"), soft_wrap=True)
    console.print(Text(f"again: {again}"), soft_wrap=True)


def _print_pair(console: Console, found: Comparison, letter: str, names: tuple[str, str], *, alone: bool) -> None:
    told = told_of([deployment.name for deployment in found.deployments])
    for deployment in found.deployments:
        if deployment.name in told:
            _print_deployment(console, deployment, letter, deployment.name if alone else f"{deployment.name}: {letter} and A")
    if len(told) < len(found.deployments):
        console.print(
            Text(f"Of each of the {len(found.deployments) - 1} deployments: see --json.", style="dim"), soft_wrap=True
        )
    if found.goals:
        _print_goals(console, found, letter)
    for name, others in zip(names, (found.only_first, found.only_second), strict=True):
        if others:
            console.print(Text(f"only in {name}, compared with nothing: {', '.join(others)}"), soft_wrap=True)


def _print_goals(console: Console, found: Comparison, letter: str) -> None:
    table = Table(title=Text("objectives"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("objective", "A", "held in", letter, "held in"):
        table.add_column(header, justify="left" if header == "objective" else "right", no_wrap=header != "objective")
    runs = len(found.seeds)
    for each in found.goals:
        of_a, of_b = (shown(each.goal, math.fsum(values) / runs) for values in (each.first, each.second))
        windows = " of windows" if each.goal.in_windows else ""
        table.add_row(
            Text(each.goal.text), of_a + windows, f"{each.first_held}/{runs}", of_b + windows, f"{each.second_held}/{runs}"
        )
    console.print(table)


def _print_deployment(console: Console, deployment: DeploymentComparison, letter: str, title: str) -> None:
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    first, *numbers, last = headers_of(letter)
    table.add_column(first, style="dim")
    for header in numbers:
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column(last, no_wrap=True)
    for figure in deployment.figures:
        if not is_equal(figure):
            name, *cells, said = cells_of(figure, letter)
            table.add_row(Text(name), *cells, Text(said, style="bold" if figure.difference.excludes_zero else "dim"))
    if table.row_count:
        console.print(table)
    equal = equal_in_words(deployment)
    if equal:
        console.print(Text(equal, style="dim"), soft_wrap=True)
