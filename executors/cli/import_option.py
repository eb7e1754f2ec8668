"""`--import-timeout`: of commands that import users' code."""

from typing import Annotated, TypeAlias

import typer

IMPORT_S = 120.0
"""Where no other limit is said."""


def _seconds(text: object) -> float:
    from rankcore.checks import SECONDS_MAX

    try:
        found = float(str(text))
    except ValueError:
        found = -1.0
    if not 0 < found <= SECONDS_MAX:
        raise typer.BadParameter(f"expected a number of seconds above 0, found {str(text)[:40]!r}")
    return found


ImportTimeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--import-timeout",
        metavar="SECONDS",
        help="So long an import of code may take; then this ends, and says at which line it waits. [default: 120]",
        show_default=False,
        parser=_seconds,
    ),
]


def limit_of(said_s: float | None) -> float:
    """The limit that is in force."""
    return IMPORT_S if said_s is None else said_s
