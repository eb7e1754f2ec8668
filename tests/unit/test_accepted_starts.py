"""W13: a start that the executor has accepted is not asked for again, and waits in silence; section 2.4."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from executors.checking import Checking
from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals
from rankcore import DeploymentStatus
from rankcore.commands import KillReplica, StartReplica, StopReplica
from rankcore.invariants import check
from rankcore.takeover import outstanding
from tests.scripted import Deployment


def starts(d: Deployment) -> int:
    return len(d.sent(StartReplica))


def test_it_is_not_repeated_however_long_it_waits_and_goes_on_when_it_is_placed() -> None:
    d = Deployment(1, repeat_period_s=5.0)
    d.wait(20.0)
    before = starts(d)
    assert before > 1, "one that nobody has accepted is repeated"
    d.pending("llm#1.0", accepted=True)
    d.wait(100_000.0)
    assert starts(d) == before
    d.pending("llm#1.0", no_room=False, accepted=True)
    d.place("llm#1.0")
    d.ready("llm#1.0")
    assert (d.status, d.ranks) == (DeploymentStatus.HEALTHY, {"llm#1.0": 0})


def test_word_of_its_room_alone_does_not_end_the_repeats() -> None:
    d = Deployment(1, repeat_period_s=5.0)
    d.pending("llm#1.0")
    d.wait(20.0)
    assert starts(d) == 5


def test_what_ends_it_is_repeated_as_ever() -> None:
    d = Deployment(2, repeat_period_s=5.0)
    d.pending("llm#1.1", accepted=True)
    d.resize(1)
    d.wait(12.0)
    assert len(d.sent(KillReplica, "llm#1.1")) + len(d.sent(StopReplica, "llm#1.1")) == 3


def test_who_takes_the_state_over_is_told_the_start_once_more() -> None:
    d = Deployment(1)
    d.pending("llm#1.0", accepted=True)
    assert [each.replica_id for each in outstanding(d.state) if isinstance(each, StartReplica)] == ["llm#1.0"]


def test_one_that_is_neither_accepted_nor_repeated_is_reported() -> None:
    d = Deployment(1)
    d.pending("llm#1.0", accepted=True)
    assert list(check(d.state)) == []
    forgotten = replace(d.state.replicas["llm#1.0"], waiting=None)
    state = replace(d.state, tables=replace(d.state.tables, replicas=d.state.tables.replicas.set("llm#1.0", forgotten)))
    found = [each.detail for each in check(state) if each.rule == "2.4"]
    assert "llm#1.0 is REQUESTED, and what it was told is not repeated" in found


FULL = """
nodes: [{name: node, count: 4, gpus: 1}]
network: {latency_s: 0.001, loss: %s}
deployments: [{name: llm, target_replicas: 504, init_s: 1}]
faults: [{kind: replica_crash, at: 5000, deployment: llm, rank: 0}]
duration_s: %d
"""


def happened(days: int, loss: float) -> int:
    scenario = parse_scenario(FULL % (loss, days * 86_400), "full")
    result = Run(scenario, load_arrivals(scenario, Path(), scenario.seed), checking=Checking.END).go()
    assert result.failure is None
    (llm,) = result.deployments
    assert llm.replica_starts == 5, "whoever waits gets the place of one that crashed"
    return result.happened


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_500_starts_that_wait_for_60_days_cause_no_event(loss: float) -> None:
    assert happened(60, loss) == happened(1, loss)
