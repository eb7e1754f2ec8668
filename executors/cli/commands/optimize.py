"""`rankcore optimize`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.checking import Checking
from executors.cli.commands.checking_option import CheckingOption
from executors.cli.commands.compare import JOBS_MAX
from executors.cli.commands.simulate import SEED_MAX
from executors.cli.commands.slo_options import SloWindowOption
from executors.cli.commands.sweep import Where

RUNS_LEAST = 5
RUNS_MAX = 1000
BUDGET_MAX = 1_000_000


def optimize(
    scenario: Annotated[Path, typer.Argument(help="A scenario file.", metavar="SCENARIO", show_default=False)],
    slo: Annotated[
        list[str] | None,
        typer.Option("--slo", metavar="GOAL", help="What has to be met, as below; repeatable. [default: slo of the scenario]"),
    ] = None,
    slo_window: SloWindowOption = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="KEY=V,V,...", help="What may be chosen, and from what: 8,12,16 or 1..64; repeatable."),
    ] = None,
    minimize: Annotated[
        str | None,
        typer.Option(
            metavar="AIM",
            help="What is to be small. [default: cost where there are prices, else gpu_hours]",
            show_default=False,
        ),
    ] = None,
    maximize: Annotated[
        str | None, typer.Option(metavar="AIM", help="Or large: rate, or a figure.", show_default=False)
    ] = None,
    gpu_price: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="USD", help="Price of one GPU for one hour, whatever its type.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="What is set in all runs; repeatable.")
    ] = None,
    monotone: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="The key that is bisected, its values from the cheapest on; none: try all.", show_default=False
        ),
    ] = None,
    runs_max: Annotated[int, typer.Option(min=RUNS_LEAST, max=RUNS_MAX, help="How often one combination is run at most.")] = 20,
    budget_runs: Annotated[int, typer.Option(min=1, max=BUDGET_MAX, help="How many runs there may be in all.")] = 500,
    seed: Annotated[
        int | None, typer.Option(min=0, max=SEED_MAX, help="Of the first run; the others follow. [default: the scenario's]")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=JOBS_MAX, help="How many runs at once; the result is the same.")] = 1,
    on: Annotated[Where, typer.Option(help="Where runs are made; ray: tasks on a local Ray cluster.")] = Where.PROCESSES,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go. [default: <scenario>.optimize, in this directory]")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the answer as JSON; - prints it instead of the table.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything again, also what is kept already.")] = False,
    checking: CheckingOption = Checking.END,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """What is the cheapest that meets the objective? The answer is a sentence for a purchase request.

    Searches the combinations of the varied values for the one with the smallest aim that meets every objective, and says
    how sure that is. All combinations have the same seeds. What grows with the number of replicas is bisected; all else
    races, the cheapest first, and what is clear is not run again. Prints the answer and a table of what was run, and
    writes optimize.csv and a page with the Pareto front (optimize.html). What is done is kept (cells.jsonl): after Ctrl-C
    the same command goes on where it was.

    \b
      rankcore optimize examples/node-failure-at-peak.yaml --vary target_replicas=10..16 \\
          --slo 'p99 latency_s < 30' --slo 'share not_done < 0.1%' --gpu-price 2.5
      rankcore optimize s.yaml --vary target_replicas=1..64 --vary compaction=when_healthy,immediate \\
          --slo 'p99 latency_s < 10 @ 99%' --slo 'lost < 1 @ 80% of runs of llm' --minimize gpus --jobs 2
      rankcore optimize s.yaml --vary 'deployments[0].requests.trace.speedup=1..8:0.25' \\
          --slo 'p95 wait_s < 1' --maximize rate --json - | jq -r .sentence

    \b
    GOAL  [p50|p95|p99|share] FIGURE < VALUE [@ P%] [of DEPLOYMENT], also with <=, > and >=
          @ P%: in so many of the windows of a run (--slo-window), those without requests apart; FIGURE is of the requests
          that came in a window, one of latency_s to unfinished below, or attainment; @ P% of runs: in so many of the runs
    FIGURE of all requests, with p50, p95 or p99: latency_s, wait_s, of engines ttft_s, tpot_s; whoever had no answer is
           the slowest
           requests, as a count or a share: waited_over_1_s, not_done, lost, failed, expired, unfinished, retried
           others: gpu_hours, longest_gap_s, incomplete_s, below_floor_s, unserved_rank_s, rank_gap_s, update_s,
           ranks_moved, reconfigures, replica_starts, healthy; of engines: attainment, goodput_rps, output_tokens_per_s,
           preemptions, kv_mean, kv_peak, utilisation, too_long; where GPUs have prices: cost_usd, cost_per_mtok_output,
           cost_per_mtok_total, cost_per_mtok_good
    AIM    known before any run: replicas, gpus, node_gpus; measured: cost (by gpu_prices_per_hour, or gpu_hours at
           --gpu-price), or a FIGURE as above; to maximize: rate, the value of a varied rate_per_s, speedup, scale or
           concurrency

    A goal without @ is one for the mean of all runs, and one with @ P% for the mean share of windows. It counts as met when
    it is with 95 % confidence, over all that the search looks at together; what cannot be decided counts as missed, and is
    marked ~.

    Exit status: 0 found, 1 none found, budget gone or a promise broken in a run, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.optimize import OptimizeAsked, run

    asked = OptimizeAsked(
        scenario=scenario,
        slo=slo or [],
        slo_window=slo_window,
        vary=vary or [],
        minimize=minimize,
        maximize=maximize,
        gpu_price=gpu_price,
        fixed=settings or [],
        monotone=monotone,
        runs_max=runs_max,
        budget=budget_runs,
        seed=seed,
        jobs=jobs,
        on=on.value,
        out=out,
        json_file=json_file,
        fresh=fresh,
        checking=checking,
        quiet=quiet,
    )
    run(asked)
