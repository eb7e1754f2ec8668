"""Whose faults the nodes of a scenario have, where a trace is of a larger cluster, or of a smaller one.

What: a trace names only the nodes that failed, out of a population of N. If the first ones named were taken, a small scenario
would have none of the nodes that never fail, and several times the faults of the real cluster. So each node of the scenario is
given a unit of the N, without replacement: the mean number of faults per node is that of the population, and with N nodes each
fault happens exactly once. Units that the trace never names have no faults.

More nodes than N: each further N are a copy of the population whose faults come at other times, shifted around the end of the
window by an offset of its own, so that copies do not fail at the same instant.

What it costs: one draw per node and one pass over the events. The stream is `faults.map` alone: no other draw of a run shifts.
"""

import random
from array import array
from collections import deque
from collections.abc import Iterator

import attrs

from executors.simulator.faults.node_trace import DOWN, UP, NodeTrace


def drawn(trace: NodeTrace, stream: random.Random) -> NodeTrace:
    """The trace of the scenario's nodes, of one of its population; any other is what it is."""
    if trace.population is None:
        return trace
    units, nodes = trace.population, len(trace.node_ids)
    events: list[tuple[float, int, int]] = []
    for first in range(0, nodes, units):
        chosen = stream.sample(range(units), min(units, nodes - first))
        node_of = {unit: first + place for place, unit in enumerate(chosen)}
        found = _lines(trace) if first == 0 else _shifted(trace, stream.uniform(0.0, trace.window_s))
        events.extend((at_s, node_of[unit], change) for at_s, unit, change in found if unit in node_of)
    if nodes > units:
        events.sort(key=lambda event: event[0])  # stable: of one instant, as they stand in the file
    at_s, node, change = zip(*events, strict=True) if events else ((), (), ())
    return attrs.evolve(trace, at_s=array("d", at_s), node=array("l", node), change=array("b", change), population=None)


def _lines(trace: NodeTrace) -> Iterator[tuple[float, int, int]]:
    return zip(trace.at_s, trace.node, trace.change, strict=True)


def _shifted(trace: NodeTrace, offset_s: float) -> Iterator[tuple[float, int, int]]:
    """The same faults later, and those that would begin after the window at its beginning."""
    under_way: dict[int, deque[float]] = {}
    for at_s, unit, change in _lines(trace):
        if change == DOWN:
            under_way.setdefault(unit, deque()).append(at_s)
        else:
            yield from _fault(unit, under_way[unit].popleft() + offset_s, at_s + offset_s, trace.window_s)
    for unit, begins in under_way.items():
        for begin_s in begins:
            yield from _fault(unit, begin_s + offset_s, trace.window_s + offset_s, trace.window_s)


def _fault(unit: int, begin_s: float, end_s: float, window_s: float) -> Iterator[tuple[float, int, int]]:
    """A fault on a clock that begins anew after `window_s`: one at its end and one at its begin, where it lasts over that."""
    if begin_s >= window_s:
        begin_s, end_s = begin_s - window_s, end_s - window_s
    if end_s >= window_s:
        yield begin_s, unit, DOWN
        begin_s, end_s = 0.0, end_s - window_s
        if end_s <= 0.0:
            return
    yield begin_s, unit, DOWN
    yield end_s, unit, UP
