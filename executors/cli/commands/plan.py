"""`rankcore plan`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

TARGET_MAX = 10_000_000


def plan(
    scenario: Annotated[
        Path | None, typer.Argument(help="A scenario file; or give --from.", metavar="SCENARIO", show_default=False)
    ] = None,
    target: Annotated[int | None, typer.Option(min=0, max=TARGET_MAX, help="How many replicas there are to be.")] = None,
    deployment: Annotated[str | None, typer.Option(metavar="NAME", help="Of which; needed where there are several.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another field of the deployment, such as version=2; repeatable."),
    ] = None,
    stop_first: Annotated[
        list[str] | None, typer.Option("--stop-first", metavar="ID", help="Whom a downscale is to stop first; repeatable.")
    ] = None,
    journal: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Plan from a recorded state.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="With --from: as it was then. [default: at the end]")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="With --from: what if the deployment were deleted?")] = False,
    evict: Annotated[
        str | None, typer.Option(metavar="WARM|COLD", help="With --from: what if its weights had to leave the GPUs?")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """What would happen if I asked for it now?

    The dry run of a change: which replicas would start, stop, get another rank or another user_config, and how many at
    once, if nothing failed meanwhile. Nothing is changed. From a scenario, the deployment is planned for as it is once it
    has come up. From the journal of a cluster it says too what becomes of weights that may be COLD: what would be loaded
    where, who would be displaced for it, and what would wait, with the reason of each node; of an update that goes slot by
    slot, what its first step brings.

    \b
      rankcore plan examples/node-failure-at-peak.yaml --target 12
      rankcore plan examples/node-failure-at-peak.yaml --set version=2 --set max_surge=1
      rankcore plan --from run.jsonl --at 120s --target 4 --json
      rankcore plan --from cluster.jsonl --deployment shop/chat --evict COLD

    Exit status: 0 done, 2 bad input.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.plan import run

    run(scenario, target, deployment, changes or [], tuple(stop_first or ()), journal, at, delete, evict, as_json)
