"""`rankcore engine fit`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.cli.oneline import OneLineGroup

engine = typer.Typer(
    name="engine",
    cls=OneLineGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Engines of scenarios: from measurements to how long an iteration takes.",
)


@engine.callback()
def _engine() -> None:
    """Engines of scenarios: from measurements to how long an iteration takes."""


@engine.command()
def fit(
    points: Annotated[
        Path, typer.Argument(metavar="POINTS", help="A CSV file of steps, or of benchmark rows.", show_default=False)
    ],
    gpu: Annotated[str, typer.Option(metavar="TYPE", help="What it was measured on: gpu_type of nodes.", show_default=False)],
    tp: Annotated[int, typer.Option(min=1, max=1024, metavar="N", help="On how many of them: gpus_per_replica.")] = 1,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=TEXT", help="Only rows with this text; may be given several times.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; else it is printed.")
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the engine.")] = "fitted",
    kv_cache_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of the KV cache; left out: looked for, in benchmark rows.")
    ] = None,
    kv_policy: Annotated[str, typer.Option(metavar="preempt|reserve", help="As of an engine.")] = "preempt",
    max_num_seqs: Annotated[int, typer.Option(min=1, max=65_536, metavar="N", help="As of an engine.")] = 512,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="As of an engine.")] = 8192,
) -> None:
    """Find the step time of an engine from measurements, and say how far off it is.

    POINTS is a CSV file with the columns of one of

    \b
      batch, context_tokens, prompt_tokens, step_ms              single iterations, as a profiler has them
      isl, osl, concurrency, ttft_ms, itl_ms, tokens_per_s       benchmarks: so many users, each of whom asks again at once

    and others that only --where looks at. It is a non-negative least squares of relative errors; benchmarks are run in a closed
    loop, with the limits of the engine as they are given here. Printed is the MAPE of each figure, with all rows and with each
    row predicted by a fit without it, and the engine, as `engines` of a scenario takes it.

    \b
      rankcore engine fit points.csv --gpu H100 --tp 2 -o e.yaml
      rankcore engine fit data/published_serving.csv --where gpu=H100 --where load=closed --gpu H100 --tp 2

    Exit status: 0 fitted, 2 the file cannot be used.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.engine_fit import EngineAsked, Limits, run

    limits = Limits(
        kv_cache_tokens=kv_cache_tokens,
        kv_policy=kv_policy,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    run(points, where or [], EngineAsked(gpu, tp, name), output, limits)
