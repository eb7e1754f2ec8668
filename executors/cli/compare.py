"""`rankcore compare`: run two scenarios on the same seeds and print how they differ."""

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
from executors.cli.screen import answers
from executors.cli.sweep_table import told_of
from executors.simulator.load.sources import read_source
from executors.simulator.questions.cells import in_processes
from executors.simulator.questions.comparison import Comparison, DeploymentComparison, FigureComparison, GoalComparison
from executors.simulator.questions.comparison import compare as compare_sources
from executors.simulator.questions.goals import check_readings, shown
from executors.simulator.questions.settings import read_settings
from executors.simulator.questions.statistics import Estimate
from executors.simulator.record.flat_figures import is_percentile, label, number, quantity

SEED_MAX = 2**63 - 1


def run(
    first: Path,
    second: Path | None,
    policy: Path | None,
    runs: int,
    seed: int | None,
    jobs: int,
    json_file: str | None,
    checking: Checking,
    quiet: bool,
    slo: Sequence[str],
    slo_window: str | None,
) -> None:
    """What `rankcore compare` does, errors and exit status included."""
    with told_in_one_line("interrupted, nothing was written"), Outputs() as outputs:
        if second is None and policy is None:
            raise Refusal("expected B, what it is compared with, or --policy FILE, what is otherwise in A then, found neither")
        sources = read_source(first), read_source(second or first, () if policy is None else read_settings(policy))
        scenarios = [source.scenario() for source in sources]
        # Objectives are those of A; B has to have their figures too.
        goals, window_s = goals_of(slo, scenarios[0]), window_s_of(slo_window, scenarios[0])
        check_readings(scenarios[1], [goal.reading for goal in goals], "--slo" if slo else f"slo of {sources[0].name}")
        begin = seed if seed is not None else sources[0].scenario().seed
        if begin + runs - 1 > SEED_MAX:
            raise Refusal(f"--seed: expected at most {SEED_MAX - runs + 1}, so that {runs} seeds follow, found {begin}")
        inputs = (*(path for source in sources for path in source.inputs), *([policy] if policy is not None else []))
        part = outputs.open("--json", Path(json_file), inputs) if json_file not in (None, "-") else None
        with runs_bar("comparing", quiet) as bar:
            seeds, workers = range(begin, begin + runs), in_processes(jobs)
            found = compare_sources(*sources, seeds, workers, bar.show, checking, goals, window_s)
        asked = [str(first), *([str(second)] if second is not None else []), *(["--policy", str(policy)] if policy else [])]
        names = sources[0].name, sources[1].name + (f" with {policy}" if policy is not None else "")
        asked += [word for text in slo for word in ("--slo", text)]
        asked += [] if slo_window is None else ["--slo-window", slo_window]
        again = shlex.join(["rankcore", "compare", *asked, "--runs", str(runs), "--seed", str(begin)])
        figures = json.dumps(_as_json(found, names, again), indent=2, allow_nan=False) + "\n"
        if part is not None:
            outputs.write(part, figures)
        outputs.keep()
        if not quiet:
            tell(found.notes)
        if json_file == "-":
            typer.echo(figures, nl=False)
        elif not quiet:
            _print(found, names, again)


def _as_json(found: Comparison, names: tuple[str, str], again: str) -> dict[str, Any]:
    return {
        "rerun": again,
        "a": names[0],
        "b": names[1],
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


def _print(found: Comparison, names: tuple[str, str], again: str) -> None:
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
    if found.goals:
        _print_goals(console, found)
    for name, others in zip(names, (found.only_first, found.only_second), strict=True):
        if others:
            console.print(Text(f"only in {name}, compared with nothing: {', '.join(others)}"), soft_wrap=True)
    if runs == 1:
        console.print(Text("One pair says nothing of chance, so there is no interval: more --runs give one."), soft_wrap=True)
    else:
        text = "Where the interval holds 0, the runs cannot tell the difference from chance; alone it makes 1 of 20 look real."
        console.print(Text(text, style="dim"), soft_wrap=True)
    console.print(Text(f"again: {again}"), soft_wrap=True)


def _print_goals(console: Console, found: Comparison) -> None:
    table = Table(title=Text("objectives"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("objective", "A", "held in", "B", "held in"):
        table.add_column(header, justify="left" if header == "objective" else "right", no_wrap=header != "objective")
    runs = len(found.seeds)
    for each in found.goals:
        of_a, of_b = (shown(each.goal, math.fsum(values) / runs) for values in (each.first, each.second))
        windows = " of windows" if each.goal.in_windows else ""
        table.add_row(
            Text(each.goal.text), of_a + windows, f"{each.first_held}/{runs}", of_b + windows, f"{each.second_held}/{runs}"
        )
    console.print(table)


def _print_deployment(console: Console, deployment: DeploymentComparison) -> None:
    table = Table(title=Text(deployment.name), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("figure", style="dim")
    for header in ("A", "B", "B - A", "95 % interval"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("different?", no_wrap=True)
    for figure in deployment.figures:
        if not is_equal(figure):
            table.add_row(
                Text(label(figure.key)),
                quantity(figure.key, figure.first_mean),
                quantity(figure.key, figure.second_mean),
                "-" if figure.difference.mean is None else number(figure.difference.mean, signed=True),
                interval(figure.difference),
                Text(verdict(figure), style="bold" if figure.difference.excludes_zero else "dim"),
            )
    if table.row_count:
        console.print(table)
    equal = [
        f"{label(figure.key)} ({quantity(figure.key, figure.first_mean)})" for figure in deployment.figures if is_equal(figure)
    ]
    if equal:
        console.print(Text(f"Equal in every pair: {', '.join(equal)}", style="dim"), soft_wrap=True)


def interval(difference: Estimate) -> str:
    """From where to where; `-` where there is none."""
    if difference.low is None or difference.high is None:
        return "-"
    return f"{number(difference.low, signed=True)} to {number(difference.high, signed=True)}"


def is_equal(figure: FigureComparison) -> bool:
    """Whether there is nothing to see: both have the same value, or none, on every seed."""
    return figure.first == figure.second


def verdict(figure: FigureComparison) -> str:
    """What the interval says, in words."""
    difference, runs = figure.difference, len(figure.first)
    if is_percentile(figure.key) and None in figure.first + figure.second:
        return "by requests not done"
    if not difference.count:
        return "no pair has both"
    of = "" if difference.count == runs else f" ({difference.count} of {runs} pairs)"
    if difference.low is None or difference.mean is None:
        return f"one pair{of}"
    if not difference.excludes_zero:
        return f"no{of}"
    return f"B {'higher' if difference.mean > 0 else 'lower'}{of}"
