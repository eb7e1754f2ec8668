"""`rankcore autoscale-backtest`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.checking import Checking
from executors.cli.commands.checking_option import CheckingOption
from executors.cli.commands.simulate import SEED_MAX

ONGOING_MAX = 100_000


def autoscale_backtest(
    trace: Annotated[Path, typer.Argument(help="A file with a row for each request.", metavar="TRACE", show_default=False)],
    policies: Annotated[
        list[Path], typer.Option("--policy", metavar="FILE", help="Options of an autoscaler, in YAML; repeatable.")
    ],
    slo_wait_s: Annotated[float, typer.Option(min=0.0, help="A request may wait so long for a replica.")] = 1.0,
    init_s: Annotated[float, typer.Option(min=0.0, help="Median start-up time of a replica.")] = 22.7,
    max_ongoing_requests: Annotated[int, typer.Option(min=1, max=ONGOING_MAX, help="Requests at once on a replica.")] = 4,
    service_s: Annotated[
        float | None, typer.Option(min=0.0, help="How long every request takes; in place of its tokens.", show_default=False)
    ] = None,
    base_s: Annotated[float, typer.Option(min=0.0, help="Or: seconds of a request without tokens.")] = 0.05,
    prompt_s_per_token: Annotated[float, typer.Option(min=0.0, help="And for each prompt token.")] = 0.00045,
    output_s_per_token: Annotated[float, typer.Option(min=0.0, help="And for each output token.")] = 0.03,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many requests, the first ones.", show_default=False)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="How the trace is read: a key of requests.trace; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="Of all randomness, the same for each policy.")] = 0,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - prints them instead of the table."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with the table and a plot.")] = None,
    checking: CheckingOption = Checking.END,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """What would these autoscaling policies have made of yesterday's traffic?

    Runs each policy in a simulated world, with the very core that decides in production, on the same recorded requests
    and the same start-up times, and prints what it costs: requests that missed their objective, replica-hours, scale
    events, ranks that moved.

    \b
      rankcore autoscale-backtest examples/data/azure_llm_2023_code.csv \\
          --policy examples/policies/careful.yaml --policy examples/policies/thrifty.yaml --html backtest.html
      rankcore autoscale-backtest trace.csv --policy mine.yaml --service-s 2 --slo-wait-s 5 --json - | jq .policies

    The trace is CSV or JSON lines, packed (.gz) or not, with a column TIMESTAMP, and ContextTokens and GeneratedTokens unless
    --service-s is given; else say --set preset=mooncake, or --set columns='{time: t, prompt: p, output: o}'. A policy file has
    the keys of `autoscaling:` in a scenario, which are the option names of Ray Serve; docs/autoscaling.md has them all.

    Exit status: 0 done, 1 a promise was broken in a run, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.autoscale_backtest import run

    service = {"base_s": base_s, "prompt_s_per_token": prompt_s_per_token, "output_s_per_token": output_s_per_token}
    times = service if service_s is None else {"service_s": service_s}
    reading = settings or []
    run(
        trace, policies, times, init_s, max_ongoing_requests, slo_wait_s, seed, limit, reading, json_file, html, checking, quiet
    )
