"""`rankcore trace`: its arguments and its help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class What(StrEnum):
    """What is done with a trace."""

    DESCRIBE = "describe"


def trace(
    what: Annotated[What, typer.Argument(metavar="describe", help="Read it, and sum it up.", show_default=False)],
    file: Annotated[Path, typer.Argument(metavar="FILE", help=".csv or .jsonl, packed (.gz) or not.", show_default=False)],
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="It is a published one, such as azure-llm-2023.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="How it is read: a key of requests.trace; repeatable."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 2 where something looks wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """What is in a trace, and does it look right?

    Reads a file as a scenario would, and prints how many rows it has over how long, how they are spread (rate, and cv,
    which is 1 for independent arrivals and more for bursts), percentiles of its columns, and what looks wrong:

    \b
      unit_suspect   more than 100 rows within a second, or more than 400 days: is it ms, or s?
      rate_suspect   more than 10,000 requests a second, or less than one a day
      coarse_times   nearly all times are whole seconds: replayed as they are, requests come in packs
      gap            nothing for more than a quarter of the span

    \b
      rankcore trace describe examples/data/azure_llm_2023_code.csv --preset azure-llm-2023
      rankcore trace describe requests.jsonl.gz --set time_unit=ms --set 'columns={time: t, prompt: p}' --strict
      rankcore trace describe faults.csv --preset stepfun-faults --json | jq .warnings

    The same keys then stand under `requests: {trace: ...}` in a scenario. Presets of requests: azure-llm-2023,
    azure-llm-2024, mooncake, burstgpt, alibaba-openb-pods; of rates: servegen; of faults: stepfun-faults, bamboo-spot.

    Exit status: 0 done, 2 bad input, or with --strict something that looks wrong.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.trace import run

    run(file, preset, settings or [], strict, as_json)
