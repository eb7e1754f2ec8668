"""`rankcore build`: its arguments and its help."""

from pathlib import Path
from typing import Annotated, Any

import typer

from executors.cli.import_option import ImportTimeout, limit_of


def build(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:APP...",
            help="Where applications are: package.module:app or path/file.py:app; what bind() returned, or a function that "
            "returns it.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output-path", "-o", metavar="FILE", help="Write to this file.  [default: print]", show_default=False),
    ] = None,
    app_dir: Annotated[
        Path | None,
        typer.Option(
            "--app-dir", "-d", metavar="DIR", help="Where modules are looked for first. [default: here]", show_default=False
        ),
    ] = None,
    grpc_servicer_functions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Import path of a function that adds a gRPC service, for grpc_options; repeatable.  [default: no gRPC]",
            show_default=False,
        ),
    ] = None,
    grpc_enable_reflection: Annotated[
        bool,
        typer.Option("--grpc-enable-reflection/--grpc-disable-reflection", help="Whether gRPC tells which services it has."),
    ] = True,
    import_timeout_s: ImportTimeout = None,
) -> None:
    """Write a config file of applications: each deployment with the options that its code gives it.

    What is deployed from the file is what the code says, until options are changed there; `rankcore deploy FILE --dry-run`
    says what that would bring. Applications have the names that `rankcore deploy MODULE:APP` gives them. Options that no file
    can hold stay in the code, and a comment says so.

    \b
      rankcore build my_package.models:app -o apps.yaml
      rankcore build shop.models:app search.models:app > apps.yaml
      rankcore deploy apps.yaml --dry-run

    Exit status: 0 written, 2 bad input.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.build import build
    from executors.cli.run_options import app_dir_first

    app_dir_first(app_dir)
    grpc: dict[str, Any] | None = None  # without a service there is none
    if grpc_servicer_functions:
        grpc = {"grpc_servicer_functions": grpc_servicer_functions, "enable_reflection": grpc_enable_reflection}
    build(targets, output, grpc, limit_of(import_timeout_s))
