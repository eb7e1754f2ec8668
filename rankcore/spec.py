"""What a user wants of a deployment: `DeploymentSpec`, checked when it is made and never changed."""

import hashlib
from operator import attrgetter
from types import NoneType
from typing import Literal, TypeAlias, cast

import attrs
import msgspec

from rankcore import checks
from rankcore.amounts import Amount, is_share, rounded_down, rounded_up
from rankcore.codec_plans import since
from rankcore.errors import InvalidSpecError
from rankcore.frozen import FrozenJson, freeze_json
from rankcore.placement import ANYWHERE, Place, StaticPlacement

CompactionPolicy: TypeAlias = Literal["when_healthy", "immediate"]
VictimPolicy: TypeAlias = Literal["any", "highest_rank", "newest"]
PlacementPolicy: TypeAlias = Literal["pack_ranks"]
UpdateOrder: TypeAlias = Literal["lowest_rank", "highest_rank"]
ConfigRollout: TypeAlias = Literal["rolling", "at_once"]
HandOver: TypeAlias = Literal["none", "prepared", "overlap"]

CHOICES: dict[str, tuple[str | None, ...]] = {
    "compaction": ("when_healthy", "immediate"),
    "victims": ("any", "highest_rank", "newest"),
    "placement": (None, "pack_ranks"),
    "config_rollout": ("rolling", "at_once"),
    "update_order": ("lowest_rank", "highest_rank"),
    "hand_over": ("none", "prepared", "overlap"),
}

OTHER_CHOICES = tuple(field for field in CHOICES if field != "placement")
A_FIFTH = "20%"


def config_id_of(user_config: FrozenJson) -> str:
    """A short name for a user_config: equal configs have equal names, whatever the order of their keys."""
    return hashlib.sha256(msgspec.json.encode(user_config, order="sorted")).hexdigest()[:16]


NO_CONFIG_ID = config_id_of(None)


def _target(target_replicas: int | None) -> int:
    """None: left out, which a static placement fills in once all fields are there."""
    return cast(int, target_replicas)


