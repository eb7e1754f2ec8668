"""Which executors a command can use."""

import os
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address", "-a", metavar="HOST:PORT", help="Of the Ray cluster. [default: $RAY_ADDRESS, or the one of this machine]"
    ),
]


class Backend(StrEnum):
    """What replicas are."""

    RAY = "ray"
    LOCAL = "local"


Executor: TypeAlias = Annotated[
    Backend, typer.Option(help="Who is asked: the controller on Ray, or the `rankcore run` commands of this machine.")
]


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Namespace: TypeAlias = Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")]


def choose(executor: Backend, address: str | None) -> None:
    """Whom a command asks."""
    if executor is Backend.LOCAL and address is not None:
        raise typer.BadParameter("--address is for --executor ray")
    choose_cluster(address)


Named: TypeAlias = Annotated[
    str | None, typer.Option("--name", "-n", metavar="NAME", help="The same as the argument.", show_default=False)
]


def meant_once(argument: str | None, option: str | None) -> str | None:
    """The name that is asked for, which Ray Serve's commands take as an option, and ours as an argument as well."""
    if argument is not None and option not in (None, argument):
        raise typer.BadParameter(
            f"--name: expected what the argument says, {argument!r:.80}, or one of them, found {option!r:.80}"
        )
    return argument if option is None else option


def default_namespace() -> str:
    """The namespace that is meant where none is named."""
    return os.environ.get("RANKCORE_NAMESPACE") or "rankcore"


def choose_cluster(address: str | None) -> None:
    """The Ray cluster that is meant where none is named otherwise."""
    if address is not None:
        os.environ["RAY_ADDRESS"] = address


def api_of(executor: Backend) -> Any:
    """The functions that a command asks with: the same names, whoever is asked."""
    if executor is Backend.LOCAL:
        from executors.local import api as local

        return local
    from executors import ray_gpu

    return ray_gpu
