"""W14: wherever a run is cut, a percentile that is known stays as it is, and one that is not is never below its bound."""

import json
import math
from random import Random

import attrs
import pytest

from executors.simulator.load.sources import Source
from executors.simulator.record.figures import request_figures
from executors.simulator.record.percentiles import SHARES, percentiles_of_all, quantile
from executors.simulator.run import Run

CUTS = 3


def scenario_of(seed: int) -> str:
    """A short run in which replicas crash and hang, and requests are turned away, lost, done again or too late."""
    random = Random(seed)
    app = {
        "name": "app",
        "target_replicas": random.choice((1, 2, 3)),
        "init_s": random.choice((0.0, 3.0)),
        "max_ongoing_requests": random.choice((1, 2)),
        "requests": {
            "poisson": {
                "rate_per_s": random.choice((0.5, 1.0, 2.0)),
                "for_s": 40,
                "service_s": {"exponential": {"mean": 1.5}},
            }
        },
    }
    return json.dumps(
        {
            "seed": seed,
            "nodes": [{"name": "n", "count": 2, "gpus": 2}],
            "deployments": [app | random.choice(({}, {"max_queued_requests": 3}, {"request_timeout_s": 5}))],
            "fault_rates": [{"kind": "replica_crash", "deployment": "app", "mtbf_s": 15}] if random.random() < 0.7 else [],
            "duration_s": 60,
        }
    )


class Fates:
    """What becomes of each request: how long it waited for the attempt that was its last, and took; for ever by default."""

    def __init__(self, queue):
        self.queue = queue
        self.began_at = {}
        self.took = {}

    def look(self, now, waiting, is_served): ...
    def used(self, replica_id, in_flight): ...
    def over(self, now, index, command): ...

    def begun(self, now, index, replica_id):
        self.began_at[index] = now

    def done(self, now, index):
        came = self.queue.arrivals.at_s[index]
        self.took[index] = (self.began_at.get(index, came) - came, now - came)

    def of_first(self, count, which):
        return sorted(self.took[index][which] if index in self.took else math.inf for index in range(count))


def run_of(seed):
    source = Source("s", scenario_of(seed), ".")
    scenario = source.scenario()
    return Run(scenario, source.arrivals(scenario))


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.night)], ids=["by day", "by night"]
)
def test_percentiles_of_a_run_that_is_cut_anywhere(seeds):
    known = bounded = 0
    for seed in seeds:
        random = Random(f"cuts of {seed}")
        run = run_of(seed)
        queue = run.world.deployments["app"].requests
        queue.watcher = fates = Fates(queue)
        cut = []
        for at in sorted(random.uniform(0, 45) for _ in range(CUTS)):
            run.until(at)
            so_far = queue.so_far()
            assert len(so_far.waits_s) == len(so_far.latencies_s) == queue.unfinished
            cut.append(request_figures(queue.counts, so_far))
        whole = run.go().deployments[0].requests
        assert whole.arrived == whole.done + whole.not_done
        for figures in cut:
            for which, values in enumerate((figures.wait_s, figures.latency_s)):
                in_the_end = fates.of_first(figures.arrived, which)
                assert (values.n, values.failed) == (figures.arrived, figures.not_done - figures.unfinished)
                for name, share in SHARES.items():
                    value, at_least = getattr(values, name), getattr(values, f"{name}_at_least")
                    true = quantile(in_the_end, share)
                    if at_least is None:
                        assert value == (None if true is None else pytest.approx(true)), (seed, name)
                        known += 1
                    else:
                        assert true >= (math.inf if at_least == "never" else at_least - 1e-9), (seed, name)
                        bounded += 1
    assert min(known, bounded) > len(seeds), "nothing was tested"


def test_who_is_done_later_than_the_end_is_at_least_as_old():
    found = percentiles_of_all([1.0, 2.0, 3.0], so_far=[9.0], failed=0)
    assert (found.n, found.censored, found.failed) == (4, 1, 0)
    assert (found.p50, found.p50_at_least) == (2.5, None), "the one that is late is above it, however late it is"
    assert (found.p95, found.p95_at_least) == (None, pytest.approx(8.1))
    assert found.finished is not None
    assert (found.finished.n, found.finished.p50) == (3, 2.0)


def test_what_is_lost_takes_for_ever():
    found = percentiles_of_all([1.0, 2.0, 3.0], failed=1)
    assert (found.p50, found.p99, found.p99_at_least) == (2.5, None, "never")
    nobody = percentiles_of_all([])
    assert (nobody.n, nobody.p99, nobody.p99_at_least, nobody.finished) == (0, None, None, None)
    assert attrs.asdict(percentiles_of_all([1.0]))["of"] == "all"