@attrs.frozen(kw_only=True)
class DeploymentSpec:
    """What a user wants of one deployment.

    Attributes:
        name: Of the deployment; printable, without '#'. Replica ids begin with it.
        target_replicas: N, which is also the world size (R9), 0 to 10,000,000. With a static placement it is the number of its
            ranks, and left out.
        user_config: JSON-like data for the user's `reconfigure`; kept frozen. `None` means there is none, `{}` counts (R12).
        version: Of the user's code. Another version replaces replicas; another user_config reconfigures them in place.
        compaction: When ranks close their gaps: "when_healthy", or "immediate" (R8).
        victims: Whom a downscale stops: "any" (empties the least used node first), "highest_rank" or "newest" (R11).
        placement: None leaves nodes to the executor; "pack_ranks" puts consecutive ranks on one node (R11); a `StaticPlacement`
            puts each rank on bundles of a placement group that somebody else owns (S1..S8).
        graceful_shutdown_timeout_s: How long a stopping replica may finish its calls.
        health_check_period_s: How often the executor probes a replica.
        health_check_timeout_s: How long a silent replica counts as healthy; also how long a recovering controller waits for
            a discovered replica's report before it has it killed.
        start_timeout_s: How long a placed replica may take until it is ready.
        repeat_period_s: How long the core waits for an acknowledgement before it repeats a command.
        max_start_failures: Failures in one slot after which a version of which no replica was ever available counts as failed.
        start_backoff_s: Wait after a slot's first start failure; doubles with each further one. Who was ready is replaced at
            once the first time, and then likewise.
        start_backoff_max_s: The longest such wait.
        max_unavailable: How many replicas an update may take out of service at once, at least 1: a number, or a share of the
            target such as "25%", rounded down; None: "20%". 0 and "0%": none, which needs `hand_over="overlap"` (V3).
        max_surge: How many replacements an update may start before their predecessors have ended; a share is rounded up.
        surge_patience_s: How long an update waits for such a replacement to find a place; then it goes on as if it had none.
        scarcity_after_s: How long a rank may find no room until the replica with the highest rank moves there; None: for ever.
        node_memory_s: How long a lost, empty node is remembered.
        rollback: Whether a failed version is given up for the last spec that was ever healthy.
        config_rollout: How another user_config is sent: "rolling", to as many at a time as may be unavailable, or "at_once".
        min_ready_s: How long a replica has to be ready on its build until it counts as available, for the budget of updates and
            as a proof of the build.
        stable_after_s: A replica that was ready for so long clears the failures of its slot when it ends.
        restart_token: Another value replaces every replica once, as another version would; it proves and blames nothing (V10).
        update_order: Which ranks an update replaces first: "lowest_rank" or "highest_rank" (V11).
        partition: An update reaches only ranks from this one on (V12). Those below keep what they run, and are refilled with
            what was healthy last. Above N: no rank is updated. Where nothing was healthy yet, all ranks get the spec.
        progress_deadline_s: How long an update may go without any progress until it counts as stalled, and, with `rollback`,
            is given up for the last spec that was ever healthy (V9); None: for ever.
        hand_over: How far a replacement that `max_surge` allows is before its predecessor is stopped: "none": it has a place;
            "prepared": its user code is up, without a rank, and has been for `min_ready_s` (V4); "overlap": so it is, and takes
            requests without a rank, so that it counts as available, and goes on with them while it is told its rank (V3).
        config_id: Derived: the name of `user_config`.
        static_placement: Derived: which bundles each rank stands on; None: the deployment is not placed statically.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    __stored__ = True

    name: str
    target_replicas: int = attrs.field(default=None, converter=_target)
    user_config: FrozenJson = attrs.field(default=None, hash=False, eq=False)
    version: str = "1"
    compaction: CompactionPolicy = "when_healthy"
    victims: VictimPolicy = "any"
    placement: PlacementPolicy | StaticPlacement | None = None
    graceful_shutdown_timeout_s: float = 20.0
    health_check_period_s: float = 10.0
    health_check_timeout_s: float = 30.0
    start_timeout_s: float = 600.0
    repeat_period_s: float = 5.0
    max_start_failures: int = 3
    start_backoff_s: float = 1.0
    start_backoff_max_s: float = 64.0
    max_unavailable: Amount | None = None
    max_surge: Amount = 0
    rollback: bool = False
    surge_patience_s: float = attrs.field(default=30.0, metadata=since(5, 1))
    scarcity_after_s: float | None = attrs.field(default=60.0, metadata=since(5, 1))
    stable_after_s: float = attrs.field(default=600.0, metadata=since(5, 1))
    config_rollout: ConfigRollout = attrs.field(default="rolling", metadata=since(5, 1))
    min_ready_s: float = attrs.field(default=0.0, metadata=since(5, 1))
    node_memory_s: float = attrs.field(default=3600.0, metadata=since(5, 1))
    restart_token: str = attrs.field(default="", metadata=since(5, 1))
    update_order: UpdateOrder = attrs.field(default="lowest_rank", metadata=since(5, 1))
    partition: int = attrs.field(default=0, metadata=since(5, 1))
    progress_deadline_s: float | None = attrs.field(default=600.0, metadata=since(5, 1))
    hand_over: HandOver = attrs.field(default="none", metadata=since(5, 1))
    config_id: str = attrs.field(init=False)
    static_placement: StaticPlacement | None = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        static = self.placement if isinstance(self.placement, StaticPlacement) else None
        object.__setattr__(self, "static_placement", static)
        target: int | None = self.target_replicas
        if static is not None and target is None:
            object.__setattr__(self, "target_replicas", len(static))
        _check(self)
        if static is not None:
            _check_static(self, static)
        if self.user_config is None:
            object.__setattr__(self, "config_id", NO_CONFIG_ID)
            return
        try:
            config = freeze_json(self.user_config)
            config_id = config_id_of(config)
        except (TypeError, ValueError) as error:
            raise InvalidSpecError(self._path("user_config"), self.user_config, f"JSON-like data ({error})") from None
        except RecursionError:
            raise InvalidSpecError(self._path("user_config"), "a deeply nested value", "nested less deeply") from None
        object.__setattr__(self, "user_config", config)
        object.__setattr__(self, "config_id", config_id)

    @property
    def unavailable_max(self) -> int:
        """How many replicas an update may take out of service at once (section 2.3): 0 only where the spec says just that."""
        share = self.max_unavailable if self.max_unavailable is not None else A_FIFTH
        return 0 if share in NOTHING else max(1, rounded_down(share, self.target_replicas))

    @property
    def surge_max(self) -> int:
        """How many replacements an update may start early (section 2.3)."""
        return rounded_up(self.max_surge, self.target_replicas)

    @property
    def build(self) -> tuple[str, str]:
        """The version together with its configuration: what is proven by a replica that became ready on it."""
        return self.version, self.config_id

    @property
    def generation(self) -> tuple[str, str]:
        """Version and restart token: replicas of another generation are replaced (section 2.3)."""
        return self.version, self.restart_token

    def place_of(self, rank: int) -> Place:
        """Where a rank's replica belongs: placement group and bundles, or anywhere."""
        static = self.static_placement
        return static.place_of(rank) if static is not None else ANYWHERE

    def _path(self, field: str) -> str:
        return f"DeploymentSpec.{field}"


