"""Stories told from a journal alone, each worked out by hand: what changed, by which rule, because of what."""

from pathlib import Path

import attrs
import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.engine.deployments import Deployed, Recovered, Resumed
from executors.engine.journal import JournalWriter
from executors.explain.stories import NothingToExplain, Question, explain
from executors.explain.wording import RULES
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from executors.simulator.times import TENTHS, moment
from rankcore import DeploymentSpec, step
from rankcore.events import (
    ClockAdvanced,
    ReplicaDied,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
    RetryRequested,
    SpecChanged,
    StopRequested,
    TrialRequested,
)
from rankcore.notes import NoteKind
from rankcore.values import ReplicaRank

# Latency 1 ms, a second from start to placed, ten seconds from there to ready, unless a test says otherwise.
WORLD = """
duration_s: 1000
nodes: [{name: n, count: 2, gpus: 4}]
deployments: [{name: llm, target_replicas: 4, MORE}]
"""


def simulated(folder: Path, more: str, happens: str) -> Path:
    """The journal of a run in a world in which only `happens` happens."""
    scenario = parse_scenario(WORLD.replace("MORE", more) + happens, "test")
    path = folder / "run.jsonl"
    with JournalWriter.create(path) as journal:
        result = Run(scenario, {each.spec.name: Arrivals() for each in scenario.deployments}, journal).go()
    assert result.failure is None
    return path


def recorded(folder: Path, how, *events) -> Path:
    """The journal of a controller that began in this way and was told these events."""
    path = folder / "run.jsonl"
    with JournalWriter.create(path) as journal:
        first = how.step()
        journal.begin(how, first)
        state = first.state
        for event in events:
            event = event(state) if callable(event) else event
            result = step(state, event)
            journal.append(event, result)
            state = result.state
    return path


def told(path: Path, **question) -> list[str]:
    """The lines of a story as the command prints them."""
    return [
        f"{moment(fact.at, TENTHS)}  {fact.text}"
        + (f" ({fact.rule})" if fact.rule in RULES else "")
        + (f"; {fact.later}" if fact.later else "")
        for fact in explain(path, Question(**question)).facts
    ]


# ---------------------------------------------------------------------------------------------------------------------
# stories


def test_a_replacement_follows_from_the_crash_and_has_its_rank(tmp_path):
    path = simulated(tmp_path, "", "faults: [{kind: replica_crash, at: 100, deployment: llm, rank: 1}]")
    assert told(path, replica_id="llm#1.4") == [
        "0:01:40.0  llm#1.1, which held rank 1, died: crashed (R6)",
        "0:01:40.0  rank 1 is kept for the replacement of llm#1.1 (R6)",
        "0:01:40.0  llm#1.4 was requested to take over rank 1 from llm#1.1 (R6)",
        "0:01:41.0  llm#1.4 was placed on n-1 and given rank 1, node rank 1 and local rank 0 (R4)",
        "0:01:51.0  llm#1.4 is ready and runs with rank 1",
    ]


def test_why_did_a_replica_move_from_rank_3_to_rank_1(tmp_path):
    more = "drain_s: 22, graceful_shutdown_timeout_s: 60, reconfigure_s: 0.4"
    happens = "changes: [{at: 790, deployment: llm, target_replicas: 3, stop_first: ['llm#1.1']}]"
    path = simulated(tmp_path, more, happens)
    assert told(path, replica_id="llm#1.3", at=812.0) == [
        "0:13:10.0  somebody changed llm: target_replicas 4 -> 3; llm#1.1 to be stopped first",
        "0:13:10.0  llm#1.1, which held rank 1, was told to stop: named by the caller (R11)",
        "0:13:32.0  llm#1.1 stopped, and rank 1 is free (R7)",
        "0:13:32.0  llm#1.3 moved from rank 3 to rank 1 and from local rank 1 to local rank 0: "
        "compaction after the downscale to 3 at 0:13:10.0, "
        "because local_rank 1 is beyond the 1 replicas on n-1, and 0 is free; rank 3 is beyond the world size 3, "
        "and 1 is free (R8); acknowledged at 0:13:32.4",
    ]


def test_a_rolling_update_goes_slot_by_slot_and_keeps_the_ranks(tmp_path):
    path = simulated(tmp_path, "drain_s: 2", "changes: [{at: 50, deployment: llm, version: '2'}]")
    # One at a time: each takes 2 s to drain, 1 s to be placed and 10 s to start.
    assert told(path, rank=1)[3:] == [
        "0:00:11.0  llm#1.1 is ready and runs with rank 1",
        "0:00:50.0  somebody changed llm: version 1 -> 2",
        "0:01:03.0  llm#1.1, which held rank 1, was told to stop: to be updated to version '2' (2.3)",
        "0:01:05.0  llm#1.1 stopped, and rank 1 is kept for the replacement of llm#1.1 (R6)",
        "0:01:05.0  llm#1.5 was requested to take over rank 1 from llm#1.1 (R6)",
        "0:01:06.0  llm#1.5 was placed on n-1 and given rank 1, node rank 1 and local rank 0 (R4)",
        "0:01:16.0  llm#1.5 is ready and runs with rank 1",
    ]


