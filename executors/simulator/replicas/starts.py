"""What is wrong with starts at the moment: they fail, or are slow."""

import math

import attrs

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


class StartTroubles:
    """Of all deployments."""

    def __init__(self) -> None:
        self._failing: list[_Failing] = []
        self._slow: list[_Slow] = []

    def fail(self, deployment: str, node_id: NodeId | None, count: int | None, until: float) -> None:
        """The next `count` start-ups (None: all) that begin before `until` fail."""
        self._failing.append(_Failing(deployment, node_id, until, math.inf if count is None else count))

    def slow_down(self, deployment: str | None, node_id: NodeId | None, factor: float, until: float) -> None:
        """Starts take `factor` times as long, on top of what slows them down already."""
        self._slow.append(_Slow(deployment, node_id, until, factor))

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