def _check(spec: DeploymentSpec) -> None:
    """One look decides for nearly all specs; what is unusual is looked at field by field, to find the words."""
    if not _is_usual(spec):
        _check_each(spec)


def _is_usual(spec: DeploymentSpec) -> bool:
    """Whether each field has the very type that is meant for it and is in range: then `_check_each` finds nothing."""
    token = spec.restart_token if spec.restart_token != "" else spec.version
    for text in (spec.name, spec.version, token):
        if type(text) is not str or not 0 < len(text) <= checks.NAME_LENGTH_MAX or not text.isprintable() or " " in text:
            return False
    unavailable = spec.max_unavailable
    if unavailable is None or is_share(unavailable) or (unavailable == 0 and type(unavailable) is int):
        unavailable = 1
    if spec.max_unavailable in NOTHING and spec.hand_over != "overlap":
        return False
    for count in (spec.max_start_failures, unavailable):
        if type(count) is not int or not 0 < count <= checks.COUNT_MAX:
            return False
    surge = 0 if is_share(spec.max_surge) else spec.max_surge
    for count in (spec.target_replicas, surge, spec.partition):
        if type(count) is not int or not 0 <= count <= checks.COUNT_MAX:
            return False
    for wait_s in _waits_of(spec):
        if type(wait_s) is not float or not 0.0 < wait_s <= checks.SECONDS_MAX:
            return False
    if type(spec.min_ready_s) is not float or not 0.0 <= spec.min_ready_s <= checks.SECONDS_MAX:
        return False
    if len(spec.name) > checks.DEPLOYMENT_LENGTH_MAX:
        return False
    after_s = spec.scarcity_after_s
    if after_s is not None and (type(after_s) is not float or not 0.0 <= after_s <= checks.SECONDS_MAX):
        return False
    deadline_s = spec.progress_deadline_s
    if deadline_s is not None and (type(deadline_s) is not float or not 0.0 < deadline_s <= checks.SECONDS_MAX):
        return False
    if spec.hand_over != "none" and spec.max_surge in NOTHING:
        return False
    return "#" not in spec.name and type(spec.rollback) is bool and _are_choices(spec)


def _are_choices(spec: DeploymentSpec) -> bool:
    placement = spec.placement if spec.static_placement is None else None
    return _is_choice("placement", placement) and all(_is_choice(field, getattr(spec, field)) for field in OTHER_CHOICES)


def _is_choice(field: str, value: object) -> bool:
    return type(value) in (str, NoneType) and value in CHOICES[field]


