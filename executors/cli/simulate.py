"""`rankcore simulate`: run a scenario, print what it came to, and write the report."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import attrs
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from executors.cli.outputs import OutputError, Outputs
from executors.journal import JournalWriter
from executors.simulator.report import render_page
from executors.simulator.report.words import failure, moment, rows, summary
from executors.simulator.run import RunResult
from executors.simulator.run import simulate as run_scenario
from executors.simulator.scenario import Scenario, ScenarioError, load_scenario
from executors.simulator.scenario.loading import load_arrivals, with_seed

PROMISE_BROKEN = 1
BAD_INPUT = 2
INTERRUPTED = 130
SEED_MAX = 2**63 - 1


def simulate(
    scenario: Annotated[
        Path, typer.Argument(help="A scenario file; examples/ has some.", metavar="SCENARIO", show_default=False)
    ],
    seed: Annotated[int | None, typer.Option(min=0, max=SEED_MAX, help="Of all randomness. [default: the scenario's]")] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - prints them instead of the table."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every event, command and note, for `rankcore replay`.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the page goes. [default: <scenario>.report.html, in this directory]"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """What happens to my ranks, my requests and my GPUs if ...?

    Runs a scenario in a simulated world with the very core that decides in production, prints a table and writes a page
    with the timeline of ranks. The same scenario and seed give the same run, to the byte.

    \b
      rankcore simulate examples/node-failure-at-peak.yaml
      rankcore simulate examples/node-failure-at-peak.yaml --seed 7 --report seed-7.html
      rankcore simulate examples/node-failure-at-peak.yaml --json - | jq .deployments[0].requests

    Exit status: 0 all promises held, 1 one was broken, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    try:
        with Outputs() as outputs:
            result = _simulate(scenario, seed, json_file, journal, report, quiet, outputs)
    except (ScenarioError, OutputError) as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename or 'an output'} cannot be written: {error.strerror or error}")
    except KeyboardInterrupt:
        typer.echo("rankcore: interrupted, nothing was written", err=True)
        raise typer.Exit(INTERRUPTED) from None
    broken = failure(result)
    if broken is not None:
        typer.echo(f"rankcore: error: {broken}", err=True)
        raise typer.Exit(PROMISE_BROKEN)


def _simulate(
    path: Path,
    seed: int | None,
    json_file: str | None,
    journal: Path | None,
    report: Path | None,
    quiet: bool,
    outputs: Outputs,
) -> RunResult:
    scenario = with_seed(load_scenario(path), seed)
    arrivals = load_arrivals(scenario, path.parent, scenario.seed)
    page = report if report is not None else Path(f"{path.stem}.report.html")
    page_part = outputs.open("--report", page, inputs=(path,))
    json_part = outputs.open("--json", Path(json_file), inputs=(path,)) if json_file not in (None, "-") else None
    journal_part = outputs.open("--journal", journal, inputs=(path,)) if journal is not None else None
    rerun = shlex.join(["rankcore", "simulate", str(path), "--seed", str(scenario.seed)])

    with _Bar(quiet) as bar:
        if journal_part is None:
            result = run_scenario(scenario, arrivals, progress=bar.show)
        else:
            about = {"scenario": scenario.name, "seed": scenario.seed}
            with JournalWriter.create(journal_part, about=about) as writer:
                result = run_scenario(scenario, arrivals, writer, bar.show)

    figures = json.dumps(_as_json(result, rerun), indent=2, allow_nan=False) + "\n"
    page_part.write_text(render_page(result, rerun), encoding="utf-8")
    if json_part is not None:
        json_part.write_text(figures, encoding="utf-8")
    outputs.keep()

    if json_file == "-":
        typer.echo(figures, nl=False)
    elif not quiet:
        _print(scenario, result, rerun, page, journal)
    return result


class _Bar:
    """A progress bar on stderr, where there is a terminal; stdout is for the answer alone."""

    def __init__(self, quiet: bool) -> None:
        console = Console(stderr=True)
        columns = (
            TextColumn("simulating {task.fields[now]}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._progress.add_task("simulate", total=None, now="")

    def show(self, now: float, end: float) -> None:
        """The run is this far."""
        self._progress.update(self._task, completed=min(now, end), total=max(end, 1e-9), now=moment(now))

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _as_json(result: RunResult, rerun: str) -> dict[str, Any]:
    """The figures, without what only the picture needs."""
    data = attrs.asdict(result, filter=lambda field, _: field.name not in ("holds", "gaps", "world_sizes"))
    return {"rerun": rerun, **data}


def _print(scenario: Scenario, result: RunResult, rerun: str, page: Path, journal: Path | None) -> None:
    console = Console(file=sys.stdout, highlight=False)
    console.print(Text(scenario.name, style="bold"))
    console.print(Text(summary(result), style="dim"))
    for figures in result.deployments:
        table = Table(title=Text(figures.name), title_justify="left", show_header=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for label, value in rows(figures):
            table.add_row(Text(label), Text(value))
        console.print(table)
    console.print(Text(f"report:  {page}"), soft_wrap=True)
    if journal is not None:
        console.print(Text(f"journal: {journal}"), soft_wrap=True)
    console.print(Text(f"again:   {rerun}"), soft_wrap=True)


def _refuse(problem: str) -> NoReturn:
    one_line = problem.replace("\r", "\\r").replace("\n", "\\n")  # a path may have line breaks
    typer.echo(f"rankcore: error: {one_line}", err=True)
    raise typer.Exit(BAD_INPUT)
