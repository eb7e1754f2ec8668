"""`rankcore trace describe`: read a trace, and print what it is and what looks wrong with it."""

import json
from pathlib import Path

import attrs
import typer

from executors.cli.problems import refuse, tell, told_in_one_line
from executors.simulator.questions.described import Description, describe
from executors.simulator.questions.settings import parse_setting
from executors.simulator.times import TENTHS, moment

KINDS = ("p50", "p90", "p99", "max", "mean")


def run(file: Path, preset: str | None, settings: list[str], strict: bool, as_json: bool) -> None:
    """What `rankcore trace describe` does, errors and exit status included."""
    with told_in_one_line("interrupted"):
        keys = {setting.key: setting.value for setting in (parse_setting("--set", text) for text in settings)}
        found = describe(file, preset, keys)
    tell(found.notes)
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2, allow_nan=False))
    else:
        _print(found)
    if strict and found.warnings:
        refuse(f"{found.file}: expected a trace that looks right, found {', '.join(each.kind for each in found.warnings)}")


def _print(found: Description) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from executors.cli.screen import answers

    console = answers()
    console.print(Text(found.file, style="bold"), soft_wrap=True)
    if found.about is not None:
        console.print(Text(found.about, style="dim"), soft_wrap=True)
    facts = {"rows": f"{found.rows:,}", "span": moment(found.span_s, TENTHS)}
    if found.rate_per_s is not None and found.cv is not None:
        facts |= {"rate": f"{found.rate_per_s:.3g}/s", "cv": f"{found.cv:.3g}"}
    facts |= {f"{key}s": f"{count:,}" for key, count in found.names.items()}
    width = max(map(len, facts))
    for key, text in facts.items():
        console.print(Text(f"{key:<{width}}  {text}"))
    if found.columns:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for header in ("column", *KINDS):
            table.add_column(header, justify="left" if header == "column" else "right")
        for key, values in found.columns.items():
            table.add_row(*(Text(cell) for cell in (key, *(_number(values[kind]) for kind in KINDS))))
        console.print(table)
    for warned in found.warnings:
        console.print(Text(f"{warned.kind}: {warned.text}"), soft_wrap=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
