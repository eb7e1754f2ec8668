"""Runs of scenarios with residency for tests: built of plain data, with requests at given times.

The data are in the words that scenarios of models had, so that each such test says too what is read of an old file.
"""

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from executors.engine.journal import Journal
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.residency.run import ResidencyResult, ResidencyRun
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.models import upgraded
from executors.simulator.scenario.structuring import structure_scenario

NODE = {"name": "n", "gpus": 1, "gpu_gb": 80, "cpu_cache_gb": 200}
LOADING = {"disk_gb_per_s": 2, "to_gpu_gb_per_s": 10, "to_cpu_gb_per_s": 10, "cold_start_s": 5, "warm_start_s": 1}


def scenario_of(**keys: Any) -> Scenario:
    """A scenario on one node with one GPU of 80 GB, unless the keys say otherwise."""
    return structure_scenario(upgraded({"duration_s": 600, "nodes": [NODE], "loading": LOADING, **keys}))


def run_of(
    requests: Mapping[str, Sequence[float]] | None = None,
    service_s: float = 1.0,
    journal: Journal | None = None,
    **keys: Any,
) -> ResidencyRun:
    """A run, about to begin, in which requests for models come at these times."""
    scenario = scenario_of(**keys)
    found = {}
    for deployment in scenario.deployments:
        at_s = sorted((requests or {}).get(deployment.spec.name, ()))
        found[deployment.spec.name] = Arrivals(array("d", at_s), array("d", [service_s] * len(at_s)))
    return ResidencyRun(scenario, found, journal)


def result_of(requests: Mapping[str, Sequence[float]] | None = None, service_s: float = 1.0, **keys: Any) -> ResidencyResult:
    """The same at its end; every promise has held."""
    result = run_of(requests, service_s, **keys).go()
    assert result.failure is None
    return result


EVERYTHING = {
    "name": "all kinds of things",
    "seed": 4,
    "duration_s": 1200,
    "nodes": [{"name": "gpu-node", "count": 2, "gpus": 2, "gpu_gb": 80, "cpu_cache_gb": 120}],
    "loading": LOADING,
    "every_model": {"min_hot_s": 30, "request_timeout_s": 300},
    "models": [
        {"name": "chat", "weight_gb": 30, "working_gb": 10, "replicas": 2},
        {"name": "code", "weight_gb": 60},
        {"name": "large", "weight_gb": 130},
        {"name": "vision", "weight_gb": 25, "priority": 5},
        {"name": "house", "weight_gb": 20, "dedicated": True, "replicas": 1},
        {"name": "never", "weight_gb": 500},
    ],
    "traffic": {"zipf": {"rate_per_s": 0.6, "exponent": 1, "cv": 2, "for_s": 1000, "service_s": 2}},
    "faults": [
        {"kind": "replica_crash", "at": 200, "model": "chat"},
        {"kind": "load_failure", "at": 250, "model": "large", "count": 2},
        {"kind": "node_loss", "at": 400, "node": "gpu-node-1", "back_after_s": 200},
        {"kind": "memory_shrinks", "at": 800, "node": "gpu-node-0", "gpu_gb": 60},
    ],
    "changes": [{"at": 600, "model": "code", "replicas": 2}, {"at": 700, "model": "vision", "evict": "COLD"}],
}
"""A small scenario with everything in it."""


def everything(seed: int = 4, **keys: Any) -> ResidencyResult:
    """The run of it."""
    return run_through({**upgraded({**EVERYTHING, **keys}), "seed": seed})


def run_through(data: Mapping[str, Any]) -> ResidencyResult:
    """The run of a scenario that is written in the words of now."""
    scenario = structure_scenario(data)
    return ResidencyRun(scenario, load_arrivals(scenario, Path(), scenario.seed)).go()
