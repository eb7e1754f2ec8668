"""`rankcore check`: its arguments and its help."""

from typing import Any

import typer

from executors.cli.commands import check_options as options

BOUNDS = (
    *("replicas", "start", "nodes", "bundles", "bundles_each", "rooms", "healthy"),
    *("changes", "namings", "updates", "configs", "mappings", "stops", "deletes"),
    *("crashes", "exits", "node_losses", "bundle_losses", "room_changes", "failures", "suspicions", "restarts", "duplicates"),
    *("losses", "repeats", "delays", "total"),
    *("compaction", "victims", "max_surge", "rollback"),
)
"""The options that are fields of `rankcore.testing.model.Bounds`."""


def check(
    context: typer.Context,
    small: options.Small = False,
    deep: options.Deep = False,
    router: options.Router = False,
    residency: options.Residency = False,
    only: options.Only = None,
    replicas: options.Replicas = None,
    start: options.Start = None,
    nodes: options.Nodes = None,
    bundles: options.Bundles = None,
    bundles_each: options.BundlesEach = None,
    rooms: options.Rooms = None,
    healthy: options.Healthy = False,
    changes: options.Changes = None,
    namings: options.Namings = None,
    updates: options.Updates = None,
    configs: options.Configs = None,
    mappings: options.Mappings = None,
    stops: options.Stops = None,
    deletes: options.Deletes = None,
    crashes: options.Crashes = None,
    exits: options.Exits = None,
    node_losses: options.NodeLosses = None,
    bundle_losses: options.BundleLosses = None,
    room_changes: options.RoomChanges = None,
    failures: options.Failures = None,
    suspicions: options.Suspicions = None,
    restarts: options.Restarts = None,
    duplicates: options.Duplicates = None,
    losses: options.Losses = None,
    repeats: options.Repeats = None,
    delays: options.Delays = None,
    total: options.Total = None,
    compaction: options.CompactionOption = None,
    victims: options.VictimsOption = None,
    max_surge: options.MaxSurge = None,
    rollback: options.Rollback = False,
    states: options.States = None,
    keep: options.Keep = None,
    fresh: options.Fresh = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
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
    if router or residency:
        _explore_other_worlds(context.params)
        return
    from executors.cli.check import Asked, run

    asked = {name: context.params[name] for name in BOUNDS}
    given = {name: value for name, value in asked.items() if value is not None and value is not False}
    run(Asked(small, deep, tuple(only or ()), given, states, keep, fresh, as_json, quiet))


def _explore_other_worlds(asked: dict[str, Any]) -> None:
    """What --router and --residency ask for; they take no bounds and keep nothing."""
    from executors.cli import check_worlds

    given = [name for name in ("router", "residency", "small", "deep", "keep", "fresh", *BOUNDS) if asked[name]]
    if len(given) > 1:
        one, other = (f"--{name.replace('_', '-')}" for name in given[:2])
        raise typer.BadParameter(f"{one} has a series of its own: leave {other} out")
    series = check_worlds.ROUTER if asked["router"] else check_worlds.RESIDENCY
    check_worlds.run(series, tuple(asked["only"] or ()), asked["states"], asked["as_json"], asked["quiet"])
