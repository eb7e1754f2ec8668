"""One fault more changes nothing but what follows from it: comparisons on common random numbers stay sharp."""

import math
import statistics

from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals
from rankcore.events import ReplicaReconfigured

BASE = """
seed: 3
duration_s: 3000
nodes:
  - {name: n, count: 4, gpus: 4}
  - {name: spare, count: 2, gpus: 4}
network: {latency_s: {exponential: {mean: 0.05}}, loss: 0.05, duplication: 0.05}
deployments:
  - name: llm
    target_replicas: 8
    victims: highest_rank
    start_s: {exponential: {mean: 3}}
    init_s: {lognormal: {median: 20, p99: 60}}
    requests: {poisson: {rate_per_s: 0.2, for_s: 2500, service_s: {gamma: {mean: 3, shape: 2}}}}
  - name: other
    target_replicas: 2
    init_s: {lognormal: {median: 20, p99: 60}}
    requests: {poisson: {rate_per_s: 0.2, for_s: 2500, service_s: {gamma: {mean: 3, shape: 2}}}}
fault_rates:
  - {kind: node_loss, nodes: n, mtbf_s: 3000, mttr_s: 60}
  - {kind: controller_crash, mtbf_s: 1500, mttr_s: 5}
FAULTS
"""
MORE_RATES = "  - {kind: node_loss, nodes: spare, mtbf_s: 2000, mttr_s: 60}\n"
MORE_FAULTS = """
faults:
  - {kind: replica_crash, at: 700, deployment: llm}
  - {kind: replica_hang, at: 900, deployment: llm}
  - {kind: slow_start, at: 1000, deployment: llm, factor: 3}
"""


def prepared(more: str = "") -> Run:
    scenario = parse_scenario(BASE.replace("FAULTS\n", more), "test")
    return Run(scenario, load_arrivals(scenario, None, scenario.seed))


def losses(result: RunResult, nodes: str) -> list[tuple[float, str | None]]:
    """When which node of a group was lost; what was on it is what the rest of the run made of it."""
    return [
        (each.at, each.node)
        for each in result.happenings
        if " lost, with " in each.text and (each.node or "").startswith(nodes)
    ]


def outages(result: RunResult) -> list[float]:
    return [each.at for each in result.happenings if each.text == "the controller crashed"]


def test_more_faults_change_neither_which_requests_arrive_nor_how_long_they_take():
    quiet, busy = prepared(), prepared(MORE_RATES + MORE_FAULTS)
    for name in ("llm", "other"):
        few, many = (run.world.deployments[name].requests for run in (quiet, busy))
        assert len(few.arrivals.at_s) > 400
        assert few.arrivals.at_s == many.arrivals.at_s
        assert few.arrivals.service_s == many.arrivals.service_s


def test_more_faults_do_not_change_when_the_others_come():
    quiet, busy = prepared().go(), prepared(MORE_RATES + MORE_FAULTS).go()
    assert len(losses(quiet, "n")) > 1
    assert losses(busy, "n") == losses(quiet, "n")
    assert len(losses(busy, "spare")) > 1
    assert outages(busy) == outages(quiet) != []


def test_a_fault_of_one_rank_does_not_change_how_long_the_others_take_to_start():
    calm = BASE.replace("fault_rates", "# ").replace("  - {kind: node_loss", "# ").replace("  - {kind: controller", "# ")
    change = "changes: [{at: 500, deployment: llm, target_replicas: 12}]\n"
    starts = []
    for faults in ("", "faults: [{kind: replica_crash, at: 200, deployment: llm, rank: 3}]\n"):
        scenario = parse_scenario(calm.replace("FAULTS\n", faults + change), "test")
        result = Run(scenario, load_arrivals(scenario, None, scenario.seed)).go()
        starts.append(
            {hold.rank: (hold.since, hold.replica_id) for hold in result.holds["llm"] if hold.running and hold.rank != 3}
        )
    quiet, busy = starts
    assert {rank: since for rank, (since, _) in quiet.items()} == {rank: since for rank, (since, _) in busy.items()}
    assert quiet != busy  # the replicas have other ids


def test_an_any_replica_fault_hits_whom_it_hits_whatever_other_faults_choose():
    texts = []
    for first in ("", "  - {kind: replica_hang, at: 600, deployment: llm, for_s: 5}\n"):
        faults = "faults:\n" + first + "  - {kind: replica_crash, at: 700, deployment: llm}\n"
        result = prepared(faults).go()
        texts.append([each.text for each in result.happenings if each.at == 700.0])
    assert texts[0] == texts[1] != []


def test_two_deployments_that_ask_for_the_same_requests_get_others():
    llm, other = (prepared().world.deployments[name].requests.arrivals for name in ("llm", "other"))
    assert not set(llm.at_s) & set(other.at_s)
    assert not set(llm.service_s) & set(other.service_s)


def test_every_spell_of_every_unit_of_a_rate_is_drawn_anew():
    rates = "fault_rates: [{kind: node_loss, nodes: n, mtbf_s: 100, mttr_s: 20}]\n"
    text = "nodes: [{name: n, count: 40, gpus: 1}]\ndeployments: [{name: llm, target_replicas: 0}]\nduration_s: 4000\n"
    scenario = parse_scenario(text + rates, "test")
    result = Run(scenario, load_arrivals(scenario, None, scenario.seed)).go()
    works, repairs = [], []
    for node in scenario.node_gpus:
        back_at = 0.0
        for each in result.happenings:
            if each.node == node and " lost, with " in each.text and each.until is not None:
                works.append(each.at - back_at)
                repairs.append(each.until - each.at)
                back_at = each.until
    # 40 nodes break every 120 s for 4000 s: about 1333 times. 99.9% of all seeds are within these limits.
    assert 1200 < len(works) < 1450
    assert len({round(each, 6) for each in works}) == len(works)
    assert len({round(each, 6) for each in repairs}) == len(repairs)
    for spells, mean in ((works, 100.0), (repairs, 20.0)):
        assert abs(statistics.fmean(spells) - mean) < 3.5 * mean / math.sqrt(len(spells))
        assert abs(statistics.pstdev(spells) - mean) < 0.15 * mean  # exponential


def test_what_one_replica_does_twice_takes_twice_another_time():
    text = BASE.replace("init_s:", "reconfigure_s: {exponential: {mean: 5}}\n    user_config: 0\n    init_s:", 1)
    text = text.partition("fault_rates")[0].replace("mean: 0.05", "mean: 1e-6").replace("loss: 0.05, duplication: 0.05", "")
    text += "changes:\n" + "".join(
        f"  - {{at: {500 + 100 * each}, deployment: llm, user_config: {each + 1}}}\n" for each in range(5)
    )
    scenario = parse_scenario(text, "test")
    run = Run(scenario, load_arrivals(scenario, None, scenario.seed))
    run.until(499.0)
    (port, *_) = run.world.deployments.values()
    heard, took = port.listener, {}
    assert heard is not None

    def listen(event):
        if isinstance(event, ReplicaReconfigured):
            took.setdefault(event.replica_id, []).append(round(event.at % 100, 3))
        heard(event)

    port.listener = listen
    run.go()
    assert len(took) == 8
    assert all(len(set(each)) == len(each) == 5 for each in took.values())
