"""Whose faults the nodes of a scenario have, of a trace of another number of nodes (W7)."""

import statistics
from array import array
from pathlib import Path

import attrs
import pytest

from executors.simulator.faults.node_trace import DOWN, UP, NodeTrace
from executors.simulator.faults.population import drawn
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario import Scenario, load_scenario
from executors.simulator.streams import Streams

DATA = Path(__file__).parents[2] / "examples" / "data" / "gpu_node_faults_days_000_240.csv"
SCENARIO = """\
nodes:
  - {name: n, count: COUNT, gpus: 8}
deployments:
  - {name: llm, target_replicas: 1}
fault_trace:
  {file: FILE, cluster_size: 400, node_column: node_id, time_column: event_time, event_column: event_type, down: fault_start,
   up: fault_end, time_unit: days, begin: 100, end: 160OPTIONS}
"""


def loaded(folder: Path, nodes: int, options: str = "") -> Scenario:
    text = SCENARIO.replace("COUNT", str(nodes)).replace("FILE", str(DATA)).replace("OPTIONS", options)
    (folder / "s.yaml").write_text(text)
    return load_scenario(folder / "s.yaml")


def events_of(scenario: Scenario) -> NodeTrace:
    assert scenario.fault_trace is not None
    assert scenario.fault_trace.events is not None
    return scenario.fault_trace.events


def begun(trace: NodeTrace, seed: int) -> int:
    """Faults that begin within the window; those under way at its begin have the time 0."""
    found = drawn(trace, Streams(seed).of("faults.map"))
    return sum(1 for at_s, change in zip(found.at_s, found.change, strict=True) if change == DOWN and at_s > 0.0)


def test_fifty_nodes_have_an_eighth_of_the_faults_of_four_hundred(tmp_path):
    trace = events_of(loaded(tmp_path, 50))
    counts = [begun(trace, seed) for seed in range(200)]
    error = statistics.stdev(counts) / len(counts) ** 0.5
    assert abs(statistics.mean(counts) - 117 * 50 / 400) <= 3 * error, (statistics.mean(counts), error)
    assert len(set(counts)) > 5


def test_as_many_nodes_as_were_recorded_have_each_fault_once(tmp_path):
    trace = events_of(loaded(tmp_path, 400))
    assert {begun(trace, seed) for seed in range(20)} == {117}


def test_more_nodes_are_copies_whose_faults_come_at_other_times(tmp_path):
    trace = events_of(loaded(tmp_path, 800, ", replicate: true"))
    found = drawn(trace, Streams(3).of("faults.map"))
    assert list(found.at_s) == sorted(found.at_s)
    assert trace.window_s == 60 * 86_400.0
    assert min(found.at_s) >= 0.0
    assert max(found.at_s) <= trace.window_s
    of_copy = [(at_s, change) for at_s, node, change in zip(found.at_s, found.node, found.change, strict=True) if node >= 400]
    instants = {at_s for at_s in trace.at_s if at_s > 0.0}
    assert not instants & {at_s for at_s, _ in of_copy}
    # As long down as the originals: what goes over the end of the window comes back at its begin.
    originals = [(at_s, change) for at_s, node, change in zip(found.at_s, found.node, found.change, strict=True) if node < 400]
    assert down_s(of_copy, trace.window_s) == pytest.approx(down_s(originals, trace.window_s))


def down_s(events: list[tuple[float, int]], window_s: float) -> float:
    return sum((window_s - at_s) * change for at_s, change in events)


def test_nobody_is_up_more_often_than_down():
    trace = NodeTrace(
        tuple("abcdef"),
        at_s=array("d", [1, 2, 3, 8, 9]),
        node=array("l", [0, 0, 0, 1, 0]),
        change=array("b", [DOWN, DOWN, UP, DOWN, UP]),
        population=2,
        window_s=10.0,
    )
    for seed in range(50):
        found = drawn(trace, Streams(seed).of("faults.map"))
        under_way = dict.fromkeys(range(6), 0)
        for node, change in zip(found.node, found.change, strict=True):
            under_way[node] += change
            assert under_way[node] >= 0


def test_a_run_whose_nodes_never_fail_is_a_run(tmp_path):
    scenario = loaded(tmp_path, 1)
    trace = events_of(scenario)
    seed = next(seed for seed in range(100) if not len(drawn(trace, Streams(seed).of("faults.map"))))
    result = Run(attrs.evolve(scenario, seed=seed, duration_s=10.0), {"llm": Arrivals()}).go()
    assert result.failure is None
    assert not result.outages


def test_a_trace_of_no_population_is_what_it_is():
    trace = NodeTrace(("a",), at_s=array("d", [1]), node=array("l", [0]), change=array("b", [DOWN]))
    assert drawn(trace, Streams(1).of("faults.map")) is trace
