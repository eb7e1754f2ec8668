"""`rankcore autoscale-backtest`: run policies on a recorded trace, and print what each came to."""

import json
import shlex
from pathlib import Path
from typing import Any

import attrs
import typer

from executors.checking import Checking
from executors.cli.outputs import Outputs
from executors.cli.problems import PROMISE_BROKEN, Refusal, tell, told_in_one_line
from executors.cli.run_bar import RunBar
from executors.cli.run_files import RunFiles
from executors.simulator.questions.backtest import Backtest, Conditions, PolicyFile, backtest, read_policy
from executors.simulator.questions.settings import Setting, parse_setting
from executors.simulator.report.words import failure

INIT_P99_SHARE = 51.9 / 22.7
"""Of the median, as measured for the load times of base models in production."""


def run(
    trace: Path,
    files: list[Path],
    service: dict[str, float],
    init_s: float,
    max_ongoing_requests: int,
    slo_wait_s: float,
    seed: int,
    limit: int | None,
    settings: list[str],
    json_file: str | None,
    html: Path | None,
    checking: Checking,
    quiet: bool,
) -> None:
    """What `rankcore autoscale-backtest` does, errors and exit status included."""
    outputs = Outputs()
    with told_in_one_line(outputs.interrupted), outputs:
        policies = _read(files)
        inputs = (trace, *files)
        written = RunFiles.open(outputs, page=html, json_file=json_file, journal=None, inputs=inputs, page_option="--html")
        reading = [parse_setting("--set", text) for text in settings]
        conditions = Conditions(
            trace=trace,
            service=service,
            init_s={"lognormal": {"median": init_s, "p99": init_s * INIT_P99_SHARE}} if init_s else 0.0,
            max_ongoing_requests=max_ongoing_requests,
            slo_wait_s=slo_wait_s,
            seed=seed,
            limit=limit,
            reading={setting.key: setting.value for setting in reading},
        )
        with RunBar("simulating", quiet) as bar:
            found = backtest(conditions, policies, bar.show, checking)
        again = _again(conditions, files, init_s, reading)
        if not quiet:
            tell(found[0].notes)
        figures = json.dumps(_as_json(found, conditions, again), indent=2, allow_nan=False) + "\n"
        from executors.simulator.report.backtest import render_backtest

        written.keep(figures, lambda: render_backtest(trace.name, slo_wait_s, found, again))
        if json_file == "-":
            typer.echo(figures, nl=False)
        elif not quiet:
            _print(found, conditions, again, written.page)
        written.tell_of_page(next((text for each in found if (text := failure(each.result)) is not None), None))
    for each in found:
        broken = failure(each.result)
        if broken is not None:
            typer.echo(f"rankcore: error: {each.policy}: {broken}", err=True)
            raise typer.Exit(PROMISE_BROKEN)


def _read(files: list[Path]) -> list[PolicyFile]:
    policies = [read_policy(path) for path in files]
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise Refusal(f"--policy: expected files with different names, found {name} {names.count(name)} times")
    return policies


def _again(conditions: Conditions, files: list[Path], init_s: float, reading: list[Setting]) -> str:
    words = ["rankcore", "autoscale-backtest", str(conditions.trace)]
    words += [word for path in files for word in ("--policy", str(path))]
    words += [word for key, value in conditions.service.items() for word in (f"--{key.replace('_', '-')}", f"{value:g}")]
    words += ["--init-s", f"{init_s:g}", "--max-ongoing-requests", str(conditions.max_ongoing_requests)]
    words += ["--slo-wait-s", f"{conditions.slo_wait_s:g}", "--seed", str(conditions.seed)]
    words += [] if conditions.limit is None else ["--limit", str(conditions.limit)]
    words += [word for setting in reading for word in ("--set", str(setting))]
    return shlex.join(words)


def _as_json(found: tuple[Backtest, ...], conditions: Conditions, again: str) -> dict[str, Any]:
    rows = [attrs.asdict(each, filter=lambda field, _: field.name != "result") for each in found]
    return {"rerun": again, "slo_wait_s": conditions.slo_wait_s, "seed": conditions.seed, "policies": rows}


def _print(found: tuple[Backtest, ...], conditions: Conditions, again: str, html: Path | None) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from executors.cli.screen import answers
    from executors.simulator.report.backtest import HEADERS, cells_of

    console = answers()
    console.print(Text(conditions.trace.name, style="bold"))
    told = f"{found[0].requests:,} requests; one that waits longer than {conditions.slo_wait_s:g} s, or is not done, is a miss"
    console.print(Text(told, style="dim"), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, header in enumerate(HEADERS):
        table.add_column(header, justify="right" if index else "left")
    for each in found:
        table.add_row(*map(Text, cells_of(each)))
    console.print(table)
    if html is not None:
        console.print(Text(f"page:  {html}"), soft_wrap=True)
    console.print(Text(f"again: {again}"), soft_wrap=True)
