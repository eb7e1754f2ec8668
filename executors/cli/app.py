"""The command line: which commands there are. Each has a module of its own."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from executors.cli.replay import replay
from executors.cli.simulate import simulate

app = typer.Typer(
    name="rankcore",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain errors: one line each, also where there is no terminal
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command()(simulate)
app.command()(replay)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        found = version("rankcore")
    except PackageNotFoundError:
        found = "(not installed: running from a checkout)"
    typer.echo(f"rankcore {found}")
    raise typer.Exit


@app.callback()
def rankcore(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Ranks of replicas under change and failure: ask what would happen, and look at what did.

    \b
    What if a node is lost in the busiest minute of a real trace?
      rankcore simulate examples/node-failure-at-peak.yaml

    \b
    The same with other random times, and everything that was decided kept for later:
      rankcore simulate examples/node-failure-at-peak.yaml --seed 7 --journal run.jsonl

    \b
    Does the core still decide the same?
      rankcore replay run.jsonl
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
