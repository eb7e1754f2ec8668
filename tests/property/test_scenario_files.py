"""Whatever a scenario file holds: a scenario, or one line that says where and why not. The schema takes what is valid."""

import copy
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest
import yaml
from hypothesis import assume, event, given
from hypothesis import strategies as st

from executors.simulator.fields import PERIOD_MIN_S, FieldProblem
from executors.simulator.scenario import Scenario, ScenarioError, load_scenario, parse_scenario
from executors.simulator.scenario.schema import scenario_schema
from executors.simulator.scenario.spec_fields import SPEC_ATTRIBUTES, SPEC_CHECKS
from executors.simulator.scenario.structuring import structure_scenario
from rankcore import DeploymentSpec
from rankcore.errors import InvalidSpecError
from tests.property.scenario_data import JSON, NAMES, scenarios

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXTS = {path.name: path.read_bytes() for path in sorted(EXAMPLES.glob("*.yaml"))}
VALIDATOR = jsonschema.Draft202012Validator(scenario_schema())
LINE = re.compile(r"s\.yaml:([0-9]+)\)$")
# Texts that YAML and Python have stumbled over.
JUNK = (
    JSON
    | NAMES
    | st.text(max_size=20)
    | st.sampled_from([0, -1, 10**18, 1.5, -0.0, 1e308, "\x00", "a" * 10_000, "busiest_minute", "é\u2028\x85", "*x", [], {}])
)


def as_yaml(data: Any) -> str:
    """JSON is YAML too, and with its line breaks each value has a line of its own."""
    return json.dumps(data, indent=1, ensure_ascii=False)


def read(text: str) -> Scenario | str:
    """The scenario, or the error, which has been looked at."""
    try:
        return parse_scenario(text, "s.yaml")
    except ScenarioError as error:
        return looked_at(str(error), text)


def looked_at(message: str, text: str) -> str:
    """One line that names a line within the text."""
    assert message.isprintable()
    assert len(message) < 5_000
    found = LINE.search(message)
    if found is None:  # of a file that the scenario names
        assert ".csv" in message
    else:
        assert 1 <= int(found[1]) <= len(re.split("\r\n|\r|\n", text))
    return message


