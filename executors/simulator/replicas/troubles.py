"""What is wrong with user code at the moment: starts fail, or are slow; what has come up dies; a user_config is refused."""

import math

import attrs

from rankcore.frozen import FrozenDict, FrozenJson  # noqa: F401 - FrozenDict: for whoever evaluates FrozenJson
from rankcore.values import NodeId


@attrs.define
class _Trouble:
    """Attributes: `deployment`, `node_id`: whom it concerns, None: all; `until`: when it is over."""

    deployment: str | None
    node_id: NodeId | None
    until: float

    def concerns(self, deployment: str, node_id: NodeId, now: float) -> bool:
        return now < self.until and self.deployment in (None, deployment) and self.node_id in (None, node_id)


@attrs.define
class _Failing(_Trouble):
    left: float


@attrs.define
class _Slow(_Trouble):
    factor: float


@attrs.define
class _Dying(_Trouble):
    version: str | None
    after_s: float


@attrs.define
class _Refusing(_Trouble):
    user_config: FrozenJson


class Troubles:
    """Of all deployments."""

    def __init__(self) -> None:
        self._dying: list[_Dying] = []
        self._refusing: list[_Refusing] = []
        self._failing: list[_Failing] = []
        self._slow: list[_Slow] = []

    def fail(self, deployment: str, node_id: NodeId | None, count: int | None, until: float) -> None:
        """The next `count` start-ups (None: all) that begin before `until` fail."""
        self._failing.append(_Failing(deployment, node_id, until, math.inf if count is None else count))

    def slow_down(self, deployment: str | None, node_id: NodeId | None, factor: float, until: float) -> None:
        """Starts take `factor` times as long, on top of what slows them down already."""
        self._slow.append(_Slow(deployment, node_id, until, factor))

    def die_after(self, deployment: str, version: str | None, after_s: float, until: float) -> None:
        """Who becomes ready before `until`, with this version (None: any), dies so long after that."""
        self._dying.append(_Dying(deployment, None, until, version, after_s))

    def refuse(self, deployment: str, user_config: FrozenJson, until: float) -> None:
        """The user's `reconfigure` raises for this user_config, if it is called before `until`."""
        self._refusing.append(_Refusing(deployment, None, until, user_config))

    def dies_after_s(self, deployment: str, node_id: NodeId, version: str, now: float) -> float | None:
        """How long somebody lives who becomes ready now; None: no trouble ends it."""
        dying = [each for each in self._dying if each.concerns(deployment, node_id, now)]
        return min((each.after_s for each in dying if each.version in (None, version)), default=None)

    def refuses(self, deployment: str, node_id: NodeId, user_config: FrozenJson, now: float) -> bool:
        """Whether `reconfigure` raises for this user_config."""
        refusing = (each for each in self._refusing if each.concerns(deployment, node_id, now))
        return any(each.user_config == user_config for each in refusing)

    def begins_to_fail(self, deployment: str, node_id: NodeId, now: float) -> bool:
        """Whether a start-up that begins now is one of those that fail; it counts as one."""
        self._failing = [each for each in self._failing if now < each.until and each.left > 0]
        for each in self._failing:
            if each.concerns(deployment, node_id, now):
                each.left -= 1
                return True
        return False

    def factor(self, deployment: str, node_id: NodeId, now: float) -> float:
        """How many times as long a start takes that begins now."""
        return math.prod(each.factor for each in self._slow if each.concerns(deployment, node_id, now))
