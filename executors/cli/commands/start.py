"""`rankcore start`: its arguments and its help."""

from typing import Annotated, Any

import typer

from executors.cli.backends import AsJson, Namespace, RayAddress, choose_cluster


def start(
    http_host: Annotated[str, typer.Option(metavar="HOST", help="Where proxies listen.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(metavar="PORT", help="Of HTTP.")] = 8000,
    proxy_location: Annotated[
        str, typer.Option(metavar="HeadOnly|EveryNode|Disabled", help="On which nodes proxies are.")
    ] = "EveryNode",
    grpc_port: Annotated[int, typer.Option(metavar="PORT", help="Of gRPC, where a service is named.")] = 9000,
    grpc_servicer_functions: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Import path of a function that adds a service; repeatable.", show_default=False),
    ] = None,
    grpc_enable_reflection: Annotated[
        bool,
        typer.Option("--grpc-enable-reflection/--grpc-disable-reflection", help="Whether gRPC tells which services it has."),
    ] = True,
    namespace: Namespace = None,
    address: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Start the controller and its proxies on a running Ray cluster, where they do not run yet; else serve as is said here.

    There is no need to: `rankcore deploy` and `rankcore run` start what they need. A file that is deployed says more of how
    proxies serve (http_options, grpc_options).

    \b
      ray start --head
      rankcore start --http-port 8080 --proxy-location HeadOnly

    Exit status: 0 started, 2 bad input, or there is no cluster.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    from executors.cli.start import start

    http: dict[str, Any] = {"host": http_host, "port": http_port, "location": proxy_location}
    grpc: dict[str, Any] | None = None  # without a service there is none
    if grpc_servicer_functions:
        grpc = {
            "port": grpc_port,
            "servicer_functions": grpc_servicer_functions,
            "enable_reflection": grpc_enable_reflection,
        }
    start(http, grpc, namespace, as_json)
