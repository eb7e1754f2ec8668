"""How large a world the checker explores: the deployment, the nodes, and the budget of the adversary for one path."""

import attrs

from rankcore import checks
from rankcore.errors import FieldError
from rankcore.placement import StaticPlacement
from rankcore.spec import CompactionPolicy, ConfigRollout, DeploymentSpec, HandOver, VictimPolicy
from rankcore.testing.explorable import expression

NODE_NAMES = ("a", "b", "c")
REPLICAS_MAX = 5
BUNDLES_MAX = 6
BUDGET_MAX = 9
GROUPS = ("g", "h")
"""Placement groups: that of the first spec, and another one."""
BUDGETS = (
    "changes",
    "namings",
    "updates",
    "configs",
    "renewals",
    "partitions",
    "mappings",
    "stops",
    "retries",
    "trials",
    "deletes",
    "crashes",
    "exits",
    "node_losses",
    "bundle_losses",
    "room_changes",
    "cordons",
    "drains",
    "notices",
    "replacements",
    "failures",
    "suspicions",
    "unreadies",
    "restarts",
    "duplicates",
    "losses",
    "repeats",
    "delays",
)
"""What has a budget: first what users want, then what breaks, then what happens to messages and to time."""
NEEDS = {
    "bundles_each": "bundles",
    "mappings": "bundles",
    "bundle_losses": "bundles",
    "room_changes": "rooms",
    "parking": "rooms",
}
"""What says nothing where there is none of these."""


class InvalidBoundsError(FieldError):
    """A bound of the model is not what it may be."""


