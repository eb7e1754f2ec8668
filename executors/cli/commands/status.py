"""`rankcore status`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, Named, choose, default_namespace, meant_once


def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Only this application or deployment, APP/DEPLOYMENT.", show_default=False),
    ] = None,
    named: Named = None,
    executor: Annotated[
        str, typer.Option(metavar="NAME", help="Where to look: on Ray, or, for any other, at the commands of this machine.")
    ] = RAY,
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="A line for each deployment, and again when it changes, until Ctrl-C.")
    ] = False,
    address: Address = None,
) -> None:
    """What runs on Ray, or on this machine: deployments, ranks, nodes, states, and what is wrong.

    Of a deployment with residency also where its weights are (HOT: on these GPUs; LOADING 40 %; WARM: a copy in the memory of
    that node; COLD: on disk only), why, and how many calls wait for it, behind whom.

    \b
      rankcore status
      rankcore status my_app
      rankcore status my_app --watch
      rankcore status --executor local
      rankcore status --json | jq '.deployments[].replicas[] | [.rank.rank, .state]'

    Of an update it says how far it has come, how many replicas are available, and what it waits for; "stalled for 90 s" where
    it has made no progress for progress_deadline_s.

    The bare name of a deployment will do where one application has it; else the error lists those that do.

    Exit status: 0 shown, 2 nothing runs or it cannot be reached, or nothing has that name.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    name = meant_once(name, named)
    choose(executor, address)
    from executors.cli import verbs

    if watch:
        verbs.watch(namespace, name, executor, as_json)
    if executor != RAY:
        from executors.cli.asked import asked
        from executors.plugin import named as plugin_named

        asked(lambda: plugin_named(executor))
        return verbs.status_here(namespace or default_namespace(), as_json, name)
    verbs.status(namespace, as_json, name)
