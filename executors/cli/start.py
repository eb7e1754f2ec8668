"""`rankcore start`: the controller and its proxies."""

import json
from typing import Any

import attrs
import typer

from executors.cli.asked import asked
from executors.cli.ray_view import outside


def start(http: dict[str, Any], grpc: dict[str, Any] | None, namespace: str | None, as_json: bool) -> None:
    """Do what `commands/start.py` says."""

    def act() -> Any:
        from executors.ray_gpu import inspecting, instance
        from executors.ray_gpu.connection import connect

        connect(start=False)  # a cluster that this process started would end with it
        instance.start(http_options=http, grpc_options=grpc, namespace=namespace)
        return inspecting.status(namespace=namespace)

    status = asked(act)
    if as_json:
        typer.echo(json.dumps({"proxies": [attrs.asdict(each) for each in status.proxy_infos]}, indent=2))
    for line in () if as_json else outside(status):
        typer.echo(line)
