"""`rankcore swarm`: its arguments and its help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from executors.cli.commands.compare import JOBS_MAX
from executors.cli.commands.simulate import SEED_MAX
from executors.cli.commands.sweep import Where

SEEDS_MAX = 10_000_000
OUT = Path("rankcore-swarm")


class Part(StrEnum):
    """What is run for each seed."""

    PURE = "pure"
    SIMULATOR = "simulator"
    BOTH = "both"


def swarm(
    seeds: Annotated[int, typer.Option(min=1, max=SEEDS_MAX, help="How many seeds.")] = 100,
    first: Annotated[int, typer.Option("--from", min=0, max=SEED_MAX, help="The first seed; the others follow.")] = 0,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=SEED_MAX, help="This seed alone, and once more in another process.", show_default=False),
    ] = None,
    part: Annotated[Part, typer.Option(help="pure: the core alone; simulator: whole simulated clusters.")] = Part.BOTH,
    jobs: Annotated[int, typer.Option(min=1, max=JOBS_MAX, help="How many at once; the result is the same.")] = 1,
    on: Annotated[
        Where, typer.Option(help="Where seeds are run; ray: tasks on the cluster at RAY_ADDRESS, or else on a local one.")
    ] = Where.PROCESSES,
    coverage: Annotated[bool, typer.Option("--coverage", help="Everything that was seen, and how often.")] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where failing seeds go, made short; made only if there are any.")
    ] = OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Does any random world break a promise?

    Each seed draws a world with policies, time-outs, load and faults of its own, some of them off and some all the time.
    Replicas have beliefs of their own, which are checked after every event, as is each step of the core. Then the faults
    end, and everything has to heal. Of every hundred seeds, one runs a second time, in another process with another hash
    seed, and has to be the same to the byte.

    \b
    Two parts, from the same seeds:
      pure         the core against an adversary that orders, loses and repeats messages: millions of events a minute
      simulator    whole clusters: network, nodes, health checks, requests, crashes of the controller

    What fails is made short: as a test that is ready to run (pure), or a scenario file for `rankcore simulate`.

    \b
      rankcore swarm --seeds 1000 --jobs 2
      rankcore swarm --part pure --seeds 20000 --jobs 2 --coverage
      rankcore swarm --seed 17                               one seed, and what it breaks
      RAY_ADDRESS=auto rankcore swarm --seeds 100000 --on ray

    Exit status: 0 all promises hold, 1 one is broken, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.swarm import Asked, run

    parts = ("pure", "simulator") if part is Part.BOTH else (part.value,)
    begin, count = (first, seeds) if seed is None else (seed, 1)
    run(Asked(parts, begin, count, jobs, on.value, coverage, out, as_json, quiet))
