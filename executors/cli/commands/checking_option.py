"""The option of all commands that run scenarios: how often the promises are checked."""

from typing import Annotated, TypeAlias

import typer

from executors.checking import Checking

HELP = "When promises are checked: after each event, at changes of a status and the end, or never. Figures are the same."
CheckingOption: TypeAlias = Annotated[Checking, typer.Option("--check", help=HELP)]
