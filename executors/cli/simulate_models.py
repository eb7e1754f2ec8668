"""`rankcore simulate` of a scenario of models: run it, print what it came to, and write the report."""

import json
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import typer

from executors.cli.never_came import warn_of_what_never_came
from executors.cli.outputs import Outputs
from executors.cli.problems import PROMISE_BROKEN, Refusal
from executors.cli.run_bar import RunBar
from executors.cli.simulate_asked import SimulateAsked
from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.simulator.load.sources import Source
from executors.simulator.record.recording import Recording
from executors.simulator.report.memory.words import failure, model_columns, model_row, rows, summary
from executors.simulator.residency.run import PICTURE, ResidencyResult, ResidencyRun

if TYPE_CHECKING:
    from rich.console import Console


def simulate_models(source: Source, path: Path, asked: SimulateAsked, outputs: Outputs) -> ResidencyResult:
    """Run it, and write all that was asked for."""
    if asked.must_heal:
        raise Refusal("--must-heal: expected a scenario of deployments, found one of models")
    scenario = source.residency(asked.seed)
    arrivals = source.model_arrivals(scenario)
    files = asked.open_files(outputs, path.stem, source.inputs)
    settings = [word for setting in source.settings for word in ("--set", str(setting))]
    rerun = shlex.join(["rankcore", "simulate", str(path), *settings, "--seed", str(scenario.seed)])
    with RunBar("simulating", asked.quiet) as bar, ExitStack() as stack:
        writer = None
        if files.journal_part is not None:
            about = Recording(source, scenario.seed, traces=source.trace_digests()).about()
            writer = stack.enter_context(JournalWriter.create(files.journal_part, kind=CLUSTER, about=about))
        result = ResidencyRun(scenario, arrivals, writer).go(bar.show)

    from executors.simulator.report.memory.page import render_memory_page

    figures = json.dumps(models_as_json(result, rerun), indent=2, allow_nan=False) + "\n"
    files.keep(figures, lambda: render_memory_page(result, rerun))
    if not asked.quiet:
        warn_of_what_never_came(scenario, result)
    asked.answer(figures, files, rerun, lambda console: _print(console, result))
    files.tell_of_page(failure(result))
    return result


def end_with(result: ResidencyResult) -> None:
    """Exit with 1 if a promise was broken, and say which."""
    broken = failure(result)
    if broken is not None:
        typer.echo(f"rankcore: error: {broken}", err=True)
        raise typer.Exit(PROMISE_BROKEN)


def models_as_json(result: ResidencyResult, rerun: str) -> dict[str, Any]:
    """The figures, without what only the picture needs."""
    data = attrs.asdict(result, filter=lambda field, _: field.name not in PICTURE)
    return {"rerun": rerun, **data}


def _print(console: "Console", result: ResidencyResult) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console.print(Text(result.scenario, style="bold"))
    console.print(Text(summary(result), style="dim"))
    table = Table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, value in rows(result):
        table.add_row(Text(label), Text(value))
    console.print(table)
    models = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(model_columns()):
        models.add_column(column, justify="right" if index else "left", no_wrap=not index)
    for figures in result.models:
        models.add_row(*(Text(cell) for cell in model_row(figures, result.ended_at)))
    console.print(models)
