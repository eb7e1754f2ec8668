"""`rankcore gang`: its commands, their arguments and help."""

from typing import Annotated

import typer

from executors.cli.oneline import OneLineGroup

gang = typer.Typer(cls=OneLineGroup, no_args_is_help=True, help="Keep the ranks of torchrun's agents over failures.")


@gang.callback()
def _gang() -> None:
    """Keep the ranks of torchrun's agents over failures."""


@gang.command()
def serve(
    nnodes: Annotated[str, typer.Option("--nnodes", metavar="MIN:MAX", help="As of each torchrun.", show_default=False)],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where agents connect to; 0: any free one.")] = 29400,
    store_port: Annotated[
        int | None,
        typer.Option("--store-port", min=0, max=65535, help="Of the TCPStore.  [default: the next one]", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Listen at this address.")] = "0.0.0.0",
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", help="Of the job.  [default: --rdzv-id of the first agent]", show_default=False),
    ] = None,
    lease_s: Annotated[
        float,
        typer.Option("--lease", metavar="SECONDS", min=2.0, max=86_400.0, help="An agent out of contact for so long ends."),
    ] = 15.0,
    last_call_s: Annotated[
        float, typer.Option("--last-call", metavar="SECONDS", min=0.0, help="A round with MIN agents waits so long for more.")
    ] = 15.0,
    join_timeout_s: Annotated[
        float, typer.Option("--join-timeout", metavar="SECONDS", min=1.0, help="A round waits so long for MIN agents.")
    ] = 600.0,
    agents_per_node: Annotated[int, typer.Option("--agents-per-node", min=1, help="So many may be on one node.")] = 1,
    restarted: Annotated[
        bool, typer.Option("--restarted", help="A coordinator of this job was there before: wait for its survivors.")
    ] = False,
) -> None:
    """Coordinate one job of torchrun: who lives keeps its rank, and a spare takes exactly the lost one.

    Runs until the job is done. Agents are started as ever, with another backend; those above MAX are spares:

    \b
      rankcore gang serve --nnodes 3:4                                  here, on HOST
      torchrun --nnodes 3:4 --nproc-per-node 8 --max-restarts 10 \\
               --rdzv-backend rankcore --rdzv-endpoint HOST:29400 \\
               --rdzv-conf nproc=8 train.py                             on each node, spares too

    Run it where nothing of the job runs that may fail: ranks are in its memory. Started again within the lease, with
    --restarted, it is told their ranks by the agents, which restart their workers. Longer without one, agents end. Who can
    connect can take a rank: keep its ports from others. docs/torchrun.md has the promises.

    Exit status: 0 the job is done, 1 too few agents came, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.gang import serve

    serve(
        nnodes,
        port=port,
        store_port=store_port,
        host=host,
        run_id=run_id,
        lease_s=lease_s,
        last_call_s=last_call_s,
        join_timeout_s=join_timeout_s,
        agents_per_node=agents_per_node,
        restarted=restarted,
    )