def places(data: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


@given(scenarios())
def test_the_schema_takes_every_valid_scenario(data):
    found = read(as_yaml(data))
    event("valid" if isinstance(found, Scenario) else found.partition(" (")[0])
    assume(isinstance(found, Scenario))
    VALIDATOR.validate(data)


@given(scenarios(), st.data())
def test_a_changed_scenario_is_read_or_refused_in_one_line(data, draw):
    changed = copy.deepcopy(data)
    for _ in range(draw.draw(st.integers(1, 3), label="how many changes")):
        path = draw.draw(st.sampled_from(places(changed)), label="where")
        changed = _changed(changed, path, draw)
    text = as_yaml(changed)
    found = read(text)
    if isinstance(found, Scenario):
        VALIDATOR.validate(changed)


def _changed(data: Any, path: tuple[str | int, ...], draw: st.DataObject) -> Any:
    if not path:
        return draw.draw(JUNK, label="all of it")
    *outer, last = path
    around = data
    for key in outer:
        around = around[key]
    match draw.draw(st.sampled_from(["replace", "remove", "rename", "repeat"]), label="how"):
        case "remove":
            del around[last]
        case "rename" if isinstance(around, dict):
            around[str(last)[1:] + draw.draw(st.sampled_from(["", "s", "x y"]))] = around.pop(last)
        case "repeat" if isinstance(around, list):
            around.append(around[last])
        case _:
            around[last] = draw.draw(JUNK, label="by")
    return data


@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_a_damaged_file_is_read_or_refused_in_one_line(name, draw):
    raw = bytearray(TEXTS[name])
    for _ in range(draw.draw(st.integers(1, 4), label="how many damages")):
        begin = draw.draw(st.integers(0, len(raw)), label="at")
        length = draw.draw(st.sampled_from([0, 1, 2, 30]), label="so much of it")
        pieces = [
            b":",
            b"- ",
            b"\t",
            b"&a ",
            b"*a",
            b"<<: ",
            b"{",
            b"]",
            b'"',
            b"'",
            b"\n",
            b"#",
            b"!",
            b"|",
            b"%",
            b"---\n",
            b"0",
        ]
        piece = draw.draw(st.sampled_from(pieces) | st.binary(max_size=4), label="replaced by")
        raw[begin : begin + length] = piece * draw.draw(st.sampled_from([1, 1, 50]), label="times")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.yaml")
        path.write_bytes(raw)
        try:
            load_scenario(path)
        except ScenarioError as error:
            looked_at(str(error), raw.decode("utf-8", "replace"))


@given(st.text(max_size=60))
def test_any_text_at_all_is_refused_in_one_line(text):
    assert isinstance(read(text), str)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_schema_takes_every_shipped_example(name):
    # As JSON, which knows no keys but text: so does an editor that holds a file to the schema.
    VALIDATOR.validate(json.loads(json.dumps(yaml.safe_load(TEXTS[name]))))


def test_the_schema_is_one_and_the_same_whenever_it_is_made():
    jsonschema.Draft202012Validator.check_schema(scenario_schema())
    assert json.dumps(scenario_schema()) == json.dumps(scenario_schema())


GOOD: dict[str, Any] = {
    "nodes": [{"name": "n", "count": 2, "gpus": 8}],
    "network": {"latency_s": {"uniform": {"low": 0, "high": 1}}, "loss": 0.1},
    "deployments": [
        {"name": "llm", "target_replicas": 4, "requests": {"poisson": {"rate_per_s": 1, "for_s": 9, "service_s": 1}}}
    ],
    "faults": [{"kind": "node_loss", "at": 3, "node": "n-0"}],
    "fault_rates": [{"kind": "replica_crash", "deployment": "llm", "mtbf_s": 9}],
    "changes": [{"at": 5, "deployment": "llm", "target_replicas": 3}],
    "placement_groups": [{"name": "pg", "bundles": [{"nodes": "n", "count": 2}]}],
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("sead",), 1),
        (("nodes", 0, "gpu"), 1),
        (("deployments", 0, "targt"), 1),
        (("faults", 0, "nodee"), "n-0"),
        (("changes", 0, "name"), "x"),
        (("network", "lag"), 1),
        (("deployments", 0, "requests", "poisson", "x"), 1),
        (("deployments", 0, "requests", "poison"), {}),
        (("seed",), "1"),
        (("seed",), -1),
        (("seed",), 1.5),
        (("seed",), True),
        (("nodes",), {}),
        (("nodes", 0), "n"),
        (("nodes", 0, "gpus"), 0),
        (("nodes", 0, "name"), ""),
        (("nodes", 0, "name"), " n"),
        (("deployments", 0, "name"), "a#b"),
        (("deployments", 0, "target_replicas"), "four"),
        (("deployments", 0, "target_replicas"), None),
        (("deployments", 0, "target_replicas"), 10**9),
        (("deployments", 0, "version"), 2),
        (("deployments", 0, "compaction"), "never"),
        (("deployments", 0, "rollback"), "yes"),
        (("deployments", 0, "max_unavailable"), -1),
        (("deployments", 0, "init_s"), -1),
        (("deployments", 0, "init_s"), {"gauss": {"mean": 1}}),
        (("deployments", 0, "init_s"), {"uniform": {"low": 1}}),
        (("deployments", 0, "init_s"), {"uniform": {"low": 1, "high": 2}, "gamma": {"mean": 1, "shape": 1}}),
        (("deployments", 0, "init_s"), {"empirical": []}),
        (("network", "loss"), 1),
        (("faults", 0, "kind"), "fire"),
        (("faults", 0, "at"), "noon"),
        (("faults", 0, "back_after_s"), 0),
        (("fault_rates", 0, "kind"), "slow_start"),
        (("changes", 0, "delete"), 1),
        (("changes", 0, "target_replicas"), -1),
        (("deployments", 0, "placement"), "spread"),
        (("deployments", 0, "placement"), {}),
        (("deployments", 0, "placement"), {"group": "pg"}),
        (("deployments", 0, "placement"), {"group": "pg", "bundles": [[0]], "ranks": 1}),
        (("deployments", 0, "placement"), {"group": "pg", "bundles": {"a": [0]}}),
        (("deployments", 0, "placement"), {"group": "pg", "bundles": [[]]}),
        (("deployments", 0, "placement"), {"group": "pg", "bundles": 3}),
        (("placement_groups", 0, "bundles", 0, "count"), 0),
        (("placement_groups", 0, "bundles", 0, "gpu"), 1),
        (("placement_groups", 0, "name"), None),
    ],
)
def test_what_the_reader_refuses_in_one_value_the_schema_refuses_too(path, value):
    data = copy.deepcopy(GOOD)
    structure_scenario(data)
    VALIDATOR.validate(data)
    around: Any = data
    for key in path[:-1]:
        around = around[key]
    around[path[-1]] = value
    assert isinstance(read(as_yaml(data)), str)
    assert list(VALIDATOR.iter_errors(data))


@pytest.mark.parametrize(
    "path", [("nodes",), ("deployments",), ("deployments", 0, "name"), ("faults", 0, "at"), ("faults", 0, "kind")]
)
def test_what_must_be_there_must_be_there_for_both(path):
    data = copy.deepcopy(GOOD)
    around: Any = data
    for key in path[:-1]:
        around = around[key]
    del around[path[-1]]
    assert isinstance(read(as_yaml(data)), str)
    assert list(VALIDATOR.iter_errors(data))


PERIODS = ("health_check_period_s", "repeat_period_s", "start_backoff_s", "start_backoff_max_s")
"""What a simulation takes no shorter ones of, lest it never ends; a real cluster has a clock that goes on by itself."""


def test_the_table_of_spec_fields_is_whole():
    assert list(SPEC_CHECKS) == [field.name for field in attrs.fields(DeploymentSpec) if field.init]


@given(
    st.sampled_from(sorted(SPEC_CHECKS)), JUNK | st.floats() | st.integers() | st.sampled_from(["any", "newest", "pack_ranks"])
)
def test_the_table_of_spec_fields_says_what_the_spec_takes(field, value):
    check = SPEC_CHECKS[field]
    assume(check is not None)
    assume(not (field == "placement" and isinstance(value, dict)))  # which a scenario makes a StaticPlacement of
    spec = {"name": "llm", "target_replicas": 2, field: value}
    try:
        DeploymentSpec(**spec)
        taken = True
    except InvalidSpecError:
        taken = False
    try:
        check(None, SPEC_ATTRIBUTES[field], value)
        allowed = True
    except FieldProblem:
        allowed = False
    too_often = field in PERIODS and taken and not value >= PERIOD_MIN_S
    assert allowed == (taken and not too_often)
