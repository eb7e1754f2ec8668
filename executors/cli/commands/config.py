"""`rankcore config`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, Executor, Named, choose, meant_once


def config(
    name: Annotated[str | None, typer.Argument(metavar="APP", help="Only this application.", show_default=False)] = None,
    named: Named = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in place of YAML.")] = False,
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    address: Address = None,
    executor: Executor = RAY,
) -> None:
    """Print what is in force, as a file of applications: to be kept, changed, and deployed again.

    Each option is as it was wanted last, by a file, in Python or by a command such as `rankcore scale`. What is as it is
    by default is left out. In the place of a password or a token is (kept), which a deploy takes for the one in force. The
    same code deployed from the same place by what is printed changes no replica.

    \b
      rankcore config > apps.yaml
      rankcore config shop --json

    Exit status: 0 printed, 2 nothing runs, or nothing has that name.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.config import config

    config(meant_once(name, named), as_json, namespace, executor)