def test_a_successor_takes_over_when_its_predecessor_has_ended(tmp_path):
    path = simulated(tmp_path, "max_surge: 1, drain_s: 2", "changes: [{at: 50, deployment: llm, version: '2'}]")
    story = told(path, replica_id="llm#1.5")
    assert story[:2] == [
        "0:00:50.0  somebody changed llm: version 1 -> 2",
        "0:00:52.0  llm#1.5 was requested to take over rank 0 after llm#1.0 (2.3)",
    ]
    at = next(place for place, line in enumerate(story) if "takes over" in line)
    assert "llm#1.0 has stopped" in story[at - 1]
    assert "llm#1.5 takes over rank 0, since its predecessor llm#1.0 has ended (R6)" in story[at]


def test_a_successor_takes_over_a_rank_that_is_vacant_sooner(tmp_path):
    """V2."""
    path = simulated(tmp_path, "max_surge: 1, drain_s: 2", "changes: [{at: 50, deployment: llm, version: '2'}]")
    assert told(path, replica_id="llm#1.4")[1:7] == [
        "0:00:50.0  llm#1.4 was requested to take over rank 0 after llm#1.0 (2.3)",
        "0:00:50.0  llm#1.3, which held rank 3, was told to stop: to be updated to version '2' (2.3)",
        "0:00:51.0  llm#1.4 was placed on n-0",
        "0:00:52.0  llm#1.3 stopped, and rank 3 is kept for the replacement of llm#1.3 (R6)",
        "0:00:52.0  llm#1.4 takes over rank 3, since it was started early for rank 0, and rank 3 is vacant (R6)",
        "0:00:52.0  llm#1.4 was placed on n-0 and given rank 3, node rank 0 and local rank 2 (R4)",
    ]


def test_a_lost_node_is_the_cause_of_everything_that_follows_from_it(tmp_path):
    path = simulated(tmp_path, "", "faults: [{kind: node_loss, at: 100, node: n-0}]")
    # n-0 had ranks 0 and 2, and node rank 0; both come up on n-1, which then is the only node and is moved to node rank 0.
    (lost, *_), move = told(path, replica_id="llm#1.1", at=112.0), told(path, replica_id="llm#1.1", at=112.0)[-1]
    assert lost == "0:01:40.0  node n-0 was lost"
    assert move.startswith(
        "0:01:51.0  llm#1.1 moved from node rank 1 to node rank 0: compaction after the end of llm#1.2 at 0:01:40.0"
    )
    assert told(path, rank=2)[4:7] == [
        "0:01:40.0  node n-0 was lost",
        "0:01:40.0  llm#1.2, which held rank 2, ended: node n-0 was lost (R6)",
        "0:01:40.0  rank 2 is kept for the replacement of llm#1.2 (R6)",
    ]


def report(replica_id: str, node_id: str, rank: int, local_rank: int, at: float, node_rank: int = 0) -> ReplicaReported:
    return ReplicaReported(
        replica_id=replica_id,
        node_id=node_id,
        rank=ReplicaRank(rank, node_rank, local_rank),
        version="1",
        ready=True,
        config_id=SPEC.config_id,
        epoch=2,
        at=at,
    )


SPEC = DeploymentSpec(name="llm", target_replicas=3, start_backoff_s=4, start_timeout_s=60)


def test_a_duplicate_that_a_recovery_finds_is_moved_and_the_story_says_who_shared_the_rank(tmp_path):
    path = recorded(
        tmp_path,
        Recovered(spec=SPEC, replica_ids=("llm#1.0", "llm#1.1", "llm#1.2"), at=500.0, epoch=2),
        report("llm#1.0", "a", 0, 0, 500.1),
        report("llm#1.1", "a", 1, 1, 500.2),
        report("llm#1.2", "a", 1, 2, 500.3),
        lambda state: ReplicaReconfigured(replica_id="llm#1.2", revision=state.replicas["llm#1.2"].revision, at=500.5),
    )
    story = told(path, replica_id="llm#1.2")
    assert story[:3] == [
        "0:08:20.0  the controller came back in epoch 2 and found 3 replicas",
        "0:08:20.3  llm#1.2 reported rank 1, node rank 0 and local rank 2: RUNNING on a (R10)",
        "0:08:20.3  llm#1.2 reported rank 1, but llm#1.1 reports it too (R10)",
    ]
    assert story[3].startswith(
        "0:08:20.3  llm#1.2 moved from rank 1 to rank 2: an older replica holds the rank that it reported (R10); "
        "acknowledged at 0:08:20.5"
    )
    assert len(story) == 4
    assert "llm#1.2 reported rank 1, but llm#1.1 reports it too" in told(path, replica_id="llm#1.1")[2]


