"""W1 through the whole simulator: what the router hands to each replica is served as the loop token by token serves it."""

from array import array
from random import Random
from typing import Any

import attrs
import pytest

from executors.simulator.engines.replay import EngineRequest, Hang, Troubles
from executors.simulator.engines.spec import PS_PER_S
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.engine_queue import EngineQueue
from executors.simulator.run import Run
from executors.simulator.scenario.structuring import structure_scenario
from tests.property.engine_oracle import serve_by_token

BEGIN_S = 20.0
TIMEOUT_S = 0.4


@attrs.define
class Told:
    """What one replica was handed and how each ended, as seen from outside of its engine."""

    requests: dict[int, EngineRequest] = attrs.Factory(dict)
    ends: dict[int, tuple[int | None, int | None, int, int, int]] = attrs.Factory(dict)
    hangs: list[Hang] = attrs.Factory(list)
    crash_ps: int | None = None


class Watched(EngineQueue):
    """An `EngineQueue` that writes down what passes its surface."""

    told_by: dict[str, Told]

    def _begin(self, replica_id: str, index: int, attempt: int) -> None:
        told = self.told_by.setdefault(replica_id, Told())
        expires_ps = round((self.arrivals.at_s[index] + TIMEOUT_S) * PS_PER_S)
        asked = EngineRequest(self._now_ps(), self.arrivals.prompt[index], self.arrivals.output[index], expires_ps)
        if asked.prompt + asked.output <= self._replicas[replica_id].batch.engine.longest:
            told.requests[index] = asked
        super()._begin(replica_id, index, attempt)

    def _leave(self, replica: Any, sequence: Any) -> None:
        end = (sequence.begun_ps, sequence.first_ps, replica.batch.now_ps, sequence.tokens, sequence.preemptions)
        self.told_by[replica.server.replica_id].ends[sequence.key] = end
        super()._leave(replica, sequence)

    def lose(self, replica_id: str) -> int:
        replica = self._replicas.get(replica_id)
        if replica is not None and replica_id in self.told_by:
            told = self.told_by[replica_id]
            told.crash_ps = self._now_ps()
            lost = super().lose(replica_id)
            for index, serving in replica.requests.items():
                one = serving.sequence
                told.ends[index] = (one.begun_ps, one.first_ps, told.crash_ps, one.tokens, one.preemptions)
            return lost
        return super().lose(replica_id)

    def freeze(self, replica_id: str) -> None:
        self.told_by.setdefault(replica_id, Told()).hangs.append(Hang(self._now_ps(), 2**60))
        super().freeze(replica_id)

    def thaw(self, replica_id: str) -> None:
        hangs = self.told_by[replica_id].hangs
        hangs[-1] = Hang(hangs[-1].at_ps, self._now_ps() - hangs[-1].at_ps)
        super().thaw(replica_id)


