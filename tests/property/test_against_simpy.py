"""The same requests and crashes in our simulator and in a model written in SimPy: the same ends, request by request."""

from pathlib import Path

import pytest

pytest.importorskip("simpy")

from bench.simpy_model import LeanModel, Model, Setting
from bench.simulator import ours, scenario_text
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals

CRASHES = ((35.0, 0), (36.0, 1), (36.5, 2), (50.0, 1))
SETTINGS = [
    Setting(replicas=4, max_ongoing=2),
    Setting(replicas=4, max_ongoing=2, crashes=CRASHES),
    Setting(replicas=3, max_ongoing=1, init_s=3.0, latency_s=0.25, crashes=CRASHES),
    Setting(replicas=16, max_ongoing=8, crashes=CRASHES),
]


@pytest.mark.parametrize("model", [Model, LeanModel])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("load", [0.5, 0.9, 1.3])
def test_simpy_serves_and_loses_the_same_requests(setting: Setting, model: type[Model], load: float):
    rate = load * setting.replicas * setting.max_ongoing
    scenario = parse_scenario(scenario_text(setting, for_s=600 / rate, rate_per_s=rate), "simpy")
    arrivals = load_arrivals(scenario, Path(), seed=3)["llm"]
    counts = ours(scenario, arrivals)
    theirs = model(setting, arrivals.at_s, arrivals.service_s).run()
    assert len(arrivals) > 400
    assert (counts.arrived, counts.done, counts.lost) == (theirs.arrived, theirs.done, theirs.lost)
    # SimPy adds up delays where we have times, so the last digits differ.
    assert list(counts.waits_s) == pytest.approx(list(theirs.waits_s), abs=1e-9)
    assert list(counts.latencies_s) == pytest.approx(list(theirs.latencies_s), abs=1e-9)
