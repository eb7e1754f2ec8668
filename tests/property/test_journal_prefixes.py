"""A journal that ends anywhere replays to the state that there was then, whichever machine it is of."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.reading import NO_END
from executors.engine.replay import replay
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario.structuring import structure_scenario
from rankcore.cluster.residency import ResidencySpec
from rankcore.events import ReplicaDied
from tests.clusters import RecordedCluster, application, entry


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


def deployments(path, states, crash_at, seed):
    crash = {"kind": "replica_crash", "at": crash_at, "deployment": "llm", "rank": seed % 3}
    outage = {"kind": "controller_crash", "at": crash_at + 5, "restart_after_s": 2}
    scenario = structure_scenario({**DEPLOYMENTS, "seed": seed, "faults": [crash, outage]})
    with JournalWriter.create(path, fingerprint_every=5) as journal:
        Run(scenario, {"llm": Arrivals(), "other": Arrivals()}, Witness(journal, states)).go()


def cluster(path, states, crash_at, seed):
    with JournalWriter.create(path, kind=CLUSTER, fingerprint_every=5) as journal:
        recorded = RecordedCluster(Witness(journal, states))
        recorded.apply(application(entry("a/x", 2), entry("a/y", 1 + seed % 2)), application(entry("b/x", 1)))
        recorded.wait(crash_at)
        lost = sorted(recorded.processes)[seed % len(recorded.processes)]
        del recorded.processes[lost]
        recorded.tell(ReplicaDied(replica_id=lost, reason="a crash", at=recorded.now))
        recorded.apply(application(entry("a/x", 1, version="2")), prune=True)
        recorded.wait(30.0)


def weights(path, states, crash_at, seed):
    with JournalWriter.create(path, kind=CLUSTER, fingerprint_every=5) as journal:
        recorded = RecordedCluster(Witness(journal, states))
        recorded.join(6, cpu_bytes=6)
        sizes = {"a/x": 4, "a/y": 5}
        entries = [entry(each, 0, residency=ResidencySpec(weight_bytes=size)) for each, size in sizes.items()]
        recorded.apply(application(*entries))
        recorded.moves_end = bool(seed % 2)
        for deployment in ("a/x", "a/y"):
            recorded.call(deployment, 2)
            recorded.end_moves()
            recorded.settle()
            recorded.wait(crash_at)
        for worker_id in sorted(recorded.workers.held)[: seed % 3]:
            recorded.workers.ends(worker_id, recorded.now, "a crash")
        recorded.hear()
        recorded.settle()
        recorded.call("a/x", 1)
        recorded.wait(30.0)


@pytest.mark.parametrize(
    ("record", "kind"),
    [(deployments, None), (cluster, CLUSTER), (weights, CLUSTER)],
    ids=["deployments", "a cluster", "a cluster with weights"],
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(crash_at=st.floats(2.0, 40.0), seed=st.integers(0, 1000), cuts=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=12))
def test_every_prefix_replays_to_the_state_that_there_was_then(tmp_path_factory, record, kind, crash_at, seed, cuts):
    path = Path(tmp_path_factory.mktemp("prefixes")) / "run.jsonl"
    states = [{}]
    record(path, states, crash_at, seed)
    text = b"".join(path.read_bytes().splitlines(keepends=True)[:-1])  # as who is killed leaves it, without an end marker
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
        assert (result.steps, NO_END in str(result.warning)) == (whole, is_whole)
        assert result.states == states[whole]
