"""`rankcore conform`: its arguments and its help."""

from typing import Annotated

import typer


def conform(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the executor, as in `rankcore executors`.", show_default=False)
    ],
    expression: Annotated[
        str | None,
        typer.Option("-k", metavar="EXPR", help="Only cases with these words, joined by and, or, not.", show_default=False),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(min=0, max=10_000, metavar="N", help="Repeat all with so many seeds of faults; 0: without faults only."),
    ] = 1,
    show_list: Annotated[bool, typer.Option("--list", help="Print the names of the cases, and try none.")] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the executor, as for `rankcore run`; repeatable.", show_default=False),
    ] = None,
) -> None:
    """Does an executor keep the contract? Runs the conformance kit on it, with the bench that its distribution brings.

    A case is tried on a fresh bench, against real processes where the executor has these. There are three kinds:

    \b
      contract    one line of the contract (docs/executors.md): commands are given by hand, the news is looked at
      deployment  a whole deployment is resized, updated, killed, slowed down; without and with a crash of the controller,
                  and the replicas are asked which ranks they believe, and have believed
      faults      both once more, with news that is late, lost, repeated and overtaken, and with starts that get lost

    Each case is a line as it ends: kept, skipped (the bench cannot do what it needs, with what that is), or BROKEN, with the
    line of the contract, what was expected and what was seen. The last line counts them. Try one line while you write:

    \b
      rankcore conform local -k "final and not faults"
      rankcore conform local --seeds 3
      rankcore conform slurm --list | grep node
      rankcore conform slurm --option partition=gpu --option folder=/shared/rankcore --seeds 0

    Where an executor brings no bench: write one (`rankcore/testing/conformance/bench.py` says what it has to do), and name it
    as `bench` of its plugin.

    Exit status: 0 every case was kept or skipped, 1 a line is broken, 2 there is no such executor, case, option or bench, or
    none can be tried here.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.conform import conform

    conform(name, expression, seeds, show_list, option or ())
