"""`rankcore check`: its arguments and its help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

BUDGET_MAX = 9
BOUNDS = (
    *("replicas", "start", "nodes", "bundles", "bundles_each", "rooms", "healthy"),
    *("changes", "namings", "updates", "configs", "mappings", "stops", "deletes"),
    *("crashes", "exits", "node_losses", "bundle_losses", "room_changes", "failures", "suspicions", "restarts", "duplicates"),
    *("losses", "repeats", "delays", "total"),
    *("compaction", "victims", "max_surge", "rollback"),
)
"""The options that are fields of `rankcore.testing.model.Bounds`."""


class Compaction(StrEnum):
    """When ranks close their gaps."""

    WHEN_HEALTHY = "when_healthy"
    IMMEDIATE = "immediate"


class Victims(StrEnum):
    """Whom a downscale stops."""

    ANY = "any"
    HIGHEST_RANK = "highest_rank"
    NEWEST = "newest"


def _budget(what: str) -> Any:
    """An option that says how often something may happen on one path."""
    return typer.Option(min=0, max=BUDGET_MAX, help=what, show_default=False)


def check(
    context: typer.Context,
    small: Annotated[bool, typer.Option("--small", help="A series of small systems, each whole; the default.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Larger systems, for hours; goes on where it was.")] = False,
    router: Annotated[
        bool, typer.Option("--router", help="Instead: requests over routers and replicas, Q1 to Q10 and C1 to C4.")
    ] = False,
    residency: Annotated[
        bool, typer.Option("--residency", help="Instead: models over GPUs and CPU memory, T1 to T10.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Of the series, only this system; repeatable.")
    ] = None,
    replicas: Annotated[int | None, typer.Option(min=1, max=5, help="The target moves within 0 to this.")] = None,
    start: Annotated[int | None, typer.Option(min=0, max=5, help="The first target. [default: --replicas]")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, max=3, help="Replicas may come up on any of them.")] = None,
    bundles: Annotated[
        int | None, typer.Option(min=0, max=6, help="Of a placement group that ranks stand on. [default: no such group]")
    ] = None,
    bundles_each: Annotated[int | None, typer.Option(min=1, max=6, help="Of these, a rank has so many.")] = None,
    rooms: Annotated[
        int | None, typer.Option(min=0, max=5, help="Replicas that a node can hold, with pack_ranks. [default: no policy]")
    ] = None,
    healthy: Annotated[bool, typer.Option("--healthy", help="Begin when all run, not with their start.")] = False,
    changes: Annotated[int | None, _budget("Changes of the target.")] = None,
    namings: Annotated[int | None, _budget("Lower targets that name whom to stop.")] = None,
    updates: Annotated[int | None, _budget("Changes of the version.")] = None,
    configs: Annotated[int | None, _budget("Changes of the user_config.")] = None,
    mappings: Annotated[int | None, _budget("Changes of which bundles ranks stand on.")] = None,
    stops: Annotated[int | None, _budget("Replicas stopped by name.")] = None,
    deletes: Annotated[int | None, typer.Option(min=0, max=1, help="Whether it may be deleted.", show_default=False)] = None,
    crashes: Annotated[int | None, _budget("Replicas that die, at any moment.")] = None,
    exits: Annotated[int | None, _budget("The same, told as a stop, or found missing.")] = None,
    node_losses: Annotated[int | None, _budget("Nodes lost with all that is on them.")] = None,
    bundle_losses: Annotated[int | None, _budget("Bundles lost; each comes back.")] = None,
    room_changes: Annotated[int | None, _budget("Nodes that can hold fewer for a time.")] = None,
    failures: Annotated[int | None, _budget("Starts and reconfigurations that fail.")] = None,
    suspicions: Annotated[int | None, _budget("Replicas called unhealthy that are not.")] = None,
    restarts: Annotated[int | None, _budget("Crashes of the controller, at any moment.")] = None,
    duplicates: Annotated[int | None, _budget("Crashes of it after which two replicas believe one rank.")] = None,
    losses: Annotated[int | None, _budget("Messages lost; final news never is.")] = None,
    repeats: Annotated[int | None, _budget("Messages that arrive twice.")] = None,
    delays: Annotated[int | None, _budget("Time-outs while something is still under way.")] = None,
    total: Annotated[
        int | None, typer.Option(min=0, max=99, help="At most so many of all these on one path.", show_default=False)
    ] = None,
    compaction: Annotated[Compaction | None, typer.Option(help="When ranks close their gaps.", show_default=False)] = None,
    victims: Annotated[Victims | None, typer.Option(help="Whom a downscale stops.", show_default=False)] = None,
    max_surge: Annotated[int | None, typer.Option(min=0, max=5, help="Of updates.", show_default=False)] = None,
    rollback: Annotated[bool, typer.Option("--rollback", help="Give a failed version up for the last healthy spec.")] = False,
    states: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Stop at so many a system, and follow a sample of the rest.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep what is explored, and go on from it. [default with --deep: rankcore-check]"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin again, whatever is kept.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Can any order of events break a promise?

    Explores every reachable state of small systems, breadth first: replicas with beliefs of their own, messages that
    arrive in any order or never, crashes of anybody at any moment. In each state the promises R1 to R12 and S1 to S8 are
    checked, and that without another fault everything becomes healthy again. States that differ only in names are one.

    A broken promise is printed as a test that is ready to run, with a shortest path to it. Otherwise: how many states and
    moves, and what of the life cycles they exercised. Each number is a budget for one path; without any of them, a series
    of systems is explored.

    \b
      rankcore check                                         the small series: a minute
      rankcore check --only updates --json
      rankcore check --replicas 3 --nodes 2 --healthy --changes 1 --restarts 1
      rankcore check --router --only router-credits
      rankcore check --residency
      rankcore check --replicas 2 --bundles 3 --healthy --mappings 1 --bundle-losses 1
      rankcore check --deep --keep night                     for hours; Ctrl-C, and the same command goes on

    Exit status: 0 all promises hold, 1 one is broken, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.check import Asked, run

    asked = {name: context.params[name] for name in BOUNDS}
    if router or residency:
        from executors.cli import check_worlds

        others = [name for name in ("small", "deep", "keep", "fresh", *BOUNDS) if context.params[name]]
        if (router and residency) or others:
            other = "--residency" if router and residency else f"--{others[0].replace('_', '-')}"
            raise typer.BadParameter(f"{'--router' if router else '--residency'} has a series of its own: leave {other} out")
        series = check_worlds.ROUTER if router else check_worlds.RESIDENCY
        check_worlds.run(series, tuple(only or ()), states, as_json, quiet)
        return
    given = {name: value for name, value in asked.items() if value is not None and value is not False}
    run(Asked(small, deep, tuple(only or ()), given, states, keep, fresh, as_json, quiet))
