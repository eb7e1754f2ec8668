"""Users who wait for answers: the closed form of machines and repairmen, a loop without a router, an engine in a benchmark.

N users of c places, with exponential times of thought and service, are M/M/c//N: how many are at the replicas is a birth-death
process, whose balance is in every textbook, and the mean times follow by Little's law. Confidence as in `test_queueing_theory`.
"""

import math
import statistics
from array import array
from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executors.simulator.clock import EventLoop
from executors.simulator.engines.closed_loop import closed_loop
from executors.simulator.engines.spec import PS_PER_S
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.requests import RequestQueue
from executors.simulator.load.users import Users
from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.loading import load_arrivals
from rankcore.commands import PublishRoutes
from rankcore.routing import RoutingSpec

SEEDS = range(12)
T_99_8 = 4.025
"""Student's t with 11 degrees of freedom."""
REQUESTS, WARM_UP = 4_000, 400
CASES = [(1, 4, 3.0), (3, 8, 2.5), (4, 30, 10.0), (2, 2, 1.0), (5, 3, 0.5)]
"""(places, users, mean time of thought), for a mean service time of 1 s."""


class Times:
    """When each request came, began and ended."""

    def __init__(self, queue):
        self.began, self.ended, self.most = {}, {}, 0
        self._queue = queue
        queue.watcher = self

    def look(self, now, waiting, is_served):
        self.most = max(self.most, self._queue.unfinished)

    def begun(self, now, index, replica_id):
        self.began[index] = now
        self.most = max(self.most, self._queue.unfinished)

    def done(self, now, index):
        self.ended[index] = now

    def over(self, now, index, command):
        self.ended[index] = now

    def used(self, replica_id, in_flight):
        pass


def of_users(users, think_s, service_s):
    return Arrivals(service_s=array("d", service_s), users=Users(users, 0.0, array("d", think_s)))


def gone(arrivals, places, **fields):
    loop = EventLoop()
    queue = RequestQueue(loop, arrivals, RoutingSpec(name="llm", max_ongoing_requests=places, **fields))
    queue.accept("llm#1.0")
    queue.publish(PublishRoutes(added=("llm#1.0",), removed=(), revision=1, epoch=1))
    times = Times(queue)
    while loop.step():
        pass
    return queue, times


def exponential(stream, mean):
    return [stream.expovariate(1 / mean) for _ in range(REQUESTS)]


def repairmen(places, users, think_s):
    """Throughput, the mean time until an answer and the mean wait, for a mean service time of 1 s."""
    weights = [1.0]
    for at_replicas in range(1, users + 1):
        weights.append(weights[-1] * (users - at_replicas + 1) / think_s / min(at_replicas, places))
    rate = sum(min(n, places) * weight for n, weight in enumerate(weights)) / sum(weights)
    answer_s = users / rate - think_s
    return rate, answer_s, answer_s - 1.0


def measured(places, users, think_s, seed, service_s):
    stream = Random(seed)
    arrivals = of_users(users, exponential(stream, think_s), exponential(stream, service_s))
    queue, times = gone(arrivals, places)
    counted = range(WARM_UP, REQUESTS - users)
    at_s = queue.arrivals.at_s
    lasts_s = at_s[counted[-1]] - at_s[counted[0]]
    answers_s = statistics.fmean(times.ended[each] - at_s[each] for each in counted)
    return len(counted) / lasts_s, answers_s, statistics.fmean(times.began[each] - at_s[each] for each in counted)


def off(case, service_s=1.0):
    """How far each measurement is from theory, as a multiple of the half width of its confidence interval."""
    runs = [measured(*case, seed, service_s) for seed in SEEDS]
    found = []
    for expected, values in zip(repairmen(*case), zip(*runs, strict=True), strict=True):
        half_width = T_99_8 * statistics.stdev(values) / math.sqrt(len(values))
        found.append(abs(statistics.fmean(values) - expected) / half_width if half_width else abs(values[0] - expected))
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_users_of_a_fleet_are_machines_and_repairmen(case):
    assert max(off(case)) < 1.0


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_service_that_is_off_by_a_twentieth_does_not_agree(case):
    assert max(off(case, service_s=1.05)) > 1.0


