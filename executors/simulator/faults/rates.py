"""Faults that come again and again, at a mean time between failures."""

from collections.abc import Callable

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.fields import PERIOD_MIN_S
from executors.simulator.scenario.faults import (
    ControllerCrash,
    Fault,
    FaultRate,
    NodeLoss,
    NodePartition,
    ReplicaCrash,
    ReplicaHang,
)
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.moments import Moment
from executors.simulator.streams import Streams

REPAIR_MIN_S = PERIOD_MIN_S
"""A repair takes at least so long: what is over at the instant at which it began could not be told in order."""


@attrs.define(eq=False)
class Unit:
    """What breaks and is repaired, on its own: a node, a rank, or the controller.

    Attributes:
        target: Node id, or rank.
        end_s: No fault of it begins later.
        purpose: Names its stream, so that neither another unit nor another rate changes when it breaks.
        lives: How often it has begun to work.
    """

    rate: FaultRate
    target: str | int
    end_s: float
    purpose: tuple[str, ...]
    lives: int = 0


class FaultRates:
    """Lets each unit break and be repaired in turn.

    Args:
        strike: Called with each fault when it comes.
        last_arrival: When the last request comes.

    Attributes:
        end_s: When the last rate ends.
    """

    def __init__(
        self, scenario: Scenario, loop: EventLoop, streams: Streams, strike: Callable[[Fault], None], last_arrival: float
    ) -> None:
        self.end_s = 0.0
        self._loop = loop
        self._streams = streams
        self._strike_with = strike
        alike: dict[tuple[str, str | None, str | None], int] = {}
        for rate in scenario.fault_rates:
            end_s = scenario.end_of_rate(rate, last_arrival)
            self.end_s = max(self.end_s, end_s)
            # Named by what it says, not by its place in the file: a rate more, or one less, leaves the others alone.
            key = (rate.kind, rate.deployment, rate.nodes)
            number = alike[key] = alike.get(key, -1) + 1
            for target in scenario.targets_of(rate):
                whose = rate.deployment or ""
                purpose = ("fault_rate", rate.kind, str(number), whose, str(target))
                self._go_on(Unit(rate, target, end_s, purpose), rate.begin_s)

    def _go_on(self, unit: Unit, works_from: float) -> None:
        unit.lives += 1
        stream = self._streams.once(*unit.purpose, str(unit.lives))  # not kept: there may be many units
        breaks_at = works_from + unit.rate.mtbf_s.sample(stream)
        if breaks_at < unit.end_s:
            mttr_s = unit.rate.mttr_s
            repair_s = max(mttr_s.sample(stream), REPAIR_MIN_S) if mttr_s is not None else None
            self._loop.at(breaks_at, self._break, unit, repair_s)

    def _break(self, unit: Unit, repair_s: float | None) -> None:
        now = self._loop.now
        self._go_on(unit, now + (repair_s or REPAIR_MIN_S))
        self._strike_with(_fault(unit.rate, unit.target, Moment(offset_s=now), repair_s))


def _fault(rate: FaultRate, target: str | int, at: Moment, repair_s: float | None) -> Fault:
    match rate.kind:
        case "node_loss":
            return NodeLoss(at=at, node=str(target), back_after_s=repair_s)
        case "node_partition":
            return NodePartition(at=at, node=str(target), for_s=repair_s)
        case "replica_crash":
            return ReplicaCrash(at=at, deployment=str(rate.deployment), rank=int(target))
        case "replica_hang":
            return ReplicaHang(at=at, deployment=str(rate.deployment), rank=int(target), for_s=repair_s)
        case _:
            return ControllerCrash(at=at, restart_after_s=repair_s or REPAIR_MIN_S)
