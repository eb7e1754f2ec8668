"""What the wrapper does to an executor: everything that may happen, nothing that may not, and the same for the same seed."""

from collections import Counter

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankcore import DeploymentSpec, DeploymentStatus, ReplicaRank
from rankcore.commands import InitializeReplica, KillReplica, StartReplica, StopReplica
from rankcore.events import (
    NEVER_LOST,
    BundleLost,
    ClockAdvanced,
    NodeLost,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaStopped,
)
from rankcore.testing import conformance
from rankcore.testing.conformance import Faults, FaultyExecutor
from tests.conformance.broken import SaysReadyOnce
from tests.conformance.in_memory import World

pytestmark = pytest.mark.traced


class Told:
    """Tells what it was given, and remembers what it was told to do."""

    def __init__(self, events=()):
        self.events, self.commands = list(events), []

    def execute(self, command):
        self.commands.append(command)

    def poll(self):
        return self.events.pop(0) if self.events else None


def all_news(events, seed=0, faults=None, steps=100):
    clock = [0.0]
    faulty = FaultyExecutor(Told(events), seed=seed, now=lambda: clock[0], faults=faults)
    found = []
    for _ in range(steps):
        while (event := faulty.poll()) is not None:
            found.append(event)
        clock[0] += 0.05
    return found


def one_of(kind, number):
    if kind is NodeLost:
        return NodeLost(node_id=f"node-{number}", at=0.0)
    if kind is BundleLost:
        return BundleLost(bundles=(number,), at=0.0)
    if kind is ClockAdvanced:
        return ClockAdvanced(at=float(number))
    fields = {"node_id": "node-0"} if kind is ReplicaPlaced else {}
    return kind(replica_id=f"m#1.{number}", at=0.0, **fields)


KINDS = [ReplicaPlaced, ReplicaReady, ReplicaDied, ReplicaStopped, ReplicaMissing, NodeLost, BundleLost, ClockAdvanced]
NEWS = st.lists(st.builds(one_of, st.sampled_from(KINDS), st.integers(0, 5)), max_size=30)
SURE = Faults(late=1.0, lost=1.0, repeated=1.0, lost_starts=1.0, zombies=1.0)


@given(NEWS, st.integers(0, 1000), st.sampled_from([Faults(), SURE]))
def test_final_news_is_never_lost_and_nothing_is_made_up(events, seed, faults):
    told, found = Counter(events), Counter(all_news(events, seed, faults))
    assert set(found) <= set(told)
    for event, times in told.items():
        if isinstance(event, (*NEVER_LOST, ClockAdvanced)):
            assert found[event] >= times


@given(NEWS, st.integers(0, 1000))
def test_the_same_seed_does_the_same(events, seed):
    assert all_news(events, seed) == all_news(events, seed)


def test_what_happens_to_one_replicas_news_does_not_depend_on_another_s():
    mine = [one_of(ReplicaReady, 1) for _ in range(20)]
    others = [one_of(ReplicaReady, 2) for _ in range(20)]
    mixed = [event for pair in zip(others, mine, strict=True) for event in pair]
    assert all_news(mine, 7) == [event for event in all_news(mixed, 7) if event.replica_id == "m#1.1"]


@pytest.mark.parametrize(
    ("faults", "events", "expected"),
    [
        (Faults(late=0, lost=1, repeated=0, zombies=0), [one_of(ReplicaReady, 1), one_of(ReplicaDied, 1)], [ReplicaDied]),
        (Faults(late=0, lost=0, repeated=1, zombies=0), [one_of(ReplicaReady, 1)], [ReplicaReady, ReplicaReady]),
        (
            Faults(late=0, lost=0, repeated=0, zombies=1),
            [one_of(ReplicaReady, 1), one_of(ReplicaStopped, 1)],
            [ReplicaReady, ReplicaStopped, ReplicaReady],
        ),
        (Faults(late=0, lost=0, repeated=0, zombies=0), [one_of(ReplicaReady, 1)], [ReplicaReady]),
    ],
)
def test_news_is_lost_repeated_or_comes_after_its_sender_has_stopped(faults, events, expected):
    assert [type(event) for event in all_news(events, 0, faults)] == expected


def test_late_news_is_overtaken():
    events = [one_of(ReplicaPlaced, number) for number in range(6)]
    found = all_news(events, 3, Faults(late=1, lost=0, repeated=0))
    assert found != events
    assert sorted(found, key=events.index) == events


def test_the_first_start_and_the_first_stop_get_lost_and_nothing_else():
    inner = Told()
    faulty = FaultyExecutor(inner, seed=0, now=lambda: 0.0, faults=SURE)
    start = StartReplica("m#1.0", 0, "1", None, (), 1)
    initialize = InitializeReplica("m#1.0", ReplicaRank(0, 0, 0), 1, None, None, 1, 1)
    stop, kill = StopReplica("m#1.0", 1.0, 1), KillReplica("m#1.0", 1)
    for command in (start, initialize, start, stop, kill, stop):
        faulty.execute(command)
    assert inner.commands == [initialize, start, kill, stop]


def outcome(case, world, **wrapping):
    bench = conformance.with_faults(world, **wrapping) if wrapping else world
    try:
        conformance.run(case, conformance.ControlledBench(bench))
    except conformance.NonconformityError as error:
        return str(error)
    return "conforms"


def test_faults_find_what_a_run_without_them_does_not():
    (deploy,) = [case for case in conformance.CASES if str(case) == "deploy"]
    assert outcome(deploy, World(half=SaysReadyOnce)) == "conforms"
    found = [outcome(deploy, World(half=SaysReadyOnce), seed=seed, faults=Faults(lost=0.5)) for seed in range(5)]
    assert any("waited 60 s for HEALTHY" in each and "is not ready" not in each for each in found), found


def test_what_is_wanted_while_the_controller_is_away_is_there_when_it_is_back():
    spec = DeploymentSpec(name="conformance", target_replicas=1, repeat_period_s=0.5)
    system = conformance.ControlledBench(World())
    system.deploy(spec)
    system.until(lambda: system.status("conformance") is DeploymentStatus.HEALTHY, "HEALTHY")
    system.crash_controller()
    assert system.status("conformance") is None
    system.change(attrs.evolve(spec, target_replicas=2))
    system.until(lambda: len(system.reports("conformance")) == 2, "two replicas")
    system.crash_controller()
    system.delete("conformance")
    system.until(lambda: not system.reports("conformance"), "no replica")
