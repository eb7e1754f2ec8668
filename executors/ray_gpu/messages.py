"""What controller and replicas tell each other. Replica processes import this: of the core it needs the values alone.

A cluster that is upgraded in place has controllers, replicas and callers of two releases, and messages travel as pickles. So a
message may gain fields with defaults, and nothing else, without `names.PROTOCOL` being one more; see there for what follows.
"""

from typing import Any, Literal, TypeAlias, TypeVar

import attrs

from rankcore.values import ReplicaRank

Ranks: TypeAlias = tuple[int, int, int]
"""rank, node_rank, local_rank."""
NO_RANKS: Ranks = (-1, -1, -1)
"""Those of a replica that has none yet."""

OutcomeKind: TypeAlias = Literal["done", "failed", "refused", "overtaken"]


WATCH_S = 60.0
"""So long a call by which the controller waits for a process's end takes at most. It begins another one then. Controllers die,
and Ray tells nobody: a call that never returned would stay for ever, one for each of them.
"""


T = TypeVar("T")


def across_releases(message: type[T]) -> type[T]:
    """A frozen class of which instances that another release has pickled are read.

    Fields that these lack are at their defaults, and those that are unknown here are left out.
    """
    fields = attrs.fields(message)  # type: ignore[arg-type] # mypy does not see that it is an attrs class
    defaults = {field.name: field.default for field in fields if field.default is not attrs.NOTHING}
    made = {name: each.factory for name, each in defaults.items() if isinstance(each, attrs.Factory)}  # type: ignore[arg-type]
    fill = message.__setstate__  # type: ignore[attr-defined] # attrs has made it: the class has slots

    def restore(self: T, state: dict[str, Any]) -> None:
        fill(self, {**defaults, **{name: make() for name, make in made.items() if name not in state}, **state})

    message.__setstate__ = restore  # type: ignore[attr-defined]
    return message


@across_releases
@attrs.frozen
class Change:
    """`PrepareReplica`, `InitializeReplica` or `ReconfigureReplica`, as it travels.

    Attributes:
        epoch: Of the controller that sent it.
        revision: Orders the changes of one epoch.
        initialize: Whether the user's code is to be started.
        ranks: To be adopted before user code runs; `NO_RANKS`: it is to come up without.
        world_size: The target at this revision.
        config_id: Names the user_config.
        user_config: Plain data for the user's `reconfigure`; None: there is none.
        keeps_config: Whether the replica is to go on with the user_config that it has, `user_config` being left out.
    """

    epoch: int
    revision: int
    initialize: bool
    ranks: Ranks
    world_size: int
    config_id: str | None
    user_config: Any = None
    keeps_config: bool = False

    @property
    def rank(self) -> ReplicaRank | None:
        """The same ranks, as the replica's half of the contract has them."""
        return ReplicaRank(*self.ranks) if self.ranks != NO_RANKS else None


@across_releases
@attrs.frozen
class Outcome:
    """What became of a change.

    Attributes:
        kind: "done"; "failed", the user's code raised; "refused", it came from a replaced controller; "overtaken", by a
            newer one, whose own answer counts.
        detail: The traceback of a failure, or the newest epoch; where it is done, why the replica takes no requests for now, if
            it does not.
    """

    kind: OutcomeKind
    detail: str = ""


@across_releases
@attrs.frozen
class Endpoint:
    """Where a replica takes calls.

    Attributes:
        socket_path: For callers on its node; "": it has none.
        started: When its process did, in the system's ticks, which with its number names it; None: the system does not say.
    """

    replica_id: str
    actor_name: str
    node_id: str
    socket_path: str
    pid: int
    started: int | None = None


@across_releases
@attrs.frozen
class Routes:
    """Where the calls of a deployment go.

    Attributes:
        endpoints: Of the replicas that take calls, with their global ranks; None: no rank yet.
        world_size: How many ranks there are.
        spec: How calls are routed: a `rankcore.routing.RoutingSpec`.
        report_every_s: How often a router is to say how many calls wait in it; None: only while there is no replica.
        problem: Why there are no endpoints, nor about to be any; "": there are, or may be soon.
        retry_after_s: When that may be otherwise; None: not by itself.
        rejected_with: The status of HTTP of a call that is one too many.
    """

    endpoints: tuple[tuple[Endpoint, int | None], ...]
    world_size: int
    spec: Any
    report_every_s: float | None = None
    problem: str = ""
    retry_after_s: float | None = None
    rejected_with: int = 503


READY, UNAVAILABLE = "READY", "UNAVAILABLE"
"""States of a `CallStatus`: what the machine calls `Standing`, as callers see it."""


