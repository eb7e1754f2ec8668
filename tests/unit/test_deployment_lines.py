"""What a cluster's journal says of each deployment is a journal of that deployment: it replays, and is explained as one."""

import json

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.engine.clusters import CLUSTER, ClusterResumed
from executors.engine.deployment_lines import replay_cluster
from executors.engine.deployments import Deployed, Recovered, Resumed
from executors.engine.journal import JournalWriter
from executors.engine.reading import JournalError
from executors.engine.replay import replay
from executors.explain.stories import Question, explain
from executors.simulator.from_journal.history import read_history
from rankcore.cluster.events import DeletionRequested, ScaleRequested
from rankcore.events import NodeLost, ReplicaDied
from tests.clusters import RecordedCluster, application, entry
from tests.journals import sealed, unsealed


@pytest.fixture
def recorded(tmp_path):
    """Two deployments in a cluster's journal, and what that says of each in a journal of deployments."""
    path = tmp_path / "cluster.jsonl"
    cluster = RecordedCluster(path)
    cluster.apply(application(entry("a/d", 3), entry("a/e", 1)), application(entry("b/d", 1)))
    cluster.wait(5.0)
    cluster.processes.pop("a/d#1.1")
    cluster.tell(ReplicaDied(replica_id="a/d#1.1", reason="killed by SIGKILL", at=cluster.now))
    cluster.wait(5.0)
    cluster.tell(ScaleRequested(deployment="a/d", target_replicas=2, at=cluster.now))
    cluster.restart()
    cluster.wait(20.0)
    cluster.tell(NodeLost(node_id="n1", at=cluster.now))
    cluster.tell(DeletionRequested(deployments=["b/d"], at=cluster.now))
    cluster.wait(20.0)
    assert sorted(cluster.state.deployments) == ["a/d", "a/e"]
    split = tmp_path / "deployments.jsonl"
    with JournalWriter.create(split, fingerprint_every=1) as journal:

        def write(line, _before, step):
            if isinstance(line.cause, Deployed | Recovered | Resumed):
                journal.begin(line.cause, step)
            else:
                journal.append(line.cause, step)

        replay_cluster(path, lambda _line, _before, _step, parts: [write(*part) for part in parts])
    return cluster, path, split


def test_the_lines_of_each_deployment_replay_and_come_to_its_state(recorded):
    cluster, path, split = recorded
    assert replay(path, CLUSTER).difference is None
    alone, within = replay(split), {}
    replay_cluster(
        path, lambda _line, _before, _step, parts: within.update({part.entry.deployment: part.step.state for part in parts})
    )
    assert (alone.difference, alone.fingerprints) == (None, alone.steps)
    assert alone.states == within
    assert {name: within[name] for name in cluster.state.deployments} == {
        name: each.ranks for name, each in cluster.state.deployments.items()
    }


@pytest.mark.parametrize(
    "question",
    [
        Question(deployment="a/d", rank=1),
        Question(deployment="a/d", at=10.0),
        Question(replica_id="a/d#1.2"),
        Question(deployment="b/d", rank=0),
    ],
)
def test_a_story_is_the_same_from_either(recorded, question):
    _, path, split = recorded
    within, alone = explain(path, question), explain(split, question)
    assert [(fact.at, fact.text, fact.rule) for fact in within.facts] == [
        (fact.at, fact.text, fact.rule) for fact in alone.facts
    ]
    assert within.facts
    assert within.state == alone.state


def test_a_history_to_go_on_from_is_the_same_from_either(recorded):
    _, path, split = recorded
    within, alone = read_history(path, 2.0), read_history(split, 2.0)
    assert within.states == alone.states
    assert within.durations == alone.durations
    assert (within.aftermath.faults, within.aftermath.changes) == (alone.aftermath.faults, alone.aftermath.changes)
    assert any(fault["kind"] == "replica_crash" for fault in within.aftermath.faults)


def test_a_change_is_planned_from_it(recorded):
    _, path, _ = recorded
    arguments = ["plan", "--from", str(path), "--deployment", "a/d", "--target", "5", "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["deployment"] == "a/d"


def test_what_goes_on_from_a_state_begins_each_deployment_with_its_own(recorded, tmp_path):
    cluster, _, _ = recorded
    how = ClusterResumed(state=cluster.state)
    with JournalWriter.create(tmp_path / "resumed.jsonl", kind=CLUSTER) as journal:
        journal.begin(how, how.step())
    seen = []
    replay_cluster(tmp_path / "resumed.jsonl", lambda _line, _before, _step, parts: seen.extend(parts))
    found = sorted(cluster.state.deployments.items())
    assert [part.entry.cause for part in seen] == [Resumed(state=each.ranks) for _, each in found]
    assert [part.step.state for part in seen] == [each.ranks for _, each in found]


def test_a_line_that_the_core_does_not_agree_with_explains_nothing(recorded):
    _, path, _ = recorded
    lines = unsealed(path)
    told = next(index for index, line in enumerate(lines) if "killed by SIGKILL" in json.dumps(line.get("event")))
    event = json.loads(json.dumps(lines[told]["event"]).replace("SIGKILL", "SIGTERM"))
    path.write_bytes(sealed([*lines[:told], lines[told] | {"event": event}, *lines[told + 1 :]]))
    with pytest.raises(JournalError, match=r"cluster.jsonl:\d+: this core decides otherwise \(notes\["):
        explain(path, Question(deployment="a/d", rank=1))
