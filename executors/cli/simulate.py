"""`rankcore simulate`: run a scenario, print what it came to, and write the report."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import typer

from executors.cli.never_came import warn_of_what_never_came
from executors.cli.outputs import Outputs
from executors.cli.problems import PROMISE_BROKEN, Refusal, told_in_one_line
from executors.cli.run_bar import RunBar
from executors.cli.simulate_asked import SimulateAsked
from executors.engine.journal import JournalWriter
from executors.simulator.load.sources import Source, read_source
from executors.simulator.questions.healed import go_and_heal
from executors.simulator.questions.settings import parse_setting
from executors.simulator.record.recording import Recording
from executors.simulator.report.words import failure, rows, summary
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import Scenario

if TYPE_CHECKING:
    from rich.console import Console


def run(asked: SimulateAsked) -> None:
    """What `rankcore simulate` does, errors and exit status included."""
    outputs = Outputs()
    with told_in_one_line(outputs.interrupted), outputs:
        if asked.scenario is None:
            raise Refusal("expected a scenario file, or --from JOURNAL with --at and --fault, found neither")
        if asked.at is not None or asked.faults or asked.traces is not None:
            raise Refusal("expected --from JOURNAL with --at, --fault and --traces: what a scenario has stands in its file")
        source = read_source(asked.scenario, tuple(parse_setting("--set", text) for text in asked.settings))
        if source.of_models:
            from executors.cli import simulate_models as of_models

            of_models.end_with(of_models.simulate_models(source, asked.scenario, asked, outputs))
            return
        result = _simulate(source, asked.scenario, asked, outputs)
    end_with(result)


def end_with(result: RunResult) -> None:
    """Exit with 1 if a promise was broken, and say which."""
    broken = failure(result)
    if broken is not None:
        typer.echo(f"rankcore: error: {broken}", err=True)
        raise typer.Exit(PROMISE_BROKEN)


def _simulate(source: Source, path: Path, asked: SimulateAsked, outputs: Outputs) -> RunResult:
    scenario = source.scenario(asked.seed)
    arrivals = source.arrivals(scenario)
    files = asked.open_files(outputs, path.stem, source.inputs)
    settings = [word for setting in source.settings for word in ("--set", str(setting))]
    demand = ["--must-heal"] if asked.must_heal else []
    rerun = shlex.join(["rankcore", "simulate", str(path), *settings, "--seed", str(scenario.seed), *demand])

    go = go_and_heal if asked.must_heal else Run.go
    with RunBar("simulating", asked.quiet) as bar:
        if files.journal_part is None:
            result = go(Run(scenario, arrivals), bar.show)
        else:
            about = Recording(source, scenario.seed, traces=source.trace_digests()).about()
            with JournalWriter.create(files.journal_part, about=about) as writer:
                result = go(Run(scenario, arrivals, writer), bar.show)

    from executors.simulator.report import render_page

    figures = json.dumps(as_json(result, rerun), indent=2, allow_nan=False) + "\n"
    files.keep(figures, lambda: render_page(result, rerun))
    if not asked.quiet:
        warn_of_what_never_came(scenario, result)
    asked.answer(figures, files, rerun, lambda console: _print(console, scenario, result))
    files.tell_of_page(failure(result))
    return result


def as_json(result: RunResult, rerun: str) -> dict[str, Any]:
    """The figures, without what only the picture needs."""
    data = attrs.asdict(result, filter=lambda field, _: field.name not in RunResult.PICTURE)
    return {"rerun": rerun, **data}


def _print(console: "Console", scenario: Scenario, result: RunResult) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(scenario.name, style="bold"))
    console.print(Text(summary(result), style="dim"))
    for figures in result.deployments:
        table = Table(title=Text(figures.name), title_justify="left", show_header=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for label, value in rows(figures):
            table.add_row(Text(label), Text(value))
        console.print(table)
