"""A queue with Poisson arrivals and exponential service is M/M/c: what it does is known in closed form (Erlang C).

Each case is run with several seeds. The formula must lie in the confidence interval of the runs; a service time that is
off by 5 % must put it outside, or the test would show nothing.
"""

import math
import statistics

import pytest

from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals

SEEDS = range(12)
T_99_8 = 4.025
"""Student's t with 11 degrees of freedom: 998 of 1,000 correct queues pass, and with fixed seeds always the same ones."""
BEGIN_S = 60.0
REQUESTS = 12_000
WARM_UP = 1_000
"""The queue begins empty: the first requests wait less than those of a queue in balance."""

CASES = [(1, 1, 0.5), (1, 1, 0.8), (3, 1, 0.7), (2, 4, 0.8), (2, 8, 0.9)]
"""(replicas, max_ongoing_requests, load)."""

Measured = tuple[float, float, float]
"""Share of requests that wait, mean wait in seconds, mean length of the queue."""


def erlang_c(servers: int, load: float) -> Measured:
    """What theory says, for a mean service time of 1 s."""
    offered = load * servers
    last = offered**servers / math.factorial(servers) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    wait_s = waits / (servers - offered)
    return waits, wait_s, offered * wait_s


def measured(replicas: int, max_ongoing: int, load: float, seed: int, service_s: float) -> Measured:
    rate = load * replicas * max_ongoing
    text = f"""
nodes: [{{name: n, gpus: {replicas}}}]
deployments:
  - name: llm
    target_replicas: {replicas}
    max_ongoing_requests: {max_ongoing}
    requests:
      poisson:
        {{rate_per_s: {rate}, begin_s: {BEGIN_S}, for_s: {REQUESTS / rate}, service_s: {{exponential: {{mean: {service_s}}}}}}}
"""
    scenario = parse_scenario(text, "mmc")
    run = Run(scenario, load_arrivals(scenario, None, seed))
    queue, loop = run.world.deployments["llm"].requests, run.world.loop
    run.controller.start()
    begin_s, end_s = queue.arrivals.at_s[WARM_UP], queue.arrivals.at_s[-1]
    while loop.now < begin_s:
        loop.step()
    area, since = 0.0, loop.now
    while loop.now < end_s:
        length = queue.waiting
        loop.step()
        area += length * (loop.now - since)
        since = loop.now
    while not queue.idle:
        loop.step()
    waits_s = queue.counts.waits_s[WARM_UP:]
    return sum(1 for each in waits_s if each > 0) / len(waits_s), statistics.fmean(waits_s), area / (end_s - begin_s)


def off(case: tuple[int, int, float], service_s: float = 1.0) -> list[float]:
    """How far each measurement is from theory, as a multiple of the half width of its confidence interval."""
    runs = [measured(*case, seed, service_s) for seed in SEEDS]
    found = []
    for expected, values in zip(erlang_c(case[0] * case[1], case[2]), zip(*runs, strict=True), strict=True):
        half_width = T_99_8 * statistics.stdev(values) / math.sqrt(len(values))
        found.append(abs(statistics.fmean(values) - expected) / half_width)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_queue_agrees_with_the_formulas_of_erlang(case):
    assert max(off(case)) < 1.0


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[3]], ids=str)
def test_service_that_is_off_by_a_twentieth_does_not_agree(case):
    assert max(off(case, service_s=1.05)) > 1.0


@pytest.mark.parametrize(("servers", "load", "expected"), [(1, 0.5, (0.5, 1.0, 0.5)), (2, 0.5, (1 / 3, 1 / 3, 1 / 3))])
def test_the_formulas_are_those_of_the_textbook(servers: int, load: float, expected: Measured):
    """M/M/1: the share that waits is the load, the mean queue load^2 / (1 - load). M/M/2 at load 1/2: a third each."""
    assert erlang_c(servers, load) == pytest.approx(expected)
