"""A trace of node faults is read onto the scenario's nodes, line by line, and refused where it is wrong."""

import os
from pathlib import Path

import pytest

from executors.simulator.faults.node_trace import DOWN, UP, NodeTrace, NodeTraceForm, read_node_trace
from executors.simulator.load.table import Reading
from executors.simulator.scenario import ScenarioError, load_scenario

SCENARIO = """\
nodes:
  - {name: n, count: 2, gpus: 8}
deployments:
  - {name: llm, target_replicas: 4}
fault_trace: {file: trace.csv, OPTIONS}
"""


def of_a_population(options: str) -> str:
    return options if "map:" in options else f"{options}, cluster_size: 9, map: first"


def load(folder: Path, rows: str, options: str = "time_unit: seconds", header: str = "time,event,node\n") -> NodeTrace:
    (folder / "trace.csv").write_bytes((header + rows).encode("latin-1"))
    (folder / "s.yaml").write_text(SCENARIO.replace("OPTIONS", of_a_population(options)))
    trace = load_scenario(folder / "s.yaml").fault_trace
    assert trace is not None
    assert trace.events is not None
    return trace.events


def lines(trace: NodeTrace) -> list[tuple[float, str, int]]:
    return [
        (at_s, trace.node_ids[node], change) for at_s, node, change in zip(trace.at_s, trace.node, trace.change, strict=True)
    ]


def test_nodes_stand_for_those_of_the_scenario_in_the_order_in_which_they_appear(tmp_path):
    trace = load(tmp_path, "1,down,b\n2,down,a\n3,down,c\n4,up,b\n5,up,c\n")
    assert lines(trace) == [(1, "n-0", DOWN), (2, "n-1", DOWN), (4, "n-0", UP)]
    assert trace.left_out == 1
    assert not trace.down_at_first


def test_nodes_are_those_of_the_same_name_if_asked_for(tmp_path):
    trace = load(tmp_path, "1,down,n-1\n2,down,x\n", "map: by_name")
    assert lines(trace) == [(1, "n-1", DOWN)]
    assert trace.left_out == 1


def test_added_nodes_take_the_first_slot_that_is_free(tmp_path):
    options = "map: slots, up: add, down: remove"
    trace = load(tmp_path, "0,add,a\n1,add,b\n2,add,c\n3,remove,a\n3,remove,c\n4,add,d\n", options)
    assert trace.down_at_first
    assert lines(trace) == [(0, "n-0", UP), (1, "n-1", UP), (3, "n-0", DOWN), (4, "n-0", UP)]
    assert trace.left_out == 1


def test_who_is_down_when_the_window_begins_is_so_in_the_run(tmp_path):
    rows = "1,down,a\n2,up,a\n3,down,b\n4,down,c\n5,down,c\n10,up,c\n11,up,c\n12,down,a\n"
    trace = load(tmp_path, rows, "begin: 10, end: 12, time_unit: minutes")
    assert lines(trace) == [(0, "n-0", DOWN), (0, "n-1", DOWN), (0, "n-1", DOWN), (0, "n-1", UP), (60, "n-1", UP)]


def test_who_was_added_before_the_window_is_there_when_it_begins(tmp_path):
    trace = load(tmp_path, "1,add,a\n2,add,b\n3,remove,a\n6,remove,b\n", "map: slots, up: add, down: remove, begin: 5")
    assert lines(trace) == [(0, "n-0", UP), (1, "n-0", DOWN)]


def test_the_end_of_a_fault_whose_beginning_is_not_there_says_nothing(tmp_path):
    assert lines(load(tmp_path, "1,up,a\n2,down,a\n2,up,a\n")) == [(2, "n-0", DOWN), (2, "n-0", UP)]


def test_a_line_beyond_the_window_is_not_even_read(tmp_path):
    assert len(load(tmp_path, "1,down,a\n9,down,b\nnonsense\n", "end: 9, sort: refuse")) == 1


@pytest.mark.parametrize(
    ("rows", "options", "problem"),
    [
        ("", "", "trace.csv: expected at least one node fault, found none"),
        ("1,down,a\n0.5,up,a\n", "sort: refuse", "trace.csv:3: time: expected times that ascend, found one 0.5 s back"),
        ("soon,down,a\n", "", 'trace.csv:2: time: expected a number of time_unit, from 0 to 1e+12, found "soon"'),
        ("-1,down,a\n", "", "trace.csv:2: time: expected a number of time_unit, from 0"),
        ("nan,down,a\n", "", "trace.csv:2: time: expected a number of time_unit, from 0"),
        ("20000,down,a\n", "time_unit: days", "trace.csv:2: time: expected a trace of at most 1e+09 s"),
        ("1,gone,a\n", "", 'trace.csv:2: event: expected "down" or "up", found "gone"'),
        ("1,down\n", "", "trace.csv:2: expected 3 columns or more, found 2"),
        ("1,down, \n", "", "trace.csv:2: node: expected the name of a node, found "),
        ('1,down,"a\n', "", "trace.csv:"),
        ("1,down,\xff\n", "", "trace.csv:2: expected a CSV file in UTF-8"),
        ("1,down," + 200_000 * "a", "", "trace.csv:2: expected lines of at most 100000 bytes"),
        ("1,down,a\n", "time_column: when", 'trace.csv:1: expected a column "when", found no such column'),
        (
            "1,down,a\n2,down,b\n3,down,c\n",
            "map: first, cluster_size: 2",
            "trace.csv:4: node: expected the names of at most 2 nodes",
        ),
        ("1,up,a\n1,up,a\n", "map: slots", "trace.csv:3: node: expected a node that is not there yet"),
        ("1,down,a\n", "map: slots", "trace.csv:2: node: expected a node that was added before"),
    ],
)
def test_what_cannot_be_used_is_refused_with_file_and_line(tmp_path, rows, options, problem):
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path, rows, options or "time_unit: seconds")
    message = str(caught.value)
    assert message.startswith("fault_trace.file: ")
    assert problem in message
    assert "\n" not in message


@pytest.mark.parametrize("file", ["missing.csv", "."])
def test_a_trace_that_cannot_be_opened_is_refused(tmp_path, file):
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("OPTIONS", "map: by_name").replace("trace.csv", file))
    with pytest.raises(ScenarioError, match=r"fault_trace\.file: .*: cannot be read: "):
        load_scenario(tmp_path / "s.yaml")


def test_an_endless_line_is_refused_before_it_is_in_memory(tmp_path):
    (tmp_path / "t.csv").touch()
    os.truncate(tmp_path / "t.csv", 1 << 40)  # a hole
    form = NodeTraceForm(
        reading=Reading(time="time", origin=0.0, ahead=True),
        node_column="node",
        event_column="event",
        down="down",
        up="up",
        window_s=None,
        map="first",
        cluster_size=9,
    )
    with pytest.raises(ValueError, match="expected lines of at most"):
        read_node_trace(tmp_path / "t.csv", form, ("n",))


def test_a_trace_in_a_named_pipe_is_refused_without_waiting_for_somebody_to_write_to_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("trace.csv, OPTIONS", "pipe, map: by_name"))
    with pytest.raises(
        ScenarioError, match=r"fault_trace.file: .*pipe: cannot be read: expected a regular file, found a named pipe"
    ):
        load_scenario(tmp_path / "s.yaml")


def test_a_time_that_only_python_takes_for_a_number_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match='time: expected a number of time_unit, from 0 to 1e\\+12, found "1_0"'):
        load(tmp_path, "1_0,down,a\n")
