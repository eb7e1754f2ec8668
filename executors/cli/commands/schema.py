"""`rankcore schema`: its arguments and its help."""

from enum import StrEnum
from typing import Annotated

import typer


class FilesOf(StrEnum):
    """Of which files."""

    SCENARIO = "scenario"
    APPS = "apps"


def schema(
    kind: Annotated[
        FilesOf,
        typer.Argument(metavar="[scenario|apps]", help="scenario: of a simulation; apps: what `rankcore deploy` takes."),
    ] = FilesOf.SCENARIO,
) -> None:
    """Print the JSON Schema of scenario files, or of files of applications, for editors.

    An editor with a YAML language server then completes keys and underlines mistakes in every file whose first line is
    a comment that names the schema:

    \b
      rankcore schema > scenario.schema.json
      rankcore schema apps > apps.schema.json
      # yaml-language-server: $schema=apps.schema.json

    Exit status: 0 printed, 2 Ray is not installed, which options of applications are read with.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.schema import run

    run(kind is FilesOf.APPS)
