"""`rankcore simulate`: run a scenario, print what it came to, and write the report."""

import json
import shlex
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import typer

from executors.checking import Checking
from executors.cli.never_came import warn_of_what_never_came, warn_of_what_was_not_measured
from executors.cli.objectives import goals_of, window_s_of
from executors.cli.outputs import Outputs
from executors.cli.problems import PROMISE_BROKEN, Refusal, tell, told_in_one_line, warn
from executors.cli.run_bar import RunBar
from executors.cli.simulate_asked import SimulateAsked
from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.request_file import RequestWriter
from executors.engine.run_id import RUN
from executors.simulator.load.sources import Source, read_source
from executors.simulator.questions.healed import go_and_heal
from executors.simulator.questions.held import ObjectiveHeld, held_objectives, objective_rows
from executors.simulator.questions.settings import parse_setting
from executors.simulator.record.recording import EXECUTOR, Recording
from executors.simulator.record.request_watch import about_routing, watch_requests
from executors.simulator.report.memory.words import deployment_columns, deployment_row
from executors.simulator.report.memory.words import rows as memory_rows
from executors.simulator.report.memory.words import summary as memory_summary
from executors.simulator.report.words import failure, rows, summary
from executors.simulator.residency.run import ResidencyResult, ResidencyRun
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import Scenario
from executors.simulator.scenario.loading import notes_of
from executors.simulator.scenario.offered import warnings_of
from executors.simulator.wall_clock import utc

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def run(asked: SimulateAsked) -> None:
    """What `rankcore simulate` does, errors and exit status included."""
    outputs = Outputs()
    with told_in_one_line(outputs.interrupted), outputs:
        if asked.scenario is None:
            raise Refusal("expected a scenario file, or --from JOURNAL with --at and --fault, found neither")
        if asked.at is not None or asked.faults or asked.traces is not None:
            raise Refusal("expected --from JOURNAL with --at, --fault and --traces: what a scenario has stands in its file")
        source = read_source(asked.scenario, tuple(parse_setting("--set", text) for text in asked.settings))
        result = _simulate(source, asked.scenario, asked, outputs)
    end_with(result)


def end_with(result: RunResult | ResidencyResult) -> None:
    """Exit with 1 if a promise was broken, and say which."""
    broken = failure(result)
    if broken is not None:
        typer.echo(f"rankcore: error: {broken}", err=True)
        raise typer.Exit(PROMISE_BROKEN)


def warn_of_old(source: Source) -> None:
    """Say that a scenario is of a schema that is no more."""
    if source.is_old:
        warn(f"{source.name} is a scenario of models, as older releases had them: read as `rankcore upgrade` rewrites it")


def _simulate(source: Source, path: Path, asked: SimulateAsked, outputs: Outputs) -> RunResult | ResidencyResult:
    scenario = source.scenario(asked.seed)
    if asked.must_heal and scenario.has_residency:
        raise Refusal("--must-heal: expected deployments without residency")
    if asked.requests is not None and (scenario.has_residency or scenario.engines):
        raise Refusal("--requests: expected deployments without residency and engines")
    goals, window_s = goals_of(asked.slo, scenario), window_s_of(asked.slo_window, scenario)
    arrivals = source.arrivals(scenario)
    files = asked.open_files(outputs, path.stem, source.inputs)
    calls_part = None if asked.requests is None else outputs.open("--requests", asked.requests, source.inputs)
    settings = [word for setting in source.settings for word in ("--set", str(setting))]
    demand = ["--must-heal"] if asked.must_heal else []
    demand += [] if asked.checking is Checking.EACH else ["--check", asked.checking.value]
    demand += [word for text in asked.slo for word in ("--slo", text)]
    demand += [] if asked.slo_window is None else ["--slo-window", asked.slo_window]
    rerun = shlex.join(["rankcore", "simulate", str(path), *settings, "--seed", str(scenario.seed), *demand])
    if not asked.quiet:
        warn_of_old(source)
        tell(notes_of(scenario, arrivals))
        for text in (*scenario.warnings, *warnings_of(scenario, arrivals)):
            warn(text)
    with RunBar("simulating", asked.quiet) as bar, ExitStack() as stack:
        writer = None
        recorded = files.journal_part is not None or calls_part is not None
        about = Recording(source, scenario.seed, traces=source.trace_digests()).about() if recorded else {}
        if files.journal_part is not None:
            kind = CLUSTER if scenario.has_residency else None
            writer = stack.enter_context(JournalWriter.create(files.journal_part, kind=kind, about=about))
        if scenario.has_residency:
            result: RunResult | ResidencyResult = ResidencyRun(scenario, arrivals, writer, asked.checking).go(bar.show)
        else:
            run = Run(scenario, arrivals, writer, asked.checking)
            if calls_part is not None:
                said = {"executor": EXECUTOR, RUN: about[RUN], "routing": about_routing(scenario.deployments)}
                calls = stack.enter_context(closing(RequestWriter.create(calls_part, said)))
                watch_requests({name: port.requests for name, port in run.world.deployments.items()}, calls)
            result = go_and_heal(run, bar.show) if asked.must_heal else run.go(bar.show)
    held = held_objectives(goals, window_s, result) if isinstance(result, RunResult) else ()
    figures = json.dumps(as_json(result, rerun, held), indent=2, allow_nan=False) + "\n"
    files.keep(figures, lambda: page_of(result, rerun, held))
    if not asked.quiet:
        warn_of_what_never_came(scenario, result)
        warn_of_what_was_not_measured(result)
    asked.answer(figures, files, rerun, lambda console: _print(console, scenario, result, held))
    files.tell_of_page(failure(result))
    return result


def page_of(result: RunResult | ResidencyResult, rerun: str, held: Sequence[ObjectiveHeld] = ()) -> str:
    """The report."""
    from executors.simulator.report import render_page
    from executors.simulator.report.memory.page import render_memory_page

    return render_page(result, rerun, held) if isinstance(result, RunResult) else render_memory_page(result, rerun)


def as_json(result: RunResult | ResidencyResult, rerun: str, held: Sequence[ObjectiveHeld] = ()) -> dict[str, Any]:
    """The figures, without what only the picture needs, and whether objectives held, where there are some."""
    data = attrs.asdict(result, filter=lambda field, _: field.name not in result.PICTURE)
    began = result.unix_s_at_0 if isinstance(result, RunResult) else None
    if began is not None:
        data = {"began_at": utc(began), **data}
    return {"rerun": rerun, **data, **({"slo": [each.as_json() for each in held]} if held else {})}


def _print(console: "Console", scenario: Scenario, result: RunResult | ResidencyResult, held: Sequence[ObjectiveHeld]) -> None:
    from rich.text import Text

    console.print(Text(scenario.name, style="bold"))
    if isinstance(result, RunResult):
        console.print(Text(summary(result), style="dim"))
        for figures in result.deployments:
            console.print(_table(rows(figures), figures.name))
        if held:
            console.print(_table(objective_rows(held), "objectives"))
        return
    console.print(Text(memory_summary(result), style="dim"))
    console.print(_table(memory_rows(result)))
    console.print(_each(result))


def _table(lines: Iterable[tuple[str, str]], title: str | None = None) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=None if title is None else Text(title), title_justify="left", show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, value in lines:
        table.add_row(Text(label), Text(value))
    return table


def _each(result: ResidencyResult) -> "Table":
    """A row for each deployment."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(deployment_columns()):
        table.add_column(column, justify="right" if index else "left", no_wrap=not index)
    for figures in result.deployments:
        table.add_row(*(Text(cell) for cell in deployment_row(figures, result.ended_at)))
    return table