def test_a_controller_that_comes_back_explains_who_is_gone_and_who_takes_the_rank(tmp_path):
    happens = """
faults:
  - {kind: controller_crash, at: 200, restart_after_s: 10}
  - {kind: replica_crash, at: 203, deployment: llm, rank: 2}
"""
    path = simulated(tmp_path, "", happens)
    assert told(path, rank=2)[4:] == [
        "0:03:30.0  the controller came back in epoch 2 and found 3 replicas",
        "0:03:30.0  llm#1.2 was gone when the controller came back; it had rank 2",
        "0:03:30.0  llm#2.0 was requested for rank 2, the lowest available rank (R4)",
        "0:03:31.0  llm#2.0 was placed on n-0 and given rank 2, node rank 0 and local rank 1 (R4)",
        "0:03:41.0  llm#2.0 is ready and runs with rank 2",
    ]


def test_a_start_that_fails_is_tried_again_after_a_while_with_the_same_rank(tmp_path):
    path = recorded(
        tmp_path,
        Deployed(spec=SPEC),
        ReplicaPlaced(replica_id="llm#1.0", node_id="b", at=1.0),
        ReplicaPlaced(replica_id="llm#1.1", node_id="a", at=1.0),
        ReplicaStartFailed(replica_id="llm#1.1", reason="CUDA out of memory", at=3.0),
        ClockAdvanced(at=7.0),
        ReplicaPlaced(replica_id="llm#1.3", node_id="a", at=8.0),
        ReplicaReady(replica_id="llm#1.3", at=9.0),
    )
    assert told(path, replica_id="llm#1.3") == [
        "0:00:03.0  llm#1.1, which held rank 1, ended: start failed: CUDA out of memory (R6)",
        "0:00:03.0  llm#1.1 counts as a failed start: start failed: CUDA out of memory; failure 1 in its slot, "
        "next start after 4 s (2.3)",
        "0:00:03.0  rank 1 is kept for the replacement of llm#1.1 (R6)",
        "0:00:07.0  llm#1.3 was requested to take over rank 1 from llm#1.1 (R6)",
        "0:00:08.0  llm#1.3 was placed on a and given rank 1, node rank 1 and local rank 0 (R4)",
        "0:00:09.0  llm#1.3 is ready and runs with rank 1",
    ]


def running(*numbers: int, node_id: str = "a") -> list:
    """These replicas come up, one after the other."""
    placed = [ReplicaPlaced(replica_id=f"llm#1.{number}", node_id=node_id, at=1.0) for number in numbers]
    return placed + [ReplicaReady(replica_id=f"llm#1.{number}", at=2.0) for number in numbers]


def acknowledged(replica_id: str, at: float):
    """It believes what it was told last."""
    return lambda state: ReplicaReconfigured(replica_id=replica_id, revision=state.replicas[replica_id].revision, at=at)


def test_who_has_no_place_yet_leaves_its_rank_to_one_that_has(tmp_path):
    """V2."""
    surging = DeploymentSpec(name="llm", target_replicas=2, max_surge=1)
    path = recorded(
        tmp_path,
        Deployed(spec=surging),
        *running(0, 1),
        SpecChanged(spec=attrs.evolve(surging, version="2"), at=10.0),
        ReplicaStopped(replica_id="llm#1.1", at=20.0),
        ReplicaPlaced(replica_id="llm#1.3", node_id="a", at=21.0),
    )
    assert told(path, replica_id="llm#1.3", at=21.0)[-3:] == [
        "0:00:20.0  llm#1.3 was requested to take over rank 0 after llm#1.0 (2.3)",
        "0:00:21.0  llm#1.3 takes over rank 1, since llm#1.2, which was to have rank 1, has no place yet (R6)",
        "0:00:21.0  llm#1.3 was placed on a and given rank 1, node rank 0 and local rank 1 (R4)",
    ]
    assert told(path, replica_id="llm#1.2")[-1] == (
        "0:00:21.0  llm#1.2 is to have rank 0 instead: rank 1 goes to one that has a place (V2)"
    )


def test_a_move_follows_from_what_freed_its_rank_long_before(tmp_path):
    path = recorded(
        tmp_path,
        Deployed(spec=DeploymentSpec(name="llm", target_replicas=4)),
        *running(0, 1, 2, 3),
        SpecChanged(spec=DeploymentSpec(name="llm", target_replicas=2), stop_first=("llm#1.1", "llm#1.0"), at=10.0),
        ReplicaStopped(replica_id="llm#1.1", at=20.0),
        ReplicaStopped(replica_id="llm#1.0", at=30.0),
    )
    assert [line.partition(": ")[0] for line in told(path, replica_id="llm#1.3", at=30.0)] == [
        "0:00:10.0  somebody changed llm",
        "0:00:10.0  llm#1.1, which held rank 1, was told to stop",
        "0:00:10.0  llm#1.0, which held rank 0, was told to stop",
        "0:00:20.0  llm#1.1 stopped, and rank 1 is free (R7)",
        "0:00:30.0  llm#1.0 stopped, and rank 0 is free (R7)",
        "0:00:30.0  llm#1.3 moved from rank 3 to rank 1 and from local rank 3 to local rank 1",
    ]


