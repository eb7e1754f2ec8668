"""`rankcore shutdown`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose


def shutdown(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether that is meant.")] = False,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.0,
            help="Let calls under way take so long.  [default: as their deployments say]",
            show_default=False,
        ),
    ] = None,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Delete all applications of a namespace, and end its proxies and its controller. The Ray cluster goes on.

    Calls under way may finish first. What other namespaces have is not touched. With `--executor local` the `rankcore run`
    commands of the namespace end, as by Ctrl-C in each.

    \b
      rankcore shutdown
      rankcore shutdown --yes --namespace staging

    Exit status: 0 ended, 1 it was not meant, 2 nothing runs, or nobody is there to be asked and --yes is missing.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.shutdown import shutdown

    shutdown(yes, namespace, timeout_s, executor, as_json)
