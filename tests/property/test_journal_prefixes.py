"""A journal that ends anywhere replays to the state that there was then, whichever machine it is of."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.fleets import FLEET
from executors.engine.journal import JournalWriter
from executors.engine.replay import replay
from executors.fleet.journal import FleetJournal
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario.structuring import structure_scenario
from rankcore.cluster import cluster_step
from rankcore.events import ReplicaDied
from tests.clusters import Cluster, application, entry
from tests.model_runs import run_of


class Recorded(Cluster):
    """A cluster that writes down what happens."""

    def __init__(self, journal):
        self.journal = journal
        journal.begin(how := ClusterRecovered(), how.step())
        super().__init__()

    def step(self, event):
        self.journal.append(event, cluster_step(self.state, event))
        return super().step(event)


class Witness:
    """A journal's writer that keeps the state after each line too."""

    def __init__(self, writer, states):
        self.writer, self.states, self.now = writer, states, {}

    def begin(self, how, first=None):
        self.writer.begin(*(each for each in (how, first) if each is not None))
        self.keep(how if first is None else first.state)

    def append(self, event, result):
        self.writer.append(event, result)
        self.keep(result.state)

    def keep(self, state):
        self.now = {**self.now, state.spec.name if hasattr(state, "spec") else "": state}
        self.states.append(self.now)


DEPLOYMENTS = {
    "duration_s": 60,
    "nodes": [{"name": "n", "count": 2, "gpus": 2}],
    "deployments": [{"name": "llm", "target_replicas": 3}, {"name": "other", "target_replicas": 1}],
    "changes": [{"at": 30, "deployment": "llm", "target_replicas": 2}],
}
MODELS = {
    "duration_s": 60,
    "models": [{"name": "a", "weight_gb": 60, "kv_cache_tokens": 0}, {"name": "b", "weight_gb": 50, "kv_cache_tokens": 0}],
}


def deployments(path, states, crash_at, seed):
    crash = {"kind": "replica_crash", "at": crash_at, "deployment": "llm", "rank": seed % 3}
    outage = {"kind": "controller_crash", "at": crash_at + 5, "restart_after_s": 2}
    scenario = structure_scenario({**DEPLOYMENTS, "seed": seed, "faults": [crash, outage]})
    with JournalWriter.create(path, fingerprint_every=5) as journal:
        Run(scenario, {"llm": Arrivals(), "other": Arrivals()}, Witness(journal, states)).go()


def models(path, states, crash_at, seed):
    requests = {"a": [0.5, crash_at], "b": [1.0 + seed % 20, crash_at + 3.0]}
    faults = [{"kind": "replica_crash", "at": crash_at, "model": "a"}]
    with FleetJournal.create(path, fingerprint_every=5) as journal:
        assert run_of(requests, journal=Witness(journal, states), **MODELS, seed=seed, faults=faults).go().failure is None


def cluster(path, states, crash_at, seed):
    with JournalWriter.create(path, kind=CLUSTER, fingerprint_every=5) as journal:
        recorded = Recorded(Witness(journal, states))
        recorded.apply(application(entry("a/x", 2), entry("a/y", 1 + seed % 2)), application(entry("b/x", 1)))
        recorded.wait(crash_at)
        lost = sorted(recorded.processes)[seed % len(recorded.processes)]
        del recorded.processes[lost]
        recorded.tell(ReplicaDied(replica_id=lost, reason="a crash", at=recorded.now))
        recorded.apply(application(entry("a/x", 1, version="2")), prune=True)
        recorded.wait(30.0)


@pytest.mark.parametrize(
    ("record", "kind"),
    [(deployments, None), (models, FLEET), (cluster, CLUSTER)],
    ids=["deployments", "a fleet", "a cluster"],
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(crash_at=st.floats(2.0, 40.0), seed=st.integers(0, 1000), cuts=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=12))
def test_every_prefix_replays_to_the_state_that_there_was_then(tmp_path_factory, record, kind, crash_at, seed, cuts):
    path = Path(tmp_path_factory.mktemp("prefixes")) / "run.jsonl"
    states = [{}]
    record(path, states, crash_at, seed)
    text = path.read_bytes()
    header = text.index(b"\n") + 1
    lines = text.count(b"\n") - 1
    assert lines == len(states) - 1 > 10
    for cut in (*cuts, 0.0, 1.0):
        end = header + int(cut * (len(text) - header))
        path.write_bytes(text[:end])
        result = replay(path, kind)
        is_whole = b"\n" in text[end - 1 : end + 1]  # a last line that lacks only its newline is whole too
        whole = text[: end + is_whole].count(b"\n") - 1
        assert result.difference is None
        assert (result.steps, result.warning is None) == (whole, is_whole)
        assert result.states == states[whole]