@pytest.mark.parametrize("order", [("llm#1.3", "llm#1.2"), ("llm#1.2", "llm#1.3")])
def test_a_node_rank_moves_because_of_the_end_that_freed_it_whichever_end_came_last(tmp_path, order):
    spec = DeploymentSpec(name="llm", target_replicas=4, victims="highest_rank")
    # Nodes have the ranks 0, 1, 2, 3, and their replicas the ranks 0, 2, 1, 3: rank 1 is the last to be taken, after a failure.
    placed = {"llm#1.0": "a", "llm#1.3": "b", "llm#1.4": "c", "llm#1.2": "d"}
    starts = [ReplicaPlaced(replica_id=who, node_id=node, at=1.0) for who, node in placed.items()]
    starts[:2] = [ReplicaStartFailed(replica_id="llm#1.1", reason="gone", at=0.5), *starts[:2], ClockAdvanced(at=2.0)]
    ready = [ReplicaReady(replica_id=who, at=3.0) for who in placed]
    fewer = SpecChanged(spec=DeploymentSpec(name="llm", target_replicas=2, victims="highest_rank"), at=10.0)
    ends = [ReplicaStopped(replica_id=who, at=at) for who, at in zip(order, (11.0, 20.0), strict=True)]
    path = recorded(tmp_path, Deployed(spec=spec), *starts, *ready, fewer, *ends)
    (move,) = (fact for fact in explain(path, Question(replica_id="llm#1.4")).facts if " moved " in fact.text)
    freed_at = "0:00:11.0" if order[0] == "llm#1.3" else "0:00:20.0"
    assert f"from node rank 2 to node rank 1: compaction after the end of llm#1.3 at {freed_at}" in move.text
    assert move.causes[0].replica_ids == ("llm#1.3",)


def test_who_has_a_place_takes_a_lower_rank_and_who_runs_moves_into_one_that_nobody_has_a_place_for(tmp_path):
    path = recorded(
        tmp_path,
        Deployed(spec=DeploymentSpec(name="llm", target_replicas=3)),
        ReplicaPlaced(replica_id="llm#1.2", node_id="a", at=1.0),
        ReplicaReady(replica_id="llm#1.2", at=2.0),
        *running(1),
        ReplicaDied(replica_id="llm#1.2", reason="gone", at=10.0),
        *(ReplicaPending(replica_id=each, reason="all places are taken", at=10.0) for each in ("llm#1.0", "llm#1.3")),
        ClockAdvanced(at=70.0),
    )
    assert told(path, replica_id="llm#1.2", at=2.0)[-4:] == [
        "0:00:00.0  llm#1.2 was requested for rank 2, the lowest available rank (R4)",
        "0:00:01.0  llm#1.2 is to have rank 0 instead: llm#1.0, which was to have it, has no place yet (V18)",
        "0:00:01.0  llm#1.2 was placed on a and given rank 0, node rank 0 and local rank 0 (R4)",
        "0:00:02.0  llm#1.2 is ready and runs with rank 0",
    ]
    assert told(path, replica_id="llm#1.1")[-4:] == [
        "0:00:10.0  llm#1.2, which held rank 0, died: gone (R6)",
        "0:00:10.0  rank 0 is kept for the replacement of llm#1.2 (R6)",
        "0:00:10.0  llm#1.3 was requested to take over rank 0 from llm#1.2 (R6)",
        "0:01:10.0  llm#1.1 moved from rank 1 to rank 0: rank 0 is starved: it has had no room for 60 s, and only 1 have a "
        "place (V18)",
    ]


def test_who_waits_says_what_for_in_the_words_of_the_scheduler_whenever_they_change(tmp_path):
    said = (("Slurm says Resources", True), ("Slurm says Priority", True), ("Slurm says Priority", True), ("", False))
    path = recorded(
        tmp_path,
        Deployed(spec=DeploymentSpec(name="llm", target_replicas=1)),
        *(
            ReplicaPending(replica_id="llm#1.0", reason=reason, no_room=no_room, at=at)
            for at, (reason, no_room) in enumerate(said)
        ),
    )
    assert told(path, replica_id="llm#1.0")[2:] == [
        "0:00:00.0  rank 0 waits: llm#1.0 waits for a place: there is no room for it: Slurm says Resources (V18)",
        "0:00:01.0  rank 0 waits: llm#1.0 waits for a place: there is no room for it: Slurm says Priority (V18)",
        "0:00:03.0  rank 0 waits: llm#1.0 has its place made ready: there is room for it (V18)",
    ]


def test_a_newcomer_waits_for_the_acknowledgement_of_the_move_that_frees_its_rank(tmp_path):
    specs = [DeploymentSpec(name="llm", target_replicas=target) for target in (4, 3, 4)]
    path = recorded(
        tmp_path,
        Deployed(spec=specs[0]),
        *running(0, 1, 2, 3),
        SpecChanged(spec=specs[1], stop_first=("llm#1.1",), at=10.0),
        ReplicaStopped(replica_id="llm#1.1", at=20.0),
        SpecChanged(spec=specs[2], at=21.0),
        acknowledged("llm#1.3", 25.0),
    )
    story = told(path, replica_id="llm#1.4")
    assert story[-3].startswith("0:00:20.0  llm#1.3 moved from rank 3 to rank 1")
    assert story[-3].endswith("(R8); acknowledged at 0:00:25.0")
    assert story[-2:] == [
        "0:00:21.0  somebody changed llm: target_replicas 3 -> 4",
        "0:00:25.0  llm#1.4 was requested for rank 3, the lowest available rank (R4)",
    ]


