"""Each promise of a cluster that is checked is found broken where it is."""

from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster import ClusterState, ClusterStep
from rankcore.cluster.commands import CarryOut, SaveRecord
from rankcore.cluster.events import LoadReported, PolicyAnswered, RecordSaved
from rankcore.cluster.invariants import check, check_step
from rankcore.cluster.records import Cause
from rankcore.cluster.state import Held, Target
from rankcore.commands import KillReplica, PublishRoutes, StartReplica
from rankcore.events import ClockAdvanced, ReplicaDied
from rankcore.frozen import EMPTY, PMap
from rankcore.ordered import Ordered
from rankcore.values import STARTING
from tests.clusters import Cluster, application, entry

START = CarryOut("a/d", StartReplica("a/d#1.9", 0, "1", None, (), 1))

ROUTED = CarryOut("a/d", PublishRoutes(added=("a/d#1.0",), removed=(), revision=1, epoch=1))


@pytest.fixture
def state() -> ClusterState:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2, autoscaling=AutoscalingSpec(min_replicas=2, max_replicas=3))))
    cluster.apply(application(entry("b/d", 1)))
    cluster.tell(LoadReported(reporter="x", incarnation=1, seq=1, entries={}, at=0.0))
    assert check(cluster.state) == []
    return cluster.state


def changed(state: ClusterState, **changes: Any) -> ClusterState:
    found = state.deployments["a/d"]
    return replace(state, deployments=state.deployments.set("a/d", replace(found, **changes)))


def boxed(state: ClusterState, **changes: Any) -> ClusterState:
    return changed(state, outbox=replace(state.deployments["a/d"].outbox, **changes))


BROKEN_STATES = {
    "index": [
        lambda state: replace(state, deployments=state.deployments.set("c/d", state.deployments["b/d"])),
        lambda state: changed(state, alarm_at=None),
        lambda state: replace(state, alarms=Ordered()),
        lambda state: replace(state, applications=EMPTY),
        lambda state: replace(state, members=EMPTY),
        lambda state: replace(state, ranked=("a/d",)),
        lambda state: replace(state, reporters=EMPTY),
    ],
    "2.4": [lambda state: replace(state, epoch=2), lambda state: replace(state, wake_at=None)],
    "2.1": [lambda state: replace(state, revision=1)],
    "P6": [
        lambda state: replace(
            state, applications=PMap({name: replace(each, route_prefix="/x") for name, each in state.applications.items()})
        )
    ],
    "R9": [lambda state: changed(state, target=Target(3, Cause.AUTOSCALER, 1))],
    "P2": [
        lambda state: changed(state, deleting=True),
        lambda state: boxed(state, held=(Held(1, START),)),
        lambda state: boxed(state, needed=state.revision + 1),
        lambda state: boxed(state, saved=0),
    ],
}


@pytest.mark.parametrize(("rule", "make"), [(rule, make) for rule, makes in BROKEN_STATES.items() for make in makes])
def test_a_broken_state_is_found(state: ClusterState, rule: str, make: Any) -> None:
    assert rule in {each.rule for each in check(make(state))}


def test_a_broken_promise_of_ranks_is_found_with_its_deployment(state: ClusterState) -> None:
    ranks = state.deployments["a/d"].ranks
    broken = replace(ranks, tables=replace(ranks.tables, waiting=5, next_serial=0))
    found = check(changed(state, ranks=replace(broken, tables=replace(broken.tables, slots=EMPTY))))
    assert any(each.detail.startswith("a/d: ") for each in found)


DIED = ReplicaDied(replica_id="a/d#1.0", at=1.0)


def waits(state: ClusterState) -> ClusterState:
    return boxed(state, needed=state.revision, saved=0, sent=state.revision)


def with_new(state: ClusterState) -> ClusterState:
    return replace(state, deployments=state.deployments.set("c/d", state.deployments["a/d"]))


def not_ready(state: ClusterState) -> ClusterState:
    ranks = state.deployments["a/d"].ranks
    waits = replace(ranks.replicas["a/d#1.0"], state=STARTING, routed=False)
    return changed(state, ranks=replace(ranks, tables=replace(ranks.tables, replicas=ranks.replicas.set("a/d#1.0", waits))))


BROKEN_STEPS = {
    "calls for who is not ready": ("P5", DIED, lambda s: (not_ready(s), (ROUTED,))),
    "command of another epoch": ("2.4", DIED, lambda s: (s, (CarryOut("a/d", KillReplica("a/d#1.0", 7)),))),
    "a save behind a command": (
        "P2",
        DIED,
        lambda s: (s, (START, SaveRecord(s.deployments["a/d"].outbox.record, 1))),
    ),
    "a command before its save": ("P2", DIED, lambda s: (waits(s), (START,))),
    "a command of a new one before its save": (
        "P2",
        DIED,
        lambda s: (with_new(waits(s)), (attrs.evolve(START, deployment="c/d"),)),
    ),
    "the clock goes back": ("2.1", DIED, lambda s: (replace(s, clock=-1.0), ())),
    "what is saved goes back": ("P2", DIED, lambda s: (boxed(s, saved=1), ())),
    "the record goes back": (
        "P2",
        DIED,
        lambda s: (boxed(s, record=attrs.evolve(s.deployments["a/d"].outbox.record, number=1)), ()),
    ),
    "a target without a number": ("R9", DIED, lambda s: (changed(s, target=Target(3, Cause.USER, 0)), ())),
    "a late answer that counts": (
        "A8",
        PolicyAnswered(deployment="a/d", ask=1, target_number=9, wanted=3.0, at=1.0),
        lambda s: (changed(s, target=Target(3, Cause.AUTOSCALER, 1)), ()),
    ),
    "another deployment is touched": ("P6", ReplicaDied(replica_id="b/d#1.0", at=1.0), lambda s: (changed(s, trouble="x"), ())),
    "another deployment is commanded": ("P6", ReplicaDied(replica_id="b/d#1.0", at=1.0), lambda s: (s, (START,))),
}


@pytest.mark.parametrize("name", BROKEN_STEPS)
def test_a_broken_step_is_found(state: ClusterState, name: str) -> None:
    rule, event, make = BROKEN_STEPS[name]
    assert check_step(state, event, ClusterStep(state, (), ())) == []
    after, commands = make(state)
    assert rule in {each.rule for each in check_step(state, event, ClusterStep(after, commands, ()))}


def test_calls_for_who_is_ready_or_gone_by_now_are_no_fault(state: ClusterState) -> None:
    gone = CarryOut("a/d", PublishRoutes(added=("a/d#1.9",), removed=(), revision=1, epoch=1))
    assert check_step(state, DIED, ClusterStep(state, (ROUTED, gone), ())) == []


def test_a_frozen_deployment_that_decides_is_found(state: ClusterState) -> None:
    before = changed(state, frozen="x")
    ranks = replace(state.deployments["a/d"].ranks, clock=9.0)
    after = changed(before, ranks=ranks)
    assert {each.rule for each in check_step(before, ClockAdvanced(at=0.0), ClusterStep(after, (), ()))} == {"P6"}


def test_an_acknowledgement_of_its_own_lets_go_what_waited(state: ClusterState) -> None:
    number = state.revision
    before = boxed(state, needed=number + 1, saved=0, held=(Held(number, START), Held(number + 1, START)))
    after = boxed(before, saved=number, held=(Held(number + 1, START),))
    event = RecordSaved(deployment="a/d", number=number, at=0.0)
    assert check_step(before, event, ClusterStep(after, (START,), ())) == []
