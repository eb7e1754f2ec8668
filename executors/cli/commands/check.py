"""`rankcore check`: its arguments and its help."""

from enum import StrEnum

import typer

from executors.cli.commands import check_options as options

BOUNDS = (
    *("replicas", "start", "nodes", "bundles", "bundles_each", "rooms", "parking", "healthy"),
    *("changes", "namings", "updates", "configs", "renewals", "partitions", "mappings", "stops"),
    *("retries", "trials", "deletes", "cordons", "drains", "notices", "replacements", "unreadies"),
    *("crashes", "exits", "node_losses", "bundle_losses", "room_changes", "failures", "suspicions", "restarts", "duplicates"),
    *("losses", "repeats", "delays", "total"),
    *("compaction", "victims", "max_surge", "max_unavailable", "hand_over", "config_rollout", "partition"),
    *("max_start_failures", "min_ready_s", "scarcity_after_s", "progress_deadline_s", "node_memory_s", "rollback"),
)
"""The options that are fields of `rankcore.testing.model.Bounds`."""

OTHER_WORLDS = ("router", "residency", "cluster", "gang")
"""The options that choose another row of `executors.cli.check_worlds.WORLDS` than that of ranks."""


def check(
    context: typer.Context,
    small: options.Small = False,
    deep: options.Deep = False,
    router: options.Router = False,
    residency: options.Residency = False,
    cluster: options.ClusterOption = False,
    gang: options.Gang = False,
    only: options.Only = None,
    replicas: options.Replicas = None,
    start: options.Start = None,
    nodes: options.Nodes = None,
    bundles: options.Bundles = None,
    bundles_each: options.BundlesEach = None,
    rooms: options.Rooms = None,
    parking: options.Parking = False,
    healthy: options.Healthy = False,
    changes: options.Changes = None,
    namings: options.Namings = None,
    updates: options.Updates = None,
    configs: options.Configs = None,
    renewals: options.Renewals = None,
    partitions: options.Partitions = None,
    mappings: options.Mappings = None,
    stops: options.Stops = None,
    retries: options.Retries = None,
    trials: options.Trials = None,
    deletes: options.Deletes = None,
    cordons: options.Cordons = None,
    drains: options.Drains = None,
    notices: options.Notices = None,
    replacements: options.Replacements = None,
    unreadies: options.Unreadies = None,
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
    max_unavailable: options.MaxUnavailable = None,
    hand_over: options.HandOverOption = None,
    config_rollout: options.ConfigRolloutOption = None,
    partition: options.Partition = None,
    max_start_failures: options.MaxStartFailures = None,
    min_ready_s: options.MinReadyS = None,
    scarcity_after_s: options.ScarcityAfterS = None,
    progress_deadline_s: options.ProgressDeadlineS = None,
    node_memory_s: options.NodeMemoryS = None,
    rollback: options.Rollback = False,
    states: options.States = None,
    seconds: options.Seconds = None,
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
      rankcore check                                         the small series: two minutes
      rankcore check --only updates --json
      rankcore check --replicas 3 --nodes 2 --healthy --changes 1 --restarts 1
      rankcore check --router --only router-credits
      rankcore check --residency
      rankcore check --cluster
      rankcore check --gang
      rankcore check --replicas 2 --bundles 3 --healthy --mappings 1 --bundle-losses 1
      rankcore check --healthy --updates 1 --crashes 1 --max-surge 1 --max-unavailable 0 --hand-over overlap
      rankcore check --deep --keep night                     for hours; Ctrl-C, and the same command goes on

    Exit status: 0 all promises hold, 1 one is broken, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    asked = {name: context.params[name] for name in BOUNDS}
    words = {name: str(value) if isinstance(value, StrEnum) else value for name, value in asked.items()}
    given = {name: value for name, value in words.items() if value is not None and value is not False}
    worlds = [name for name in OTHER_WORLDS if context.params[name]]
    beside = [*worlds[1:], *(name for name in ("small", "deep") if context.params[name]), *given]
    if worlds and beside:
        raise typer.BadParameter(f"--{worlds[0]} has a series of its own: leave --{beside[0].replace('_', '-')} out")
    from executors.cli.check import Asked, run

    chosen = worlds[0] if worlds else "ranks"
    run(Asked(chosen, small, deep, tuple(only or ()), given, states, seconds, keep, fresh, as_json, quiet))