def test_what_the_last_controller_kept_is_forgotten_when_another_comes_back(tmp_path):
    path = tmp_path / "run.jsonl"
    with JournalWriter.create(path) as journal:
        for how, events in (
            (Deployed(spec=SPEC), [*running(0, 1), ReplicaStartFailed(replica_id="llm#1.2", reason="x", at=3.0)]),
            (Recovered(spec=SPEC, replica_ids=("llm#1.0",), at=9.0, epoch=2), []),
        ):
            first = how.step()
            journal.begin(how, first)
            state = first.state
            for event in events:
                result = step(state, event)
                journal.append(event, result)
                state = result.state
    assert explain(path, Question(at=5.0)).state[-1] == "  nobody has: 2 (kept: 2)"
    assert explain(path, Question(at=9.0)).state[-1] == "  nobody has: 1, 2"


def test_a_suspect_is_killed_and_only_then_replaced(tmp_path):
    up = [ReplicaPlaced(replica_id=f"llm#1.{n}", node_id="a", at=1.0) for n in range(3)]
    up += [ReplicaReady(replica_id=f"llm#1.{n}", at=2.0) for n in range(3)]
    path = recorded(
        tmp_path,
        Deployed(spec=SPEC),
        *up,
        ReplicaUnhealthy(replica_id="llm#1.2", reason="no answer for 30 s", at=50.0),
        ReplicaStopped(replica_id="llm#1.2", at=51.0),
    )
    assert told(path, replica_id="llm#1.3") == [
        "0:00:50.0  llm#1.2, which held rank 2, was killed: unhealthy: no answer for 30 s (2.3)",
        "0:00:51.0  llm#1.2 stopped, and rank 2 is kept for the replacement of llm#1.2 (R6)",
        "0:00:51.0  llm#1.3 was requested to take over rank 2 from llm#1.2 (R6)",
    ]


def test_a_stop_by_name_follows_from_the_request(tmp_path):
    up = [ReplicaPlaced(replica_id="llm#1.0", node_id="a", at=1.0), ReplicaReady(replica_id="llm#1.0", at=2.0)]
    path = recorded(tmp_path, Deployed(spec=SPEC), *up, StopRequested(replica_ids=("llm#1.0",), at=9.0))
    assert told(path, replica_id="llm#1.0", at=9.0) == [
        "0:00:09.0  somebody asked to stop llm#1.0, to be replaced",
        "0:00:09.0  llm#1.0, which held rank 0, was told to stop: stopped by name, to be replaced (R11)",
    ]


def test_what_is_repeated_is_told_once_with_its_count(tmp_path):
    up = [ReplicaPlaced(replica_id="llm#1.0", node_id="a", at=1.0), ReplicaUnhealthy(replica_id="llm#1.0", at=10.0)]
    path = recorded(tmp_path, Deployed(spec=SPEC), *up, *(ClockAdvanced(at=float(at)) for at in range(5, 40, 5)))
    assert told(path, replica_id="llm#1.0")[-1] == (
        "0:00:15.0  llm#1.0: KillReplica is not acknowledged, so it was sent once more (2.4); and 4 more, the last at 0:00:35.0"
    )


def test_a_journal_that_goes_on_from_a_state_says_so(tmp_path):
    state = Deployed(spec=SPEC).step().state
    path = recorded(tmp_path, Resumed(state=state), ReplicaDied(replica_id="llm#1.0", reason="gone", at=5.0))
    assert told(path, replica_id="llm#1.0")[0] == "0:00:05.0  llm#1.0, which was to have rank 0, died: gone (R6)"
    bigger = SpecChanged(spec=DeploymentSpec(name="llm", target_replicas=4), at=6.0)
    path = recorded(tmp_path, Resumed(state=state), bigger)
    assert told(path, replica_id="llm#1.3")[0].startswith("0:00:06.0  somebody changed llm: target_replicas 3 -> 4")


def test_a_moment_shows_how_things_stood_and_what_was_going_on(tmp_path):
    path = simulated(tmp_path, "", "faults: [{kind: replica_crash, at: 100, deployment: llm, rank: 1}]")
    story = explain(path, Question(at=105.0))
    assert story.state == (
        "At 0:01:45.0, llm has been UNHEALTHY since 0:01:40.0, with world size 4.",
        "  rank 0: llm#1.0 on n-0",
        "  rank 1: llm#1.4 on n-1",
        "  rank 2: llm#1.2 on n-0",
        "  rank 3: llm#1.3 on n-1",
    )
    assert [fact.text for fact in story.facts] == [
        "llm#1.1, which held rank 1, died: crashed",
        "rank 1 is kept for the replacement of llm#1.1",
        "llm#1.4 was requested to take over rank 1 from llm#1.1",
        "llm is UNHEALTHY: a replica is missing or leaving",
        "llm#1.4 was placed on n-1 and given rank 1, node rank 1 and local rank 0",
    ]
    # In a calm, the last episode is told: how it came to be as it is.
    assert explain(path, Question(at=111.5)).facts[0].text == "llm#1.1, which held rank 1, died: crashed"