def _check_each(spec: DeploymentSpec) -> None:
    checks.identifier(InvalidSpecError, spec._path("name"), spec.name, checks.DEPLOYMENT_LENGTH_MAX)
    checks.identifier(InvalidSpecError, spec._path("version"), spec.version)
    if spec.restart_token != "":
        checks.identifier(InvalidSpecError, spec._path("restart_token"), spec.restart_token)
    if "#" in spec.name:
        raise InvalidSpecError(spec._path("name"), spec.name, "free of '#', which separates it from the serial in replica ids")
    for field, choices in CHOICES.items():
        value = getattr(spec, field)
        if field == "placement" and isinstance(value, StaticPlacement):
            continue
        if not _is_choice(field, value):
            allowed = "one of " + ", ".join(repr(choice) for choice in choices)
            raise InvalidSpecError(
                spec._path(field), value, allowed + (", or a StaticPlacement" if field == "placement" else "")
            )
    for field, path, least in _COUNTS:
        value = getattr(spec, field)
        if field in SHARES and type(value) is str:
            _check_share(path, value)
        elif value is not None or field != "max_unavailable":
            checks.count(InvalidSpecError, path, value, least)
    if spec.max_unavailable in NOTHING and spec.hand_over != "overlap":
        allowed = "at least 1, or '1%', unless hand_over='overlap': a predecessor that drains is out of service"
        raise InvalidSpecError(spec._path("max_unavailable"), spec.max_unavailable, allowed)
    if spec.hand_over != "none" and spec.max_surge in NOTHING:
        allowed = "'none' with max_surge=0: nobody is started before its predecessor has ended"
        raise InvalidSpecError(spec._path("hand_over"), spec.hand_over, allowed)
    checks.flag(InvalidSpecError, "DeploymentSpec.rollback", spec.rollback)
    checks.seconds(InvalidSpecError, "DeploymentSpec.graceful_shutdown_timeout_s", spec.graceful_shutdown_timeout_s)
    if spec.scarcity_after_s is not None:
        checks.seconds(InvalidSpecError, "DeploymentSpec.scarcity_after_s", spec.scarcity_after_s)
    if spec.progress_deadline_s is not None:
        checks.seconds(InvalidSpecError, "DeploymentSpec.progress_deadline_s", spec.progress_deadline_s, above=0.0)
    checks.seconds(InvalidSpecError, "DeploymentSpec.min_ready_s", spec.min_ready_s)
    for field, path in _POSITIVE_SECONDS:
        checks.seconds(InvalidSpecError, path, getattr(spec, field), above=0.0)


def _check_share(path: str, value: str) -> None:
    if not is_share(value):
        raise InvalidSpecError(path, value, "an integer, or a number of percent of the target from '0%' to '100%'")


def _check_static(spec: DeploymentSpec, static: StaticPlacement) -> None:
    """What cannot be had together with a static placement, and why (S1)."""
    group = static.group_shown
    if spec.target_replicas != len(static):
        allowed = f"{len(static)}, the number of ranks that have bundles in {group}, or left out"
        raise InvalidSpecError(spec._path("target_replicas"), spec.target_replicas, allowed)
    if spec.max_surge not in NOTHING:
        allowed = f"0 with a static placement: a replacement has to wait for its predecessor's bundles in {group}"
        raise InvalidSpecError(spec._path("max_surge"), spec.max_surge, allowed)
    if spec.compaction != "when_healthy":
        allowed = f"'when_healthy' with a static placement: ranks are bound to bundles in {group}, and never move"
        raise InvalidSpecError(spec._path("compaction"), spec.compaction, allowed)


SHARES = ("max_unavailable", "max_surge")
NOTHING = (0, "0%")
_COUNTS = (
    ("target_replicas", "DeploymentSpec.target_replicas", 0),
    ("max_start_failures", "DeploymentSpec.max_start_failures", 1),
    ("max_surge", "DeploymentSpec.max_surge", 0),
    ("partition", "DeploymentSpec.partition", 0),
    ("max_unavailable", "DeploymentSpec.max_unavailable", 0),
)
_POSITIVE_SECONDS = tuple(
    (field, f"DeploymentSpec.{field}")
    for field in (
        "health_check_period_s",
        "health_check_timeout_s",
        "start_timeout_s",
        "repeat_period_s",
        "start_backoff_s",
        "start_backoff_max_s",
        "surge_patience_s",
        "stable_after_s",
        "node_memory_s",
    )
)
"""Fields with their names as errors have them: a spec is made at every change, and its name hardly ever told."""
_waits_of = attrgetter("graceful_shutdown_timeout_s", *(field for field, _ in _POSITIVE_SECONDS))
