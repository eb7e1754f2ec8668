"""`rankcore executors`: a line for each that is installed."""

import json

import attrs
import typer

from executors.plugin import PluginError, checked, found, loaded, options_of

COLUMNS = ("name", "distribution", "version", "api")


@attrs.frozen
class Installed:
    """An executor, as it is shown.

    Attributes:
        api: What it speaks; None: it is broken.
        problem: Why it cannot run here, or is broken; None: it can.
    """

    name: str
    distribution: str
    version: str
    api: int | None
    problem: str | None


def executors(as_json: bool) -> None:
    """Do what `commands/executors.py` says."""
    shown = installed()
    if as_json:
        return typer.echo(json.dumps([attrs.asdict(each) for each in shown], indent=2))
    lines = [COLUMNS, *((each.name, each.distribution, each.version, _api(each)) for each in shown)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    for line, last in zip(lines, ["check", *(_said(each) for each in shown)], strict=True):
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + "  " + last)


def installed() -> list[Installed]:
    """All that are installed, and what is wrong with them."""
    there_are = found()
    shown = []
    for one in there_are:
        api: int | None = None
        try:
            plugin = loaded(one, [each for each in there_are if each.name == one.name])
            api, options = plugin.api, options_of(one.name, plugin, ())
            problem = checked(plugin, options)
        except PluginError as error:
            problem = str(error)
        shown.append(Installed(one.name, one.distribution, one.version, api, problem))
    return shown


def _api(one: Installed) -> str:
    return "-" if one.api is None else str(one.api)


def _said(one: Installed) -> str:
    if one.problem is None:
        return "ok"
    return f"broken: {one.problem}" if one.api is None else one.problem
