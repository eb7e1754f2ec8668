"""`rankcore requests` and `rankcore cancel`: their arguments and their help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose


def requests(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only of this application or deployment.", show_default=False)
    ] = None,
    older_s: Annotated[float, typer.Option("--older-than", metavar="SECONDS", min=0.0, help="Only those so old.")] = 0.0,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Which calls replicas run now, the oldest first: age, replica, method, request id, and the id to cancel it by.

    Then those that wait: age, for what, the place among those of the same caller, how it stands, method, and ids likewise.
    Replicas of --executor local take no requests.

    \b
      rankcore requests my_app --older-than 30
      rankcore cancel ID

    Exit status: 0 printed, 2 nothing runs, or nothing has that name.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.requests import requests

    requests(name, older_s, namespace, as_json, executor)


def cancel(
    request: Annotated[
        str | None, typer.Argument(metavar="ID", help="As `rankcore requests` prints it.", show_default=False)
    ] = None,
    waiting_for: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="All that wait for this application or deployment.", show_default=False),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="What its caller is told.  [default: that an operator has cancelled it]")
    ] = None,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """End a call that runs or waits: its caller gets CallCancelledError, or over HTTP the status 499.

    A synchronous method cannot be cut off: it runs on, and nobody waits for it.

    \b
      rankcore cancel ID --reason 'it takes too long'
      rankcore cancel --waiting-for shop/Chat

    Exit status: 0 ended, 2 there is no such call any more, or the replica or a caller does not answer.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.requests import cancel

    cancel(request, waiting_for, reason, namespace, executor, as_json)
