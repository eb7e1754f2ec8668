"""`rankcore gang serve`: the coordinator of one job."""

import asyncio

import typer

from executors.cli.asked import BAD_INPUT, end

RECOVER_MARGIN_S = 1.0


def serve(
    nnodes: str,
    *,
    port: int,
    store_port: int | None,
    host: str,
    run_id: str | None,
    lease_s: float,
    last_call_s: float,
    join_timeout_s: float,
    agents_per_node: int,
    restarted: bool,
) -> None:
    """Do what `commands/gang.py` says."""
    from executors.torchrun.coordinator import Coordinator
    from executors.torchrun.lease import GRACE_S
    from executors.torchrun.options import GangOptionError, sizes_of, store_port_of
    from executors.torchrun.server import GangServer, check_address, open_store
    from rankcore.gang import Gang

    if run_id == "":
        end("--run-id must be the --rdzv-id of the job, got an empty one", BAD_INPUT)
    try:
        low, high = sizes_of(nnodes)
        store_port = store_port_of(port, store_port)
        check_address(host)
        store, store_port = open_store(host, store_port)
    except (GangOptionError, OSError) as error:
        end(str(error), BAD_INPUT)
    gang = Gang(
        low,
        high,
        last_call_s=last_call_s,
        recover_s=lease_s + GRACE_S + RECOVER_MARGIN_S,
        join_timeout_s=join_timeout_s,
        agents_per_node=agents_per_node,
        restarted=restarted,
    )
    server = GangServer(Coordinator(gang, lease_s, run_id, store_port), lambda text: typer.echo(text))

    def told(port: int) -> None:
        typer.echo(f"{low} to {high} agents connect to port {port}, and to port {store_port} for the store")

    try:
        status = asyncio.run(server.serve(host, port, told))
    except OSError as error:
        end(f"--port {port}: {error.strerror or error}", BAD_INPUT)
    del store
    typer.echo("the job is done" if status == 0 else f"fewer than {low} agents came within {join_timeout_s:g} s")
    raise typer.Exit(status)
