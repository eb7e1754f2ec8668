"""`rankcore simulate`: run a scenario, print what it came to, and write the report."""

import json
import shlex
from pathlib import Path
from typing import Any

import attrs
import typer

from executors.cli.never_came import warn_of_what_never_came
from executors.cli.outputs import Outputs
from executors.cli.problems import PROMISE_BROKEN, Refusal, told_in_one_line
from executors.cli.run_bar import RunBar
from executors.cli.run_files import RunFiles
from executors.engine.journal import JournalWriter
from executors.simulator.load.sources import Source, read_source
from executors.simulator.questions.healed import go_and_heal
from executors.simulator.questions.settings import parse_setting
from executors.simulator.record.recording import Recording
from executors.simulator.report.words import failure, rows, summary
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import Scenario


def run(
    scenario: Path | None,
    seed: int | None,
    settings: list[str],
    at: str | None,
    faults: list[str],
    traces: Path | None,
    json_file: str | None,
    journal: Path | None,
    report: Path | None,
    quiet: bool,
    must_heal: bool = False,
) -> None:
    """What `rankcore simulate` does, errors and exit status included."""
    outputs = Outputs()
    with told_in_one_line(outputs.interrupted), outputs:
        if scenario is None:
            raise Refusal("expected a scenario file, or --from JOURNAL with --at and --fault, found neither")
        if at is not None or faults or traces is not None:
            raise Refusal("expected --from JOURNAL with --at, --fault and --traces: what a scenario has stands in its file")
        source = read_source(scenario, tuple(parse_setting("--set", text) for text in settings))
        if source.of_models:
            from executors.cli import simulate_models as of_models

            of_models.end_with(
                of_models.simulate_models(source, scenario, seed, json_file, journal, report, quiet, must_heal, outputs)
            )
            return
        result = _simulate(source, scenario, seed, json_file, journal, report, quiet, must_heal, outputs)
    end_with(result)


def end_with(result: RunResult) -> None:
    """Exit with 1 if a promise was broken, and say which."""
    broken = failure(result)
    if broken is not None:
        typer.echo(f"rankcore: error: {broken}", err=True)
        raise typer.Exit(PROMISE_BROKEN)


def _simulate(
    source: Source,
    path: Path,
    seed: int | None,
    json_file: str | None,
    journal: Path | None,
    report: Path | None,
    quiet: bool,
    must_heal: bool,
    outputs: Outputs,
) -> RunResult:
    scenario = source.scenario(seed)
    arrivals = source.arrivals(scenario)
    page = report if report is not None else Path(f"{path.stem}.report.html")
    files = RunFiles.open(outputs, page=page, json_file=json_file, journal=journal, inputs=source.inputs)
    settings = [word for setting in source.settings for word in ("--set", str(setting))]
    demand = ["--must-heal"] if must_heal else []
    rerun = shlex.join(["rankcore", "simulate", str(path), *settings, "--seed", str(scenario.seed), *demand])

    go = go_and_heal if must_heal else Run.go
    with RunBar("simulating", quiet) as bar:
        if files.journal_part is None:
            result = go(Run(scenario, arrivals), bar.show)
        else:
            about = Recording(source, scenario.seed, traces=source.trace_digests()).about()
            with JournalWriter.create(files.journal_part, about=about) as writer:
                result = go(Run(scenario, arrivals, writer), bar.show)

    from executors.simulator.report import render_page

    figures = json.dumps(as_json(result, rerun), indent=2, allow_nan=False) + "\n"
    files.keep(figures, lambda: render_page(result, rerun))
    if not quiet:
        warn_of_what_never_came(scenario, result)

    if json_file == "-":
        typer.echo(figures, nl=False)
    elif not quiet:
        _print(scenario, result, rerun, files.page, journal)
    files.tell_of_page(failure(result))
    return result


def as_json(result: RunResult, rerun: str) -> dict[str, Any]:
    """The figures, without what only the picture needs."""
    data = attrs.asdict(result, filter=lambda field, _: field.name not in RunResult.PICTURE)
    return {"rerun": rerun, **data}


def _print(scenario: Scenario, result: RunResult, rerun: str, page: Path | None, journal: Path | None) -> None:
    from rich.table import Table
    from rich.text import Text

    from executors.cli.screen import answers

    console = answers()
    console.print(Text(scenario.name, style="bold"))
    console.print(Text(summary(result), style="dim"))
    for figures in result.deployments:
        table = Table(title=Text(figures.name), title_justify="left", show_header=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for label, value in rows(figures):
            table.add_row(Text(label), Text(value))
        console.print(table)
    if page is not None:
        console.print(Text(f"report:  {page}"), soft_wrap=True)
    if journal is not None:
        console.print(Text(f"journal: {journal}"), soft_wrap=True)
    console.print(Text(f"again:   {rerun}"), soft_wrap=True)
