"""A scenario that cannot be used is refused with one line: where, what was found, what is allowed."""

from pathlib import Path

import pytest

from executors.simulator.scenario import ScenarioError, load_scenario, parse_scenario
from executors.simulator.scenario.loading import load_arrivals

GOOD = """\
nodes:
  - {name: n, count: 2, gpus: 8}
deployments:
  - name: llm
    target_replicas: 4
"""
TRACE = "    requests: {trace: {file: trace.csv, base_s: 1, prompt_s_per_token: 0, output_s_per_token: 0}}\n"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def error_of(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    message = str(caught.value)
    assert "\n" not in message
    return message


def file_error(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return str(caught.value)


def test_a_good_scenario_is_read_with_its_defaults():
    scenario = parse_scenario(GOOD, "s.yaml")
    assert scenario.deployments[0].spec.target_replicas == 4
    assert scenario.deployments[0].spec.compaction == "when_healthy"
    assert list(scenario.node_gpus) == ["n-0", "n-1"]


def test_a_number_with_an_exponent_is_a_number():
    scenario = parse_scenario(GOOD + "    init_s: 1e-4\n", "s.yaml")
    assert scenario.deployments[0].init_s.mean == 1e-4


def test_the_message_names_key_path_line_what_was_found_and_what_is_allowed():
    assert error_of(GOOD.replace(": 4", ": four")) == (
        'deployments[0].target_replicas: expected an integer >= 0, found "four" (s.yaml:5)'
    )


def test_an_unknown_key_is_refused_and_the_nearest_known_one_is_named():
    message = error_of(GOOD + "    targt_replicas: 3\n")
    assert message == (
        'deployments[0].targt_replicas: expected a known key such as "target_replicas", found "targt_replicas" (s.yaml:6)'
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("    init_s: {lognorml: {median: 1, p99: 2}}\n", 'init_s.lognorml: expected a known key such as "lognormal"'),
        ("    init_s: {emperical: [1]}\n", 'init_s.emperical: expected a known key such as "empirical"'),
        ("    init_s: {zzz: 1}\n", "init_s.zzz: expected a number of seconds, or one of uniform: {...}, "),
        ("    requests: {poison: {rate_per_s: 1}}\n", 'requests.poison: expected a known key such as "poisson"'),
        ("    requests: {zzz: {rate_per_s: 1}}\n", "requests: expected one of trace: {...}, "),
    ],
)
def test_the_word_that_says_which_kind_it_is_is_a_key_too(text, problem):
    message = error_of(GOOD + text)
    assert message.startswith(f"deployments[0].{problem}"), message
    assert message.endswith("(s.yaml:6)")


def test_an_unknown_key_like_no_other_is_refused_with_all_known_ones():
    assert error_of("zzz: 1\n" + GOOD).startswith("zzz: expected one of the keys name, seed,")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (GOOD.replace("4", "-1"), "deployments[0].target_replicas: expected an integer"),
        (GOOD.replace("4", "1e12"), "deployments[0].target_replicas: expected an integer"),
        (GOOD.replace("4", "1" + "0" * 5000), "deployments[0].target_replicas: expected a"),
        (GOOD.replace("4", "true"), "deployments[0].target_replicas: expected an integer"),
        (GOOD.replace("4", "07x"), "deployments[0].target_replicas: expected an integer"),
        (GOOD.replace(": 4", ": 200000"), "deployments[0].target_replicas: expected at most 100000 replicas, found 200000"),
        (
            GOOD + "  - {name: other, target_replicas: 99997}\n",
            "deployments[0].target_replicas: expected at most 3 replicas beside the 99997 of the other deployments, found 4",
        ),
        (
            GOOD + "changes: [{at: 1, deployment: llm, target_replicas: 1000000}]\n",
            "changes[0].target_replicas: expected at most 100000 replicas, found 1000000",
        ),
        (GOOD + "    repeat_period_s: 1e-9\n", "deployments[0].repeat_period_s: expected a number from 0.001 to"),
        (GOOD + "    health_check_period_s: 5e-324\n", "deployments[0].health_check_period_s: expected a number from 0.001"),
        (GOOD + "    start_backoff_s: 1e-9\n", "deployments[0].start_backoff_s: expected a number from 0.001"),
        (GOOD + "network: {retry_s: 1e-320}\n", "network.retry_s: expected a number from 0.001"),
        (
            GOOD + "    init_s: {gamma: {mean: 1e9, shape: 5e-324}}\n",
            "deployments[0].init_s.gamma.shape: expected a number from 0.0001",
        ),
        (
            GOOD + "    init_s: {lognormal: {median: 5e-324, p99: 1e9}}\n",
            "deployments[0].init_s.lognormal.median: expected a number from 1e-09",
        ),
        (GOOD.replace("8", "0"), "nodes[0].gpus: expected an integer from 1"),
        (GOOD.replace("8", "8.5"), "nodes[0].gpus: expected an integer from 1"),
        (GOOD.replace("2", "10000000"), "nodes[0].count: expected an integer from 1"),
        (GOOD.replace("llm", '"a\\nb"'), "deployments[0].name: expected a name (1 to 213 printable characters without #"),
        (GOOD.replace("llm", '"a#b"'), "deployments[0].name: expected a name (1 to 213 printable characters without #"),
        (GOOD.replace("llm", "null"), "deployments[0].name: expected a name (1 to 213 printable characters without #"),
        (GOOD + "    gpus_per_replica: 16\n", "deployments[0].gpus_per_replica: expected an integer from 1 to 8"),
        (GOOD + "    compaction: never\n", "deployments[0].compaction: expected one of"),
        (GOOD + "    max_surge: 1.5\n", "deployments[0].max_surge: expected an integer"),
        (GOOD + "    init_s: .nan\n", "deployments[0].init_s: expected a number of seconds"),
        (GOOD + "    init_s: .inf\n", "deployments[0].init_s: expected a number of seconds"),
        (GOOD + "    init_s: -1\n", "deployments[0].init_s: expected a number of seconds"),
        (GOOD + "    init_s: {gauss: {mean: 1}}\n", "deployments[0].init_s.gauss: expected a number of seconds, or"),
        (GOOD + "    init_s: {uniform: {low: 1}}\n", "deployments[0].init_s.uniform.high: expected a value"),
        (GOOD + "    init_s: {uniform: {low: 1, high: x}}\n", "deployments[0].init_s.uniform.high: expected a number"),
        (GOOD + "    init_s: {uniform: {low: 2, high: 1}}\n", "deployments[0].init_s.uniform.high: expected a number"),
        (GOOD + "    init_s: {empirical: [1, -2]}\n", "deployments[0].init_s.empirical[1]: expected a number"),
        (GOOD + "    init_s: {empirical: 3}\n", "deployments[0].init_s.empirical: expected a list"),
        (GOOD + "    user_config: {1.5: [.nan]}\n", "deployments[0].user_config: expected JSON-like data"),
        (GOOD + "    requests: {csv: {}}\n", "deployments[0].requests: expected one of trace"),
        (GOOD + "seed: -1\n", "seed: expected an integer"),
        (GOOD + "duration_s: 0\n", "duration_s: expected a number above 0"),
        (GOOD + "network: {latency_s: no}\n", "network.latency_s: expected a number of seconds"),
        (GOOD + "faults: 3\n", "faults: expected a list"),
        (GOOD + "faults: [3]\n", "faults[0]: expected a mapping with kind and at"),
        (GOOD + "faults: [{at: 1}]\n", "faults[0].kind: expected one of replica_crash"),
        (GOOD + "faults: [{kind: node_loss, at: 1, node: x}]\n", "faults[0].node: expected one of the nodes n-0"),
        (GOOD + "faults: [{kind: node_loss, at: -1, node: n-0}]\n", "faults[0].at: expected seconds from 0"),
        (GOOD + "faults: [{kind: node_loss, at: noon, node: n-0}]\n", "faults[0].at: expected seconds from 0"),
        (GOOD + "faults: [{kind: node_loss, node: n-0}]\n", "faults[0].at: expected a value"),
        (GOOD + "faults: [{kind: node_loss, at: busiest_minute, node: n-0}]\n", "faults[0].at: expected a number of"),
        (GOOD + "faults: [{kind: replica_crash, at: 1, deployment: x}]\n", "faults[0].deployment: expected one of"),
        (GOOD + "faults: [{kind: controller_crash, at: 1}]\n", "faults[0].restart_after_s: expected a value"),
        (GOOD + "changes: [{at: 1, deployment: llm}]\n", "changes[0]: expected delete: true, or fields"),
        (GOOD + "changes: [{at: 1, deployment: llm, version: 2}]\n", "changes[0].version: expected a text"),
        (GOOD + "changes: [{at: 1, deployment: x, delete: true}]\n", "changes[0].deployment: expected one of"),
        (GOOD + "changes: [{at: 1, deployment: llm, delete: maybe}]\n", "changes[0].delete: expected true or false"),
        (
            GOOD + "changes: [{at: 1, deployment: llm, delete: true, version: a}]\n",
            "changes[0].delete: expected no other",
        ),
        (GOOD.replace("nodes:\n  - {name: n, count: 2, gpus: 8}", "nodes: []"), "nodes: expected at least one group"),
        (GOOD.replace("- {name: n, count: 2, gpus: 8}", "abc"), "nodes: expected a list"),
        ("5\n", "the scenario: expected a mapping"),
        ("nodes: []\n", "nodes: expected at least one group"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_key_path(text, start):
    message = error_of(text)
    assert message.startswith(start), message
    assert "(s.yaml:" in message


def test_a_key_that_occurs_twice_is_refused_with_both_lines():
    message = error_of(GOOD + "    name: other\n")
    assert message == ('deployments[0].name: expected each key once, found "name" again (first in line 4) (s.yaml:6)')


def test_two_deployments_of_one_name_are_refused():
    message = error_of(GOOD + "  - {name: llm, target_replicas: 1}\n")
    assert message == 'deployments[1].name: expected a name that no other deployment has, found "llm" (s.yaml:6)'


def test_two_groups_that_make_the_same_node_are_refused():
    message = error_of(GOOD.replace("deployments", "  - {name: n-1, gpus: 1}\ndeployments"))
    assert message == 'nodes[1].name: expected a node name that no other group makes, found "n-1" (s.yaml:3)'


@pytest.mark.parametrize("tag", ["!!python/object:os.system {}", "!!python/name:os.system ''", "!x 1", "!!binary aGk="])
def test_yaml_tags_are_refused(tag):
    message = error_of(GOOD + f"    user_config: {tag}\n")
    assert message.startswith('deployments[0].user_config: expected plain YAML, found the tag "!')


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_an_empty_file_is_refused(text):
    assert error_of(text) == "expected a scenario, found an empty file (s.yaml:1)"


@pytest.mark.parametrize("text", ["[1", "a: b: c", "a: *missing", "--- 1\n--- 2\n", "a: 'x", "\x01", "{[1]: 2}"])
def test_what_is_no_yaml_is_refused(text):
    assert "s.yaml" in error_of(text)


def test_a_bomb_of_aliases_is_refused_before_it_grows():
    bomb = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    assert "expected at most 200000 values" in error_of(bomb)


def test_what_is_nested_too_deep_is_refused():
    assert error_of("[" * 3000 + "]" * 3000) == "expected values nested at most 40 deep, found more (s.yaml:1)"


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    assert file_error(tmp_path / "missing.yaml") == f"{tmp_path}/missing.yaml: cannot be read: No such file or directory"
    assert file_error(tmp_path) == f"{tmp_path}: expected a scenario file, found a directory"


def trace_error(folder: Path, content: bytes | None) -> str:
    if content is not None:
        (folder / "trace.csv").write_bytes(content)
    scenario = parse_scenario(GOOD + TRACE, "s.yaml")
    with pytest.raises(ScenarioError) as caught:
        load_arrivals(scenario, folder, seed=0)
    message = str(caught.value)
    assert message.startswith(f"deployments[0].requests.trace.file: {folder / 'trace.csv'}")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "found an empty file"),
        (HEADER.encode(), "expected at least one request, found none"),
        (b"TIMESTAMP,GeneratedTokens\n1,2\n", 'trace.csv:1: expected a column "ContextTokens", found no such column'),
        (HEADER.encode() + b"5,-1,1\n", "trace.csv:2: ContextTokens: expected an integer from 0"),
        (HEADER.encode() + b"5,1,1.5\n", "trace.csv:2: GeneratedTokens: expected an integer from 0"),
        (HEADER.encode() + b"soon,1,1\n", "trace.csv:2: TIMESTAMP: expected seconds, or"),
        (HEADER.encode() + b"nan,1,1\n", "trace.csv:2: TIMESTAMP: expected seconds, or"),
        (HEADER.encode() + b"2023-11-31 18:17:03,1,1\n", "trace.csv:2: TIMESTAMP: expected seconds, or"),
        (HEADER.encode() + b"5,1\n", "trace.csv:2: expected 3 columns or more, found 2"),
        (HEADER.encode() + b'5,"1,1\n', "expected a CSV file, but"),
        (b"\xff\xfe\x00", "expected a CSV file in UTF-8"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_with_its_line(tmp_path, content, problem):
    assert problem in trace_error(tmp_path, content)


def test_a_trace_is_read_with_times_counted_from_its_first_request(tmp_path):
    rows = "2023-11-16 18:17:03.9799600,100,10\n2023-11-16 18:17:05.4799600,200,0\n"
    (tmp_path / "trace.csv").write_text(HEADER + rows)
    text = GOOD + TRACE.replace("base_s: 1", "base_s: 1, begin_s: 60").replace("n: 0,", "n: 0.01,")
    arrivals = load_arrivals(parse_scenario(text, "s.yaml"), tmp_path, seed=0)["llm"]
    assert list(arrivals.at_s) == pytest.approx([60.0, 61.5])
    assert list(arrivals.service_s) == pytest.approx([2.0, 3.0])


@pytest.mark.parametrize("end", ["", "duration_s: 1e6\n"])
def test_faults_that_come_so_often_that_a_run_would_never_end_are_refused(end):
    requests = "    requests: {poisson: {begin_s: 1e6, rate_per_s: 10, for_s: 10, service_s: 1}}\n"
    rates = "fault_rates: [{kind: node_loss, nodes: n, mtbf_s: 1, mttr_s: 0.5, begin_s: 1000}]\n"
    scenario = parse_scenario(GOOD + requests + end + rates, "s.yaml")
    with pytest.raises(ScenarioError) as caught:
        load_arrivals(scenario, Path(), 0)
    assert str(caught.value).startswith("fault_rates[0].mtbf_s: expected a mean from 2, as 2 that fail within ")
    assert str(caught.value).endswith("have 1000000 faults then, found 1")
    load_arrivals(parse_scenario(GOOD + requests + end + rates.replace("mtbf_s: 1,", "mtbf_s: 2,"), "s.yaml"), Path(), 0)