def some_world(draw: Random) -> tuple[dict[str, Any], Arrivals]:
    """A scenario in which a millisecond is the unit of most times, so that much happens at one instant."""
    blocks, block_size, seqs = draw.randint(6, 30), draw.choice([1, 4]), draw.randint(1, 6)
    chunked = draw.random() < 0.7
    base_ms = draw.choice([[[1, 1]], [[1, 1], [4, 2]]])
    times = {"gpu_type": "T", "base_ms": base_ms, "prompt_ms": [[0, 0], [4, 2], [8, 7]]}
    engine = {
        "name": "small",
        "kv_cache_tokens": blocks * block_size,
        "block_size": block_size,
        "max_num_seqs": seqs,
        "max_num_batched_tokens": draw.randint(seqs, 12) if chunked else 10_000,
        "chunked_prefill": chunked,
        "kv_policy": draw.choice(["preempt", "reserve"]),
        "tables": [{**times, "kv_ns": draw.choice([0, 1000])}],
    }
    faults: list[dict[str, Any]] = []
    if draw.random() < 0.5:
        at = BEGIN_S + draw.randint(0, 300) / 1000
        faults.append({"kind": "replica_crash", "at": at, "deployment": "llm", "rank": 0})
    if draw.random() < 0.7:
        at, for_s = BEGIN_S + draw.randint(0, 200) / 1000, draw.randint(1, 60) / 1000
        faults.append({"kind": "replica_hang", "at": at, "deployment": "llm", "rank": 1, "for_s": for_s})
    longest = blocks * block_size
    count, at_ms, at_s = draw.randint(5, 40), 0, array("d")
    for _ in range(count):
        at_ms += draw.choice([0, 0, 1, 3, 10])
        at_s.append(BEGIN_S + at_ms / 1000)
    lengths = [array("q", (draw.randint(1, longest // 2 + 1) for _ in range(count))) for _ in range(2)]
    deployment = {
        "name": "llm",
        "target_replicas": 2,
        "engine": "small",
        "max_ongoing_requests": draw.randint(1, 8),
        "request_timeout_s": TIMEOUT_S,
        "idempotent": True,
    }
    nodes = [{"name": "n", "count": 2, "gpus": 1, "gpu_type": "T"}]
    network = {"latency_s": {"uniform": {"low": 0.001, "high": 0.01}}, "duplication": 0.1, "reorder": 0.1}
    data = {"seed": draw.randint(0, 99), "duration_s": 60, "nodes": nodes, "network": network, "engines": [engine]}
    return {**data, "deployments": [deployment], "faults": faults}, Arrivals(at_s, array("d"), *lengths)


def hold_equal(seed: int) -> tuple[int, int, int]:
    """Run a world and serve each replica's requests by the loop; says how many requests, gaps and preemptions there were."""
    data, arrivals = some_world(Random(seed))
    scenario = structure_scenario(data)
    run = Run(scenario, {"llm": arrivals})
    queue: Any = run.world.deployments["llm"].requests
    queue.__class__, queue.told_by = Watched, {}
    result = run.go()
    assert result.failure is None
    engine = next(iter(scenario.engines_of(scenario.deployments[0]).values()))
    iterations = decoded = busy_ps = preemptions = 0
    gaps: dict[int, int] = {}
    for told in queue.told_by.values():
        order = list(told.requests)
        troubles = Troubles(tuple(told.hangs), told.crash_ps)
        served, _ = serve_by_token(engine, [told.requests[index] for index in order], troubles)
        expected = {
            index: (one.begun_ps, one.first_ps, one.ended_ps, one.tokens, one.preemptions)
            for index, one in zip(order, served.answers, strict=True)
        }
        assert told.ends == expected, seed
        iterations, decoded, busy_ps = iterations + served.iterations, decoded + served.decoded, busy_ps + served.busy_ps
        preemptions += sum(one.preemptions for one in served.answers)
        for number, count in served.gaps.items():
            gaps[number] = gaps.get(number, 0) + count
    counts = queue.told
    assert (counts.iterations, counts.decoded, counts.busy_ps, counts.preemptions) == (
        iterations,
        decoded,
        busy_ps,
        preemptions,
    )
    assert counts.gaps.counts == gaps
    return sum(len(told.requests) for told in queue.told_by.values()), sum(gaps.values()), preemptions


def hold_equal_at_random(seeds: range) -> None:
    found = [hold_equal(seed) for seed in seeds]
    requests, gaps, preemptions = (sum(each) for each in zip(*found, strict=True))
    assert requests > 10 * len(seeds)
    assert gaps > 40 * len(seeds)
    assert preemptions > len(seeds) / 4


def test_w1_holds_through_router_network_and_faults() -> None:
    hold_equal_at_random(range(40))


def test_a_replica_that_crashes_just_as_an_iteration_ends_has_ended_it() -> None:
    hold_equal(1410)


def test_whoever_is_handed_over_as_another_leaves_is_in_the_flight_that_begins_then() -> None:
    hold_equal(1454)


@pytest.mark.night
def test_w1_holds_in_a_thousand_simulated_worlds() -> None:
    hold_equal_at_random(range(1_000, 2_000))