@pytest.mark.parametrize(
    ("at", "found"),
    [
        (5.0, "llm#1.1 was placed on n-1 and given"),  # the last change before
        (99.0, "llm#1.4 was requested to take over rank 1"),  # the change at about that time
        (500.0, "llm#1.4 is ready and runs with rank 1"),
        (0.0, "llm#1.1 was requested for rank 1"),
    ],
)
def test_a_moment_is_answered_with_the_change_that_made_it_so(tmp_path, at, found):
    happens = """
faults: [{kind: replica_crash, at: 100, deployment: llm, rank: 1}]
changes: [{at: 900, deployment: llm, max_surge: 1}]
"""
    path = simulated(tmp_path, "", happens)
    assert found in told(path, rank=1, at=at)[-1]


# ---------------------------------------------------------------------------------------------------------------------
# laws


def test_every_kind_of_decision_is_told_or_left_out_on_purpose():
    from executors.explain.decisions import REPEATED, TELLERS

    told_otherwise = {NoteKind.SPEC_APPLIED, NoteKind.WORLD_SIZE_CHANGED, NoteKind.RECOVERY_STARTED, NoteKind.NODE_LOST}
    told_otherwise |= {NoteKind.NODE_CORDONED, NoteKind.NODE_UNCORDONED, NoteKind.NODE_DRAINED, NoteKind.EVICTION_ASKED}
    changes_nothing = {NoteKind.LATE, NoteKind.STALE_EPOCH, NoteKind.NODE_CHANGED, NoteKind.NODE_FORGOTTEN}
    assert set(NoteKind) == set(TELLERS) | told_otherwise | changes_nothing | {REPEATED}


BUSY = """
faults:
  - {kind: replica_crash, at: 40, deployment: llm}
  - {kind: node_loss, at: 60, node: n-1, back_after_s: 25}
  - {kind: controller_crash, at: 110, restart_after_s: 4}
  - {kind: replica_crash, at: 112, deployment: llm}
changes:
  - {at: 90, deployment: llm, target_replicas: 3}
  - {at: 130, deployment: llm, version: "2", target_replicas: 5}
  - {at: 170, deployment: llm, user_config: {a: 1}, target_replicas: 2}
  - {at: 200, deployment: llm, delete: true}
"""


@pytest.mark.parametrize("more", ["", "max_surge: 2", "compaction: immediate, victims: highest_rank", "init_s: 35"])
def test_causes_come_before_what_follows_from_them_and_every_chain_ends(tmp_path, more):
    path = simulated(tmp_path, more, BUSY)
    for rank in range(5):
        facts = explain(path, Question(rank=rank)).facts
        places = {id(fact): place for place, fact in enumerate(facts)}
        assert facts
        for fact in facts:
            assert all(places[id(cause)] < places[id(fact)] for cause in fact.causes)
        assert [fact.line for fact in facts] == sorted(fact.line for fact in facts)


@pytest.mark.parametrize("more", ["", "max_surge: 2", "compaction: immediate, victims: highest_rank"])
def test_the_ranks_at_every_moment_are_those_of_the_core(tmp_path, more):
    """The story keeps a book of its own, from notes alone: it is the core's."""
    from executors.engine.reading import JournalReader
    from executors.explain.tracing import Tracer

    path = simulated(tmp_path, more, BUSY)
    tracer, state = Tracer("llm"), None
    for entry in JournalReader(path):
        begins = isinstance(entry.cause, (Deployed, Recovered, Resumed))
        state = entry.cause.step().state if begins else step(state, entry.cause).state
        tracer.facts_of(entry)
        memory = tracer.memory
        if state.unreported:
            continue  # the story remembers what a controller that has just come back cannot know
        assert {who: life.rank for who, life in memory.lives.items()} == {
            who: each.told for who, each in state.replicas.items()
        }
        assert {who: life.node_id for who, life in memory.lives.items()} == {
            who: each.node_id for who, each in state.replicas.items()
        }
        assert memory.status == str(state.status)
        assert sorted(memory.kept) == [rank for rank in sorted(memory.kept) if state.tables.slots[rank].holder is None]


# ---------------------------------------------------------------------------------------------------------------------
# what cannot be explained


