"""`rankcore simulate --from`: make a recorded run again up to a moment, let something else happen, and compare."""

import json
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from executors.cli.moments import seconds_of
from executors.cli.outputs import Outputs
from executors.cli.problems import Refusal, told_in_one_line
from executors.cli.screen import answers
from executors.cli.simulate import RunBar, as_json, end_with
from executors.journal import JournalWriter
from executors.simulator.faults.fault_words import FaultWordsError, inject, parse_fault
from executors.simulator.record.recording import Fork, read_recording, repeat
from executors.simulator.report import render_page
from executors.simulator.report.words import moment, rows
from executors.simulator.run import Run, RunResult


@attrs.frozen
class Forked:
    """A recorded run to its end, and what it would have been."""

    recorded: RunResult
    forked: RunResult


def run(
    recorded: Path,
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
) -> None:
    """What `rankcore simulate --from` does, errors and exit status included."""
    with told_in_one_line("interrupted, nothing was written"), Outputs() as outputs:
        if scenario is not None or seed is not None or settings:
            raise Refusal("--from: expected no scenario, --seed or --set with it: the journal says what was run")
        if at is None or not faults:
            raise Refusal("--from: expected --at TIME and --fault WORDS with it, such as --at 120s --fault 'node n2 lost'")
        fork = Fork(seconds_of("--at", at), tuple(faults))
        page = report if report is not None else Path(f"{recorded.stem}.fork.report.html")
        page_part = outputs.open("--report", page, inputs=(recorded,))
        json_part = outputs.open("--json", Path(json_file), inputs=(recorded,)) if json_file not in (None, "-") else None
        journal_part = outputs.open("--journal", journal, inputs=(recorded,)) if journal is not None else None
        rerun = shlex.join(
            [
                "rankcore",
                "simulate",
                "--from",
                str(recorded),
                "--at",
                at,
                *(word for text in faults for word in ("--fault", text)),
            ]
        )
        found = _fork(recorded, traces, fork, journal_part, quiet)
        figures = json.dumps(_as_json(found, fork, rerun), indent=2, allow_nan=False) + "\n"
        page_part.write_text(render_page(found.forked, rerun), encoding="utf-8")
        if json_part is not None:
            json_part.write_text(figures, encoding="utf-8")
        outputs.keep()
        if json_file == "-":
            typer.echo(figures, nl=False)
        elif not quiet:
            _print(found, fork, rerun, page, journal)
    end_with(found.forked)


def _fork(path: Path, traces: Path | None, fork: Fork, journal: Path | None, quiet: bool) -> Forked:
    recording = read_recording(path, traces)
    begun = recording.forks[-1].at if recording.forks else 0.0
    if fork.at < begun:
        raise Refusal(f"--at: expected a time from {begun:g} s on, when the recorded fork began, found {fork.at:g} s")
    try:
        for text in fork.faults:
            parse_fault(text, fork.at)  # what says nothing is told before anything runs
        with repeat(path, recording) as original, ExitStack() as stack:
            original.run.until(fork.at)
            if original.run.is_over and original.run.now < fork.at:
                end = f"{original.run.now:g} s, when the recorded run ends"
                raise Refusal(f"--at: expected at most {end}, found {fork.at:g} s")
            about = attrs.evolve(recording, forks=(*recording.forks, fork)).about()
            writer = None if journal is None else stack.enter_context(JournalWriter.create(journal, about=about))
            other = original.run.fork(writer)
            for text in fork.faults:
                inject(other, text, fork.at)
            forked = _go(other, "with the fault", quiet)
            recorded = _go(original.run, "as recorded", quiet)
            original.lines.finish()
    except FaultWordsError as error:
        raise Refusal(f"--fault {error}") from None
    return Forked(recorded, forked)


def _go(run: Run, what: str, quiet: bool) -> RunResult:
    with RunBar(what, quiet) as bar:
        return run.go(bar.show)


def _as_json(found: Forked, fork: Fork, rerun: str) -> dict[str, Any]:
    recorded, forked = (as_json(result, rerun) for result in (found.recorded, found.forked))
    for result in (recorded, forked):
        del result["rerun"]
    return {"rerun": rerun, "at": fork.at, "faults": list(fork.faults), "recorded": recorded, "forked": forked}


def _print(found: Forked, fork: Fork, rerun: str, page: Path, journal: Path | None) -> None:
    console = answers()
    console.print(Text(found.forked.scenario, style="bold"))
    console.print(
        Text(f"the same up to {moment(fork.at)}, checked line by line; then: {'; '.join(fork.faults)}"), soft_wrap=True
    )
    for before, after in zip(found.recorded.deployments, found.forked.deployments, strict=True):
        table = Table(title=Text(before.name), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("of the whole run", style="dim", no_wrap=True)
        table.add_column("as recorded")
        table.add_column("with the fault" if len(fork.faults) == 1 else "with the faults")
        for (label, was), (_, now) in zip(rows(before), rows(after), strict=True):
            table.add_row(Text(label), Text(was), Text(now, style="bold" if was != now else ""))
        console.print(table)
    console.print(Text(f"report:  {page}"), soft_wrap=True)
    if journal is not None:
        console.print(Text(f"journal: {journal}"), soft_wrap=True)
    console.print(Text(f"again:   {rerun}"), soft_wrap=True)