def test_the_formula_is_that_of_the_textbook():
    """One machine and one repairman: it runs for 2 s and is mended in 1. Two of each: twice that."""
    assert repairmen(1, 1, 2.0) == pytest.approx((1 / 3, 1.0, 0.0))
    assert repairmen(2, 2, 2.0) == pytest.approx((2 / 3, 1.0, 0.0))


def naive(users, places, think_s, service_s):
    """The same without a router: the next who asks gets the place that is free first."""
    asks, free, found = [0.0] * users, [0.0] * places, []
    while len(found) < len(think_s):
        at, index = heappop(asks), len(found)
        began = max(at, heappop(free))
        ended = began + service_s[index]
        heappush(free, ended)
        heappush(asks, ended + think_s[index])
        found.append((at, began, ended))
    return found


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 40), st.floats(0.0, 5.0), st.integers(0, 2**32))
@settings(deadline=None)
def test_each_request_comes_begins_and_ends_when_its_user_and_a_place_let_it(users, places, more, think_s, seed):
    stream, count = Random(seed), users + more
    thinks, services = ([stream.uniform(0.01, most) for _ in range(count)] for most in (think_s + 0.01, 2.0))
    queue, times = gone(of_users(users, thinks, services), places)
    at_s = queue.arrivals.at_s
    found = [(at_s[each], times.began[each], times.ended[each]) for each in range(count)]
    assert found == naive(users, places, thinks, services)
    assert times.most <= users, "there are never more requests than users"
    assert (queue.counts.done, queue.idle, queue.last_at) == (count, True, at_s[-1])


def test_who_was_turned_away_asks_again_when_he_was_told_to():
    queue, _ = gone(of_users(3, [0.0] * 6, [10.0] * 6), 1, max_queued_requests=0, retry_after_s=4.0)
    assert (queue.counts.arrived, queue.counts.done, queue.counts.rejected) == (6, 1, 5)
    assert list(queue.arrivals.at_s) == [0.0, 0.0, 0.0, 4.0, 4.0, 8.0]
    assert queue.idle


def test_who_has_waited_too_long_asks_again():
    queue, times = gone(of_users(2, [1.0] * 6, [10.0] * 6), 1, request_timeout_s=3.0)
    assert (queue.counts.arrived, queue.counts.expired) == (6, 6)
    assert list(queue.arrivals.at_s) == [0.0, 0.0, 4.0, 4.0, 8.0, 8.0]
    assert set(times.ended.values()) == {3.0, 7.0, 11.0}


SCENARIO = """
nodes: [{name: n, count: 2, gpus: 8, gpu_type: H100}]
deployments:
  - name: llm
    target_replicas: 2
    gpus_per_replica: 2
    %s
"""
CLOSED = "requests: {closed: {concurrency: %d, count: %d, begin_s: 60, think_s: %s, service_s: {uniform: {low: 1, high: 3}}}}"


def run_of(text, seed=1):
    scenario = parse_scenario(text, "s.yaml")
    return Run(scenario, load_arrivals(scenario, None, seed))


def test_a_run_goes_on_until_all_users_have_asked_and_were_answered():
    run = run_of(SCENARIO % (CLOSED % (2, 8, 5000)))
    requests = run.go().deployments[0].requests
    assert (requests.arrived, requests.done) == (8, 8)
    assert run.now > 3 * 5000
    short = run_of("duration_s: 6000" + SCENARIO % (CLOSED % (2, 8, 5000)))
    assert short.go().deployments[0].requests.arrived == 4


def test_a_fork_has_users_of_its_own():
    run = run_of(SCENARIO % (CLOSED % (5, 300, "{exponential: {mean: 4}}")))
    run.until(120.0)
    fork = run.fork()
    begun = run.world.deployments["llm"].requests.arrivals.at_s[:]
    result = fork.go()
    assert run.world.deployments["llm"].requests.arrivals.at_s == begun
    assert run.go() == result


