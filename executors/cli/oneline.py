"""Wrong command lines are told in one line, as every other problem is, and end with status 2."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import typer
from typer.core import TyperGroup

BAD_INPUT = 2
INTERRUPTED = 130

# typer has brought its own copy of click since 0.16 or so: the class is taken from where both have it.
USAGE_PROBLEM: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


class OneLineGroup(TyperGroup):
    """A group of commands that says in one line what is wrong with a command line, and where its help is."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C ends it with a line too while it still imports what it needs, which takes seconds."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("rankcore: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that the arguments name; see `click.Command.main`."""
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            status = run()
        except typer.Abort:
            sys.exit(_say("rankcore: interrupted", INTERRUPTED))
        except USAGE_PROBLEM as problem:
            if type(problem).__name__ == "NoArgsIsHelpError":  # it is the help
                cast(Any, problem).show()
                sys.exit(BAD_INPUT)
            sys.exit(_say(_one_line(problem), BAD_INPUT))
        sys.exit(status if isinstance(status, int) else 0)


def _one_line(problem: Any) -> str:
    text = " ".join(problem.format_message().split()).rstrip(".")
    text = text.replace(": Value error, ", ": ")  # typer's word for the kind of exception, which tells nobody anything
    context = getattr(problem, "ctx", None)
    help_of = context.command_path if context is not None else "rankcore"
    return f"rankcore: error: {text[:1].lower()}{text[1:]} (see {help_of} --help)"


def _say(text: str, status: int) -> int:
    typer.echo(text, err=True)
    return status
