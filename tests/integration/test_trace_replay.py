"""A real trace, replayed without faults: every request is served."""

from pathlib import Path

import pytest

from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals

EXAMPLES = Path(__file__).parents[2] / "examples"
REQUESTS = 8_819
"""Rows of the file, its header not counted."""
SCENARIO = """
settle_s: 10000  # one replica alone needs more than an hour longer than the trace is
nodes: [{name: node, count: 8, gpus: 8}]
deployments:
  - name: llm
    target_replicas: %d
    gpus_per_replica: 2
    max_ongoing_requests: %d
    requests:
      trace:
        file: data/azure_llm_2023_code.csv
        speedup: %s
        base_s: 0.05
        prompt_s_per_token: 0.0001
        output_s_per_token: 0.02
"""


@pytest.mark.parametrize(("replicas", "ongoing", "speedup"), [(24, 4, 1), (4, 2, 1), (24, 4, 10), (1, 1, 1)])
def test_a_trace_without_faults_is_served_to_the_last_request(replicas: int, ongoing: int, speedup: float):
    scenario = parse_scenario(SCENARIO % (replicas, ongoing, speedup), str(EXAMPLES / "replay.yaml"))
    arrivals = load_arrivals(scenario, EXAMPLES, 0)
    run = Run(scenario, arrivals)
    result = run.go()
    requests = result.deployments[0].requests
    assert result.failure is None
    assert (requests.arrived, requests.done) == (REQUESTS, REQUESTS)
    assert (requests.failed, requests.lost, requests.unfinished) == (0, 0, 0)
    counts = run.world.deployments["llm"].requests.counts
    assert all(wait_s >= 0 for wait_s in counts.waits_s)
    served_s = sorted(whole - wait for wait, whole in zip(counts.waits_s, counts.latencies_s, strict=True))
    assert served_s == pytest.approx(sorted(arrivals["llm"].service_s))  # each took as long as its tokens say