def test_requests_are_the_same_however_many_users_ask():
    few, many = (
        load_arrivals(parse_scenario(SCENARIO % (CLOSED % (each, 50, 1)), "s.yaml"), None, 1)["llm"] for each in (2, 9)
    )
    assert few.service_s == many.service_s
    assert (few.total, many.total, len(few)) == (50, 50, 0)


def test_users_of_a_replica_that_crashes_or_is_deleted_ask_again_or_leave():
    text = SCENARIO % (CLOSED % (5, 200, 1)) + "faults: [{kind: replica_crash, at: 80, deployment: llm, rank: 0}]\n"
    requests = run_of(text).go().deployments[0].requests
    assert requests.lost > 0
    assert requests.done + requests.lost == 200
    requests = run_of(SCENARIO % (CLOSED % (5, 200, 1)) + "changes: [{at: 80, deployment: llm, delete: true}]\n").go()
    assert requests.deployments[0].requests.arrived < 200


ENGINE = """
engines:
  - name: e
    kv_cache_tokens: 100000
    max_num_seqs: 64
    tables: [{gpu_type: H100, tp: 2, base_ms: [[0, 18], [100, 21]], prompt_ms: [[0, 0], [2048, 160]], kv_ns: 7}]
"""


@pytest.mark.parametrize(("users", "prompt", "output"), [(1, 700, 40), (7, 900, 30), (40, 300, 20)])
def test_an_engine_under_so_many_users_is_what_benchmarks_are_fitted_with(users, prompt, output):
    requests = f"requests: {{closed: {{concurrency: {users}, count: {6 * users + 20}, begin_s: 60, tokens: {{}}}}}}"
    requests = requests.replace("tokens: {}", f"tokens: {{prompt: {prompt}, output: {output}}}")
    text = SCENARIO.replace("target_replicas: 2", "target_replicas: 1")
    run = run_of(text % f"engine: e\n    max_ongoing_requests: 64\n    {requests}" + ENGINE)
    times = Times(run.world.deployments["llm"].requests)
    run.go()
    engine = next(iter(run.world.deployments["llm"].requests._engines.values()))
    at_s, counted = run.world.deployments["llm"].requests.arrivals.at_s, max(2 * users, 8)
    found = statistics.fmean(times.ended[each] - at_s[each] for each in range(users, users + counted))
    e2e = closed_loop(engine, users, prompt, output).e2e
    base_ps = (e2e.iterations * 18 + e2e.decoding * 0.03 + e2e.prompt * 160 / 2048) * PS_PER_S / 1000
    assert found == pytest.approx((base_ps + e2e.context * 7 * PS_PER_S / 1e9) / PS_PER_S, rel=1e-6)


RESIDENCY = "residency: {weight_gb: 10}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SCENARIO % (CLOSED % (5, 4, 1)), "requests.closed.count: expected one request of each user at least: 5, found 4"),
        (SCENARIO % (CLOSED % (0, 4, 1)), "requests.closed.concurrency: expected an integer"),
        (SCENARIO % "requests: {closed: {concurrency: 2, count: 4}}", "requests.closed.service_s: expected a distribution"),
        (
            SCENARIO % (CLOSED % (2, 4, 1)) + "faults: [{kind: replica_crash, at: busiest_minute, deployment: llm}]",
            "faults[0].at: expected a number of seconds: nobody knows when closed requests come",
        ),
        (
            SCENARIO % (CLOSED % (2, 4, 1)) + "fault_rates: [{kind: replica_crash, deployment: llm, mtbf_s: 100}]",
            "fault_rates[0].end_s: expected seconds, or duration_s in the scenario, as nobody knows",
        ),
        (
            SCENARIO % f"{RESIDENCY}\n    {CLOSED % (2, 4, 1)}",
            "deployments[0].requests.closed: expected another source, with residency",
        ),
    ],
)
def test_what_closed_requests_cannot_be_is_told_with_its_place(text, problem):
    with pytest.raises(ScenarioError) as caught:
        run_of(text)
    assert problem in str(caught.value), caught.value
