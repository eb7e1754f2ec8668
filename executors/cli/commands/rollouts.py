"""`rankcore restart`, `pause`, `promote`, `resume`, `rollback` and `retry`: their arguments and their help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of a deployment, APP/DEPLOYMENT or bare.", show_default=False)]


def restart(
    name: Name,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Replace every replica of a deployment once by one of the same version, without an outage.

    As an update does: at most max_unavailable at a time are out of service, max_surge are started early, and each
    newcomer has its predecessor's rank. The command does not wait for it. A restart says nothing about the version: what
    is given up stays given up.

    \b
      rankcore restart my_app/Model
      rankcore status my_app/Model

    Exit status: 0 taken, 2 nothing has that name, several deployments have it, it has residency, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_deployment

    of_deployment(Said(namespace, executor, as_json), "restart", name)


def pause(
    name: Name,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Let an update of a deployment reach no further rank.

    What starts already goes on; nobody else is stopped or reconfigured. Crashes are repaired and newcomers come meanwhile, each
    with what was healthy last. Another deploy of the application says anew how far it reaches.

    \b
      rankcore pause my_app/Model
      rankcore promote my_app/Model 2
      rankcore resume my_app/Model

    Exit status: 0 taken, 2 nothing has that name, several deployments have it, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_deployment

    of_deployment(Said(namespace, executor, as_json), "pause", name)


def _amount(text: str) -> int | str:
    from rankcore.amounts import is_share
    from rankcore.checks import COUNT_MAX

    if is_share(text):
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= COUNT_MAX):
        raise typer.BadParameter(f"expected a whole number from 0 to {COUNT_MAX:,} or a share such as 25%, found {text[:40]!r}")
    return int(text)


def promote(
    name: Name,
    replicas: Annotated[
        str, typer.Argument(metavar="N|N%", help="How many replicas the update is to reach in all.", parser=_amount)
    ] = "100%",
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Let an update of a deployment reach so many replicas, those with the highest ranks.

    A canary: deploy with a partition, look, promote. Those that have it keep it, also where fewer are asked for.

    \b
      rankcore promote my_app/Model 2
      rankcore promote my_app/Model 25%
      rankcore promote my_app/Model

    Exit status: 0 taken, 2 bad input, nothing has that name, several deployments have it, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_deployment

    of_deployment(Said(namespace, executor, as_json), "promote", name, replicas)


def resume(
    name: Name,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Let an update that was paused, or held back by a partition, reach all ranks.

    \b
      rankcore resume my_app/Model
      rankcore status my_app --watch

    Exit status: 0 taken, 2 nothing has that name, several deployments have it, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_deployment

    of_deployment(Said(namespace, executor, as_json), "resume", name)


def rollback(
    name: Name,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Let a deployment go back to what was healthy last: its code and its user_config, in all ranks.

    For an update that stands still or does harm. Other options, and the number of replicas, stay as they are. An update that
    has become healthy is what was healthy last: deploy the older code then.

    \b
      rankcore status my_app --watch
      rankcore rollback my_app/Model

    Exit status: 0 taken, 2 nothing else was healthy, nothing has that name, several deployments have it, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_deployment

    of_deployment(Said(namespace, executor, as_json), "rollback", name)


def retry(
    name: Name,
    rank: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="K", help="Whose back-off ends; repeatable. [default: of all ranks]", show_default=False),
    ] = None,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Try again now what failed: no back-off is waited for, and a version that was given up is rolled out again.

    For when you have mended what made replicas fail, and changed nothing about the deployment.

    \b
      rankcore retry my_app/Model
      rankcore retry my_app/Model --rank 3

    Exit status: 0 taken, 2 nothing waits for a back-off or was given up, nothing has that name, several deployments have it,
    or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_deployment

    of_deployment(Said(namespace, executor, as_json), "retry", name, ranks=tuple(rank or ()))