@pytest.fixture
def crash(tmp_path) -> Path:
    return simulated(tmp_path, "", "faults: [{kind: replica_crash, at: 100, deployment: llm, rank: 1}]")


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (
            {"replica_id": "llm#1.44"},
            "expected one of the 5 replicas in the journal, llm#1.0 to llm#1.4, found 'llm#1.44' (did you",
        ),
        ({"replica_id": "lllm#1.4"}, "--replica: expected a replica of llm, found"),
        ({"replica_id": "4"}, "--replica: expected one of"),
        ({"rank": 7}, "--rank: expected a rank from 0 to 3, found 7"),
        ({"rank": 0, "deployment": "lm"}, "--deployment: expected one of llm, found 'lm' (did you mean llm?)"),
    ],
)
def test_what_the_journal_does_not_know_is_an_error_that_names_the_nearest(crash, question, problem):
    with pytest.raises(NothingToExplain) as caught:
        explain(crash, Question(**question))
    assert problem in str(caught.value)


def test_that_a_replica_runs_follows_from_where_it_was_placed_and_that_from_why_it_was_asked_for(crash):
    told = [fact.text for fact in explain(crash, Question(replica_id="llm#1.4", at=500.0)).facts]
    assert told[-1] == "llm#1.4 is ready and runs with rank 1"
    assert told[-2].startswith("llm#1.4 was placed on ")
    assert told[-3] == "llm#1.4 was requested to take over rank 1 from llm#1.1"


def test_a_time_after_the_last_line_is_answered_with_how_things_stood_then_and_says_so(crash):
    """A run goes on in calm for long after its last line, and its page can be pointed at there."""
    late = explain(crash, Question(at=9999.0))
    assert late.state[0] == "The journal ends at 0:01:56.0: if nothing has happened since, this is how things are."
    assert late.state[1].startswith("At 2:46:39.0, llm has been HEALTHY since ")
    assert late.facts[-1].text == "llm is HEALTHY: all replicas run the current version"


def test_a_journal_of_several_deployments_wants_to_know_which(tmp_path):
    path = tmp_path / "two.jsonl"
    with JournalWriter.create(path) as journal:
        for name in ("a", "b"):
            how = Deployed(spec=DeploymentSpec(name=name, target_replicas=1))
            journal.begin(how, how.step())
    with pytest.raises(NothingToExplain, match="expected --deployment, since the journal has several: a, b"):
        explain(path, Question(rank=0))
    assert "b#1.0 was requested for rank 0" in told(path, rank=0, deployment="b")[1]
    assert "b#1.0 was requested for rank 0" in told(path, replica_id="b#1.0")[1]


def test_a_deployments_bare_name_is_enough_where_one_application_has_it(tmp_path):
    path = tmp_path / "apps.jsonl"
    with JournalWriter.create(path) as journal:
        for name in ("a/m", "a/only", "b/m", "b/old", "old"):
            how = Deployed(spec=DeploymentSpec(name=name, target_replicas=1))
            journal.begin(how, how.step())
    for named, replica_id in (("only", "a/only#1.0"), ("b/m", "b/m#1.0"), ("old", "old#1.0"), ("b/old", "b/old#1.0")):
        (first, *_) = (line for line in told(path, rank=0, deployment=named) if "was requested for rank 0" in line)
        assert replica_id in first.split()
    with pytest.raises(NothingToExplain, match="--deployment: expected one of a/m, b/m, found 'm'"):
        explain(path, Question(rank=0, deployment="m"))
    with pytest.raises(NothingToExplain, match="--deployment: expected one of a/m, a/only, b/m, b/old, old, found 'c/m'"):
        explain(path, Question(rank=0, deployment="c/m"))