@across_releases
@attrs.frozen
class CallStatus:
    """How a deployment stands for a call that waits for it.

    Attributes:
        state: READY: a replica takes calls; LOADING; PROVISIONING: it has a place, and waits until others have left it; QUEUED:
            it waits for a place; UNAVAILABLE: nobody serves it, nor is about to (calls fail with `UnavailableError`).
        because: Why, in words.
        behind: PROVISIONING: whose replicas have to leave first.
        percent: LOADING: how much has come.
        left_s: LOADING: how long it takes yet if it goes on like that; None: that cannot be said.
        retry_after_s: UNAVAILABLE: for how long nothing is tried again; None: until something else happens.
    """

    state: str
    because: str = ""
    behind: tuple[str, ...] = ()
    percent: int = 0
    left_s: float | None = None
    retry_after_s: float | None = None

    def __str__(self) -> str:
        if self.state == "LOADING":
            left = f", {self.left_s:.0f} s" if self.left_s is not None else ""
            return f"LOADING {self.percent} %{left}"
        if self.behind:
            return f"{self.state} behind {', '.join(self.behind)}"
        return f"{self.state}: {self.because}" if self.because else self.state


Version: TypeAlias = tuple[int, int]
"""Of routes, or of a status: the controller's epoch, and a number that grows with each change."""
NEVER_SEEN: Version = (-1, 0)


@across_releases
@attrs.frozen
class Seen:
    """What a process that calls a deployment knows of it.

    Attributes:
        routes, status: Which, by their versions.
        refuses: Whether it knows that nobody serves it, and refuses calls for that.
    """

    routes: Version = NEVER_SEEN
    status: Version = NEVER_SEEN
    refuses: bool = False


@across_releases
@attrs.frozen
class WatchQuestion:
    """What a process that calls asks the controller: what is new of all that it calls.

    Attributes:
        process: Who asks.
        number: Grows with each question of the process.
        since: The question before, to which this one adds; 0: it says all.
        seen: Of the deployments that it calls, those of which it knows something else by now.
        gone: Those that it calls no more.
    """

    process: str
    number: int
    since: int
    seen: dict[str, Seen]
    gone: tuple[str, ...] = ()


@across_releases
@attrs.frozen
class WaitingInquiry:
    """What the router of a process is asked about calls that wait there, or told to do with them.

    Attributes:
        number: By which it is answered.
        request: Only this one, by the router's number of it, whether it waits or has been sent since; None: all that wait.
        because: They end, and their callers are told this; None: nothing happens to them.
    """

    number: int
    request: int | None = None
    because: str | None = None


@across_releases
@attrs.frozen
class DeploymentNews:
    """What a process that calls a deployment did not know of it. None: as it was.

    Attributes:
        routes: With their version.
        status: Likewise.
        inquiries: What somebody wants of its calls that wait.
    """

    routes: tuple[Version, Routes] | None = None
    status: tuple[Version, CallStatus] | None = None
    inquiries: tuple[WaitingInquiry, ...] = ()


@across_releases
@attrs.frozen
class LoadReport:
    """How the calls of one process stand; carries a `rankcore.cluster.events.LoadReported`.

    Attributes:
        process, incarnation, seq: Of a process the newest (incarnation, seq) counts.
        entries: By deployment, the fields of a `ReportedLoad`.
    """

    process: str
    incarnation: int
    seq: int
    entries: dict[str, dict[str, Any]]


@across_releases
@attrs.frozen
class Ingress:
    """The ids of the deployments that requests from outside reach.

    Attributes:
        prefixes: By the beginning of an HTTP request's path.
        applications: By the application's name, for gRPC.
        drained: Nodes that are drained, whose proxies are to say so; None: who has pickled this knows of none.
    """

    prefixes: dict[str, str]
    applications: dict[str, str]
    drained: tuple[str, ...] | None = None


@across_releases
@attrs.frozen
class Report:
    """What a replica says about itself.

    Attributes:
        endpoint: Where it is.
        ranks: What it believes; None: never initialised.
        world_size: The newest that it was told; None: none yet.
        version: Of its code.
        ready: Whether start-up is over.
        draining: Whether it was told to stop.
        config_id: Of the user_config that it has, or is applying.
        epoch: The newest that it has seen.
        failure: The traceback of user code that failed last; None: nothing did.
        at: When it says so, in seconds on its machine's monotonic clock.
        history: Every rank that it has believed to have, and since when on that clock; the latest last.
        bundles, group_id: On which bundles of which placement group it was started; empty and None: on none.
        protocol: The `names.PROTOCOL` of its process.
        restart_token: What it was started with.
        prepared: Whether its user code is up, with ranks or without.
        unready: Why it takes no requests for now, though it is ready; None: it takes them.
        ready_for_s: For how long its user code has been up on this user_config; None: it is not, or does not say.
    """

    endpoint: Endpoint
    ranks: Ranks | None
    world_size: int | None
    version: str
    ready: bool
    draining: bool
    config_id: str | None
    epoch: int
    failure: str | None = None
    at: float = attrs.field(default=0.0, eq=False)
    history: tuple[tuple[float, Ranks], ...] = ()
    bundles: tuple[int, ...] = ()
    group_id: str | None = None
    protocol: int = 2  # of those who do not say
    restart_token: str = ""
    prepared: bool = False
    unready: str | None = None
    ready_for_s: float | None = None
