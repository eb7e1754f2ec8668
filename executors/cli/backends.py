"""Which executors a command can use."""

import os
from importlib import import_module
from typing import Annotated, Any, TypeAlias

import typer

REST_ADDRESS = "RAY_DASHBOARD_ADDRESS"
"""Ray Serve's variable for what is spoken to by HTTP."""
RayAddress: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address", "-a", metavar="HOST:PORT", help="Of the Ray cluster. [default: $RAY_ADDRESS, or the one of this machine]"
    ),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address",
        "-a",
        metavar="HOST:PORT|URL",
        help="Of the Ray cluster, or of its REST server (`rankcore rest`): http://HOST:PORT, with the token in the file "
        f"$RANKCORE_REST_TOKEN_FILE. [default: ${REST_ADDRESS}, $RAY_ADDRESS, or the cluster of this machine]",
    ),
]


RAY, LOCAL = "ray", "local"
"""The two executors that come with rankcore: the one that is meant where none is named, and the one for this machine."""


Executor: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Who is asked: the controller on Ray, or, for local and all others, the `rankcore run` commands of this machine.",
    ),
]


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Namespace: TypeAlias = Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")]


def choose(executor: str, address: str | None) -> None:
    """Whom a command asks: a Ray cluster, its REST server, or the commands of this machine."""
    if executor == LOCAL and address is not None:
        raise typer.BadParameter("--address is for --executor ray")
    if address is not None and is_url(address):
        os.environ[REST_ADDRESS] = address
    else:
        choose_cluster(address)


Named: TypeAlias = Annotated[
    str | None, typer.Option("--name", "-n", metavar="NAME", help="The same as the argument.", show_default=False)
]


def meant_once(argument: str | None, option: str | None) -> str | None:
    """The name that is asked for, which Ray Serve's commands take as an option, and ours as an argument as well."""
    if argument is not None and option not in (None, argument):
        raise typer.BadParameter(f"--name: expected what the argument says, {argument!r:.80}, found {option!r:.80}")
    return argument if option is None else option


def default_namespace() -> str:
    """The namespace that is meant where none is named."""
    return os.environ.get("RANKCORE_NAMESPACE") or "rankcore"


def choose_cluster(address: str | None) -> None:
    """The Ray cluster that is meant where none is named otherwise."""
    if address is None:
        return
    if is_url(address):
        raise typer.BadParameter(
            f"--address: expected HOST:PORT of a Ray cluster, which this command needs, found {address!r:.80}"
        )
    os.environ["RAY_ADDRESS"] = address
    os.environ.pop(REST_ADDRESS, None)


def is_url(address: str) -> bool:
    """Whether an address is one of a REST server; others are Ray's."""
    return address.startswith(("http://", "https://"))


def by_rest() -> Any:
    """The functions of the REST server that is meant; None: a Ray cluster is.

    Raises:
        InvalidCallError: Its address, or the token, is not what it may be.
    """
    address = os.environ.get(REST_ADDRESS)
    if not address:
        return None
    from executors.over_rest.api import RestApi
    from executors.over_rest.client import RestClient, token_said

    return RestApi(RestClient(address, token_said()))


def api_of(executor: str) -> Any:
    """The functions that a command asks with: the same names, whoever is asked.

    Raises:
        PluginError: There is no such executor.
    """
    if executor == RAY and (rest := by_rest()) is not None:
        return rest
    from executors.plugin import named

    _, plugin = named(executor)
    return import_module(plugin.functions or "executors.run.api")