@attrs.frozen(kw_only=True)
class Bounds:
    """A small world: one deployment, and an adversary with a budget.

    Attributes:
        replicas: The largest target, 1 to 5; the target moves within 0..replicas.
        start: The first target; None: `replicas`.
        nodes: How many nodes there are, 1 to 3; a replica may come up on any of them.
        bundles: How many bundles a placement group has that the ranks stand on, 1 to 6; 0: there is no static placement.
        bundles_each: How many of them a rank has.
        rooms: How many replicas a node can hold, with `placement="pack_ranks"`; 0: any number, and no placement policy.
        parking: Whether there is no placement policy with `rooms` either, so that the controller knows nothing of them: who
            is requested stays so until there is room, on whichever node.
        healthy: Whether the world begins once the first replicas run, instead of with their start.
        changes: Changes of the target, each to any other value.
        namings: Changes to a lower target that name a replica to be stopped first.
        updates: Changes of the version, each to a new one.
        configs: Changes of the user_config, each to a new one.
        renewals: Changes of the restart token, each to a new one.
        partitions: Changes of the partition, each to any other up to `replicas`.
        mappings: Changes of the static placement, each to any other of `placements`.
        stops: Replicas stopped by name.
        retries: Wishes that back-off ends, or that what was given up is tried again.
        trials: Wishes to try what was given up once more, with one replica.
        deletes: Whether the deployment may be deleted (0 or 1).
        crashes: Replicas that end by themselves, at any moment of their lives.
        exits: The same, but what is heard of it is that it has stopped, or is not to be found.
        node_losses: Nodes that are lost with all that is on them, bundles included, and come back empty.
        bundle_losses: Bundles that are lost. Each comes back, on any node, at any later time.
        room_changes: Nodes that can hold fewer replicas than they could, or none. That is over at any later time.
        cordons: Nodes that are cordoned. That is over at any later time, as of those that are drained.
        drains: Nodes that are drained, without a deadline.
        notices: Nodes that are drained with a deadline, two seconds after it is said.
        replacements: Replicas that are to be replaced, by name.
        failures: Starts and reconfigurations that fail.
        suspicions: Replicas that are called unhealthy and are not.
        unreadies: Replicas that take no requests. That is over at any later time.
        restarts: Crashes of the controller, each followed by a recovery; at any moment, so also while one is under way.
        duplicates: Crashes of the controller after which one replica believes a rank of another's.
        losses: Messages that are lost; final news never is (section 2.4).
        repeats: Messages that are delivered and stay under way, to be delivered again.
        delays: Times that the next time-out comes while something is still under way or being done.
        total: At most so many of all of these on one path; None: no further limit.
        node_memory_s: For how long a lost node is remembered; None: for ever.
        compaction, victims, max_surge, max_unavailable, max_start_failures, min_ready_s, config_rollout,
            rollback, scarcity_after_s, partition, progress_deadline_s, hand_over: As in `DeploymentSpec`.

    Raises:
        InvalidBoundsError: Names the bound, what was found and what is allowed.
    """

    replicas: int = 2
    start: int | None = None
    nodes: int = 1
    bundles: int = 0
    bundles_each: int = 1
    rooms: int = 0
    parking: bool = False
    healthy: bool = False
    changes: int = 0
    namings: int = 0
    updates: int = 0
    configs: int = 0
    renewals: int = 0
    partitions: int = 0
    mappings: int = 0
    stops: int = 0
    retries: int = 0
    trials: int = 0
    deletes: int = 0
    crashes: int = 0
    exits: int = 0
    node_losses: int = 0
    bundle_losses: int = 0
    room_changes: int = 0
    cordons: int = 0
    drains: int = 0
    notices: int = 0
    replacements: int = 0
    failures: int = 0
    suspicions: int = 0
    unreadies: int = 0
    restarts: int = 0
    duplicates: int = 0
    losses: int = 0
    repeats: int = 0
    delays: int = 0
    total: int | None = None
    compaction: CompactionPolicy = "when_healthy"
    victims: VictimPolicy = "any"
    max_surge: int = 0
    max_unavailable: int | None = None
    max_start_failures: int = 2
    min_ready_s: float = 0.0
    config_rollout: ConfigRollout = "rolling"
    rollback: bool = False
    scarcity_after_s: float | None = None
    node_memory_s: float | None = None
    partition: int = 0
    progress_deadline_s: float | None = None
    hand_over: HandOver = "none"

    def __attrs_post_init__(self) -> None:
        checks.count(InvalidBoundsError, "Bounds.replicas", self.replicas, 1, REPLICAS_MAX)
        checks.count(InvalidBoundsError, "Bounds.nodes", self.nodes, 1, len(NODE_NAMES))
        if self.start is not None:
            checks.count(InvalidBoundsError, "Bounds.start", self.start, 1 if self.bundles else 0, self.replicas)
        if self.total is not None:
            checks.count(InvalidBoundsError, "Bounds.total", self.total, 0, BUDGET_MAX * len(BUDGETS))
        checks.count(InvalidBoundsError, "Bounds.bundles_each", self.bundles_each, 1, BUNDLES_MAX)
        least = self.replicas * self.bundles_each if self.bundles else 0
        checks.count(InvalidBoundsError, "Bounds.bundles", self.bundles, least, BUNDLES_MAX)
        fewest = 1 if self.parking else -(-self.replicas // self.nodes)
        least = fewest if self.rooms else 0
        checks.count(InvalidBoundsError, "Bounds.rooms", self.rooms, least, 0 if self.bundles else REPLICAS_MAX)
        for name in BUDGETS:
            checks.count(InvalidBoundsError, f"Bounds.{name}", getattr(self, name), 0, 1 if name == "deletes" else BUDGET_MAX)
        default_of = attrs.fields_dict(Bounds)
        for name, needed in NEEDS.items():
            value, default = getattr(self, name), default_of[name].default
            if value != default and not getattr(self, needed):
                raise InvalidBoundsError(f"Bounds.{name}", value, f"{default} without {needed}, for which it would do nothing")
        self.spec()

    @property
    def places(self) -> int:
        """How many replicas find a place, of however many are wanted, once all that is lost is back."""
        return min(self.replicas, self.rooms * self.nodes) if self.rooms else self.replicas

    @property
    def room_is_told(self) -> bool:
        """Whether the controller is told how many replicas a node can hold."""
        return self.rooms > 0 and not self.parking

    @property
    def cordoned(self) -> bool:
        """Whether nodes may be cordoned or drained."""
        return self.cordons + self.drains + self.notices > 0

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes of this world."""
        return NODE_NAMES[: self.nodes]

    @property
    def budget(self) -> tuple[int, ...]:
        """What the adversary may spend, in the order of `BUDGETS`, and in all."""
        each = tuple(getattr(self, name) for name in BUDGETS)
        return (*each, sum(each) if self.total is None else self.total)

    @property
    def groups(self) -> tuple[str, ...]:
        """The placement groups of this world."""
        return GROUPS[: (2 if self.mappings else 1) if self.bundles else 0]

    @property
    def placements(self) -> tuple[StaticPlacement | None, ...]:
        """What specs may ask for: any number of ranks, others' bundles, spare ones, another group, no static placement."""
        if not self.bundles:
            return (None,)
        each, most = self.bundles_each, self.replicas
        straight = [tuple(range(rank * each, rank * each + each)) for rank in range(self.bundles // each)]
        orders = [straight[:count] for count in range(1, most + 1)]
        orders += [straight[1:most] + straight[:1], straight[-most:]]
        known = [StaticPlacement(order, self.bundles, group=GROUPS[0]) for order in orders]
        known.append(StaticPlacement(straight[:most], self.bundles, group=GROUPS[1]))
        return (*dict.fromkeys(known), None)

    def spec(self) -> DeploymentSpec:
        """What the deployment is at first. Time-outs are a few seconds each, and time moves in whole ones (see `world`).

        Raises:
            InvalidSpecError: A policy is not what it may be.
        """
        count = self.replicas if self.start is None else self.start
        return DeploymentSpec(
            name="llm",
            target_replicas=count,
            placement=self.placements[count - 1] if self.bundles else "pack_ranks" if self.room_is_told else None,
            compaction=self.compaction,
            victims=self.victims,
            max_surge=self.max_surge,
            max_unavailable=self.max_unavailable,
            max_start_failures=self.max_start_failures,
            min_ready_s=self.min_ready_s,
            config_rollout=self.config_rollout,
            rollback=self.rollback,
            scarcity_after_s=self.scarcity_after_s,
            partition=self.partition,
            progress_deadline_s=self.progress_deadline_s,
            hand_over=self.hand_over,
            graceful_shutdown_timeout_s=1.0,
            health_check_timeout_s=1.0,
            repeat_period_s=1.0,
            start_timeout_s=2.0,
            surge_patience_s=2.0,
            node_memory_s=3600.0 if self.node_memory_s is None else self.node_memory_s,
            start_backoff_s=1.0,
            start_backoff_max_s=1.0,
        )

    def __str__(self) -> str:
        """What differs from the defaults, ready to paste."""
        return expression(self, always=("replicas", "nodes"))
