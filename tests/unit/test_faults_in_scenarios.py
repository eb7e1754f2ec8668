"""Network, nodes, faults, fault rates and fault traces as scenario files say them, and what is refused."""

import pytest

from executors.simulator.load.distributions import Exponential, Gamma
from executors.simulator.scenario import Scenario, ScenarioError, parse_scenario

GOOD = """\
nodes:
  - {name: n, count: 2, gpus: 8, memory_gb: 512}
  - {name: head, gpus: 1}
deployments:
  - {name: llm, target_replicas: 4, memory_gb_per_replica: 60}
"""


def read(text: str) -> Scenario:
    return parse_scenario(GOOD + text, "s.yaml")


def error_of(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "s.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert "(s.yaml:" in message
    return message


def test_every_kind_of_fault_is_read():
    text = """\
duration_s: 100
faults:
  - {kind: replica_crash, at: 1, deployment: llm, rank: 3}
  - {kind: replica_hang, at: 1, deployment: llm, for_s: 5}
  - {kind: replica_unready, at: 1, deployment: llm, replica_id: "llm#1.0", for_s: 5}
  - {kind: start_failure, at: 1, deployment: llm, node: n-0, count: 2}
  - {kind: crash_after_ready, at: 1, deployment: llm, version: "2", after_s: 1}
  - {kind: config_fails, at: 1, deployment: llm, user_config: {a: [1]}}
  - {kind: slow_start, at: 1, deployment: llm, factor: 3, for_s: 60}
  - {kind: node_loss, at: 1, node: n-0, back_after_s: 3}
  - {kind: node_partition, at: 1, node: n-1, for_s: 90}
  - {kind: controller_crash, at: 1, restart_after_s: 2}
"""
    assert [fault.kind for fault in read(text).faults] == [
        "replica_crash",
        "replica_hang",
        "replica_unready",
        "start_failure",
        "crash_after_ready",
        "config_fails",
        "slow_start",
        "node_loss",
        "node_partition",
        "controller_crash",
    ]


def test_the_network_is_as_the_file_says():
    network = read("network: {loss: 0.1, duplication: 0.2, reorder: 0.3, reorder_s: 4, retry_s: 5, lease_s: 6}\n").network
    assert (network.loss, network.duplication, network.reorder, network.reorder_s.mean) == (0.1, 0.2, 0.3, 4.0)
    assert (network.retry_s, network.lease_s) == (5, 6)


def test_a_network_that_nobody_describes_is_reliable():
    network = read("").usual_network
    assert (network.loss, network.duplication, network.reorder) == (0.0, 0.0, 0.0)


def test_a_plain_number_is_the_mean_of_an_exponential_time_between_failures():
    text = "duration_s: 9\nfault_rates: [{kind: node_loss, nodes: n, mtbf_s: 100, mttr_s: {gamma: {mean: 5, shape: 2}}}]\n"
    (rate,) = read(text).fault_rates
    assert rate.mtbf_s == Exponential(mean=100)
    assert rate.mttr_s == Gamma(mean=5, shape=2)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("network: {loss: 1}\n", "network.loss: expected a number from 0 to 0.99"),
        ("network: {duplication: 1.5}\n", "network.duplication: expected a number from 0 to 1"),
        ("network: {reorder: -0.5}\n", "network.reorder: expected a number from 0 to 1"),
        ("network: {retry_s: 0}\n", "network.retry_s: expected a number from 0.001"),
        ("network: {lease_s: soon}\n", "network.lease_s: expected a number above 0"),
        ("network: {los: 0.1}\n", 'network.los: expected a known key such as "loss"'),
        ("faults: [{kind: replica_hung, at: 1}]\n", "faults[0].kind: expected one of replica_crash, replica_hang"),
        ("faults: [{kind: replica_hang, at: 1, deployment: x}]\n", "faults[0].deployment: expected one of"),
        ("faults: [{kind: replica_hang, at: 1, deployment: llm, for_s: 0}]\n", "faults[0].for_s: expected a number above 0"),
        (
            "faults: [{kind: replica_hang, at: 1, deployment: llm, rank: 1, replica_id: a}]\n",
            "faults[0].replica_id: expected no replica_id",
        ),
        ("faults: [{kind: start_failure, at: 1, deployment: llm, count: 0}]\n", "faults[0].count: expected an integer >= 1"),
        ("faults: [{kind: start_failure, at: 1, deployment: llm, node: x}]\n", "faults[0].node: expected one of the nodes"),
        ("faults: [{kind: crash_after_ready, at: 1, deployment: llm}]\n", "faults[0].after_s: expected a value"),
        ("faults: [{kind: config_fails, at: 1, deployment: llm}]\n", "faults[0].user_config: expected a value"),
        ("faults: [{kind: slow_start, at: 1, factor: 2}]\n", "faults[0].deployment: expected a deployment, or a node"),
        ("faults: [{kind: slow_start, at: 1, node: n-0}]\n", "faults[0].factor: expected a value"),
        ("faults: [{kind: slow_start, at: 1, node: n-0, factor: 0}]\n", "faults[0].factor: expected a number above 0"),
        ("faults: [{kind: node_partition, at: 1, node: n}]\n", "faults[0].node: expected one of the nodes n-0, n-1, head"),
        ("fault_rates: 3\n", "fault_rates: expected a list"),
        ("fault_rates: [{kind: start_failure, mtbf_s: 1}]\n", "fault_rates[0].kind: expected one of replica_crash"),
        ("fault_rates: [{kind: node_loss, nodes: n}]\n", "fault_rates[0].mtbf_s: expected a value"),
        ("fault_rates: [{kind: node_loss, nodes: n, mtbf_s: 0}]\n", "fault_rates[0].mtbf_s: expected a"),
        ("fault_rates: [{kind: node_loss, nodes: n, mtbf_s: 1}]\n", "fault_rates[0].mttr_s: expected seconds"),
        ("fault_rates: [{kind: node_loss, mtbf_s: 1, mttr_s: 1}]\n", "fault_rates[0].nodes: expected a name"),
        ("fault_rates: [{kind: node_loss, nodes: n-0, mtbf_s: 1, mttr_s: 1}]\n", "fault_rates[0].nodes: expected one of"),
        ("fault_rates: [{kind: node_loss, nodes: n, mtbf_s: 1, mttr_s: 1}]\n", "fault_rates[0].end_s: expected seconds, or"),
        (
            "fault_rates: [{kind: replica_crash, deployment: llm, mtbf_s: 1, mttr_s: 1}]\n",
            "fault_rates[0].mttr_s: expected no time to repair",
        ),
        (
            "fault_rates: [{kind: controller_crash, deployment: llm, mtbf_s: 1, mttr_s: 1}]\n",
            "fault_rates[0].deployment: expected no deployment",
        ),
        (
            "fault_rates: [{kind: node_loss, nodes: n, mtbf_s: 1, mttr_s: 1, begin_s: 5, end_s: 5}]\n",
            "fault_rates[0].end_s: expected a number above begin_s",
        ),
        ("fault_trace: {}\n", "fault_trace.file: expected a value"),
        (
            "fault_trace: {file: a.csv, cluster_size: 9, group: x}\n",
            "fault_trace.group: expected one of the groups of nodes n, head",
        ),
        ("fault_trace: {file: a.csv, map: any}\n", "fault_trace.map: expected one of sample, first, by_name, slots"),
        (
            "fault_trace: {file: a.csv, cluster_size: 9, time_unit: weeks}\n",
            "fault_trace.time_unit: expected one of seconds, milliseconds",
        ),
        (
            "fault_trace: {file: a.csv, cluster_size: 9, begin: 5, end: 5}\n",
            "fault_trace.end: expected a time after begin, which is 5",
        ),
        ("fault_trace: {file: a.csv}\n", "fault_trace.cluster_size: expected an integer: of how many nodes is a.csv?"),
        (
            "fault_trace: {file: a.csv, map: slots, cluster_size: 9}\n",
            "fault_trace.cluster_size: expected no cluster_size with map",
        ),
        ("fault_trace: {file: a.csv, map: first, cluster_size: 9, replicate: true}\n", "fault_trace.replicate: expected false"),
        ("fault_trace: {file: a.csv, cluster_size: 1}\n", "fault_trace.cluster_size: expected at least "),
        ("fault_trace: {file: a.csv, cluster_size: 9, up: down}\n", "fault_trace.up: expected another word"),
        (
            "fault_trace: {file: a.csv, cluster_size: 9, events: 3}\n",
            'fault_trace.events: expected a known key such as "event_column"',
        ),
        (
            "fault_trace: {file: a.csv, cluster_size: 9, time_column: node}\n",
            "fault_trace.event_column: expected a column of its own",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_key_path(text, start):
    assert error_of(GOOD + text).startswith(start), error_of(GOOD + text)


def test_a_replica_that_fits_on_no_node_is_refused():
    text = GOOD.replace("gpus: 1}", "gpus: 1, memory_gb: 64}").replace("60}", "600}")
    allowed = "a number from 0 to 512, the memory of the largest node with 1 GPUs"
    assert error_of(text).startswith(f"deployments[0].memory_gb_per_replica: expected {allowed}, found 600")


def test_a_node_whose_memory_nobody_names_has_as_much_as_anybody_wants():
    assert parse_scenario(GOOD.replace("60}", "600}"), "s.yaml").deployments[0].memory_gb_per_replica == 600