def test_a_cut_off_journal_is_explained_with_a_warning(crash):
    crash.write_bytes(crash.read_bytes()[:-30])
    done = CliRunner().invoke(app, ["explain", str(crash), "--rank", "1"])
    assert done.exit_code == 0
    assert "rankcore: warning: " in done.stderr
    assert "the journal ends in the middle of this line" in done.stderr
    assert "llm#1.4 was requested to take over rank 1 from llm#1.1 (R6)" in done.stdout
    assert "  R6: the replacement of a replica gets the rank of the one it replaces" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "expected --deployment NAME, --replica ID, --rank K or --at TIME, found nothing to explain"),
        (["--at", "soon"], "--at: expected a time such as 120s, 2m, 1h30m, 0:02:00 or 120, found 'soon'"),
        (["--replica", "llm#1.9"], "did you mean llm#1."),
    ],
)
def test_a_question_that_is_none_is_one_line_and_status_2(crash, arguments, problem):
    done = CliRunner().invoke(app, ["explain", str(crash), *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_is_no_journal_is_one_line_and_status_2(tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n")
    for path in ("x.jsonl", "missing.jsonl", "."):
        done = CliRunner().invoke(app, ["explain", str(tmp_path / path), "--rank", "1"])
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_the_story_as_json_links_what_follows_to_what_it_follows_from(crash):
    import json

    done = CliRunner().invoke(app, ["explain", str(crash), "--replica", "llm#1.4", "--json"])
    story = json.loads(done.stdout)
    assert story["facts"][2]["because_of"] == [1]
    assert story["facts"][1]["because_of"] == [0]
    assert story["facts"][0]["replicas"] == ["llm#1.1"]


# ---------------------------------------------------------------------------------------------------------------------
# bundles

GROUP = """
duration_s: 1000
nodes: [{name: n, count: 2, gpus: 4}]
placement_groups: [{name: pg, bundles: [{nodes: n, count: 2}]}]
deployments: [{name: llm, placement: {group: pg, bundles: [[0, 1], [2, 3]]}}]
"""


def on_bundles(folder: Path, happens: str) -> Path:
    scenario = parse_scenario(GROUP + happens, "test")
    path = folder / "run.jsonl"
    with JournalWriter.create(path) as journal:
        assert Run(scenario, {"llm": Arrivals()}, journal).go().failure is None
    return path


def test_what_is_tried_once_more_though_its_version_has_failed_says_by_whose_wish(tmp_path):
    spec = DeploymentSpec(name="llm", target_replicas=1, max_start_failures=1)
    failed = ReplicaStartFailed(replica_id="llm#1.0", reason="no luck", at=1.0)
    path = recorded(tmp_path, Deployed(spec=spec), failed, TrialRequested(at=5.0), TrialRequested(at=6.0))
    wish = "somebody asked to try llm once more with one replica, though its version has failed"
    assert [fact.text for fact in explain(path, Question(rank=0)).facts][-2:] == [
        wish,
        "llm#1.1 was requested for rank 0, its version has failed, and is tried once more",
    ]
    assert not any(fact.at == 6.0 for fact in explain(path, Question(deployment="llm")).facts), "that is late"


def test_what_is_tried_again_now_says_by_whose_wish_and_a_stall_what_it_waits_for(tmp_path):
    spec = DeploymentSpec(name="llm", target_replicas=1, start_backoff_s=60.0, progress_deadline_s=5.0)
    failed = ReplicaStartFailed(replica_id="llm#1.0", reason="no luck", at=1.0)
    retry, placed = RetryRequested(at=6.0), ReplicaPlaced(replica_id="llm#1.1", node_id="n", at=7.0)
    path = recorded(tmp_path, Deployed(spec=spec), failed, ClockAdvanced(at=5.0), retry, RetryRequested(at=6.5), placed)
    assert [fact.text for fact in explain(path, Question(rank=0)).facts][-4:-1] == [
        "somebody asked to try again now what failed",
        "rank 0 is tried again: its back-off ends 55 s early",
        "llm#1.1 was requested to take over rank 0 from llm#1.0",
    ]
    whole = explain(path, Question(deployment="llm")).facts
    stall = "llm is stalled: no progress for 5 s: rank 0 rests after 1 failure, next start in 56 s"
    assert stall in [fact.text for fact in whole]
    assert not any(fact.at == 6.5 for fact in whole), "that is late"


def test_a_replica_on_lost_bundles_has_failed_until_they_are_back(tmp_path):
    path = on_bundles(tmp_path, "faults: [{kind: bundle_loss, at: 100, group: pg, bundles: [3], back_after_s: 50}]")
    assert told(path, rank=1)[3:] == [
        "0:00:11.0  llm#1.1 is ready and runs with rank 1",
        "0:01:40.0  bundle 3, of rank 1, was lost (S5)",
        "0:01:40.0  llm#1.1, which held rank 1, was killed: its bundle 3 is lost (S5)",
        "0:01:40.0  llm#1.1 stopped, and rank 1 has FAILED: nothing takes the place of llm#1.1 while bundle 3 is lost (S5)",
        "0:02:30.0  bundle 3, of rank 1, is there again (S5)",
        "0:02:30.0  rank 1 can be filled again: its bundles are there again (S5)",
        "0:02:30.0  llm#1.2 was requested to take over rank 1 from llm#1.1 (R6)",
        "0:02:31.0  llm#1.2 was placed on n-1 and given rank 1, node rank 1 and local rank 0 (R4)",
        "0:02:41.0  llm#1.2 is ready and runs with rank 1",
    ]


def test_why_a_replica_was_moved_to_other_bundles(tmp_path):
    change = "changes: [{at: 100, deployment: llm, placement: {group: pg, bundles: [[2, 3], [0, 1]]}}]"
    path = on_bundles(tmp_path, change)
    assert told(path, rank=0)[3:] == [
        "0:00:11.0  llm#1.0 is ready and runs with rank 0",
        "0:01:40.0  somebody changed llm: "
        "placement static on placement group 'pg' ([0, 1], [2, 3]) -> static on placement group 'pg' ([2, 3], [0, 1])",
        "0:01:40.0  llm#1.0, which held rank 0, was told to stop: its rank belongs on other bundles (S7)",
        "0:01:40.0  llm#1.0 stopped, and rank 0 is kept for the replacement of llm#1.0 (R6)",
        "0:01:40.0  rank 0 waits: llm#1.1 still has bundle 2 (S4)",
        "0:01:40.0  llm#1.2 was requested to take over rank 0 from llm#1.0 (R6)",
        "0:01:41.0  llm#1.2 was placed on n-1 and given rank 0, node rank 0 and local rank 0 (R4)",
        "0:01:51.0  llm#1.2 is ready and runs with rank 0",
    ]
