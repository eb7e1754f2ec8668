"""`rankcore cordon`, `uncordon`, `drain`, `replace` and `stop`: their arguments and their help."""

from typing import Annotated

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose

Node = Annotated[
    str,
    typer.Argument(
        metavar="NODE", help="Its id, the beginning of its id, or its address; local: its name.", show_default=False
    ),
]


Replicas = Annotated[list[str], typer.Argument(metavar="REPLICA...", help="Their ids.", show_default=False)]


def _length(text: str) -> float:
    from executors.simulator.times import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Deadline = Annotated[
    float | None,
    typer.Option(
        metavar="TIME", help="Nobody is there any more after that: 120s, 2m, 1h30m. Without it there is time.", parser=_length
    ),
]


def cordon(
    node: Node,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Let no new replica come to a node, of whichever deployment. Those that are there stay.

    It lasts until the node is uncordoned or gone, also when the controller is restarted.

    \b
      rankcore cordon 3f2a91bc
      rankcore cordon 10.0.0.7

    Exit status: 0 stored, 2 no node or several are called so, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_node

    of_node(Said(namespace, executor, as_json), "cordon", node)


def uncordon(
    node: Node,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Let replicas come to a node again: its cordon or drain is over. Those that were told to stop still stop.

    \b
      rankcore status
      rankcore uncordon 3f2a91bc

    Exit status: 0 stored, 2 no node or several are called so, Ray itself drains it, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_node

    of_node(Said(namespace, executor, as_json), "uncordon", node)


def drain(
    node: Node,
    deadline: Deadline = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Shown while it lasts.")] = "drain",
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Have all replicas leave a node, each once its successor has a place on another, within max_unavailable.

    With a deadline they are stopped graceful_shutdown_timeout_s before it and killed at it, whether there is room elsewhere
    or not. Without one they stay while there is none. The command does not wait for it. What Ray itself drains is left so too,
    by Ray's deadline.

    \b
      rankcore drain 3f2a91bc --deadline 120s --reason "new driver"
      rankcore status
      rankcore uncordon 3f2a91bc

    Exit status: 0 stored, 2 bad input, no node or several are called so, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_node

    of_node(Said(namespace, executor, as_json), "drain", node, deadline_s=deadline, reason=reason)


def replace(
    replicas: Replicas,
    deadline: Deadline = None,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Replace replicas, each by a successor with its rank that has a place before it goes, within max_unavailable.

    \b
      rankcore replace 'my_app/Model#1.0' 'my_app/Model#1.3' --deadline 5m
      rankcore replace 'Model#1.0'

    The application may be left out where one alone has such a replica; else the error lists those that do.

    Exit status: 0 taken, 2 bad input, one of them is not there (then none is replaced), it has residency, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_replicas

    of_replicas(Said(namespace, executor, as_json), "replace_replicas", replicas, deadline_s=deadline)


def stop(
    replicas: Replicas,
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Stop replicas, whatever max_unavailable says; each is replaced, and its replacement has its rank.

    Calls under way may finish first. `rankcore replace` waits for a successor before each goes, and `rankcore scale` makes them
    fewer.

    \b
      rankcore stop 'my_app/Model#1.0'

    Exit status: 0 taken, 2 one of them is not there (then none is stopped), or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.verbs import Said, of_replicas

    of_replicas(Said(namespace, executor, as_json), "stop_replicas", replicas)
