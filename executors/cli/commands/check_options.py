"""The options of `rankcore check`, each with its help and what it allows."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

BUDGET_MAX = 9


class Compaction(StrEnum):
    """When ranks close their gaps."""

    WHEN_HEALTHY = "when_healthy"
    IMMEDIATE = "immediate"


class Victims(StrEnum):
    """Whom a downscale stops."""

    ANY = "any"
    HIGHEST_RANK = "highest_rank"
    NEWEST = "newest"


class HandOver(StrEnum):
    """How far a successor is before its predecessor is stopped."""

    NONE = "none"
    PREPARED = "prepared"
    OVERLAP = "overlap"


class ConfigRollout(StrEnum):
    """How another user_config reaches those that run."""

    ROLLING = "rolling"
    AT_ONCE = "at_once"


def _budget(what: str) -> Any:
    """An option that says how often something may happen on one path."""
    return typer.Option(min=0, max=BUDGET_MAX, help=what, show_default=False)


Small = Annotated[bool, typer.Option("--small", help="A series of small systems, each whole; the default.")]
Deep = Annotated[bool, typer.Option("--deep", help="Larger systems, for hours; goes on where it was.")]
Router = Annotated[bool, typer.Option("--router", help="Instead: requests over routers and replicas, Q1 to Q11 and C1 to C4.")]
Residency = Annotated[bool, typer.Option("--residency", help="Instead: weights over GPUs and CPU memory, T1 to T10, T12, T13.")]
ClusterOption = Annotated[
    bool, typer.Option("--cluster", help="Instead: deployments and their records, crashes of the controller, P2 and P6.")
]
Gang = Annotated[bool, typer.Option("--gang", help="Instead: group ranks of agents over rounds, TR1 to TR8.")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Of the series, only this system; repeatable.")]
Replicas = Annotated[int | None, typer.Option(min=1, max=5, help="The target moves within 0 to this.")]
Start = Annotated[int | None, typer.Option(min=0, max=5, help="The first target. [default: --replicas]")]
Nodes = Annotated[int | None, typer.Option(min=1, max=3, help="Replicas may come up on any of them.")]
Bundles = Annotated[
    int | None, typer.Option(min=0, max=6, help="Of a placement group that ranks stand on. [default: no such group]")
]
BundlesEach = Annotated[int | None, typer.Option(min=1, max=6, help="Of these, a rank has so many.")]
Rooms = Annotated[
    int | None, typer.Option(min=0, max=5, help="Replicas that a node can hold, with pack_ranks. [default: no policy]")
]
Parking = Annotated[bool, typer.Option("--parking", help="With rooms, nobody says how many: who finds none waits. No policy.")]
Healthy = Annotated[bool, typer.Option("--healthy", help="Begin when all run, not with their start.")]
Changes = Annotated[int | None, _budget("Changes of the target.")]
Namings = Annotated[int | None, _budget("Lower targets that name whom to stop.")]
Updates = Annotated[int | None, _budget("Changes of the version.")]
Configs = Annotated[int | None, _budget("Changes of the user_config.")]
Renewals = Annotated[int | None, _budget("Changes of the restart token.")]
Partitions = Annotated[int | None, _budget("Changes of which ranks updates reach.")]
Mappings = Annotated[int | None, _budget("Changes of which bundles ranks stand on.")]
Stops = Annotated[int | None, _budget("Replicas stopped by name.")]
Retries = Annotated[int | None, _budget("Wishes to try again what rests or was given up.")]
Trials = Annotated[int | None, _budget("Wishes to try what was given up with one replica.")]
Deletes = Annotated[int | None, typer.Option(min=0, max=1, help="Whether it may be deleted.", show_default=False)]
Crashes = Annotated[int | None, _budget("Replicas that die, at any moment.")]
Exits = Annotated[int | None, _budget("The same, told as a stop, or found missing.")]
NodeLosses = Annotated[int | None, _budget("Nodes lost with all that is on them.")]
BundleLosses = Annotated[int | None, _budget("Bundles lost; each comes back.")]
RoomChanges = Annotated[int | None, _budget("Nodes that can hold fewer for a time.")]
Cordons = Annotated[int | None, _budget("Nodes cordoned for a time.")]
Drains = Annotated[int | None, _budget("Nodes drained, without a deadline, for a time.")]
Notices = Annotated[int | None, _budget("Nodes drained with a deadline, for a time.")]
Replacements = Annotated[int | None, _budget("Replicas to be replaced, by name.")]
Unreadies = Annotated[int | None, _budget("Replicas that take no requests for a time.")]
Failures = Annotated[int | None, _budget("Starts and reconfigurations that fail.")]
Suspicions = Annotated[int | None, _budget("Replicas called unhealthy that are not.")]
Restarts = Annotated[int | None, _budget("Crashes of the controller, at any moment.")]
Duplicates = Annotated[int | None, _budget("Crashes of it after which two replicas believe one rank.")]
Losses = Annotated[int | None, _budget("Messages lost; final news never is.")]
Repeats = Annotated[int | None, _budget("Messages that arrive twice.")]
Delays = Annotated[int | None, _budget("Time-outs while something is still under way.")]
Total = Annotated[int | None, typer.Option(min=0, max=99, help="At most so many of all these on one path.", show_default=False)]
CompactionOption = Annotated[Compaction | None, typer.Option(help="When ranks close their gaps.", show_default=False)]
VictimsOption = Annotated[Victims | None, typer.Option(help="Whom a downscale stops.", show_default=False)]
MaxSurge = Annotated[int | None, typer.Option(min=0, max=5, help="Of updates.", show_default=False)]
MaxUnavailable = Annotated[int | None, typer.Option(min=0, max=5, help="Of updates. [default: 20%]", show_default=False)]
HandOverOption = Annotated[
    HandOver | None, typer.Option(help="How far a successor is before its predecessor goes.", show_default=False)
]
ConfigRolloutOption = Annotated[ConfigRollout | None, typer.Option(help="How a user_config is sent.", show_default=False)]
Partition = Annotated[int | None, typer.Option(min=0, max=5, help="Updates reach ranks from this one on.", show_default=False)]
MaxStartFailures = Annotated[int | None, typer.Option(min=1, max=9, help="So many give a version up. [default: 2]")]
MinReadyS = Annotated[float | None, typer.Option(min=0.0, help="Until a ready replica is available.", show_default=False)]
ScarcityAfterS = Annotated[float | None, typer.Option(min=0.0, help="Until a rank without a place is starved.")]
ProgressDeadlineS = Annotated[float | None, typer.Option(min=0.0, help="Until an update is stalled.", show_default=False)]
NodeMemoryS = Annotated[float | None, typer.Option(min=0.0, help="How long a lost node is remembered.", show_default=False)]
Rollback = Annotated[bool, typer.Option("--rollback", help="Give a failed version up for the last healthy spec.")]
States = Annotated[
    int | None, typer.Option(min=1, metavar="COUNT", help="Stop at so many a system, and follow a sample of the rest.")
]
Seconds = Annotated[
    float | None, typer.Option(min=0.0, metavar="COUNT", help="The same, after so many seconds a system in this session.")
]
Keep = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Keep what is explored, and go on from it. [default with --deep: rankcore-check]"),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin again, whatever is kept.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
