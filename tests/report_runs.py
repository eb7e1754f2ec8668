"""Runs whose reports are looked at in tests: a small one with everything in it, and the same with hostile names."""

import json
from string import Template

import yaml

from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.structuring import structure_scenario

EVERYTHING = Template("""
name: $title
seed: 3
nodes:
  - {name: $node, count: 4, gpus: 4}
network: {latency_s: 0.5}
deployments:
  - name: $deployment
    target_replicas: 8
    init_s: {lognormal: {median: 20, p99: 45}}
    reconfigure_s: 8
    drain_s: 6
    max_ongoing_requests: 2
    requests:
      poisson: {rate_per_s: 2, for_s: 500, service_s: 1.5}
  - name: embed
    target_replicas: 4
    init_s: 5
faults:
  - {kind: replica_crash, at: 100, deployment: $deployment, rank: 3}
  - {kind: node_loss, at: 200, node: $lost, back_after_s: 60}
  - {kind: controller_crash, at: 400, restart_after_s: 20}
changes:
  - {at: 300, deployment: $deployment, target_replicas: 5}
""")

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'`&lt;"


def run_of(text: str) -> RunResult:
    return run_through(parse_scenario(text, "test"))


def run_through(scenario: Scenario) -> RunResult:
    return Run(scenario, load_arrivals(scenario, None, scenario.seed)).go()


def everything(title: str = "everything at once", deployment: str = "llm", node: str = "gpu-node") -> RunResult:
    """Crashes of a replica, a node and the controller, and a downscale that moves a rank; two deployments."""
    return run_of(named(title, deployment, node))


def without_the_node_loss(title: str = "everything but a node", deployment: str = "llm", node: str = "gpu-node") -> RunResult:
    """The same up to 0:03:20, where `everything` loses a node."""
    lines = named(title, deployment, node).splitlines()
    return run_of("\n".join(line for line in lines if "node_loss" not in line))


def named(title: str, deployment: str, node: str) -> str:
    names = {"title": title, "deployment": deployment, "node": node, "lost": f"{node}-1"}
    return EVERYTHING.substitute({key: json.dumps(name) for key, name in names.items()})


def hostile() -> RunResult:
    """The same, with names that try to become markup and script; that of a deployment is one that a journal may have."""
    return run_through(structure_scenario(yaml.safe_load(named(HOSTILE, HOSTILE, HOSTILE)), by_id=True))
